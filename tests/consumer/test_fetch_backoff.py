"""How often a broker is asked that gives no records: as one where all of a Fetch fails, each partition for itself."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

PARTITIONS = 12
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]
KAFKA_STORAGE_ERROR = 56


@pytest.fixture
def cluster() -> FakeCluster:
    """One broker, which leads twelve partitions with a record each."""
    cluster = FakeCluster(1)
    cluster.add_topic("t", PARTITIONS)
    for tp in TPS:
        cluster.log(*tp).append_values(b"0")
    return cluster


def times(calls: list[ServerCall]) -> list[int]:
    return [later.received_ms - earlier.received_ms for earlier, later in itertools.pairwise(calls)]


def in_bounds(waits: list[int]) -> None:
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number) + 5, waits


def refused_whole(body: Any) -> Any:
    return replace(body, error_code=KAFKA_STORAGE_ERROR, responses=())


EACH: dict[TopicPartition | str, int] = dict.fromkeys(TPS, errors.NOT_LEADER)
FAILURES = {
    "refused as a whole": Action(errors=EACH, rewrite=refused_whole),
    "each partition refused": Action(errors=EACH),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_partitions_of_a_broker_do_not_take_turns_in_asking_it(failure: str, cluster: FakeCluster) -> None:
    consumer = FakeConsumer(cluster)
    consumer.read(*((tp, 0) for tp in TPS))
    consumer.run_until(lambda: all(consumer.loop.metadata.leader(tp) for tp in TPS))
    cluster.control.on(Api.FETCH, FAILURES[failure], times=None)
    cluster.received.clear()
    consumer.run_until(lambda: len(cluster.calls(Api.FETCH)) >= 6)
    in_bounds(times(cluster.calls(Api.FETCH)))


def test_an_answer_for_some_leaves_the_backoff_of_others_alone(cluster: FakeCluster) -> None:
    consumer = FakeConsumer(cluster)
    consumer.read(*((tp, 0) for tp in TPS))
    cluster.control.on(Api.FETCH, Action(errors={TPS[0]: errors.NOT_LEADER}), times=None)

    def asked(call: ServerCall) -> bool:
        """Whether the broker was asked for the partition: it is in what the session reads, and was named again."""
        return call.api is Api.FETCH and any(0 in [p.partition for p in t.partitions] for t in call.body.topics)

    for number in range(40):
        for tp in TPS[1:]:
            cluster.log(*tp).append_values(b"%d" % number)
        consumer.run_for(50)
        consumer.poll(0)
    found = [one for one in cluster.received if asked(one)]
    assert len(found) >= 4
    assert len(cluster.calls(Api.FETCH)) > 2 * len(found)
    in_bounds(times(found))


def test_a_broker_that_does_not_answer_is_given_time_as_one(cluster: FakeCluster) -> None:
    """Its connection breaks with every Fetch. Reconnecting takes no time here: what is seen is the fetches' backoff."""
    consumer = FakeConsumer(cluster, **{"reconnect.backoff.ms": 0, "reconnect.backoff.max.ms": 0})
    consumer.read(*((tp, 0) for tp in TPS))
    cluster.control.on(Api.FETCH, Action(close="before"), times=None)
    consumer.run_until(lambda: len(cluster.calls(Api.FETCH)) >= 6)
    in_bounds(times(cluster.calls(Api.FETCH)))


@pytest.mark.parametrize("failure", FAILURES)
def test_success_resets_attempts_of_a_broker_and_of_a_partition(failure: str, cluster: FakeCluster) -> None:
    """After six refusals and a success the first wait is the shortest again."""
    consumer = FakeConsumer(cluster)
    consumer.read((TPS[0], 0))
    for number in range(3):
        assert consumer.poll(10_000), "what ends the Fetch that waits for records"
        since = len(cluster.received)
        cluster.control.on(Api.FETCH, FAILURES[failure], times=6)
        cluster.log(*TPS[0]).append_values(b"%d" % number)
        consumer.run_until(lambda since=since: len(fetches(cluster, since)) >= 7)  # type: ignore[misc]
        in_bounds(times(fetches(cluster, since)))


def fetches(cluster: FakeCluster, since: int) -> list[ServerCall]:
    return [one for one in cluster.received[since:] if one.api is Api.FETCH]
