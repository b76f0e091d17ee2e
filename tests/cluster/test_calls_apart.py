"""The brokers and the keys of one call back off apart: neither ends nor prolongs the wait of another (KIP-580)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mirror.cluster.admin.groups import DescribeGroups
from mirror.cluster.calls.group_offset_calls import GroupOffsets
from mirror.cluster.calls.offset_calls import ListEachOffset, ListOffsets
from mirror.cluster.calls.routed_calls import Call
from mirror.cluster.types import EARLIEST, LATEST, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

BROKERS = 12
TPS = [TopicPartition("t", number) for number in range(BROKERS)]


@pytest.fixture
def cluster() -> FakeCluster:
    """Twelve brokers, each of which leads one partition."""
    cluster = FakeCluster(BROKERS)
    cluster.add_topic("t", BROKERS)
    assert {cluster.log(*tp).leader for tp in TPS} == set(range(1, BROKERS + 1))
    return cluster


def asked_for(call: ServerCall) -> list[int]:
    """The partitions of a ListOffsets."""
    return [part.partition_index for topic in call.body.topics for part in topic.partitions]


def intervals(calls: Sequence[ServerCall]) -> list[int]:
    return [later.received_ms - earlier.received_ms for earlier, later in itertools.pairwise(calls)]


def in_bounds(waits: Sequence[int], *, more_ms: int = 5) -> None:
    """KIP-580's waits with its jitter, and the time that an answer takes."""
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number) + more_ms, waits


def list_offsets(client: FakeClient, times: dict[TopicPartition, int], timeout_ms: int = 60_000) -> ListOffsets:
    deadline_ms, timeout = client.timer(timeout_ms)
    return ListOffsets(times, read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout)


def list_each_offset(client: FakeClient, times: dict[TopicPartition, int], timeout_ms: int = 60_000) -> ListEachOffset:
    deadline_ms, timeout = client.timer(timeout_ms)
    return ListEachOffset(times, read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout)


@pytest.mark.parametrize("make", [list_offsets, list_each_offset])
def test_answers_of_other_brokers_leave_a_refusing_brokers_backoff_alone(
    make: Callable[..., Call[Any, Any]], cluster: FakeCluster
) -> None:
    """Eleven brokers answer one after the other, 5 ms apart; the twelfth refuses each time."""
    client = FakeClient(cluster)
    times = dict.fromkeys(TPS, EARLIEST)
    client.call(make(client, times))
    cluster.received.clear()

    def one_after_the_other(call: ServerCall) -> Action | None:
        if call.api is not Api.LIST_OFFSETS:
            return None
        if 0 in asked_for(call):
            return Action(errors={TPS[0]: errors.NOT_ENOUGH_REPLICAS})
        return Action(delay_ms=5 * min(asked_for(call)))

    cluster.control.add(one_after_the_other)
    call = make(client, times, 5_000)
    client.submit(None, call)
    client.run_for(3_000)
    refused = [one for one in cluster.calls(Api.LIST_OFFSETS) if 0 in asked_for(one)]
    assert len(refused) >= 5
    in_bounds(intervals(refused))


def test_a_failing_broker_leaves_anothers_first_backoff_as_short_as_it_is(cluster: FakeCluster) -> None:
    """One has failed four times in a row by the time another fails for the first time."""
    client = FakeClient(cluster)
    times = dict.fromkeys(TPS[:2], EARLIEST)
    client.call(list_offsets(client, times))
    cluster.received.clear()
    later = Action(stall_ms=1_600, errors={TPS[1]: errors.NOT_LEADER})
    cluster.control.on(Api.LIST_OFFSETS, later, node=cluster.log(*TPS[1]).leader)
    refuse = Action(errors={TPS[0]: errors.NOT_ENOUGH_REPLICAS})
    cluster.control.on(Api.LIST_OFFSETS, refuse, times=None, node=cluster.log(*TPS[0]).leader)
    client.submit(None, list_offsets(client, times))
    client.run_for(3_000)
    failing = [one for one in cluster.calls(Api.LIST_OFFSETS) if 0 in asked_for(one)]
    other = [one for one in cluster.calls(Api.LIST_OFFSETS) if 1 in asked_for(one)]
    assert len(failing) >= 5
    in_bounds([intervals(other)[0] - 1_600])
    in_bounds(intervals(failing))


def test_the_keys_that_one_answer_refuses_are_asked_for_together_again(cluster: FakeCluster) -> None:
    cluster.add_topic("u", 4)
    tps = [TopicPartition("u", number) for number in range(4)]
    for number in range(4):
        cluster.move("u", number, 1)
    refuse = Action(errors=dict.fromkeys(tps[:3], errors.NOT_ENOUGH_REPLICAS))
    cluster.control.on(Api.LIST_OFFSETS, refuse, times=3)
    client = FakeClient(cluster)
    client.call(list_offsets(client, dict.fromkeys(tps, LATEST)))
    asked = [sorted(asked_for(one)) for one in cluster.calls(Api.LIST_OFFSETS)]
    assert asked == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]


def test_a_key_that_rests_ends_at_the_deadline_whatever_the_others_do(cluster: FakeCluster) -> None:
    """The deadline falls between two attempts of one key; another was answered just before."""
    client = FakeClient(cluster)
    times = dict.fromkeys(TPS[:2], EARLIEST)
    client.call(list_offsets(client, times))
    refuse = Action(errors={TPS[0]: errors.NOT_ENOUGH_REPLICAS})
    cluster.control.on(Api.LIST_OFFSETS, refuse, times=None, node=cluster.log(*TPS[0]).leader)
    cluster.control.on(Api.LIST_OFFSETS, Action(delay_ms=2_490), node=cluster.log(*TPS[1]).leader)
    begun, turns = client.now, client.turns
    with pytest.raises(KafkaTimeout, match="t-0: NOT_ENOUGH_REPLICAS"):
        client.call(list_offsets(client, times, 2_500))
    assert client.completed_ms - begun == 2_500
    assert client.turns - turns < 100, "the loop spins"


def test_a_group_that_has_no_coordinator_leaves_the_others_backoff_alone(cluster: FakeCluster) -> None:
    """They share requests: one that fails again and again delays no other, and is asked for no more often."""
    client = FakeClient(cluster)
    client.call(list_offsets(client, {TPS[0]: LATEST}))
    cluster.control.on(Api.FIND_COORDINATOR, Action(errors={"bad": errors.COORDINATOR_NOT_AVAILABLE}), times=None)
    deadline_ms, timeout_ms = client.timer(60_000)
    client.submit(None, GroupOffsets("bad", TPS, deadline_ms, timeout_ms))
    for number in range(20):
        client.run_for(150)
        begun = client.now
        assert client.call(GroupOffsets(f"good-{number}", TPS, *client.timer())) == {}
        assert client.completed_ms - begun < 50
    asked = [one for one in cluster.calls(Api.FIND_COORDINATOR) if "bad" in one.body.coordinator_keys]
    assert len(asked) >= 5
    in_bounds(intervals(asked))


def test_groups_back_off_apart_in_one_call(cluster: FakeCluster) -> None:
    """Groups of one coordinator, found one after the other: one is still being loaded, the others are answered."""
    names = [f"g{number}" for number in range(6)]
    for name in names:
        cluster.coordinators[name] = 3

    def found_late(call: ServerCall) -> Action | None:
        if call.api is Api.FIND_COORDINATOR:
            late = [name for name in call.body.coordinator_keys if int(name[1:]) * 60 > call.received_ms - begun]
            return Action(errors=dict.fromkeys(late, errors.COORDINATOR_NOT_AVAILABLE))
        if call.api is Api.DESCRIBE_GROUPS and "g0" in call.body.groups:
            return Action(errors={"g0": errors.COORDINATOR_LOADING})
        return None

    client = FakeClient(cluster)
    client.call(list_offsets(client, {TPS[0]: LATEST}))
    begun = client.now
    cluster.control.add(found_late)
    client.submit(None, DescribeGroups(names, *client.timer()))
    client.run_for(4_000)
    asked = [one for one in cluster.calls(Api.DESCRIBE_GROUPS) if "g0" in one.body.groups]
    assert len(asked) >= 5
    in_bounds(intervals(asked), more_ms=10)
