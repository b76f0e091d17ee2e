"""The first segments of an index, of offset syncs and of what was found."""

from __future__ import annotations

import random
from itertools import pairwise

from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import Hole, OffsetIndex, Place, Translation
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Beginning
from mirror.relay.progress.target_log import TargetMark
from mirror.takeover.index_seeds import MOST_NEAR, counting, segments, thinned
from mirror.takeover.matching import Pair


def anchor(source: int, target: int) -> Anchor:
    return Anchor(
        number=0,
        offset=source,
        leader_epoch=1,
        source_cluster_id="s",
        topic_id="",
        target=TargetMark(topic_id="", end=target, leader_epoch=1),
        exactly_once=True,
        time_ms=1,
        series=1,
    )


def test_the_last_copy_of_a_record_counts() -> None:
    pairs = [Pair(0, 10), Pair(50, 60), Pair(90, 100), Pair(50, 120), Pair(100, 170)]
    assert counting(pairs) == [Pair(0, 10), Pair(50, 120), Pair(100, 170)]


def test_pairs_of_a_target_that_was_made_again_do_not_count() -> None:
    assert counting([Pair(0, 0), Pair(100, 100), Pair(200, 5), Pair(300, 105)]) == [Pair(200, 5), Pair(300, 105)]


def test_the_newest_pairs_are_kept_and_fewer_of_the_older_ones() -> None:
    pairs = [Pair(number, number) for number in range(100_000)]
    kept = thinned(pairs)
    assert kept[-MOST_NEAR:] == pairs[-MOST_NEAR:]
    assert kept[0] == pairs[0]
    assert len(kept) < MOST_NEAR * 8
    assert kept == sorted(set(kept))
    gaps = [later.source - earlier.source for earlier, later in pairwise(kept)]
    assert all(gap <= (len(pairs) - later.source) // 2 for gap, later in zip(gaps, kept[1:], strict=True) if gap > 1)


def test_runs_and_pairs_are_translated_and_the_rest_are_holes() -> None:
    """Offset 20 of the source was copied to 100, what follows up to 30 behind it, but for 25, which has no copy."""
    pairs = [Pair(0, 50), Pair(10, 60), Pair(20, 100), Pair(28, 200)]
    extents = [Extent(21, 101, 4), Extent(26, 110, 4)]
    found = segments(pairs, extents, Pair(20, 100), anchor(30, 300))
    assert [(one.start, one.end.offset, one.target_start) for one in found] == [(0, 1, 50), (10, 11, 60), (20, 30, 100)]
    index = OffsetIndex(found, 30, exactly_once=True, beginning=Beginning(0, 50))
    expected = {0: 50, 10: 60, 20: 100, 21: 101, 24: 104, 26: 110, 29: 113}
    assert {offset: index.translate(offset) for offset in expected} == {
        offset: Translation(Place.RECORD, at) for offset, at in expected.items()
    }
    assert index.translate(25) == Translation(Place.NEXT, 110)
    assert index.translate(5) == Hole(1, 10, 51, 60)
    assert index.translate(30) == Translation(Place.END, 114)


def test_without_a_pair_that_is_right_none_counts() -> None:
    found = segments([Pair(0, 50), Pair(10, 60)], [Extent(21, 101, 4)], None, anchor(25, 300))
    assert [(one.start, one.end.offset) for one in found] == [(21, 25)]
    assert segments([Pair(0, 50)], [], None, anchor(25, 300)) == []


def test_segments_never_overlap_in_either_log() -> None:
    rng = random.Random(23)
    for _ in range(300):
        pairs, at = [], 0
        for _ in range(rng.randrange(20)):
            at += rng.randrange(1, 10)
            pairs.append(Pair(rng.randrange(200), at))
        start = Pair(200, at + rng.randrange(1, 10)) if rng.random() < 0.7 else None
        extents = [Extent(201, at + 20, 5), Extent(207, at + 30, 3)]
        found = segments(pairs, extents, start, anchor(210, at + 40))
        ends = [(0, 0), *((one.end.offset, one.end.target.end) for one in found)]
        assert all(
            one.start >= source and one.target_start >= target
            for one, (source, target) in zip(found, ends, strict=False)
        )
