"""Copies by sequences on real brokers: plain batches behind one fence, and no record lost or twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import (
    Progress,
    Searched,
    from_offset,
    group_of,
    lazy_group_of,
    read_progress,
    to_offset,
)
from mirror.wire.records import TRANSACTIONAL
from tests.copying.pair import TwoClusters

pytestmark = pytest.mark.brokers

OLD_MS: Final = 1_700_000_000_000


def now_ms() -> int:
    return int(time.time() * 1000)


def fill(pair: TwoClusters, topic: str, first: int, count: int, *, first_ms: int | None = None) -> None:
    values = [b"%d" % number for number in range(first, first + count)]
    pair.source.fill(topic, values, first_ms=now_ms() - count if first_ms is None else first_ms, batch_size=2_000)


def copy(pair: TwoClusters, topic: str | Sequence[Range], by: str = "auto", **policy: Any) -> list[RangeResult]:
    return pair.complete(topic, exactly_once_by=by, **policy)


def ways(pair: TwoClusters, topic: str) -> list[Way]:
    """The way of each batch of the target."""
    return [
        Way.TRANSACTIONS if batch.attributes & TRANSACTIONAL else Way.SEQUENCES for batch in pair.target.batches(topic)
    ]


def progress(pair: TwoClusters, topic: str) -> Progress:
    tp = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        return read_progress(admin, pair.flow, [tp])[tp]


def commit_late(pair: TwoClusters, topic: str, lazy: Progress) -> None:
    """Commit as an attempt that is fenced without knowing it."""
    tp = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        admin.commit_group_offsets(lazy_group_of(pair.flow, tp), {tp: to_offset(lazy)})


def claim_of(pair: TwoClusters, topic: str) -> Progress:
    tp = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        return from_offset(admin.group_offsets(group_of(pair.flow, tp), [tp])[tp])


def test_young_records_go_in_plain_batches_behind_one_fence(pair: TwoClusters) -> None:
    """CONFORMANCE: read_uncommitted_sees_no_duplicate."""
    topic = pair.topics()
    fill(pair, topic, 0, 5_000)
    (result,) = copy(pair, topic)
    pair.equal(topic)
    assert result.records == 5_000
    assert set(ways(pair, topic)) == {Way.SEQUENCES}
    assert pair.target.end(topic) == 5_001, "one marker, of the fence"
    found = progress(pair, topic)
    assert (found.offset, found.way) == (5_000, Way.SEQUENCES)
    claim = claim_of(pair, topic)
    assert (claim.offset, claim.generation) == (0, found.generation)


def test_copy_goes_on_without_a_double(pair: TwoClusters) -> None:
    topic = pair.topics()
    for first in range(0, 3_000, 1_000):
        fill(pair, topic, first, 1_000)
        (result,) = copy(pair, topic)
        assert result.records == 1_000
    pair.equal(topic)
    assert set(ways(pair, topic)) == {Way.SEQUENCES}


def test_empty_range_renews_the_claim_before_brokers_forget_it(pair: TwoClusters) -> None:
    topic = pair.topics()
    fill(pair, topic, 0, 10)
    copy(pair, topic)
    before, end = claim_of(pair, topic), pair.target.end(topic)
    copy(pair, topic)
    after = claim_of(pair, topic)
    assert (after.offset, after.way, after.generation) == (10, Way.SEQUENCES, before.generation)
    assert after.time_ms > before.time_ms
    assert pair.target.end(topic) == end + 1, "the marker of a fence"


# "lost" is in the tests of merged batches and of parts of them, too.
@pytest.mark.parametrize("lazy", [pytest.param("lost", marks=pytest.mark.cluster), "late", "of a former generation"])
def test_appended_beyond_the_progress_is_found_in_the_log(pair: TwoClusters, lazy: str) -> None:
    """CONFORMANCE: appended_beyond_the_progress_is_found_in_the_log; claim_is_written_under_the_fence_only."""
    topic = pair.topics()
    fill(pair, topic, 0, 2_000)
    copy(pair, topic)
    claim, found = claim_of(pair, topic), progress(pair, topic)
    assert claim.offset == 0
    if lazy == "lost":
        commit_late(pair, topic, claim)
    elif lazy == "late":
        commit_late(pair, topic, replace(claim, time_ms=found.time_ms + 1))
    else:
        commit_late(pair, topic, replace(found, offset=1_000_000, generation=found.generation - 1))
    fill(pair, topic, 2_000, 500)
    ranges = [replace(one, start=0) for one in pair.ranges(topic)]
    (result,) = copy(pair, ranges)
    pair.equal(topic)
    assert result.end == 2_500


def _lose_progress(pair: TwoClusters, topic: str) -> None:
    """As if the attempt had been killed before it committed its progress: only its claim is left."""
    commit_late(pair, topic, claim_of(pair, topic))


def test_merged_batches_are_found_in_the_log(pair: TwoClusters) -> None:
    """A batch of the target has the records of several of the source."""
    topic = pair.topics()
    values = [b"%d" % number for number in range(600)]
    pair.source.fill(topic, values, first_ms=now_ms() - 600, batch_num_messages=20)
    copy(pair, topic)
    merged = len(pair.target.batches(topic))
    assert merged < len(pair.source.batches(topic))
    _lose_progress(pair, topic)
    fill(pair, topic, 600, 20)
    ranges = [replace(one, start=0) for one in pair.ranges(topic)]
    (result,) = copy(pair, ranges)
    pair.equal(topic)
    assert len(pair.target.batches(topic)) == merged + 1, "nothing was appended again"
    assert result.records == 620, "it counts what it finds"


def test_part_of_a_batch_is_found_in_the_log(pair: TwoClusters) -> None:
    """The next attempt resumes within the source's batch."""
    topic = pair.topics()
    values = [b"%d" % number for number in range(100)]
    pair.source.fill(topic, values, first_ms=now_ms() - 100, linger_ms=1_000)
    assert len(pair.source.batches(topic)) == 1
    copy(pair, pair.ranges(topic, end=40))
    assert [batch.count for batch in pair.target.batches(topic)] == [40]
    _lose_progress(pair, topic)
    (result,) = copy(pair, pair.ranges(topic, start=0))
    pair.equal(topic)
    assert [batch.count for batch in pair.target.batches(topic)] == [40, 60]
    assert result.end == 100


def test_retention_may_delete_all_that_was_copied(pair: TwoClusters) -> None:
    """Also the marker of a fence behind which nothing was sent."""
    topic = pair.topics()
    fill(pair, topic, 0, 100)
    copy(pair, topic)
    copy(pair, topic)
    found = progress(pair, topic)
    assert (found.ended, found.searched) == (True, Searched(pair.target.end(topic), 0))
    for side in (pair.source, pair.target):
        side.delete_records(topic, side.end(topic))
    fill(pair, topic, 100, 50)
    (result,) = copy(pair, topic)
    assert result.records == 50
    assert [record.value for record in pair.target.records(topic)] == [b"%d" % number for number in range(100, 150)]


def test_old_or_compacted_goes_in_transactions(pair: TwoClusters) -> None:
    old, compacted = pair.topics(), pair.topics(source={"cleanup_policy": "compact", "min_compaction_lag_ms": 10**9})
    fill(pair, old, 0, 500, first_ms=OLD_MS)
    fill(pair, compacted, 0, 500)
    for topic in (old, compacted):
        copy(pair, topic)
        pair.equal(topic)
        assert set(ways(pair, topic)) == {Way.TRANSACTIONS}


def test_change_between_the_ways_repeats_and_loses_nothing(pair: TwoClusters) -> None:
    """CONFORMANCE: old_or_compacted_goes_in_transactions."""
    topic = pair.topics()
    for turn in range(4):
        fill(pair, topic, 200 * turn, 100, first_ms=OLD_MS if turn % 2 else None)
        fill(pair, topic, 200 * turn + 100, 100, first_ms=None if turn % 2 else OLD_MS)
        if turn % 2:
            copy(pair, topic)
    pair.equal(topic)
    assert set(ways(pair, topic)) == set(Way)


def test_flow_may_change_between_the_ways_at_any_time(pair: TwoClusters) -> None:
    """Progress that transactions have committed is exact, that of sequences is looked up."""
    topic = pair.topics()
    for turn, by in enumerate(["transactions", "auto", "transactions", "sequences", "auto", "transactions"]):
        fill(pair, topic, 300 * turn, 300)
        before = pair.target.end(topic)
        (result,) = copy(pair, topic, by)
        assert result.records == 300
        batches = [batch for batch in pair.target.batches(topic) if batch.base_offset >= before]
        transactional = {bool(batch.attributes & TRANSACTIONAL) for batch in batches}
        assert transactional == {by == "transactions"}, by
    pair.equal(topic)


def test_forced_sequences_name_the_old_record(pair: TwoClusters) -> None:
    topic = pair.topics()
    fill(pair, topic, 0, 100)
    fill(pair, topic, 100, 10, first_ms=OLD_MS)
    (result,) = pair.copy(topic, exactly_once_by="sequences")
    assert "offset 100" in (result.error or "")
    assert result.end == 100
    copy(pair, topic)
    pair.equal(topic)
