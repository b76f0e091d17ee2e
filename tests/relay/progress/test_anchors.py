"""Anchors: which are made, kept, and still stand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.relay.progress import anchors
from mirror.relay.progress.anchors import INTERVAL_BYTES, INTERVAL_MS, NO_ANCHOR, SLOTS, Anchor, AnchorCount, AnchorKey
from mirror.relay.progress.committed import Progress, from_offset, to_offset
from mirror.relay.progress.stored_record import decode, encode
from mirror.relay.progress.target_log import TargetMark

TP = TopicPartition("paris.t", 3)


def _anchor(number: int = 0, offset: int = 0, end: int = 0, epoch: int | None = 4, **fields: object) -> Anchor:
    made = Anchor(
        number=number,
        offset=offset,
        leader_epoch=2,
        source_cluster_id="paris",
        topic_id="source-id",
        target=TargetMark(topic_id="target-id", end=end, leader_epoch=epoch, producer_id=7, batch=(1, 5)),
        exactly_once=True,
        time_ms=1_000,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


# --- which are made


@pytest.mark.parametrize(
    ("last", "elapsed_ms", "copied", "due"),
    [
        (NO_ANCHOR, 0, 0, True),
        (AnchorCount(0, 1_000), INTERVAL_MS - 1, INTERVAL_BYTES - 1, False),
        (AnchorCount(0, 1_000), INTERVAL_MS, 0, True),
        (AnchorCount(0, 1_000), 0, INTERVAL_BYTES, True),
        (AnchorCount(0, 1_000), -1, 0, True),
    ],
    ids=["first", "neither", "time", "bytes", "clock set back"],
)
def test_anchor_is_due_each_minute_and_each_64_mib(last: AnchorCount, elapsed_ms: int, copied: int, due: bool) -> None:
    assert anchors.is_due(last, 1_000 + elapsed_ms, copied) is due


def test_count_is_stored_with_the_progress() -> None:
    progress = Progress(offset=5, leader_epoch=None, source_cluster_id="c", topic_id="t", anchor=AnchorCount(12, 99))
    assert from_offset(to_offset(progress)).anchor == (12, 99)
    assert from_offset(to_offset(replace(progress, series=7))).series == 7
    without = to_offset(replace(progress, anchor=NO_ANCHOR))
    assert "anchor" not in (without.metadata or "")
    assert from_offset(without).anchor == NO_ANCHOR


@pytest.mark.parametrize("value", [None, 1, [], [1], [1, 2, 3], [-1, 5], ["1", 5], [1, 10**16], {"number": 1}])
def test_count_that_cannot_be_read_is_none(value: object) -> None:
    fields = {"v": 1, "source_cluster_id": "c", "topic_id": "t", "series": 7, "anchor": value}
    found = from_offset(OffsetAndMetadata(5, None, json.dumps(fields)))
    assert (found.series, found.anchor) == (7, NO_ANCHOR)


# --- which are kept


@given(last=st.integers(0, 3_000))
def test_newest_anchors_are_kept_and_older_ones_at_doubling_distances(last: int) -> None:
    kept = {anchors.slot_of(number): number for number in range(last + 1)}
    numbers = set(kept.values())
    assert len(kept) <= 1 + SLOTS * last.bit_length()
    assert numbers >= set(range(max(0, last - 2 * SLOTS + 1), last + 1))
    assert 0 in numbers
    for back in range(1, last + 1):
        nearest = max(number for number in numbers if number <= last - back)
        assert last - back - nearest <= back, "a search reads no more than what was lost, again"


@given(offsets=st.lists(st.integers(0, 50), unique=True), start=st.integers(0, 60))
def test_anchors_in_front_of_the_source_are_obsolete_but_for_the_last_one(offsets: list[int], start: int) -> None:
    made = [_anchor(number, offset) for number, offset in enumerate(sorted(offsets))]
    gone = {one.offset for one in anchors.obsolete(made, start)}
    before = sorted(offset for offset in offsets if offset <= start)
    assert gone == set(before[:-1])


# --- which can be used


def test_newest_usable_anchor_comes_first() -> None:
    made = [_anchor(0, 0, 0), _anchor(1, 10, 12), _anchor(2, 20, 24)]
    wanted = {
        "source_cluster_id": "paris",
        "topic_id": "source-id",
        "target_topic_id": "target-id",
        "series": 0,
        "copied_to": 20,
        "exactly_once": True,
    }
    assert anchors.usable(made, **wanted) == made[::-1]  # type: ignore[arg-type]
    unusable = [
        _anchor(source_cluster_id="rome"),
        _anchor(topic_id="made-again"),
        _anchor(target=TargetMark(topic_id="made-again", end=3)),
        _anchor(series=1),
        _anchor(offset=21),
        _anchor(exactly_once=False),
    ]
    assert anchors.usable(unusable, **wanted) == []  # type: ignore[arg-type]
    assert anchors.usable([unusable[-1]], **{**wanted, "exactly_once": False}) == [unusable[-1]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known_epoch", "epoch_end", "stands"),
    [(4, 12, True), (4, 99, True), (4, 11, False), (3, 99, False), (-1, -1, False)],
    ids=["to its end", "and more", "cut back", "an older epoch reaches as far", "unknown epoch"],
)
def test_anchor_stands_if_the_log_has_its_epoch_up_to_its_end(known_epoch: int, epoch_end: int, stands: bool) -> None:
    assert anchors.stands(_anchor(end=12), known_epoch, epoch_end) is stands


def test_anchor_at_offset_0_always_stands() -> None:
    assert anchors.stands(_anchor(end=0, epoch=None), -1, -1)


# --- as records


def test_anchor_is_read_as_it_was_written() -> None:
    made = _anchor(5, 50, 60, series=7)
    key = anchors.key_of(TP, made)
    assert decode(Anchor, encode(made)) == made
    assert anchors.parse_key(json.loads(anchors.encode_key(key))) == key == AnchorKey(TP, anchors.slot_of(5))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x",
        b"[]",
        b'{"v":2}',
        b'{"v":1,"number":-1,"offset":0,"target":{"end":1}}',
        b'{"v":1,"number":0,"offset":0}',
        b'{"v":1,"number":0,"offset":"5","target":{"end":1}}',
    ],
)
def test_what_is_no_anchor_is_none(value: bytes | None) -> None:
    assert decode(Anchor, value) is None


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"topic": "t", "partition": 0},
        {"anchor": 1},
        {"anchor": {"topic": "t", "partition": 0}},
        {"anchor": {"topic": "", "partition": 0, "slot": 0}},
        {"anchor": {"topic": "t", "partition": -1, "slot": 0}},
    ],
)
def test_what_is_no_key_of_an_anchor_is_none(key: dict[str, object]) -> None:
    assert anchors.parse_key(key) is None
