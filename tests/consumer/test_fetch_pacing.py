"""Records of a broker gather for a moment between two fetches, unless there are known to be some already."""

from __future__ import annotations

from functools import partial

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetch_pacing import FetchPacing, gathering_ms
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster

NODE = 1
TP = TopicPartition("t", 0)


@pytest.mark.parametrize(("partitions", "ms"), [(1, 5), (199, 5), (200, 6), (500, 7), (3_000, 20), (100_000, 20)])
def test_records_of_more_partitions_gather_for_longer(partitions: int, ms: int) -> None:
    assert gathering_ms(partitions) == ms


def test_only_a_response_with_records_delays_the_next_fetch_of_its_broker() -> None:
    pacing = FetchPacing()
    assert pacing.wait_ms(NODE, 500, 1_000) == 0
    pacing.on_sent(NODE, 1_000)
    assert pacing.wait_ms(NODE, 500, 1_000) == 0
    pacing.on_response(NODE, 1_001, records=True)
    assert [pacing.wait_ms(NODE, 500, now) for now in (1_001, 1_003, 1_005, 9_000)] == [6, 4, 2, 0]
    assert pacing.wait_ms(NODE + 1, 500, 1_000) == 0
    pacing.on_response(NODE, 1_001, records=False)
    assert pacing.wait_ms(NODE, 500, 1_001) == 0


def consumer_of(cluster: FakeCluster, partitions: int, **options: object) -> FakeConsumer:
    """A consumer that has read all, and whose broker waits for more."""
    cluster.add_topic("t", partitions)
    consumer = FakeConsumer(cluster, **options)
    consumer.read(*((TopicPartition("t", number), 0) for number in range(partitions)))
    consumer.run_for(1_000)
    cluster.received.clear()
    return consumer


def test_what_arrives_between_two_fetches_comes_with_one_response() -> None:
    """1,000 records a second cost 500 fetches a second and process, and a session of 500 partitions twice the CPU."""
    cluster = FakeCluster()
    consumer = consumer_of(cluster, 500)
    consumer.run_for(100)
    cluster.received.clear()
    gap_ms = gathering_ms(500)
    for number in range(2 * gap_ms):
        cluster.after(1 + number, partial(cluster.log("t", number).append_values, b"x"))
    assert [one.tp for one in consumer.poll()] == [TP]
    first_ms = consumer.completed_ms
    assert [one.tp.partition for one in consumer.poll()] == [1], "the first fetch was sent long before"
    assert [one.tp.partition for one in consumer.poll()] == list(range(2, gap_ms + 1))
    assert gap_ms <= consumer.completed_ms - first_ms <= gap_ms + 2
    assert len(cluster.calls(Api.FETCH)) == 2


def test_a_record_after_a_while_without_any_is_not_delayed() -> None:
    cluster = FakeCluster()
    consumer = consumer_of(cluster, 500)
    for _ in range(3):
        consumer.run_for(100)
        appended_ms = consumer.now
        cluster.log(*TP).append_values(b"x")
        assert [one.tp for one in consumer.poll()] == [TP]
        assert consumer.completed_ms - appended_ms <= 1


def test_a_backlog_is_fetched_without_a_break() -> None:
    cluster = FakeCluster()
    consumer = consumer_of(cluster, 1, **{"max.partition.fetch.bytes": 100})
    began_ms = consumer.now
    for _ in range(50):
        cluster.log(*TP).append_values(b"x" * 80)
    read = 0
    while read < 50:
        read += sum(len(one.batches) for one in consumer.poll())
    assert len(cluster.calls(Api.FETCH)) >= 50
    assert consumer.completed_ms - began_ms < 50
