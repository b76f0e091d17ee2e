"""``fetch.max.bytes`` bounds what is prefetched, however many brokers it comes from."""

from __future__ import annotations

from mirror.cluster.topics import TopicPartition
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import build


def test_prefetch_bound_holds_across_brokers() -> None:
    """Were each broker's Fetch given the whole room, n brokers would bring n times as much."""
    cluster = FakeCluster(6)
    cluster.add_topic("t", 6)
    for partition in range(6):
        for _ in range(30):
            cluster.log("t", partition).append(build((bytes(1_000),)))
    limit = 8_000
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": limit})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(6)))
    consumer.run_for(2_000)
    assert consumer.core.positions.buffered <= 2 * limit
