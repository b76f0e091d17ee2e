"""Progress that is committed outside transactions: gathered in a turn, due at the same times in a group."""

from __future__ import annotations

import pytest

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import AuthorizationFailed
from mirror.relay.progress.committed import SHARDS, group_of, shard_of
from mirror.relay.progress.committer import ProgressCommitter, commit_due_ms
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

PARTITIONS = 100
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.add_topic("t", PARTITIONS)
    return cluster


def test_progress_of_many_partitions_is_committed_with_a_request_per_group(cluster: FakeCluster) -> None:
    admin = FakeAdmin(cluster)
    committer = ProgressCommitter(admin, "f")
    futures = [committer.commit(tp, OffsetAndMetadata(tp.partition, 3, "m"), 1_000) for tp in TPS]
    admin.client.run_for(10)
    assert not cluster.calls(Api.OFFSET_COMMIT), "nothing is sent before the flush"
    committer.flush()
    admin.client.run_until(lambda: all(future.done() for future in futures))
    requests = [call.body.group_id for call in cluster.calls(Api.OFFSET_COMMIT)]
    assert sorted(requests) == sorted({group_of("f", tp) for tp in TPS})
    assert len(requests) <= SHARDS
    for tp in TPS:
        assert admin.group_offsets(group_of("f", tp), [tp]) == {tp: OffsetAndMetadata(tp.partition, 3, "m")}


def test_a_partition_whose_commit_is_refused_fails_alone(cluster: FakeCluster) -> None:
    admin = FakeAdmin(cluster)
    committer = ProgressCommitter(admin, "f")
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={TPS[7]: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    futures = {tp: committer.commit(tp, OffsetAndMetadata(1), 1_000) for tp in TPS}
    committer.flush()
    admin.client.run_until(lambda: all(future.done() for future in futures.values()))
    assert [tp for tp, future in futures.items() if future.exception() is not None] == [TPS[7]]
    assert isinstance(futures[TPS[7]].exception(), AuthorizationFailed)


def test_partitions_of_a_group_are_due_at_the_same_times_and_none_later_than_the_interval() -> None:
    due: dict[int, set[int]] = {}
    for tp in TPS:
        for since_ms in range(5_000, 6_000, 7):
            due_ms = commit_due_ms(tp, since_ms, 1_000)
            assert since_ms < due_ms <= since_ms + 1_000
            due.setdefault(shard_of(tp), set()).add(due_ms)
    assert all(len(times) <= 2 for times in due.values()), "at its turn in this interval, or in the next"
    turns = {min(times) % 1_000 for times in due.values()}
    assert len(turns) == SHARDS, "the groups take turns"
