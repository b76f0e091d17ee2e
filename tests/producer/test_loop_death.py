"""A batch handed over just before the network thread dies is answered like all others."""

from __future__ import annotations

from mirror.cluster.types import TopicPartition
from mirror.errors import NetworkThreadDied
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster


def test_network_thread_death_fails_every_caller_also_of_a_queued_send() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    producer = FakeProducer(cluster)
    future = producer.send(TopicPartition("t", 0))
    producer.loop.fail(NetworkThreadDied("it died"))
    assert isinstance(future.exception(0), NetworkThreadDied)
