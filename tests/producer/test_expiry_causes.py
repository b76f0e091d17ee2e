"""What a ``DeliveryTimeout`` tells: where the batch was, why, how long, and whether it may be in the log (KIP-91)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import (
    BrokerError,
    ConnectionFailed,
    CorruptBatch,
    DeliveryCause,
    DeliveryPhase,
    DeliveryTimeout,
    KafkaError,
)
from mirror.producer.batch.batches import ProducerBatch
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import (
    IN_FLIGHT,
    T0,
    T1,
    TIMES,
    expired,
    failure,
    finish,
    make_cluster,
    send,
    transactional,
    values,
)

Harm = Callable[[FakeCluster], object]


def _refuse(code: int) -> Harm:
    return lambda cluster: cluster.control.on(Api.PRODUCE, Action(errors={T0: code}), times=None)


def _refuse_ids(cluster: FakeCluster) -> None:
    refusal = Action(errors={"InitProducerId": errors.COORDINATOR_NOT_AVAILABLE})
    cluster.control.on(Api.INIT_PRODUCER_ID, refusal, times=None)


def _no_leader(cluster: FakeCluster) -> None:
    cluster.log("t").leader = 9


def _no_topic(cluster: FakeCluster) -> None:
    del cluster.topics["t"]


def _unreachable(cluster: FakeCluster) -> None:
    cluster.move("t", 0, 2)
    cluster.brokers[2].connect_ms = None


def _silent(cluster: FakeCluster) -> None:
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)


@pytest.mark.parametrize(
    ("harm", "phase", "cause", "message", "last_error"),
    [
        (_refuse_ids, DeliveryPhase.FENCING, DeliveryCause.COORDINATOR, "COORDINATOR_NOT_AVAILABLE", BrokerError),
        (_no_leader, DeliveryPhase.METADATA, DeliveryCause.NO_LEADER, "no leader", type(None)),
        (_no_topic, DeliveryPhase.METADATA, DeliveryCause.NO_LEADER, "topic 't' does not exist", BrokerError),
        (_unreachable, DeliveryPhase.QUEUE, DeliveryCause.NO_ANSWER, "no connection within", ConnectionFailed),
        (_refuse(19), DeliveryPhase.QUEUE, DeliveryCause.NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS", BrokerError),
        (_refuse(6), DeliveryPhase.QUEUE, DeliveryCause.NO_LEADER, "NOT_LEADER_OR_FOLLOWER", BrokerError),
        (_refuse(2), DeliveryPhase.QUEUE, DeliveryCause.REFUSED, "CORRUPT_MESSAGE", BrokerError),
        (_refuse(51), DeliveryPhase.QUEUE, DeliveryCause.COORDINATOR, "CONCURRENT_TRANSACTIONS", BrokerError),
    ],
)
def test_the_cause_is_reported(
    harm: Harm, phase: DeliveryPhase, cause: DeliveryCause, message: str, last_error: type[KafkaError]
) -> None:
    cluster = make_cluster(2)
    harm(cluster)
    producer = FakeProducer(cluster, **TIMES, **{"socket.connection.setup.timeout.ms": 1_000})
    error = expired(producer, send(producer))
    assert (error.phase, error.cause) == (phase, cause)
    assert message in str(error)
    assert isinstance(error.last_error, last_error)
    assert error.__cause__ is error.last_error
    assert not error.may_have_been_written


@pytest.mark.parametrize(
    ("code", "cause", "in_doubt"),
    [
        (errors.REQUEST_TIMED_OUT, DeliveryCause.NOT_ENOUGH_REPLICAS, True),
        (errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, DeliveryCause.NOT_ENOUGH_REPLICAS, True),
        (errors.NOT_ENOUGH_REPLICAS, DeliveryCause.NOT_ENOUGH_REPLICAS, False),
    ],
)
def test_replicas_that_are_late_or_too_few(code: int, cause: DeliveryCause, in_doubt: bool) -> None:
    cluster = make_cluster()
    _refuse(code)(cluster)
    producer = FakeProducer(cluster, **TIMES)
    error = expired(producer, send(producer))
    assert (error.cause, error.may_have_been_written) == (cause, in_doubt)


def test_no_answer_in_flight() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES)
    finish(producer, producer.send(T0, b"first"))
    _silent(cluster)
    made = producer.prepare(T0, b"a", b"b", b"c")
    cluster.clock.advance(1_500)
    producer.send_batch(made)
    error = expired(producer, made)
    assert (error.phase, error.cause) == (DeliveryPhase.IN_FLIGHT, DeliveryCause.NO_ANSWER)
    assert error.may_have_been_written
    assert _numbers(error) == ("t", 0, 3, 5_000, 1_500, 3_500, 1)
    assert "(age 5000 ms, 3500 ms of it in flight, 1 attempts; in flight, no answer)" in str(error)


def _numbers(error: DeliveryTimeout) -> tuple[Any, ...]:
    who = (error.topic, error.partition, error.record_count)
    return (*who, error.age_ms, error.queued_ms, error.in_flight_ms, error.attempts)


def test_the_times_of_several_attempts_add_up() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES, **{"retry.backoff.ms": 1_000, "retry.backoff.max.ms": 1})
    finish(producer, producer.send(T0, b"first"))
    cluster.control.on(Api.PRODUCE, Action(delay_ms=700, errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=3)
    cluster.control.on(Api.PRODUCE, Action(silent=True))
    sent = send(producer, b"a")
    error = expired(producer, sent)
    assert error.attempts == 4
    assert error.age_ms == 5_000
    assert error.queued_ms + error.in_flight_ms == 5_000
    assert error.queued_ms == 3, "a backoff of one millisecond, three times"
    assert error.phase is DeliveryPhase.IN_FLIGHT
    assert error.cause is DeliveryCause.NOT_ENOUGH_REPLICAS, "the last failure says more than the silence since"


def test_the_clock_of_a_batch_that_waited_elsewhere_is_its_own() -> None:
    cluster = make_cluster()
    _no_leader(cluster)
    producer = FakeProducer(cluster, **TIMES)
    cluster.clock.advance(4_000)
    made = producer.prepare(T0, b"a", created_ms=producer.now - 4_000)
    producer.send_batch(made)
    begun = producer.now
    error = expired(producer, made)
    assert producer.completed_ms - begun == 1_000
    assert error.age_ms == 5_000


def test_a_batch_expires_no_earlier_than_its_predecessor_also_where_it_is_older() -> None:
    cluster = make_cluster()
    _no_leader(cluster)
    producer = FakeProducer(cluster, **TIMES)
    first = send(producer, b"first")
    older = producer.prepare(T0, b"older", created_ms=producer.now - 3_000)
    producer.send_batch(older)
    order: list[bytes] = []
    for made, name in ((first, b"first"), (older, b"older")):
        made.future.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
    error = expired(producer, older)
    assert order == [b"first", b"older"]
    assert error.age_ms == 8_000


# --- waiting behind others


def _behind(producer: FakeProducer, count: int) -> list[ProducerBatch]:
    return [send(producer, b"%d" % number) for number in range(count)]


def test_mere_waiting_behind_others_that_are_taken_is_a_backlog() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES, **{IN_FLIGHT: 1})
    cluster.control.on(Api.PRODUCE, Action(delay_ms=1_100), times=None)
    sent = _behind(producer, 8)
    error = expired(producer, sent[-1])
    assert (error.phase, error.cause) == (DeliveryPhase.QUEUE, DeliveryCause.BACKLOG)
    assert (error.attempts, error.last_error, error.may_have_been_written) == (0, None, False)
    assert sent[0].future.exception(0) is None


@pytest.mark.parametrize(
    ("harm", "cause"),
    [(_silent, DeliveryCause.NO_ANSWER), (_refuse(19), DeliveryCause.NOT_ENOUGH_REPLICAS)],
)
def test_an_unavailable_partition_is_distinguished_from_mere_waiting(harm: Harm, cause: DeliveryCause) -> None:
    """Those ahead are not taken, either: what keeps them keeps who stands behind."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES, **{IN_FLIGHT: 1})
    finish(producer, producer.send(T0, b"first"))
    harm(cluster)
    sent = _behind(producer, 4)
    result = [expired(producer, one) for one in sent]
    assert {error.cause for error in result} == {cause}
    assert [error.attempts for error in result[1:]] == [0, 0, 0]
    assert not any(error.may_have_been_written for error in result[1:])


def test_a_backlog_that_came_to_a_halt_long_ago_is_none() -> None:
    """Some were taken, but before this one came: since then nothing went."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES, **{IN_FLIGHT: 1})
    finish(producer, *(producer.send(T0, b"%d" % number) for number in range(5)))
    producer.run_for(10)
    _silent(cluster)
    stuck = send(producer, b"stuck")
    producer.run_for(10)
    behind = send(producer, b"behind")
    assert expired(producer, stuck).cause is DeliveryCause.NO_ANSWER
    assert expired(producer, behind).cause is DeliveryCause.NO_ANSWER


def test_throttled() -> None:
    """The broker asks to be left alone for longer than the batch may take (KIP-219)."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES)
    throttle = Action(rewrite=lambda body: dataclasses.replace(body, throttle_time=20_000))
    cluster.control.on(Api.PRODUCE, throttle, times=None)
    finish(producer, producer.send(T0, b"first"))
    sent = send(producer, b"second")
    error = expired(producer, sent)
    assert (error.phase, error.cause) == (DeliveryPhase.QUEUE, DeliveryCause.THROTTLED)
    assert (error.attempts, error.may_have_been_written) == (0, False)


# --- in a transaction


def test_a_partition_that_is_not_added_waits_for_the_coordinator() -> None:
    producer = transactional(1, **TIMES)
    refusal = Action(errors={"AddPartitionsToTxn": errors.COORDINATOR_LOADING})
    producer.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, refusal, times=None)
    producer.begin()
    error = expired(producer, send(producer))
    assert (error.phase, error.cause) == (DeliveryPhase.QUEUE, DeliveryCause.COORDINATOR)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    assert not error.may_have_been_written


def test_a_coordinator_that_cannot_be_found_is_reported() -> None:
    producer = transactional(1, **TIMES)
    cluster = producer.cluster
    cluster.add_broker()
    cluster.coordinators["x"] = 2
    cluster.brokers[2].up = False
    producer.begin()
    error = expired(producer, send(producer))
    assert error.cause is DeliveryCause.COORDINATOR
    assert error.last_error is not None


def test_blocked_transactional_id_expires_by_the_attempt_clock() -> None:
    """What keeps a producer from a new epoch keeps its batches, whose clock runs all the same."""
    producer = transactional(1, **TIMES)
    cluster = producer.cluster
    cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(close="after"))
    producer.begin()
    producer.add_offsets("group", {T1: 1})
    producer.finish(producer.commit())
    refusal = Action(errors={"InitProducerId": errors.CONCURRENT_TRANSACTIONS})
    cluster.control.on(Api.INIT_PRODUCER_ID, refusal, times=None)
    producer.begin()
    made = producer.prepare(T0, b"a", created_ms=producer.now - 3_000)
    producer.send_batch(made)
    begun = producer.now
    error = expired(producer, made)
    assert producer.completed_ms - begun == 2_000
    assert (error.phase, error.cause) == (DeliveryPhase.FENCING, DeliveryCause.COORDINATOR)
    assert "CONCURRENT_TRANSACTIONS" in str(error)


# --- one partition and the others


def test_one_sick_partition_costs_the_others_nothing_not_even_memory_or_order() -> None:
    cluster = make_cluster(2, 3)
    producer = FakeProducer(cluster, **TIMES, **{IN_FLIGHT: 5})
    well = [TopicPartition("t", 1), TopicPartition("t", 2)]
    finish(producer, *(producer.send(TopicPartition("t", p), b"first") for p in range(3)))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    sick = _behind(producer, 20)
    held = sum(one.size for one in sick)
    for round_ in range(40):
        begun = producer.now
        futures = [producer.send(tp, b"%d" % round_) for tp in well]
        offsets = finish(producer, *futures)
        assert producer.completed_ms - begun < 20
        assert offsets == [round_ + 1] * 2
        assert producer.taken - producer.released == held, "only the sick one holds anything"
        producer.run_for(30)
    for one in sick:
        assert not expired(producer, one).may_have_been_written
    assert producer.taken == producer.released


@pytest.mark.parametrize("in_flight", [1, 5])
def test_batch_damaged_in_memory_is_refused_and_fails_at_once(in_flight: int) -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: in_flight})
    finish(producer, producer.send(T0, b"first"))
    damaged = producer.prepare(T0, b"a", b"b")
    assert damaged.batch is not None
    damaged.batch.view[-3] ^= 0x04
    producer.send_batch(damaged)
    after = producer.send(T0, b"after")
    error = failure(producer, damaged.future)
    assert isinstance(error, CorruptBatch)
    assert "t-0: a batch was damaged in memory" in str(error)
    assert not error.may_have_been_written
    finish(producer, after)
    assert values(cluster) == [b"first", b"after"]


def test_batch_damaged_in_transit_is_sent_again() -> None:
    cluster = make_cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.CORRUPT_MESSAGE}), times=2)
    producer = FakeProducer(cluster)
    finish(producer, producer.send(T0, b"a"))
    assert values(cluster) == [b"a"]
