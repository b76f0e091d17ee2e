"""What a hole of the index lacks, found by comparing both logs; or it is unproved."""

from __future__ import annotations

from functools import partial

import pytest

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.relay.batches.appended import ExpectedRecords, Unproved
from mirror.relay.batches.reencode import ReencodeSpec
from mirror.relay.offsets import log_pairing
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import Hole
from mirror.relay.offsets.log_pairing import ReadLogs, pair_last, pair_once
from mirror.wire.records import Batch
from tests.fakes.record_batches import batch, build

OWN, OTHER = 7, 8


def log(*batches: tuple[int, str, int]) -> list[Fetched]:
    """Batches of one-letter records, each with its base offset and producer id."""
    made: list[Batch] = [
        batch(build([letter.encode() for letter in letters], base_offset=base, producer_id=producer))
        for base, letters, producer in batches
    ]
    return [Fetched(tp=TopicPartition("t", 0), offset=0, next_offset=0, batches=made)]


def both(hole: Hole, target: list[Fetched], *source: tuple[int, str]) -> ReadLogs:
    batches = log(*((*one, -1) for one in source))
    return lambda: (target, ExpectedRecords(batches, hole.start, ReencodeSpec(), hole.end))


HOLE = Hole(10, 16, 100, None)
SOURCE = (10, "abc"), (14, "de")


def test_records_of_others_and_markers_are_passed() -> None:
    target = log((98, "ab", OWN), (100, "xy", OTHER), (103, "abc", OWN), (108, "de", 9), (110, "z", OWN))
    assert pair_once(HOLE, both(HOLE, target, *SOURCE), {OWN}) == [Extent(10, 103, 3), Extent(14, 108, 2)]


@pytest.mark.parametrize("foreign", ["ax", "abc", "a"])
def test_batches_of_others_do_not_count_beside_the_copys_own(foreign: str) -> None:
    """They may begin with the record that is expected there."""
    target = log((100, foreign, OTHER), (110, "abc", OWN), (113, "de", OWN))
    assert pair_once(HOLE, both(HOLE, target, *SOURCE), {OWN}) == [Extent(10, 110, 3), Extent(14, 113, 2)]


def test_batch_may_be_cut_and_merged() -> None:
    target = log((100, "ab", OWN), (102, "cde", OWN))
    assert pair_once(HOLE, both(HOLE, target, *SOURCE), {OWN}) == [Extent(10, 100, 3), Extent(14, 103, 2)]


@pytest.mark.parametrize("producer", [OWN, OTHER])
def test_hole_may_begin_and_end_inside_batches_of_both_logs(producer: int) -> None:
    hole = Hole(11, 15, 101, None)
    target = log((100, "abcde", producer))
    assert pair_once(hole, both(hole, target, *SOURCE), {OWN}) == [Extent(11, 101, 2), Extent(14, 103, 1)]


def test_nothing_behind_the_end_of_the_hole_is_read() -> None:
    hole = HOLE._replace(target_end=103)
    with pytest.raises(Unproved):
        pair_once(hole, both(hole, log((100, "abc", OWN), (103, "de", OWN)), *SOURCE), {OWN})


@pytest.mark.parametrize(
    "target",
    [
        [(100, "abc", OWN)],
        [(100, "abd", OWN), (103, "de", OWN)],
        [(100, "de", OWN), (102, "abc", OWN)],
        [],
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_that_are_missing_or_differ_are_unproved(
    target: list[tuple[int, str, int]], exactly_once: bool
) -> None:
    pair = partial(pair_once, producer_ids={OWN}) if exactly_once else pair_last
    with pytest.raises(Unproved):
        pair(HOLE, both(HOLE, log(*target), *SOURCE))


def test_last_copies_count_at_least_once() -> None:
    target = log((100, "abc", OWN), (103, "bc", OWN), (106, "dex", OWN), (110, "e", OWN), (112, "xy", OTHER))
    found = pair_last(HOLE, both(HOLE, target, *SOURCE))
    assert found == [Extent(10, 100, 1), Extent(11, 103, 2), Extent(14, 106, 1), Extent(15, 110, 1)]


def test_equal_records_from_the_end_of_the_hole_on_are_not_its_own() -> None:
    """A batch of the target may go on behind it."""
    hole = HOLE._replace(target_end=105)
    found = pair_last(hole, both(hole, log((100, "ab", OWN), (102, "cdeee", OWN)), *SOURCE))
    assert found == [Extent(10, 100, 3), Extent(14, 103, 2)]


def test_hole_without_records_needs_none_of_the_target() -> None:
    assert pair_last(HOLE, both(HOLE, [], (20, "a"))) == []
    found = pair_last(HOLE, both(HOLE, log((100, "a", OTHER)), (20, "a")))
    assert found == []


def test_too_many_records_at_least_once_are_unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pairing, "MAX_COPIES", 4)
    with pytest.raises(Unproved, match="more than 4"):
        pair_last(HOLE, both(HOLE, log((100, "abcde", OWN)), *SOURCE))
