"""Progress: kept on the target, in the same groups for ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping

import pytest

from mirror.cluster.offset_calls import CommitGroupOffsets, GroupOffsets
from mirror.cluster.topics import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.progress import SHARDS, Progress, ProgressStore, group_of
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster

_GOLDEN = {
    ("paris-berlin", "paris.orders", 0): "mirror.paris-berlin.12",
    ("paris-berlin", "paris.orders", 1): "mirror.paris-berlin.10",
    ("paris-berlin", "paris.orders", 2): "mirror.paris-berlin.0",
    ("a", "t", 0): "mirror.a.13",
    ("a", "überwachung", 7): "mirror.a.8",
}
"""Written down once; changing one would lose the progress of every flow that runs."""


class FakeAdmin:
    """The two calls that progress needs, over the real loop to the fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._client = FakeClient(cluster)
        self._lock = threading.Lock()  # the real one may be used from several threads, this loop not

    def group_offsets(
        self, group: str, tps: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._client.call(GroupOffsets(group, tps, *self._client.timer(timeout_ms or 60_000)))

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        with self._lock:
            self._client.call(CommitGroupOffsets(group, offsets, *self._client.timer(timeout_ms or 60_000)))


def _progress(offset: int, epoch: int | None = 3) -> Progress:
    return Progress(offset=offset, leader_epoch=epoch, source_cluster_id="paris-cluster", topic_id="an-id")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(3)


@pytest.mark.parametrize(("key", "group"), _GOLDEN.items())
def test_groups_never_change(key: tuple[str, str, int], group: str) -> None:
    flow, topic, partition = key
    assert group_of(flow, TopicPartition(topic, partition)) == group


def test_partitions_are_spread_over_all_groups() -> None:
    groups = {group_of("flow", TopicPartition("t", partition)) for partition in range(1_000)}
    assert groups == {f"mirror.flow.{shard}" for shard in range(SHARDS)}


def test_what_is_written_is_read(cluster: FakeCluster) -> None:
    store = ProgressStore(FakeAdmin(cluster), "flow", "paris-cluster")
    progress = {TopicPartition("paris.t", p): _progress(100 + p, epoch=None if p % 2 else p) for p in range(40)}
    assert store.write(progress, wall_ms=1_700_000_000_000) == {}
    assert store.read(progress) == progress
    assert len(cluster.groups) == len({group_of("flow", tp) for tp in progress})


def test_nothing_is_read_where_nothing_was_written(cluster: FakeCluster) -> None:
    store = ProgressStore(FakeAdmin(cluster), "flow", "paris-cluster")
    store.write({TopicPartition("t", 0): _progress(5)}, wall_ms=1)
    assert store.read([TopicPartition("t", 1)]) == {}
    assert ProgressStore(FakeAdmin(cluster), "other", "paris-cluster").read([TopicPartition("t", 0)]) == {}


def test_progress_may_be_written_again(cluster: FakeCluster) -> None:
    store = ProgressStore(FakeAdmin(cluster), "flow", "paris-cluster")
    tp = TopicPartition("t", 0)
    for offset in (5, 9):
        assert store.write({tp: _progress(offset)}, wall_ms=offset) == {}
    assert store.read([tp])[tp].offset == 9


class UnevenAdmin(FakeAdmin):
    """Refuses one group; each group's answer waits until all of them have been asked."""

    def __init__(self, cluster: FakeCluster, groups: int, refused: str) -> None:
        super().__init__(cluster)
        self._all_asked = threading.Barrier(groups, timeout=10)
        self._refused = refused

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        self._all_asked.wait()
        if group == self._refused:
            raise KafkaTimeout("no coordinator")
        super().commit_group_offsets(group, offsets, timeout_ms=timeout_ms)


def test_a_group_that_is_slow_or_refuses_holds_up_no_other(cluster: FakeCluster) -> None:
    progress = {TopicPartition("paris.t", p): _progress(100 + p) for p in range(60)}
    groups = {group_of("flow", tp) for tp in progress}
    refused = min(groups)
    store = ProgressStore(UnevenAdmin(cluster, len(groups), refused), "flow", "paris-cluster")
    lost = store.write(progress, wall_ms=1)
    assert set(lost) == {tp for tp in progress if group_of("flow", tp) == refused}
    assert {str(error) for error in lost.values()} == {"no coordinator"}
    assert set(store.read(progress)) == set(progress) - set(lost)


def test_the_metadata_says_whose_it_is(cluster: FakeCluster) -> None:
    tp = TopicPartition("t", 0)
    ProgressStore(FakeAdmin(cluster), "flow", "paris-cluster").write({tp: _progress(5)}, wall_ms=77)
    kept = cluster.groups[group_of("flow", tp)][tp]
    assert json.loads(kept.metadata or "") == {"v": 1, "cluster": "paris-cluster", "topic": "an-id", "time": 77}
    assert (kept.offset, kept.leader_epoch) == (5, 3)


@pytest.mark.parametrize("metadata", ["", "not json", "[1, 2]", '"text"', '{"cluster": 5}'])
def test_an_offset_that_a_stranger_committed_is_read_as_nobodys(cluster: FakeCluster, metadata: str) -> None:
    admin, tp = FakeAdmin(cluster), TopicPartition("t", 0)
    admin.commit_group_offsets(group_of("flow", tp), {tp: OffsetAndMetadata(5, None, metadata)})
    found = ProgressStore(admin, "flow", "paris-cluster").read([tp])[tp]
    assert found == Progress(offset=5, leader_epoch=None, source_cluster_id="", topic_id="")
