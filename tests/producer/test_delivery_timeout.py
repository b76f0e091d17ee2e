"""``delivery.timeout.ms`` (KIP-91): from a batch's creation to its answer, whatever happens in between."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout, KafkaError, UnsupportedVersion
from mirror.producer.batch.batches import ProducerBatch
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_TIMES = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 4_000}


def _cluster(brokers: int = 1, partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    return cluster


def _log(cluster: FakeCluster, partition: int = 0) -> list[bytes]:
    return [value for one in cluster.log("t", partition).batches() for value in values_of(one.view)]


def _send(producer: FakeProducer, value: bytes = b"x", tp: TopicPartition = _T0) -> ProducerBatch:
    made = producer.prepare(tp, value)
    producer.send_batch(made)
    return made


def _expired(producer: FakeProducer, sent: ProducerBatch) -> DeliveryTimeout:
    """How it expired, and that it did so when it had to."""
    with pytest.raises(DeliveryTimeout) as late:
        producer.finish(sent.future)
    return late.value


def _freed_at_completion(producer: FakeProducer, sent: ProducerBatch) -> list[int]:
    """The bytes given back by the moment that the caller hears of ``sent``."""
    freed: list[int] = []
    sent.future.add_done_callback(lambda _: freed.append(producer.released))
    return freed


def test_clock_runs_from_batch_creation_across_retries() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer = FakeProducer(cluster, **_TIMES)
    made = producer.prepare(_T0)
    producer.cluster.clock.advance(700)  # it waited before it was handed over
    producer.send_batch(made)
    error = _expired(producer, made)
    assert producer.completed_ms == made.created_ms + 5_000
    assert made.attempts > 4
    assert "t-0: a batch of 1 records was not acknowledged within 5000 ms" in str(error)
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    assert isinstance(error.__cause__, KafkaError)
    assert not error.may_have_been_written, "every attempt was refused before it was written"
    assert producer.released == producer.taken


def test_inflight_expires_despite_late_success() -> None:
    """The caller gets the error in time; the request is awaited all the same, and its late success changes nothing."""
    cluster = _cluster()
    held = cluster.control.on(Api.PRODUCE, Action(hold="after"))
    producer = FakeProducer(cluster, **{**_TIMES, "request.timeout.ms": 4_900})
    sent = producer.prepare(_T0, b"late")
    producer.cluster.clock.advance(1_000)
    producer.send_batch(sent)
    cluster.after(4_500, held.release)
    freed = _freed_at_completion(producer, sent)
    error = _expired(producer, sent)
    assert producer.completed_ms == sent.created_ms + 5_000
    assert error.may_have_been_written
    assert _log(cluster) == [b"late"]
    assert freed == [0]
    producer.run_for(10_000)
    assert isinstance(sent.future.exception(0), DeliveryTimeout)
    assert len(cluster.calls(Api.PRODUCE)) == 1
    assert producer.released == producer.taken


def test_a_buffer_in_flight_is_never_given_back_before_its_request_has_ended() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{**_TIMES, "delivery.timeout.ms": 4_100})
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=2)
    cluster.control.on(Api.PRODUCE, Action(silent=True))
    sent = _send(producer)
    freed = _freed_at_completion(producer, sent)
    _expired(producer, sent)
    assert producer.completed_ms == sent.created_ms + 4_100
    assert freed == [0], "the last request is still out"
    producer.run_until(lambda: producer.released == producer.taken, within_ms=4_000)
    assert producer.now >= cluster.calls(Api.PRODUCE)[2].received_ms + 4_000


def test_expired_never_retried_or_split() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    producer = FakeProducer(cluster, **_TIMES)
    sent = _send(producer)
    _expired(producer, sent)
    attempts = len(cluster.calls(Api.PRODUCE))
    cluster.control.clear()
    producer.run_for(60_000)
    assert len(cluster.calls(Api.PRODUCE)) == attempts


@pytest.mark.parametrize("code", [errors.NOT_ENOUGH_REPLICAS, errors.MESSAGE_TOO_LARGE, errors.NOT_LEADER])
def test_expired_never_retried_or_split_after_a_late_refusal(code: int) -> None:
    cluster = _cluster()
    held = cluster.control.on(Api.PRODUCE, Action(hold="before", errors={_T0: code}))
    producer = FakeProducer(cluster, **{**_TIMES, "delivery.timeout.ms": 4_500})
    cluster.brokers[1].connect_ms = 600
    sent = _send(producer)
    cluster.after(4_600, held.release)
    _expired(producer, sent)
    producer.run_for(30_000)
    assert len(cluster.calls(Api.PRODUCE)) == 1
    assert _log(cluster) == []
    assert producer.released == producer.taken


def test_all_partitions_expire_same_tick() -> None:
    cluster = _cluster(2, 4)
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    producer = FakeProducer(cluster, **_TIMES)
    sent = [_send(producer, b"x", TopicPartition("t", p)) for p in range(4)]
    for one in sent:
        _expired(producer, one)
        assert producer.completed_ms == one.created_ms + 5_000


def test_loop_wakes_at_next_expiry() -> None:
    """It sleeps till the first, then till the second: not longer, and not for nothing."""
    cluster = _cluster(1, 2)
    for topic in cluster.topics.values():
        for log in topic.partitions:
            log.leader = 9  # a broker that does not exist
    producer = FakeProducer(cluster, **_TIMES)
    first = _send(producer, b"x", _T0)
    producer.run_for(1_300)
    second = _send(producer, b"x", _T1)
    _expired(producer, first)
    assert producer.completed_ms == first.created_ms + 5_000
    _expired(producer, second)
    assert producer.completed_ms == second.created_ms + 5_000


def test_expired_unsent_never_written_nor_buffer_reused() -> None:
    """No leader until too late: nothing was sent, so nothing may be written, and that is what the error says."""
    cluster = _cluster()
    cluster.log("t").leader = 9
    producer = FakeProducer(cluster, **_TIMES)
    sent = _send(producer)
    error = _expired(producer, sent)
    assert not error.may_have_been_written
    assert producer.released == producer.taken
    cluster.log("t").move(1)
    producer.run_for(60_000)
    assert not cluster.calls(Api.PRODUCE)
    assert _log(cluster) == []


def test_expired_unsent_never_written_in_the_turn_in_which_it_could_be_sent() -> None:
    """Expire before drain: it is handed over when its time is up, to a leader that is there and idle."""
    cluster = _cluster()
    producer = FakeProducer(cluster, **_TIMES)
    producer.finish(_send(producer, b"first").future)
    made = producer.prepare(_T0, b"old")
    cluster.clock.advance(5_000)
    producer.send_batch(made)
    error = _expired(producer, made)
    producer.run_for(1_000)
    assert (error.attempts, error.may_have_been_written) == (0, False)
    assert _log(cluster) == [b"first"]


def test_one_expired_batch_leaves_the_others_of_its_request_to_the_answer() -> None:
    cluster = _cluster(1, 2)
    producer = FakeProducer(cluster, **_TIMES)
    for tp in (_T0, _T1):
        producer.finish(_send(producer, b"first", tp).future)
    old = producer.prepare(_T0, b"old")
    cluster.clock.advance(4_000)
    cluster.control.on(Api.PRODUCE, Action(delay_ms=2_000))
    before = len(cluster.calls(Api.PRODUCE))
    producer.send_batch(old)
    young = _send(producer, b"young", _T1)
    _expired(producer, old)
    assert producer.completed_ms == old.expires_ms
    assert producer.finish(young.future).offset == 1
    assert len(cluster.calls(Api.PRODUCE)) == before + 1, "one request for both, and none again"
    assert _log(cluster, 1) == [b"first", b"young"]


def test_unsent_expiry_leaves_sequences_resolved() -> None:
    """What was never sent leaves no gap: the partition goes on."""
    cluster = _cluster()
    cluster.log("t").leader = 9
    producer = FakeProducer(cluster, **_TIMES)
    _expired(producer, _send(producer))
    cluster.log("t").move(1)
    after = _send(producer, b"after")
    assert producer.finish(after.future).base_offset == 0
    assert [one.base_sequence for one in cluster.log("t").batches()] == [0]


def test_a_missing_topic_is_named_in_the_expiry() -> None:
    producer = FakeProducer(_cluster(), **_TIMES)
    error = _expired(producer, _send(producer, b"x", TopicPartition("nope", 0)))
    assert "topic 'nope' does not exist" in str(error)


def test_a_dead_cluster_is_named_in_the_expiry() -> None:
    cluster = _cluster()
    cluster.kill(1)
    producer = FakeProducer(cluster, **_TIMES)
    assert "connection refused" in str(_expired(producer, _send(producer)))


def test_brokers_too_old_for_us_are_reported_at_once_not_at_the_timeout() -> None:
    cluster = _cluster()
    cluster.versions[Api.METADATA] = (0, 5)
    producer = FakeProducer(cluster)
    begun = producer.now
    with pytest.raises(UnsupportedVersion, match="Metadata versions 0 to 5"):
        producer.finish(_send(producer).future)
    assert producer.completed_ms - begun < 1_000


def test_max_in_flight_1_expires_in_order() -> None:
    """A successor never overtakes or expires before its predecessor."""
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    producer = FakeProducer(cluster, **{**_TIMES, _IN_FLIGHT: 1})
    order: list[int] = []
    for number in range(3):
        sent = _send(producer, b"%d" % number)
        sent.future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        producer.run_for(100)
    producer.run_until(lambda: len(order) == 3)
    assert order == [0, 1, 2]


def test_an_older_batch_that_waits_for_its_retry_does_not_outlive_a_younger_one_in_flight() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{"delivery.timeout.ms": 30_000, "request.timeout.ms": 25_000})
    cluster.control.on(Api.PRODUCE, Action(delay_ms=20_500, errors={_T0: errors.NOT_ENOUGH_REPLICAS}))
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    old = _send(producer, b"old")
    producer.run_for(20_000)
    young = _send(producer, b"young")
    _expired(producer, old)
    assert producer.completed_ms == old.created_ms + 30_000
    assert not young.completed, "its own time is not up, and whether the old one was written is still to be found out"
    _expired(producer, young)
    assert producer.completed_ms == young.created_ms + 30_000


def test_exhausted_explicit_retries_fail_before_the_timeout() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer = FakeProducer(cluster, retries=2)
    begun = producer.now
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        producer.finish(_send(producer).future)
    assert len(cluster.calls(Api.PRODUCE)) == 3
    assert producer.completed_ms - begun < 500
    assert producer.released == producer.taken


def test_a_timeout_of_forever_overflows_nowhere() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=50)
    producer = FakeProducer(cluster, **{"delivery.timeout.ms": 2**63 - 1})
    assert producer.finish(_send(producer).future).base_offset == 0


def test_one_sick_partition_costs_the_others_nothing() -> None:
    cluster = _cluster(2, 2)
    cluster.log("t", 0).leader = 9
    producer = FakeProducer(cluster, **_TIMES)
    sick = _send(producer)
    well = [_send(producer, b"%d" % n, _T1) for n in range(30)]
    begun = producer.now
    for one in well:
        producer.finish(one.future)
    assert producer.completed_ms - begun < 100
    assert _log(cluster, 1) == [b"%d" % n for n in range(30)]
    _expired(producer, sick)
