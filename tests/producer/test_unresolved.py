"""A batch that was sent and then given up leaves its successors in doubt about their sequences (KIP-185, KIP-360)."""

from __future__ import annotations

import pytest

from mirror.cluster.connection.pools import Slot
from mirror.errors import DeliveryTimeout, Fenced, KafkaError, OutOfOrderSequence, RecordRejected, RecordTooLarge
from mirror.producer.batch.batches import ProducerBatch, copy_of_error
from mirror.producer.batch.queue import LAST_EPOCH, PartitionQueue, ProducerId
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import batch, build
from tests.producer.site import (
    IN_FLIGHT,
    T0,
    T1,
    TIMES,
    attempts,
    batches,
    expired,
    failure,
    finish,
    make_cluster,
    send,
    stamps,
    values,
)


def _known(**options: object) -> FakeProducer:
    """A producer that the partition's leader knows already."""
    producer = FakeProducer(make_cluster(), **{**TIMES, **options})
    finish(producer, producer.send(T0, b"first"))
    return producer


def _refuse_the_first_epoch(call: ServerCall) -> Action | None:
    first = call.api is Api.PRODUCE and batches(call)[0].producer_epoch == 0
    return Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}) if first else None


def test_sent_expiry_then_failure_bumps_epoch() -> None:
    """The first never reaches the log: its successor's sequence is one too high, and a new epoch mends that."""
    producer = _known(**{IN_FLIGHT: 2})
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(stall_ms=3_900, errors={T0: errors.NOT_ENOUGH_REPLICAS}))
    lost = producer.prepare(T0, b"lost")
    cluster.clock.advance(1_200)
    producer.send_batch(lost)
    behind = send(producer, b"behind")
    assert expired(producer, lost).may_have_been_written
    assert not behind.completed
    assert finish(producer, behind.future) == [1]
    assert values(cluster) == [b"first", b"behind"]
    assert attempts(cluster)[1:] == [[(0, 1)], [(0, 2)], [(1, 0)]]


def test_sent_expiry_then_failure_bumps_epoch_of_its_partition_only() -> None:
    producer = _known()
    cluster = producer.cluster
    finish(producer, producer.send(T1, b"a"))
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    expired(producer, send(producer, b"lost"))
    cluster.control.clear()
    finish(producer, producer.send(T0, b"after"), producer.send(T1, b"b"))
    assert stamps(cluster, 0) == [(0, 0), (1, 0)]
    assert stamps(cluster, 1) == [(0, 0), (0, 1)]
    assert len(cluster.calls(Api.INIT_PRODUCER_ID)) == 1, "the bump is the producer's own (KIP-360)"


def test_possibly_persisted_then_success_is_acknowledged() -> None:
    """The expired one was written after all: its successor is taken as the next in order, and needs no new epoch."""
    producer = _known()
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(delay_ms=3_900))
    first = producer.prepare(T0, b"late")
    producer.cluster.clock.advance(1_500)
    producer.send_batch(first)
    error = expired(producer, first)
    assert error.may_have_been_written
    second = send(producer, b"second")
    assert finish(producer, second.future) == [2]
    assert isinstance(first.future.exception(0), DeliveryTimeout), "its outcome does not change"
    assert stamps(cluster) == [(0, 0), (0, 1), (0, 2)]


def test_a_successors_success_shows_that_a_given_up_batch_was_written() -> None:
    """Its own answer is lost. The successor was in doubt, too, and keeps its sequence: it is taken as the next."""
    producer = _known(**{IN_FLIGHT: 2})
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(silent=True))
    first = producer.prepare(T0, b"written")
    cluster.clock.advance(1_200)
    producer.send_batch(first)
    second = send(producer, b"second")
    assert expired(producer, first).may_have_been_written
    assert finish(producer, second.future, producer.send(T0, b"third")) == [2, 3]
    assert values(cluster) == [b"first", b"written", b"second", b"third"]
    assert {epoch for epoch, _ in stamps(cluster)} == {0}


def test_nothing_new_is_sent_before_a_given_up_batch_is_resolved() -> None:
    producer = _known(**{IN_FLIGHT: 5})
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(silent=True))
    lost = producer.prepare(T0, b"lost")
    cluster.clock.advance(4_990)
    producer.send_batch(lost)
    producer.run_for(12)
    assert lost.completed
    after = send(producer, b"after")
    for ms in (5, 3_500):
        producer.run_for(ms)
        assert [one is lost for one in producer.queue(T0).in_flight] == [True], "its request may still be answered"
    assert finish(producer, after.future) == [2]
    assert stamps(cluster) == [(0, 0), (0, 1), (1, 0)]


def test_a_late_copy_of_a_given_up_batch_is_shut_out_by_the_new_epoch() -> None:
    producer = _known()
    cluster = producer.cluster
    cluster.works_off_ms = 8_000
    cluster.control.on(Api.PRODUCE, Action(close="before"))
    cluster.control.add(_refuse_the_first_epoch)
    lost = send(producer, b"lost")
    producer.run_for(1_100)
    after = send(producer, b"after")
    assert finish(producer, after.future) == [1]
    assert isinstance(failure(producer, lost.future), DeliveryTimeout)
    producer.run_for(10_000)
    assert values(cluster) == [b"first", b"after"]


def test_a_batch_in_doubt_behind_a_gap_keeps_its_sequence_until_it_expires() -> None:
    """Under another one it would be written twice, if its first copy arrived late."""
    queue = PartitionQueue(T0)
    queue.restart(ProducerId(1, 0))
    refused, in_doubt, later = (ProducerBatch(T0, batch(build((b"%d" % n,))), 0, 100) for n in range(3))
    queue.waiting.extend((refused, in_doubt, later))
    for _ in range(2):
        queue.drain(Slot(1, 1), 0, transactional=False)
    refused.refused()
    queue.in_flight.remove(refused)
    queue.leave_gap(refused)
    queue.requeue(in_doubt)
    assert not queue.needs_new_epoch
    assert queue.drain(Slot(1, 1), 0, transactional=False) is in_doubt
    assert in_doubt.sequence == 1
    queue.in_flight.remove(in_doubt)
    queue.leave_gap(in_doubt)
    assert queue.needs_new_epoch, "what is left was never sent"
    queue.bump()
    queue.drain(Slot(1, 1), 0, transactional=False)
    assert (queue.identity, later.sequence) == (ProducerId(1, 1), 0)


def test_epochs_that_are_used_up_give_way_to_another_producer_id() -> None:
    producer = _known()
    cluster = producer.cluster
    queue = producer.queue(T0)
    assert queue.identity is not None
    queue.identity = ProducerId(queue.identity.producer_id, LAST_EPOCH)
    ((_, state),) = cluster.log("t").producers.items()
    state.epoch = LAST_EPOCH
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}))
    assert isinstance(failure(producer, producer.send(T0, b"gap")), RecordTooLarge)
    begun = producer.now
    assert finish(producer, producer.send(T0, b"after")) == [1]
    assert producer.completed_ms - begun < 100, "at once: no other call requests the new id"
    assert [one.producer_id for one in cluster.log("t").batches()] == [1001, 1002]
    assert stamps(cluster)[-1] == (0, 0)


def test_a_retried_batch_is_followed_by_nothing_until_it_is_answered() -> None:
    """A broker remembers five batches: were more written behind it, its duplicate would look like lost data."""
    producer = _known(**{IN_FLIGHT: 4})
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.REQUEST_TIMED_OUT}, handled=True))
    cluster.control.on(Api.PRODUCE, Action(), times=3)
    cluster.control.on(Api.PRODUCE, Action(delay_ms=400, errors={T0: errors.NOT_ENOUGH_REPLICAS}))
    futures = [producer.send(T0, b"%d" % number) for number in range(8)]
    producer.run_for(300)
    assert len(producer.queue(T0).in_flight) == 1, "the first one, again"
    finish(producer, *futures)
    assert values(cluster) == [b"first", *(b"%d" % number for number in range(8))]
    assert {epoch for epoch, _ in stamps(cluster)} == {0}


def test_a_successor_that_comes_back_out_of_order_is_no_lost_data() -> None:
    """Both expire: that the second was out of order says nothing of what was acknowledged before."""
    producer = _known(**{IN_FLIGHT: 2})
    cluster = producer.cluster
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}, delay_ms=3_900))
    cluster.control.on(Api.PRODUCE, Action(delay_ms=1_500))
    first, second = producer.prepare(T0, b"1"), producer.prepare(T0, b"2")
    cluster.clock.advance(1_200)
    for one in (first, second):
        producer.send_batch(one)
    third = send(producer, b"3")
    assert isinstance(failure(producer, second.future), DeliveryTimeout)
    assert finish(producer, third.future) == [1]
    assert values(cluster) == [b"first", b"3"]


# --- what an answer says of a batch, and what silence does not


@pytest.mark.parametrize(
    ("action", "in_doubt"),
    [
        (Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), False),
        (Action(errors={T0: errors.NOT_LEADER}), False),
        (Action(errors={T0: errors.REQUEST_TIMED_OUT}), True),
        (Action(errors={T0: errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND}), True),
        (Action(close="before"), True),
        (Action(close="after"), True),
        (Action(half="close"), True),
    ],
)
def test_an_answer_decides_between_refused_and_unknown(action: Action, in_doubt: bool) -> None:
    producer = _known()
    producer.cluster.control.on(Api.PRODUCE, action)
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    error = expired(producer, send(producer))
    assert error.may_have_been_written is in_doubt
    assert ("it may have been written all the same" in str(error)) is in_doubt


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.MESSAGE_TOO_LARGE, RecordTooLarge),
        (errors.INVALID_RECORD, RecordRejected),
        (errors.INVALID_PRODUCER_EPOCH, Fenced),
        (errors.OUT_OF_ORDER_SEQUENCE, OutOfOrderSequence),
    ],
)
@pytest.mark.parametrize("lost", [False, True])
def test_unknown_is_never_reported_as_plain_failure(code: int, kind: type[KafkaError], lost: bool) -> None:
    producer = _known()
    if lost:
        producer.cluster.control.on(Api.PRODUCE, Action(close="after"))
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: code}))
    made, (record,) = producer.prepare_open(T0, b"a")
    producer.send_batch(made)
    for future in (made.future, record):
        error = failure(producer, future)
        assert isinstance(error, kind)
        assert error.may_have_been_written is lost
        assert ("may have been written all the same" in str(error)) is lost
        assert getattr(copy_of_error(error), "may_have_been_written", None) is lost, "copies say the same"
    assert len(values(producer.cluster)) == 1 + lost


def test_explicit_retries_that_are_used_up_do_not_hide_a_doubt() -> None:
    producer = _known(retries=1)
    producer.cluster.control.on(Api.PRODUCE, Action(close="after"))
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}))
    assert failure(producer, producer.send(T0)).may_have_been_written


# --- the first batch of a producer id, for a leader that does not know it


@pytest.mark.parametrize("again", ["at first", "an hour later", "in a recreated topic"])
def test_the_first_batch_that_a_leader_gets_goes_alone(again: str) -> None:
    """It takes any first sequence, and would take the second batch without the first."""
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: 5})
    if again != "at first":
        finish(producer, producer.send(T0, b"long ago"))
    if again == "an hour later":
        producer.run_for(3_600_000)
    elif again == "in a recreated topic":
        cluster.add_topic("t", 2)
        producer.loop.metadata.request_update()
        producer.run_for(1_000)
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    futures = [producer.send(T0, b"%d" % number) for number in range(4)]
    producer.run_for(400)
    assert len(producer.queue(T0).in_flight) == 1
    held.release()
    finish(producer, *futures)
    assert values(cluster)[-4:] == [b"0", b"1", b"2", b"3"]


def test_a_topic_made_again_goes_on_in_order() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: 5})
    finish(producer, *(producer.send(T0, b"%d" % number) for number in range(3)))
    cluster.add_topic("t", 2)
    finish(producer, *(producer.send(T0, b"%d" % number) for number in range(3, 9)))
    assert values(cluster) == [b"%d" % number for number in range(3, 9)]
