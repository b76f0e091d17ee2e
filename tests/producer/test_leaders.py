"""Leaders move, topics are recreated: order is kept, and a new leader is asked at once."""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import Future

import pytest

from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.producer.batch.batches import RecordMetadata
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_T0 = TopicPartition("t", 0)
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_SLOW = {"retry.backoff.ms": 20_000, "retry.backoff.max.ms": 20_000}


def _cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.add_topic("t")
    return cluster


def _log(cluster: FakeCluster) -> list[bytes]:
    return [value for one in cluster.log("t").batches() for value in values_of(one.view)]


def _send(producer: FakeProducer, numbers: range) -> list[Future[RecordMetadata]]:
    return [producer.send(_T0, b"%d" % number) for number in numbers]


def _finish(producer: FakeProducer, futures: list[Future[RecordMetadata]]) -> None:
    for future in futures:
        producer.finish(future)


def test_new_leader_skips_backoff() -> None:
    """The broker names the new leader itself (KIP-951): the backoff was meant for the old one (KAFKA-14253)."""
    cluster = _cluster()
    producer = FakeProducer(cluster, **_SLOW)
    _finish(producer, _send(producer, range(1)))
    cluster.move("t", 0, 2)
    begun = producer.now
    _finish(producer, _send(producer, range(1, 4)))
    assert producer.completed_ms - begun < 100
    assert _log(cluster) == [b"0", b"1", b"2", b"3"]


def test_the_same_leader_gets_its_backoff() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{"retry.backoff.ms": 1_000, "retry.backoff.max.ms": 1_000})
    _finish(producer, _send(producer, range(1)))
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_LEADER}))
    begun = producer.now
    _finish(producer, _send(producer, range(1, 2)))
    assert 800 <= producer.completed_ms - begun <= 1_300


def test_retries_keep_kip_580s_distance() -> None:
    cluster = _cluster()
    cluster.control.on(Api.PRODUCE, Action(errors={_T0: errors.NOT_ENOUGH_REPLICAS}), times=9)
    producer = FakeProducer(cluster)
    _finish(producer, _send(producer, range(1)))
    times = [call.received_ms for call in cluster.calls(Api.PRODUCE)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(gaps) == 9
    for number, gap in enumerate(gaps):
        assert 80 * min(10, 2**number) <= gap <= min(1_000, 120 * 2**number), gaps


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_leaders_that_move_all_the_time_keep_the_order(in_flight: int) -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{_IN_FLIGHT: in_flight})
    futures = []
    for number in range(30):
        futures += _send(producer, range(3 * number, 3 * number + 3))
        cluster.after(7, functools.partial(cluster.move, "t", 0, number % 3 + 1))
        producer.run_for(11)
    _finish(producer, futures)
    assert _log(cluster) == [b"%d" % n for n in range(90)]


def test_a_partition_without_a_leader_waits_for_one() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster)
    _finish(producer, _send(producer, range(1)))
    cluster.kill(1)
    cluster.after(5_000, lambda: cluster.move("t", 0, 3))
    begun = producer.now
    _finish(producer, _send(producer, range(1, 5)))
    assert 5_000 <= producer.completed_ms - begun <= 7_500
    assert _log(cluster) == [b"%d" % n for n in range(5)]


def test_a_broker_that_goes_silent_is_left_once_its_partitions_moved() -> None:
    cluster = _cluster()
    producer = FakeProducer(cluster, **{"request.timeout.ms": 3_000})
    _finish(producer, _send(producer, range(1)))
    cluster.control.on(Api.PRODUCE, Action(silent=True), node=1)
    cluster.after(1_000, lambda: cluster.move("t", 0, 2))
    begun = producer.now
    _finish(producer, _send(producer, range(1, 4)))
    assert producer.completed_ms - begun < 4_000
    assert _log(cluster) == [b"0", b"1", b"2", b"3"]


def test_nothing_more_is_sent_to_a_former_leader_whose_successor_is_known_without_its_epoch() -> None:
    """Brokers before 2.4 report no reliable epochs: only the node shows that the leader has changed."""
    cluster = FakeCluster(2, release="2.1")
    cluster.add_topic("t")
    producer = FakeProducer(cluster, **{_IN_FLIGHT: 5})
    _finish(producer, _send(producer, range(1)))
    producer.run_for(1_000)
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"))
    futures = _send(producer, range(1, 2))
    producer.run_until(lambda: len(cluster.calls(Api.PRODUCE)) == 2)
    cluster.move("t", 0, 2)
    producer.loop.metadata.request_update(("t",))
    producer.run_for(10)
    assert producer.loop.metadata.leader(_T0) == Leader(2, -1)
    futures += _send(producer, range(2, 4))
    producer.run_for(10)
    assert len(producer.queue(_T0).in_flight) == 1
    held.release()
    _finish(producer, futures)
    assert _log(cluster) == [b"0", b"1", b"2", b"3"]
