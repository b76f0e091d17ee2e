"""Incremental fetch sessions (KIP-227): as they are seen on the wire."""

from __future__ import annotations

from mirror.cluster.loop import LeaveEvent
from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster


def _consumer(**options: object) -> tuple[FakeCluster, FakeConsumer]:
    cluster = FakeCluster()
    cluster.add_topic("t", 20)
    consumer = FakeConsumer(cluster, **options)
    consumer.read(*((TopicPartition("t", p), 0) for p in range(20)))
    return cluster, consumer


def _said(cluster: FakeCluster) -> list[int]:
    """How many partitions each fetch spelled out."""
    return [sum(len(topic.partitions) for topic in call.body.topics) for call in cluster.calls(Api.FETCH)]


def test_only_changes_are_said() -> None:
    cluster, consumer = _consumer()
    consumer.run_for(2_000)
    assert _said(cluster)[0] == 20
    assert set(_said(cluster)[1:]) == {0}
    cluster.log("t", 7).append_values(b"x")
    assert [one.tp for one in consumer.poll()] == [TopicPartition("t", 7)]
    consumer.run_for(600)
    assert _said(cluster)[-1] in {0, 1}
    assert 1 in _said(cluster)


def test_a_broker_that_forgot_the_session_costs_one_full_fetch_and_no_backoff() -> None:
    cluster, consumer = _consumer(**{"retry.backoff.ms": 60_000, "retry.backoff.max.ms": 60_000})
    consumer.run_for(1_000)
    cluster.sessions.forget_all()
    cluster.log("t", 3).append_values(b"x")
    begun = consumer.now
    assert consumer.poll(30_000)
    assert consumer.completed_ms - begun < 1_200
    assert 20 in _said(cluster)[1:]


def test_a_broker_without_sessions_is_read_too() -> None:
    cluster, consumer = _consumer()
    cluster.sessions.offered = False
    consumer.run_for(1_000)
    cluster.log("t", 3).append_values(b"x")
    assert consumer.poll()
    assert set(_said(cluster)) == {20}


def test_sessions_are_ended_when_the_consumer_closes() -> None:
    cluster, consumer = _consumer()
    consumer.run_for(1_000)
    assert len(cluster.sessions.open) == 1
    begun = consumer.now
    consumer.call(LeaveEvent(consumer.core, *consumer.timer()))
    assert not cluster.sessions.open
    assert consumer.completed_ms - begun < 100, "not behind the fetch that polls long"
