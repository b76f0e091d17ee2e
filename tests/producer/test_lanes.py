"""Which connection a batch takes: no batch waits behind a partition that does not answer."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.producer.site import IN_FLIGHT, T0, T1, attempts, batches, finish, make_cluster, values


def _harm(cluster: FakeCluster, tp: TopicPartition, action: Action, times: int) -> None:
    """The next ``times`` Produces that have a batch of ``tp`` get ``action``."""
    left = times

    def rule(call: ServerCall) -> Action | None:
        nonlocal left
        if call.api is not Api.PRODUCE or not left or tp.partition not in _partitions(call):
            return None
        left -= 1
        return action

    cluster.control.add(rule)


def _partitions(call: ServerCall) -> list[int]:
    return [part.index for topic in call.body.topic_data for part in topic.partition_data]


def _connections(cluster: FakeCluster, partition: int) -> list[int]:
    return [call.connection for call in cluster.calls(Api.PRODUCE) if partition in _partitions(call)]


def _producer(**options: object) -> FakeProducer:
    """Both partitions are known to the leader, and there are two connections to it, as there are after a while."""
    producer = FakeProducer(make_cluster(), **{"request.timeout.ms": 4_000, **options})
    finish(producer, producer.send(T0, b"first"), producer.send(T1, b"first"))
    producer.cluster.control.on(Api.PRODUCE, Action(delay_ms=40), times=2)
    busy = [producer.send(T0, b"second")]
    producer.run_for(20)
    busy.append(producer.send(T1, b"second"))
    producer.run_for(1_000)
    finish(producer, *busy)
    return producer


def test_slow_replica_delays_only_its_own_connection() -> None:
    """One Produce waits five seconds for its replicas: the other partition of the same broker notices nothing."""
    producer = _producer(**{"request.timeout.ms": 10_000})
    _harm(producer.cluster, T0, Action(delay_ms=5_000), 1)
    slow = producer.send(T0, b"slow")
    producer.run_for(1)
    for round_ in range(30):
        begun = producer.now
        finish(producer, producer.send(T1, b"%d" % round_))
        assert producer.completed_ms - begun < 5
        producer.run_for(50)
    assert not slow.done()
    finish(producer, slow)


@pytest.mark.parametrize(
    "harm", [Action(errors={T0: errors.REQUEST_TIMED_OUT}, handled=True, delay_ms=1_000), Action(silent=True)]
)
def test_a_partition_that_did_not_answer_in_time_goes_apart_until_it_is_answered_again(harm: Action) -> None:
    producer = _producer()
    cluster = producer.cluster
    _harm(cluster, T0, harm, 2)
    slow = producer.send(T0, b"slow")
    others = []
    producer.run_for(1)
    for _ in range(200):
        others.append(producer.send(T1, b"x"))
        producer.run_for(50)
    finish(producer, slow, *others)
    healthy = set(_connections(cluster, 1))
    first, *again = _connections(cluster, 0)[2:]
    assert first in healthy, "it was not known yet"
    assert again
    assert not set(again) & healthy, "apart"
    assert not producer.queue(T0).slow
    before = len(_connections(cluster, 0))
    finish(producer, producer.send(T0, b"back"))
    assert set(_connections(cluster, 0)[before:]) <= healthy, "and back"
    assert values(cluster) == [b"first", b"second", b"slow", b"back"]


def test_another_error_is_no_reason_to_go_apart() -> None:
    producer = _producer()
    _harm(producer.cluster, T0, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), 3)
    finish(producer, producer.send(T0, b"x"))
    assert len(set(_connections(producer.cluster, 0))) == 1
    assert not producer.queue(T0).slow


def test_a_partition_with_something_unanswered_stays_on_its_connection() -> None:
    """Only one connection keeps two requests in order."""
    producer = _producer(**{IN_FLIGHT: 5})
    _harm(producer.cluster, T0, Action(delay_ms=300), 1)
    futures = []
    for number in range(5):
        futures.append(producer.send(T0, b"%d" % number))
        producer.run_for(20)
    finish(producer, *futures)
    assert len(set(_connections(producer.cluster, 0)[2:])) == 1
    assert values(producer.cluster)[2:] == [b"%d" % number for number in range(5)]


def test_nothing_more_goes_to_a_connection_that_has_become_slow() -> None:
    producer = _producer(**{IN_FLIGHT: 5})
    _harm(producer.cluster, T0, Action(delay_ms=2_000), 1)
    slow = producer.send(T0, b"slow")
    producer.run_for(600)
    behind = producer.send(T0, b"behind")
    producer.run_for(600)
    assert len(producer.queue(T0).in_flight) == 1
    finish(producer, slow, behind)
    assert values(producer.cluster)[2:] == [b"slow", b"behind"]


# --- what goes into a request, and when


def test_what_is_sent_at_once_shares_a_request_by_broker() -> None:
    cluster = make_cluster(2, 4)
    producer = FakeProducer(cluster)
    tps = [TopicPartition("t", number) for number in range(4)]
    finish(producer, *(producer.send(tp) for tp in tps))
    assert [len(_partitions(call)) for call in cluster.calls(Api.PRODUCE)] == [1] * 4, "nothing is known of them yet"
    finish(producer, *(producer.send(tp) for tp in tps))
    assert sorted(len(_partitions(call)) for call in cluster.calls(Api.PRODUCE)[4:]) == [2, 2]


def test_nobody_shares_a_request_or_a_connection_with_a_partition_that_never_answered_yet() -> None:
    """One of three begins with a request that waits five seconds for its replicas: the others notice nothing."""
    producer = FakeProducer(make_cluster(1, 3), **{"request.timeout.ms": 10_000})
    _harm(producer.cluster, T0, Action(delay_ms=5_000), 1)
    begun = producer.now
    slow = producer.send(T0, b"slow")
    others = [producer.send(TopicPartition("t", number), b"x") for number in (1, 2)]
    finish(producer, *others)
    assert producer.completed_ms - begun < 50
    assert not slow.done()
    others = [producer.send(TopicPartition("t", number), b"y") for number in (1, 2)]
    finish(producer, *others)
    assert producer.completed_ms - begun < 50
    finish(producer, slow)
    assert len(set(_connections(producer.cluster, 0)) & {*_connections(producer.cluster, 1)}) == 0


def test_a_request_has_at_most_max_request_size_and_a_larger_batch_goes_alone() -> None:
    cluster = make_cluster(1, 4)
    producer = FakeProducer(cluster, **{"max.request.size": 400})
    sizes = {0: 1, 1: 1_000, 2: 100, 3: 100}
    finish(producer, *(producer.send(TopicPartition("t", number)) for number in sizes))
    before = len(cluster.calls(Api.PRODUCE))
    futures = [producer.send(TopicPartition("t", number), b"x" * size) for number, size in sizes.items()]
    finish(producer, *futures)
    calls = cluster.calls(Api.PRODUCE)[before:]
    for call in calls:
        total = sum(one.size for one in batches(call))
        assert total <= 400 or len(batches(call)) == 1
    assert sum(len(one) for one in attempts(cluster)[before:]) == 4
    assert len(calls) < 4


def test_single_records_linger_for_company_and_a_ready_made_batch_does_not() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{"linger.ms": 200})
    finish(producer, producer.send(T1, b"ready"))
    begun = producer.now
    assert producer.completed_ms < 1_050
    made, (record,) = producer.prepare_open(T0, b"lingers")
    producer.send_batch(made)
    finish(producer, record)
    assert producer.completed_ms - begun == 200


def test_a_flush_ends_the_linger_of_what_was_sent_and_of_nothing_that_comes_later() -> None:
    producer = FakeProducer(make_cluster(), **{"linger.ms": 200})
    finish(producer, producer.send(T0, b"first"))
    before, (flushed,) = producer.prepare_open(T0, b"before")
    producer.send_batch(before)
    producer.flush()
    begun = producer.now
    finish(producer, flushed)
    assert producer.completed_ms - begun < 5
    producer.run_for(1)
    after, (lingers,) = producer.prepare_open(T0, b"after")
    producer.send_batch(after)
    begun = producer.now
    finish(producer, lingers)
    assert producer.completed_ms - begun == 200


def test_a_batch_that_has_a_successor_lingers_no_longer() -> None:
    producer = FakeProducer(make_cluster(), **{"linger.ms": 20_000})
    finish(producer, producer.send(T0, b"first"))
    one, (record,) = producer.prepare_open(T0, b"one")
    two, _ = producer.prepare_open(T0, b"two")
    begun = producer.now
    producer.send_batch(one)
    producer.send_batch(two)
    finish(producer, record)
    assert producer.completed_ms - begun < 5


def test_success_resets_attempts() -> None:
    """After an answer as hoped the next failure is the first again, and its backoff the shortest (KIP-580)."""
    producer = _producer()
    for _ in range(3):
        _harm(producer.cluster, T0, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), 4)
        begun = producer.now
        finish(producer, producer.send(T0))
        waited = producer.completed_ms - begun
        assert 0.8 * 1_500 <= waited <= 1.2 * 1_500, "100, 200, 400 and 800 ms, with their jitter"
        producer.cluster.control.clear()
