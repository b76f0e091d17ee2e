"""Progress: stored on the target, in groups that never change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import (
    SHARDS,
    Beginning,
    Progress,
    Searched,
    from_offset,
    group_of,
    latest_of,
    lazy_group_of,
    read_progress,
    renewal_ms,
    to_offset,
)
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.integers import INT64_MAX
from tests.fakes.admin import PromptAdmin
from tests.fakes.cluster import FakeCluster

_GOLDEN = {
    ("paris-berlin", "paris.orders", 0): "mirror.paris-berlin.12",
    ("paris-berlin", "paris.orders", 1): "mirror.paris-berlin.10",
    ("paris-berlin", "paris.orders", 2): "mirror.paris-berlin.0",
    ("a", "t", 0): "mirror.a.13",
    ("a", "überwachung", 7): "mirror.a.8",
}
"""Recorded once: a change of the mapping would lose the progress of every existing flow."""


def _progress(offset: int, epoch: int | None = 3) -> Progress:
    return Progress(offset=offset, leader_epoch=epoch, source_cluster_id="paris-cluster", topic_id="an-id", time_ms=77)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(3)


@pytest.mark.parametrize(("key", "group"), _GOLDEN.items())
def test_groups_are_stable(key: tuple[str, str, int], group: str) -> None:
    flow, topic, partition = key
    assert group_of(flow, TopicPartition(topic, partition)) == group


def test_partitions_are_spread_over_all_groups() -> None:
    groups = {group_of("flow", TopicPartition("t", partition)) for partition in range(1_000)}
    assert groups == {f"mirror.flow.{shard}" for shard in range(SHARDS)}


def _keep(cluster: FakeCluster, flow: str, progress: Mapping[TopicPartition, Progress]) -> PromptAdmin:
    admin = PromptAdmin(cluster)
    for tp, each in progress.items():
        admin.commit_group_offsets(group_of(flow, tp), {tp: to_offset(each)})
    return admin


def test_written_progress_is_read(cluster: FakeCluster) -> None:
    progress = {TopicPartition("paris.t", p): _progress(100 + p, epoch=None if p % 2 else p) for p in range(40)}
    admin = _keep(cluster, "flow", progress)
    assert read_progress(admin, "flow", progress) == progress
    assert len(cluster.groups) == len({group_of("flow", tp) for tp in progress})


def test_no_progress_is_read_if_none_was_written(cluster: FakeCluster) -> None:
    admin = _keep(cluster, "flow", {TopicPartition("t", 0): _progress(5)})
    assert read_progress(admin, "flow", [TopicPartition("t", 1)]) == {}
    assert read_progress(admin, "other", [TopicPartition("t", 0)]) == {}


def test_progress_may_be_overwritten(cluster: FakeCluster) -> None:
    tp = TopicPartition("t", 0)
    _keep(cluster, "flow", {tp: _progress(9)})
    admin = _keep(cluster, "flow", {tp: _progress(5)})
    assert read_progress(admin, "flow", [tp])[tp].offset == 5


def test_open_transaction_of_a_killed_copy_does_not_delay_a_plan(cluster: FakeCluster) -> None:
    tp = TopicPartition("t", 0)
    admin = _keep(cluster, "flow", {tp: _progress(5)})
    group = group_of("flow", tp)
    kept = cluster.groups[group][tp]
    cluster.group_transactions[group].pending[7] = {tp: kept}
    with pytest.raises(KafkaTimeout, match="UNSTABLE_OFFSET_COMMIT"):
        admin.group_offsets(group, [tp])
    assert read_progress(admin, "flow", [tp])[tp].offset == 5


def _claim(offset: int, generation: int = 5, time_ms: int = 77) -> Progress:
    return replace(_progress(offset), way=Way.SEQUENCES, generation=generation, producer_id=4, time_ms=time_ms)


def test_claim_and_lazy_progress_are_stored_in_full() -> None:
    assert from_offset(to_offset(_claim(5))) == _claim(5)
    full = replace(
        _claim(5), earlier_ids=frozenset({6, 2}), attempt=3, ended=True, searched=Searched(end=70, leader_epoch=2)
    )
    assert from_offset(to_offset(full)) == full
    mark = TargetMark(topic_id="a", end=7, producer_id=2**62)
    full = replace(full, producer_id=INT64_MAX, earlier_ids=frozenset({2**60}), target=mark)  # kfake assigns such ids
    assert from_offset(to_offset(full)) == full


def test_fields_of_sequences_that_cannot_be_read_count_as_absent() -> None:
    fields = {"v": 1, "source_cluster_id": "c", "topic_id": "t", "way": "sequences", "producer_id": 4}
    wrong = {"earlier_ids": 5, "attempt": 70_000, "ended": 1, "searched": [7]}
    found = from_offset(OffsetAndMetadata(5, None, json.dumps(fields | wrong)))
    assert (found.way, found.producer_id) == (Way.SEQUENCES, 4)
    assert (found.earlier_ids, found.attempt, found.ended, found.searched) == (frozenset(), -1, False, None)
    wrong = {"earlier_ids": ["x", -3, 9], "searched": [-1, 0]}
    found = from_offset(OffsetAndMetadata(5, None, json.dumps(fields | wrong)))
    assert (found.earlier_ids, found.searched) == (frozenset({9}), None)


def test_attempt_has_ended_only_if_no_later_one_has_claimed() -> None:
    ended = replace(_claim(9), attempt=3, ended=True)
    assert latest_of(replace(_claim(5), attempt=3), ended).ended
    assert not latest_of(replace(_claim(5), attempt=4), ended).ended
    assert not latest_of(replace(_claim(5), attempt=3, producer_id=6), ended).ended
    assert not latest_of(_claim(5), replace(ended, attempt=-1)).ended, "a version without these fields has claimed"


def test_producer_of_the_claim_is_not_lost_behind_the_lazy_progress_of_another_one() -> None:
    """Its attempt may have appended, and has not committed its progress."""
    mark = TargetMark(topic_id="a", end=7, producer_id=2)
    claim = replace(_claim(5), producer_id=6, earlier_ids=frozenset({5, 4}))
    found = latest_of(claim, replace(_claim(9), target=mark))
    assert found.producer_id == 4
    assert found.appender_ids == {2, 4, 5, 6}


def test_partitions_that_began_together_are_renewed_one_after_the_other() -> None:
    """Of 1,000 no three in a hundred are renewed in the same hundredth of the time."""
    ages = [renewal_ms(TopicPartition(f"topic-{number % 9}", number), 3_600_000) for number in range(1_000)]
    assert 1_800_000 < min(ages) < max(ages) <= 3_600_000
    assert max(Counter(age // 18_000 for age in ages).values()) < 30
    assert [renewal_ms(TopicPartition("t", 0), most) for most in (0, 1)] == [0, 1]


def test_lazy_progress_counts_from_the_claim_on() -> None:
    """CONFORMANCE: claim_is_written_under_the_fence_only: late plain commits restore nothing."""
    exact = _progress(5)
    assert latest_of(_claim(5), None) == _claim(5)
    assert latest_of(_claim(5), _claim(9)).offset == 9
    assert latest_of(_claim(5), _claim(4)).offset == 5, "a fenced attempt has committed it late"
    assert latest_of(_claim(5), _claim(9, generation=4)).offset == 5, "the copy has started over since"
    assert latest_of(replace(exact, generation=5), _claim(9)).offset == 5, "a transaction's progress is exact"
    assert latest_of(_claim(5, time_ms=77), _claim(5, time_ms=78)).time_ms == 78
    assert latest_of(_claim(5, time_ms=77), _claim(5, time_ms=76)).time_ms == 77


def test_lazy_progress_is_read_for_partitions_that_are_copied_by_sequences_only(cluster: FakeCluster) -> None:
    in_transactions, by_sequences = TopicPartition("t", 0), TopicPartition("t", 1)
    admin = _keep(cluster, "flow", {in_transactions: _progress(3), by_sequences: _claim(5)})
    for tp in (in_transactions, by_sequences):
        admin.commit_group_offsets(lazy_group_of("flow", tp), {tp: to_offset(_claim(8))})
    found = read_progress(admin, "flow", [in_transactions, by_sequences])
    assert {tp: progress.offset for tp, progress in found.items()} == {in_transactions: 3, by_sequences: 8}


def test_metadata_names_the_source() -> None:
    kept = to_offset(_progress(5))
    assert json.loads(kept.metadata) == {
        "v": 1,
        "source_cluster_id": "paris-cluster",
        "topic_id": "an-id",
        "time_ms": 77,
    }
    assert (kept.offset, kept.leader_epoch) == (5, 3)


@pytest.mark.parametrize("metadata", ["", "not json", "[1, 2]", '"text"', '{"cluster": 5}', '{"time": "soon"}'])
def test_offset_of_another_program_has_no_source(metadata: str) -> None:
    found = from_offset(OffsetAndMetadata(5, None, metadata))
    assert found == Progress(offset=5, leader_epoch=None, source_cluster_id="", topic_id="", time_ms=0)


@pytest.mark.parametrize(
    ("stored", "beginning"),
    [
        ("[3, 40]", Beginning(3, 40)),
        ("[3]", None),
        ("[3, -1]", None),
        ("[3, 40, 5]", None),
        ('["3", 40]', None),
        ("7", None),
        ("null", None),
    ],
)
def test_beginning_is_stored_with_the_progress(stored: str, beginning: Beginning | None) -> None:
    own = '"v": 1, "source_cluster_id": "c", "topic_id": "t"'
    found = from_offset(OffsetAndMetadata(9, None, f'{{{own}, "beginning": {stored}}}'))
    assert found.topic_id == "t"
    assert found.beginning == beginning
    assert from_offset(to_offset(found)).beginning == beginning


def test_what_belongs_to_sequences_is_not_stored_in_transactions() -> None:
    """An attempt in transactions would search for what the attempts by sequences before it have appended."""
    full = replace(_claim(5), earlier_ids=frozenset({6}), attempt=3, ended=True, searched=Searched(70, 2))
    found = from_offset(to_offset(replace(full, way=Way.TRANSACTIONS)))
    assert (found.way, found.producer_id, found.attempt, found.ended) == (Way.TRANSACTIONS, -1, -1, False)
    assert (found.earlier_ids, found.searched) == (frozenset(), None)
