"""Places where records could have been skipped, lost or held up, each found once by trying."""

from __future__ import annotations

import pytest

from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.types import TopicPartition
from mirror.consumer.core import ConsumerCore
from mirror.consumer.events import (
    AssignEvent,
    ConsumedEvent,
    PauseEvent,
    PollEvent,
    PositionEvent,
    ResetEvent,
    SeekEvent,
)
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import AuthorizationFailed, LogTruncated, NetworkThreadDied
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer, FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.errors import TOPIC_AUTHORIZATION_FAILED
from tests.fakes.record_batches import build

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def cluster_with(records: int, *, size: int = 1) -> FakeCluster:
    cluster = FakeCluster()
    for name in ("a", "b"):
        cluster.add_topic(name)
        for _ in range(records):
            cluster.log(name).append(build((bytes(size),)))
    return cluster


def offsets(consumer: FakeConsumer, tp: TopicPartition, timeout_ms: int = 1_000) -> list[int]:
    return [b.base_offset for f in consumer.poll(timeout_ms) if f.tp == tp for b in f.batches]


def test_a_late_look_up_of_an_earlier_assignment_does_not_override_a_seek() -> None:
    cluster = cluster_with(10)
    held = cluster.control.on(Api.LIST_OFFSETS, Action(hold="before"))
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": "latest"})
    consumer.submit(consumer.core, AssignEvent([A]))
    consumer.run_until(lambda: cluster.calls(Api.LIST_OFFSETS))
    consumer.submit(consumer.core, AssignEvent([]))
    consumer.submit(consumer.core, AssignEvent([A]))
    consumer.submit(consumer.core, SeekEvent(A, 5, None))
    held.release()
    consumer.run_for(2_000)
    assert consumer.call(PositionEvent(A, *consumer.timer()), consumer.core) == 5
    assert offsets(consumer, A) == [5, 6, 7, 8, 9]


def test_a_poll_that_nobody_waits_for_any_more_takes_nothing() -> None:
    cluster = cluster_with(0)
    consumer = FakeConsumer(cluster)
    consumer.read((A, 0))
    left = PollEvent(*consumer.timer(30_000))
    consumer.submit(consumer.core, left)
    consumer.run_for(100)
    cluster.log("a").append(build((b"one",)))
    assert offsets(consumer, A) == [0]
    consumer.run_for(40_000)
    assert left.future.result() == []


def test_a_recreated_topic_is_reported_not_read_on() -> None:
    cluster = cluster_with(3)
    consumer = FakeConsumer(cluster)
    consumer.read((A, 0))
    assert offsets(consumer, A) == [0, 1, 2]
    cluster.add_topic("a")
    for _ in range(9):
        cluster.log("a").append(build((b"new",)))
    (fetched,) = consumer.poll(60_000)
    assert isinstance(fetched.error, LogTruncated)
    assert "made again" in str(fetched.error)
    consumer.submit(consumer.core, SeekEvent(A, 0, None))
    assert offsets(consumer, A) == list(range(9))


def test_a_paused_partition_does_not_starve_the_others() -> None:
    cluster = cluster_with(20, size=1_000)
    limit = {"fetch.max.bytes": 8_000, "max.partition.fetch.bytes": 8_000}
    consumer = FakeConsumer(cluster, **limit)
    consumer.read((A, 0))
    consumer.run_for(1_000)
    consumer.submit(consumer.core, AssignEvent([A, B]))
    consumer.submit(consumer.core, PauseEvent([A], paused=True))
    consumer.submit(consumer.core, SeekEvent(B, 0, None))
    assert offsets(consumer, B)
    consumer.submit(consumer.core, PauseEvent([A], paused=False))
    polls = (offsets(consumer, A) for _ in range(10))
    assert next(found for found in polls if found)[0] == 0


def test_one_consumers_long_poll_does_not_stand_before_anothers() -> None:
    cluster = cluster_with(5)
    consumer = FakeConsumer(cluster, **{"fetch.max.wait.ms": 5_000})
    consumer.read((A, 5))
    consumer.run_for(500)
    other = ConsumerCore(ConsumerSettings.parse({"bootstrap.servers": cluster.bootstrap}), consumer.loop)
    consumer.submit(None, JoinEvent(other))
    consumer.submit(other, AssignEvent([B]))
    consumer.submit(other, SeekEvent(B, 0, None))
    began = consumer.now
    consumer.call(PollEvent(*consumer.timer()), other)
    assert consumer.now - began < 500
    consumer.call(LeaveEvent(other, *consumer.timer()))
    consumer.run_for(10)
    assert other not in consumer.loop.cores


def test_network_thread_death_fails_every_caller_behind_a_closing_one() -> None:
    cluster = cluster_with(0)
    producer = FakeProducer(cluster)
    closing = ConsumerCore(ConsumerSettings.parse({"bootstrap.servers": cluster.bootstrap}), producer.loop)
    producer.submit(None, JoinEvent(closing))
    producer.submit(closing, AssignEvent([B]))
    producer.submit(closing, SeekEvent(B, 0, None))
    producer.run_for(1_000)
    producer.loop.cores.reverse()  # the closing one is notified first
    cluster.control.add(lambda _: Action(silent=True))
    sent = producer.send(A)
    leave = LeaveEvent(closing, *producer.timer(60_000))
    producer.submit(None, leave)
    producer.run_for(100)
    producer.loop.fail(NetworkThreadDied("it died"))
    assert isinstance(sent.exception(0), NetworkThreadDied)
    with pytest.raises(NetworkThreadDied):
        leave.future.result(0)


def test_look_ups_end_with_their_partitions() -> None:
    cluster = cluster_with(0)
    consumer = FakeConsumer(cluster)
    for number in range(5):
        consumer.submit(consumer.core, AssignEvent([TopicPartition(f"missing-{number}", 0)]))
        consumer.run_for(50)
    consumer.submit(consumer.core, AssignEvent([]))
    consumer.run_for(5_000)
    cluster.received.clear()
    consumer.run_for(60_000)
    assert len(cluster.calls(Api.METADATA)) <= 1


def test_a_partition_that_does_not_exist_is_asked_for_less_and_less_often() -> None:
    cluster = cluster_with(0)
    consumer = FakeConsumer(cluster)
    consumer.submit(consumer.core, AssignEvent([TopicPartition("a", 7)]))
    consumer.submit(consumer.core, ResetEvent({TopicPartition("a", 7): -1}))
    consumer.run_for(20_000)
    assert len(cluster.calls(Api.METADATA)) <= 30


def test_what_is_committed_by_position_has_its_epoch() -> None:
    cluster = cluster_with(2)
    cluster.move("a", 0, 1)
    cluster.log("a").append(build((b"x",)))
    consumer = FakeConsumer(cluster)
    consumer.read((A, 0))
    assert offsets(consumer, A) == [0, 1, 2]
    (found,) = consumer.call(ConsumedEvent(*consumer.timer()), consumer.core).items()
    assert found[0] == A
    assert (found[1].offset, found[1].leader_epoch) == (3, 1)


def test_throttled_backlog_expires_nothing() -> None:
    """A producer that is held back wakes when the broker's time is over, and not at its batches' expiry."""
    cluster = cluster_with(0)

    def throttled(answer: object) -> object:
        answer.throttle_time = 1_000  # type: ignore[attr-defined]
        return answer

    cluster.control.on(Api.PRODUCE, Action(rewrite=throttled), times=None)  # type: ignore[arg-type]
    producer = FakeProducer(cluster, **{"delivery.timeout.ms": 30_100})
    sent = [producer.send(A, b"%d" % n) for n in range(20)]
    producer.run_until(lambda: all(future.done() for future in sent))
    assert [future.result().base_offset for future in sent] == list(range(20))
    assert producer.now < 30_000


def test_an_error_behind_evicted_batches_is_reported_when_they_are_fetched_again() -> None:
    """Otherwise nothing of the partition would be fetched any more, and no poll would say why."""
    cluster = cluster_with(3)
    consumer = FakeConsumer(cluster)
    consumer.read((A, 0))
    consumer.run_for(100)
    cluster.control.on(Api.FETCH, Action(errors={A: TOPIC_AUTHORIZATION_FAILED}), times=2)
    consumer.run_for(2_000)
    consumer.submit(consumer.core, PauseEvent([A], paused=True))
    consumer.run_for(10)
    assert [one.error is None for one in consumer.core.positions.ready] == [True, False]
    consumer.core.positions.evict_paused()
    consumer.submit(consumer.core, PauseEvent([A], paused=False))
    (refused,) = consumer.poll(5_000)
    assert isinstance(refused.error, AuthorizationFailed)
    consumer.submit(consumer.core, SeekEvent(A, 0, None))
    assert offsets(consumer, A) == [0, 1, 2]
