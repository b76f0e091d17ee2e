"""Order and sequences (KIP-98, KIP-185), against brokers that check them."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from mirror.cluster.connection.pools import Slot
from mirror.cluster.types import TopicPartition
from mirror.errors import (
    AuthorizationFailed,
    Fenced,
    KafkaError,
    OutOfOrderSequence,
    RecordRejected,
    UnsupportedVersion,
)
from mirror.producer.batch.batches import ProducerBatch, RecordMetadata
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import batch, batches_in, build, values_of

_T0 = TopicPartition("t", 0)
_SLOT = Slot(1, 1)
_IN_FLIGHT = "max.in.flight.requests.per.connection"


def _cluster(brokers: int = 1, partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    return cluster


def _log(cluster: FakeCluster, partition: int = 0) -> list[bytes]:
    return [value for one in cluster.log("t", partition).batches() for value in values_of(one.view)]


def _send(producer: FakeProducer, count: int, tp: TopicPartition = _T0) -> list[Future[RecordMetadata]]:
    return [producer.send(tp, b"%d" % number) for number in range(count)]


def _finish(producer: FakeProducer, futures: list[Future[RecordMetadata]]) -> list[int]:
    return [producer.finish(future).base_offset for future in futures]


def _in_order(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def _sequences(call: ServerCall) -> list[int]:
    parts = [part for topic in call.body.topic_data for part in topic.partition_data]
    return [one.base_sequence for part in parts for one in batches_in(part.records.segments[0])]


def test_batches_arrive_in_order_and_have_their_offsets() -> None:
    cluster = _cluster(3, 3)
    producer = FakeProducer(cluster)
    futures = {p: _send(producer, 20, TopicPartition("t", p)) for p in range(3)}
    for partition, mine in futures.items():
        assert _finish(producer, mine) == list(range(20))
        assert _log(cluster, partition) == _in_order(20)
    assert producer.released == producer.taken
    assert len(cluster.calls(Api.INIT_PRODUCER_ID)) == 1


def test_what_is_written_is_this_producers_own() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster)
    _finish(producer, [producer.send(_T0, b"a", b"b", b"c"), producer.send(_T0, b"d")])
    first, second = cluster.log("t").batches()
    assert first.producer_id == second.producer_id == cluster.next_producer_id
    assert (first.base_sequence, second.base_sequence) == (0, 3)
    assert first.producer_epoch == 0
    assert not first.is_transactional


def test_sequences_are_counted_by_partition() -> None:
    cluster = _cluster(1, 2)
    producer = FakeProducer(cluster)
    for partition in range(2):
        _finish(producer, _send(producer, 3, TopicPartition("t", partition)))
        assert [one.base_sequence for one in cluster.log("t", partition).batches()] == [0, 1, 2]


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_no_more_than_max_in_flight_are_unanswered(in_flight: int) -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{_IN_FLIGHT: in_flight})
    _finish(producer, [producer.send(_T0, b"first")])
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"), times=None)
    futures = _send(producer, 12)
    producer.run_for(1_000)
    queue = producer.queue(_T0)
    assert len(queue.in_flight) == in_flight
    assert len(queue.waiting) == 12 - in_flight
    held.release()
    _finish(producer, futures)
    assert _log(cluster) == [b"first", *_in_order(12)]


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("code", [errors.REQUEST_TIMED_OUT, errors.NOT_ENOUGH_REPLICAS, errors.NOT_LEADER])
def test_multiple_inflight_retried_in_order(in_flight: int, code: int) -> None:
    """The first is refused once: those behind it come back as out of order, and all go again."""
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(), times=1)
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: code}), times=2)
    producer = FakeProducer(cluster, **{_IN_FLIGHT: in_flight})
    assert _finish(producer, _send(producer, 10)) == list(range(10))
    assert _log(cluster) == _in_order(10)


@pytest.mark.parametrize("close", ["before", "after"])
@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_a_broken_connection_is_retried_in_order(close: str, in_flight: int) -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action())
    cluster.control.on(Api.PRODUCE, Action(close=close))  # type: ignore[arg-type]
    producer = FakeProducer(cluster, **{_IN_FLIGHT: in_flight})
    assert _finish(producer, _send(producer, 10)) == list(range(10))
    assert _log(cluster) == _in_order(10)


def _queue(count: int) -> tuple[PartitionQueue, list[ProducerBatch]]:
    """A queue with an identity, and the batches that wait in it."""
    queue = PartitionQueue(_T0)
    queue.restart(ProducerId(1, 0))
    queue.waiting.extend(ProducerBatch(_T0, batch(build((b"%d" % n,))), 0, 100) for n in range(count))
    return queue, list(queue.waiting)


def test_out_of_order_responses_handled() -> None:
    """Successors get their outcome before their predecessor, which is tried again: by an answer that leaves one out."""
    queue, sent = _queue(5)
    for _ in sent:
        queue.drain(_SLOT, 0, transactional=False)
    assert [queue.is_earliest(one) for one in sent] == [True, False, False, False, False]
    for one in (sent[3], sent[0], sent[4], sent[1]):
        queue.requeue(one)
    assert list(queue.waiting) == [sent[0], sent[1], sent[3], sent[4]]
    assert queue.in_flight == [sent[2]]
    assert not queue.is_earliest(sent[2])
    assert not queue.sendable(5, 0), "what is retried goes alone"
    queue.requeue(sent[2])
    assert list(queue.waiting) == sent
    assert queue.sendable(5, 0)


def test_a_retried_batch_stays_before_what_was_never_sent() -> None:
    queue, sent = _queue(4)
    queue.drain(_SLOT, 0, transactional=False)
    queue.drain(_SLOT, 0, transactional=False)
    queue.requeue(sent[1])
    queue.requeue(sent[0])
    assert list(queue.waiting) == sent


def test_duplicate_sequence_is_success() -> None:
    """The batch is in the log, its answer was lost; a broker that still remembers it tells where."""
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(close="after"))
    producer = FakeProducer(cluster, **{_IN_FLIGHT: 1})
    assert _finish(producer, _send(producer, 3)) == [0, 1, 2]
    assert _log(cluster) == _in_order(3)
    assert len(cluster.calls(Api.PRODUCE)) == 4


def test_duplicate_sequence_is_success_also_where_its_offset_is_forgotten() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.DUPLICATE_SEQUENCE}, handled=True))
    producer = FakeProducer(cluster)
    assert _finish(producer, _send(producer, 3)) == [-1, 1, 2]
    assert _log(cluster) == _in_order(3)


def test_sequence_assigned_at_drain_kept_on_retry() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=4)
    producer = FakeProducer(cluster, **{_IN_FLIGHT: 1})
    batches = [producer.prepare(_T0, b"%d" % n, b"second record") for n in range(3)]
    futures = [producer.send_batch(one) for one in batches]
    assert [one.sequence for one in batches] == [None, None, None]
    _finish(producer, futures)
    assert [one.sequence for one in batches] == [0, 2, 4]
    assert batches[0].attempts == 5
    assert [_sequences(call) for call in cluster.calls(Api.PRODUCE)] == [[0], [0], [0], [0], [0], [2], [4]]


def test_sequence_wraps_at_2_31() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{_IN_FLIGHT: 5})
    _finish(producer, [producer.send(_T0, b"first")])
    producer.queue(_T0).next_sequence = 2**31 - 2
    state = next(iter(cluster.log("t").producers.values()))
    state.recent.clear()
    state.recent.append((2**31 - 3, 2**31 - 3, 0))
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}))
    values = [(b"a", b"b", b"c"), (b"d",), (b"e", b"f")]
    futures = [producer.send(_T0, *some) for some in values]
    assert _finish(producer, futures) == [1, 4, 5]
    assert [one.base_sequence for one in cluster.log("t").batches()][1:] == [2**31 - 2, 1, 2]
    assert _log(cluster) == [b"first", *(value for some in values for value in some)]


def test_out_of_order_sequence_surfaces_as_data_loss() -> None:
    """An acknowledged batch is gone from the log: never swallowed, never retried into a gap."""
    cluster = _cluster()
    producer = FakeProducer(cluster)
    _finish(producer, _send(producer, 3))
    log = cluster.log("t")
    next(iter(log.producers.values())).recent.pop()
    log.truncate(2)
    sent = [producer.send(_T0, b"%d" % n) for n in range(3, 7)]
    for one in sent:
        with pytest.raises(OutOfOrderSequence, match="writing to t-0: OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.finish(one)
    assert _log(cluster) == [b"0", b"1"]
    assert producer.released == producer.taken
    # The application knows of the failure when it sends now: a new epoch begins.
    assert producer.finish(producer.send(_T0, b"7")).base_offset == 2
    assert [(one.producer_epoch, one.base_sequence) for one in cluster.log("t").batches()][-1] == (1, 0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.MESSAGE_TOO_LARGE, RecordRejected),
        (errors.INVALID_RECORD, RecordRejected),
        (errors.INVALID_TIMESTAMP, RecordRejected),
        (errors.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed),
        (errors.INVALID_PRODUCER_EPOCH, Fenced),
    ],
)
def test_what_a_retry_cannot_help_is_reported_at_once(code: int, kind: type[KafkaError]) -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: code}))
    producer = FakeProducer(cluster)
    begun = producer.now
    with pytest.raises(kind, match="writing to t-0"):
        producer.finish(producer.send(_T0))
    assert producer.completed_ms - begun < 50
    assert producer.released == producer.taken


def test_brokers_too_old_for_our_batches_are_reported_at_once() -> None:
    cluster = _cluster()
    cluster.versions[Api.PRODUCE] = (0, 2)
    producer = FakeProducer(cluster)
    begun = producer.now
    with pytest.raises(UnsupportedVersion, match="Produce versions 0 to 2") as raised:
        producer.finish(producer.send(_T0))
    assert producer.completed_ms - begun < 100
    assert not raised.value.may_have_been_written, "it never left"
    assert producer.released == producer.taken


def test_one_partitions_refusal_is_its_own() -> None:
    cluster = _cluster(1, 2)
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.MESSAGE_TOO_LARGE}))
    producer = FakeProducer(cluster)
    refused = producer.send(_T0)
    others = _send(producer, 5, TopicPartition("t", 1))
    assert _finish(producer, others) == [0, 1, 2, 3, 4]
    with pytest.raises(RecordRejected):
        producer.finish(refused)


@pytest.mark.parametrize("code", [errors.COORDINATOR_LOADING, errors.COORDINATOR_NOT_AVAILABLE])
def test_a_new_clusters_not_yet_delays_the_producer_id(code: int) -> None:
    cluster = _cluster()
    cluster.control.on(Api.INIT_PRODUCER_ID, Action(errors={"InitProducerId": code}), times=5)
    producer = FakeProducer(cluster)
    assert _finish(producer, _send(producer, 2)) == [0, 1]


def test_a_refused_producer_id_is_reported_to_every_batch() -> None:
    cluster = _cluster()
    cluster.control.on(Api.INIT_PRODUCER_ID, Action(errors={"InitProducerId": 31}), times=None)
    producer = FakeProducer(cluster)
    futures = _send(producer, 3)
    for future in [*futures, producer.send(_T0)]:
        with pytest.raises(AuthorizationFailed, match="producer id"):
            producer.finish(future)
    assert producer.released == producer.taken
