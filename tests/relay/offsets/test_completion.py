"""What an index lacks between its segments, as segments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.errors import FlowError, KafkaTimeout, LogTruncated
from mirror.relay.batches.appended import Unproved
from mirror.relay.model.ranges import Outcome
from mirror.relay.offsets import offset_topic
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import UNKNOWN, Hole, OffsetIndex, Place
from mirror.relay.offsets.log_answers import LogStarts
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.segments import Segment
from mirror.relay.progress.committed import Beginning
from mirror.relay.task import copy_ranges
from mirror.timing import Timer
from tests.fakes.clock import FakeClock
from tests.relay.fake_pair import FakePair
from tests.relay.offsets.test_segments import segment

FIRST, LAST = segment(10, 20, Extent(10, 100, 10)), segment(40, 50, Extent(40, 200, 10))
HOLE = Hole(20, 40, 110, 200)


def _nothing(hole: Hole) -> list[Extent]:
    raise AssertionError(hole)


def found(
    segments: list[Segment],
    fill: Callable[[Hole], list[Extent]],
    *,
    exactly_once: bool = True,
    most: int = 100,
    timer: Timer | None = None,
) -> list[Segment]:
    index = OffsetIndex(segments, 60, exactly_once=exactly_once, beginning=Beginning(10, 100))
    offsets = PartitionOffsets(index, fill, LogStarts(0, 0), segments)
    return offsets.missing_segments(most, timer or Timer(FakeClock(), 1_000))


def test_hole_between_segments_becomes_a_segment_and_what_is_behind_them_is_left() -> None:
    (completed,) = found([FIRST, LAST], {HOLE: [Extent(25, 120, 3), Extent(30, 123, 2)]}.__getitem__)
    assert list(completed.extents) == [Extent(25, 120, 3), Extent(30, 123, 2)]
    assert (completed.start, completed.end.offset) == (20, 40)
    assert (completed.target_start, completed.end.target.end) == (110, 125)
    assert found([FIRST, completed, LAST], _nothing) == []


def test_hole_that_is_too_large_or_comes_too_late_or_cannot_be_read_is_left() -> None:
    def fails(hole: Hole) -> list[Extent]:
        raise Unproved(f"{hole} is gone")

    clock = FakeClock()
    timer = Timer(clock, 1_000)
    clock.advance(1_000)
    assert found([FIRST, LAST], _nothing, most=19) == []
    assert found([FIRST, LAST], _nothing, timer=timer) == []
    assert found([FIRST, LAST], fails) == []


def test_hole_in_front_of_a_part_of_a_segment_is_completed() -> None:
    """At least once: the only known copy of its records is behind those of later ones."""
    whole, late = (
        segment(10, 50, Extent(10, 90, 1), Extent(30, 150, 20)),
        segment(11, 30, Extent(11, 300, 10), Extent(25, 310, 5)),
    )
    (completed, *rest) = found(
        [whole, late], lambda hole: [Extent(hole.start, hole.target_start, 1)], exactly_once=False
    )
    assert completed.end.target.leader_epoch == whole.end.target.leader_epoch
    assert not rest


@pytest.mark.parametrize("error", [Unproved("it differs"), FlowError("the transform fails"), LogTruncated("cut", 7)])
def test_hole_that_cannot_be_read_is_unknown(error: Exception) -> None:
    def fails(_: Hole) -> list[Extent]:
        raise error

    index = OffsetIndex([FIRST, LAST], 60, exactly_once=True)
    offsets = PartitionOffsets(index, fails, LogStarts(0, 0))
    assert offsets.translate(30) == UNKNOWN
    assert offsets.reason == str(error)
    assert offsets.translate(45) == (Place.RECORD, 205)


@pytest.mark.parametrize("error", [KafkaTimeout("late"), FlowError("no"), TypeError("a transform's")])
def test_copy_goes_on_if_the_index_cannot_be_completed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    calls = []

    def fails(*arguments: object) -> int:
        calls.append(arguments)
        raise error

    monkeypatch.setattr(copy_ranges, "complete_index", fails)
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
    pair = FakePair(monkeypatch)
    pair.write(b"0", b"1")
    result = pair.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 2), result.error
    assert calls
