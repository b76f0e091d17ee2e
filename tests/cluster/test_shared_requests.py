"""Calls that are due together share requests, and nothing else: each keeps its result, its retries and its deadline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.cluster.calls.group_offset_calls import GroupOffsets
from mirror.cluster.calls.offset_calls import EpochEndOffsets, ListEachOffset
from mirror.cluster.calls.routed_calls import Call
from mirror.cluster.types import EARLIEST, LATEST, EpochEndOffset, OffsetAndMetadata, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaTimeout
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.control import Action

BROKERS = 3
PARTITIONS = 120
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]
GROUPS = ["g0", "g1", "g2", "g3"]


@pytest.fixture
def cluster() -> FakeCluster:
    """Partition n has n + 1 records, and n is committed in one of the groups, which have two coordinators."""
    cluster = FakeCluster(BROKERS)
    cluster.add_topic("t", PARTITIONS)
    for number, group in enumerate(GROUPS):
        cluster.coordinators[group] = 1 + number % 2
    for tp in TPS:
        cluster.log(*tp).append_values(*[b"x"] * (tp.partition + 1))
        cluster.groups[group_of(tp)][tp] = GroupOffset(tp.partition, 0, "")
    return cluster


@pytest.fixture
def client(cluster: FakeCluster) -> FakeClient:
    """A client that knows leaders and coordinators."""
    client = FakeClient(cluster)
    client.call(_list(client, TPS))
    for group in GROUPS:
        client.call(GroupOffsets(group, [TPS[0]], *client.timer()))
    cluster.received.clear()
    return client


def group_of(tp: TopicPartition) -> str:
    return GROUPS[tp.partition % len(GROUPS)]


def _end(tp: TopicPartition) -> EpochEndOffset:
    return EpochEndOffset(0, tp.partition + 1)


def _list(
    client: FakeClient, tps: Sequence[TopicPartition], time: int = LATEST, *, committed: bool = False
) -> ListEachOffset:
    deadline_ms, timeout_ms = client.timer()
    times = dict.fromkeys(tps, time)
    return ListEachOffset(times, read_committed=committed, deadline_ms=deadline_ms, timeout_ms=timeout_ms)


def submit(client: FakeClient, calls: Iterable[Call[Any, Any]]) -> list[Future[Any]]:
    for call in calls:
        client.submit(None, call)
    return [call.future for call in calls]


def finish(client: FakeClient, futures: Sequence[Future[Any]]) -> None:
    client.run_until(lambda: all(future.done() for future in futures))


def test_committed_offsets_of_many_partitions_are_read_with_a_few_requests(
    cluster: FakeCluster, client: FakeClient
) -> None:
    futures = submit(client, [GroupOffsets(group_of(tp), [tp], *client.timer()) for tp in TPS])
    finish(client, futures)
    assert [future.result() for future in futures] == [{tp: OffsetAndMetadata(tp.partition, 0, "")} for tp in TPS]
    assert len(cluster.calls(Api.OFFSET_FETCH)) == 4, "at most 50 of 60 at each coordinator"


def test_bounds_of_many_logs_are_read_with_a_few_requests(cluster: FakeCluster, client: FakeClient) -> None:
    """A partition is in each request once: its two ends are in two."""
    futures = submit(client, [_list(client, [tp], time) for tp in TPS for time in (EARLIEST, LATEST)])
    finish(client, futures)
    found = [next(iter(future.result().values())).offset for future in futures]
    assert found == [offset for tp in TPS for offset in (0, tp.partition + 1)]
    assert len(cluster.calls(Api.LIST_OFFSETS)) == 2 * BROKERS


def test_epoch_ends_of_many_partitions_are_read_with_a_few_requests(cluster: FakeCluster, client: FakeClient) -> None:
    futures = submit(client, [EpochEndOffsets({tp: 0}, *client.timer()) for tp in TPS])
    finish(client, futures)
    assert [future.result()[tp] for future, tp in zip(futures, TPS, strict=True)] == [_end(tp) for tp in TPS]
    assert len(cluster.calls(Api.OFFSET_FOR_LEADER_EPOCH)) == BROKERS


def test_a_refusal_of_one_fails_that_one(cluster: FakeCluster, client: FakeClient) -> None:
    refused = Action(errors={TPS[7]: errors.TOPIC_AUTHORIZATION_FAILED})
    cluster.control.on(Api.OFFSET_FETCH, refused, times=None)
    futures = submit(client, [GroupOffsets(group_of(tp), [tp], *client.timer()) for tp in TPS[:20]])
    finish(client, futures)
    assert [number for number, future in enumerate(futures) if future.exception() is not None] == [7]
    assert isinstance(futures[7].exception(), AuthorizationFailed)


def test_groups_share_a_request_and_none_takes_what_is_of_another(cluster: FakeCluster, client: FakeClient) -> None:
    """All have committed the same partition, and one may not be read."""
    for number, group in enumerate(GROUPS):
        cluster.groups[group][TPS[0]] = GroupOffset(10 + number, 0, "")
    cluster.control.on(Api.OFFSET_FETCH, Action(errors={GROUPS[2]: errors.GROUP_AUTHORIZATION_FAILED}), times=None)
    futures = submit(client, [GroupOffsets(group, [TPS[0]], *client.timer()) for group in GROUPS])
    finish(client, futures)
    assert isinstance(futures.pop(2).exception(), AuthorizationFailed)
    assert [future.result()[TPS[0]].offset for future in futures] == [10, 11, 13]
    assert len(cluster.calls(Api.OFFSET_FETCH)) == 2, "one for each coordinator"


def test_what_differs_in_more_than_its_keys_is_not_shared(cluster: FakeCluster, client: FakeClient) -> None:
    same_leader = [tp for tp in TPS if cluster.log(*tp).leader == 1][:2]
    futures = submit(
        client,
        [
            *(GroupOffsets(GROUPS[0], [TPS[0]], *client.timer(), require_stable=stable) for stable in (True, False)),
            *(
                _list(client, [tp], committed=committed)
                for tp, committed in zip(same_leader, (True, False), strict=True)
            ),
        ],
    )
    finish(client, futures)
    assert [call.body.require_stable for call in cluster.calls(Api.OFFSET_FETCH)] == [True, False]
    assert [call.body.isolation_level for call in cluster.calls(Api.LIST_OFFSETS)] == [1, 0]


def test_one_that_is_retried_delays_no_other_and_expires_at_its_own_deadline(
    cluster: FakeCluster, client: FakeClient
) -> None:
    """A transaction is pending on one partition of the group."""
    pending = Action(errors={TPS[8]: errors.UNSTABLE_OFFSET_COMMIT})
    cluster.control.on(Api.OFFSET_FETCH, pending, times=None)
    begun = client.now
    futures = submit(client, [GroupOffsets(group_of(tp), [tp], *client.timer(2_000)) for tp in TPS[:20]])
    finish(client, [future for future in futures if future is not futures[8]])
    assert client.now - begun < 100
    assert not futures[8].done()
    with pytest.raises(KafkaTimeout, match="t-8"):
        client.finish(futures[8])
    assert client.completed_ms - begun == 2_000
    assert len(cluster.calls(Api.OFFSET_FETCH)) >= 5


def test_one_with_a_short_time_expires_while_the_others_wait_on(cluster: FakeCluster, client: FakeClient) -> None:
    held = cluster.control.on(Api.OFFSET_FOR_LEADER_EPOCH, Action(hold="before"), node=cluster.log(*TPS[0]).leader)
    tps = [tp for tp in TPS if cluster.log(*tp).leader == cluster.log(*TPS[0]).leader][:3]
    begun = client.now
    futures = submit(
        client, [EpochEndOffsets({tp: 0}, *client.timer(ms)) for tp, ms in zip(tps, (300, 9_000, 9_000), strict=True)]
    )
    client.finish(futures[0])
    assert client.completed_ms - begun == 300
    assert isinstance(futures[0].result().failed[tps[0]], KafkaTimeout)
    held.release()
    finish(client, futures)
    assert [future.result()[tp] for future, tp in zip(futures[1:], tps[1:], strict=True)] == [
        _end(tp) for tp in tps[1:]
    ]
    assert len(cluster.calls(Api.OFFSET_FOR_LEADER_EPOCH)) == 1


def test_a_connection_that_breaks_is_retried_for_all(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.control.on(Api.OFFSET_FOR_LEADER_EPOCH, Action(close="before"))
    futures = submit(client, [EpochEndOffsets({tp: 0}, *client.timer()) for tp in TPS])
    finish(client, futures)
    assert all(future.result()[tp] == _end(tp) for future, tp in zip(futures, TPS, strict=True))
