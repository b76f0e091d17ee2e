"""Segments of the offset index: as records of the offset topic, and made fewer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import TopicPartition
from mirror.cluster.types import EpochEndOffset
from mirror.relay.offsets import extents
from mirror.relay.offsets.extents import Extent, encode_numbers, span_of
from mirror.relay.offsets.segments import (
    EpochEnds,
    Segment,
    SegmentKey,
    encode,
    encode_key,
    key_of,
    parse,
    parse_key,
    segment_of,
    standing,
    tidied,
)
from mirror.relay.progress import stored_record
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark

TP = TopicPartition("paris.t", 3)
END = Anchor(
    number=5,
    offset=0,
    leader_epoch=2,
    source_cluster_id="paris",
    topic_id="its-source",
    target=TargetMark(topic_id="its-target", end=0, leader_epoch=4, producer_id=7),
    exactly_once=True,
    time_ms=1_000,
    series=9,
)
PROGRESS = Progress(offset=1_000, leader_epoch=2, source_cluster_id="paris", topic_id="its-source", series=9)


def segment(start: int, end: int, *given: Extent, anchor: Anchor = END) -> Segment:
    (span,) = span_of(start, end, given[0].target, given)
    return segment_of(span, anchor)


ONE = segment(10, 40, Extent(12, 100, 5), Extent(20, 106, 3))


def test_segment_is_read_as_it_was_written() -> None:
    assert parse(encode(ONE)) == ONE
    assert (ONE.end.offset, ONE.end.target.end) == (40, 109)
    assert parse_key(encode_key(key_of(TP, ONE))) == SegmentKey(TP, 9, 10)


_AFTER = stored_record.encode(ONE.end) + b"\n"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\n",
        encode(ONE)[:-1],
        encode(ONE) + b"\x80",
        encode(ONE) + encode_numbers(0, 0, 1),
        stored_record.encode(ONE.end),
        _AFTER,
        _AFTER + encode_numbers(10, 100),
        _AFTER + encode_numbers(10, 100, 2, 0, 2**63 - 1),
        _AFTER + encode_numbers(10, 100, 40, 0, 9),
        encode(ONE).replace(b'"v":1', b'"v":2'),
    ],
)
def test_what_is_no_segment_is_none(value: bytes | None) -> None:
    assert parse(value) is None


@given(st.binary())
def test_any_bytes_behind_an_anchor_are_a_whole_segment_or_none(body: bytes) -> None:
    found = parse(_AFTER + body)
    if found is not None:
        last = list(found.extents)[-1]
        assert last.target + last.length == found.end.target.end
        assert last.source + last.length <= found.end.offset


@pytest.mark.parametrize(
    "key", [None, b"{}", b"x", b'{"topic":"t","partition":-1,"series":0,"start":0}', b'{"topic":"t","partition":1}']
)
def test_what_is_no_key_is_none(key: bytes | None) -> None:
    assert parse_key(key) is None


def _ends(source: dict[int, int] | None = None, target: dict[int, int] | None = None) -> EpochEnds:
    """Where each epoch ends; by default, all is there."""
    return EpochEnds(
        *(
            {epoch: EpochEndOffset(epoch, end) for epoch, end in given.items()}
            for given in (source or {2: 1_000}, target or {4: 1_000})
        )
    )


def _standing(one: Segment, ends: EpochEnds) -> list[Segment]:
    return standing([one], PROGRESS, ends, target_topic_id="its-target", exactly_once=True)


@pytest.mark.parametrize(
    ("other", "stands"),
    [
        (END, True),
        (replace(END, leader_epoch=None), True),
        (replace(END, leader_epoch=1), True),
        (replace(END, series=8), False),
        (replace(END, topic_id="another"), False),
        (replace(END, source_cluster_id="rome"), False),
        (replace(END, target=replace(END.target, topic_id="another")), False),
        (replace(END, target=replace(END.target, leader_epoch=3)), False),
        (replace(END, target=replace(END.target, leader_epoch=None)), False),
        (replace(END, exactly_once=False), False),
    ],
)
def test_segments_of_other_logs_do_not_count(other: Anchor, stands: bool) -> None:
    one = segment(10, 40, *ONE.extents, anchor=other)
    assert _standing(one, _ends(target={4: 109})) == ([one] if stands else [])


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        (_ends(target={4: 109}, source={2: 40}), ONE),
        (_ends(target={4: 108}), segment(10, 22, Extent(12, 100, 5), Extent(20, 106, 2))),
        (_ends(target={4: 106}), segment(10, 20, Extent(12, 100, 5))),
        (_ends(target={4: 105}), segment(10, 20, Extent(12, 100, 5))),
        (_ends(target={4: 101}), segment(10, 13, Extent(12, 100, 1))),
        (_ends(target={4: 100}), None),
        (_ends(source={2: 39}), segment(10, 39, *ONE.extents)),
        (_ends(source={2: 21}), segment(10, 21, Extent(12, 100, 5), Extent(20, 106, 1))),
        (_ends(source={2: 18}), segment(10, 18, Extent(12, 100, 5))),
        (_ends(source={2: 14}), segment(10, 14, Extent(12, 100, 2))),
        (_ends(source={2: 14}, target={4: 101}), segment(10, 13, Extent(12, 100, 1))),
        (_ends(source={2: 12}), None),
    ],
)
def test_part_of_a_segment_in_front_of_a_loss_counts(ends: EpochEnds, kept: Segment | None) -> None:
    assert _standing(ONE, ends) == ([] if kept is None else [kept])


@pytest.mark.parametrize(
    "ends",
    [
        EpochEnds({2: EpochEndOffset(1, 500)}, {4: EpochEndOffset(4, 500)}),
        EpochEnds({2: EpochEndOffset(2, 500)}, {4: EpochEndOffset(3, 500)}),
        EpochEnds({2: EpochEndOffset(2, 500)}, {4: EpochEndOffset(-1, -1)}),
    ],
)
def test_log_without_the_epoch_of_a_segment_proves_nothing(ends: EpochEnds) -> None:
    """Its records of an earlier epoch may go on where those of the segment's log have ended."""
    assert _standing(ONE, ends) == []


def test_adjoining_segments_become_one_and_say_the_same() -> None:
    many = [segment(10 * number, 10 * number + 10, Extent(10 * number, 7 + 11 * number, 10)) for number in range(6)]
    written, deleted = tidied(many, many, source_start=0)
    (merged,) = written
    assert list(merged.extents) == [extent for one in many[:-1] for extent in one.extents]
    assert (merged.start, merged.end.offset, merged.end.target.end) == (0, 50, many[4].end.target.end)
    assert deleted == many[1:5], "the first one is replaced, and the last one may be being written"


def test_adjoining_runs_of_merged_segments_become_one() -> None:
    many = [segment(10 * number, 10 * number + 10, Extent(10 * number, 10 * number, 10)) for number in range(4)]
    ((merged,), _) = tidied(many, many, source_start=0)
    assert list(merged.extents) == [Extent(0, 0, 30)]


def test_segments_with_a_hole_between_them_stay_apart() -> None:
    many = [segment(start, start + 10, Extent(start, start, 10)) for start in (0, 20, 40)]
    assert tidied(many, many, source_start=0) == ([], [])


def test_segment_that_a_log_has_lost_is_not_merged() -> None:
    """The copy was resumed in front of its end; what it wrote then, up to the next segment, is not in the index."""
    lost, later, newest = (segment(start, start + 10, Extent(start, start, 10)) for start in (0, 10, 20))
    assert tidied([lost, later, newest], [later, newest], source_start=0) == ([], [])


def test_full_segments_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "MAX_EXTENTS", 2)
    full = [
        segment(10 * at, 10 * at + 8, Extent(10 * at, 10 * at, 1), Extent(10 * at + 4, 10 * at + 1, 4)) for at in (0, 5)
    ]
    every = [*full, segment(90, 91, Extent(90, 200, 1))]
    assert tidied(every, every, source_start=0) == ([], [])


def test_segments_are_not_written_again_if_they_would_not_be_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "MAX_EXTENTS", 2)
    small, full = segment(0, 4, Extent(0, 0, 1)), segment(4, 8, Extent(4, 10, 1), Extent(6, 11, 1))
    every = [small, full, segment(90, 91, Extent(90, 200, 1))]
    assert tidied(every, every, source_start=0) == ([], [])


def test_segments_in_front_of_the_sources_log_are_deleted_but_not_the_newest() -> None:
    many = [segment(start, start + 10, Extent(start, start, 10)) for start in (0, 20, 40)]
    assert tidied(many, many, source_start=30) == ([], many[:2])
    assert tidied(many, many, source_start=29) == ([], many[:1])
    assert tidied(many, many, source_start=100) == ([], many[:2])
