"""``fetch.max.bytes`` bounds what is prefetched, however many brokers it comes from and however large batches are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
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


@pytest.mark.parametrize("large", [300, 3_000, 40_000])
@pytest.mark.parametrize("seed", range(2))
def test_beyond_the_bound_is_one_batch_for_each_broker_at_most(seed: int, large: int) -> None:
    """A broker gives its first batch whole (KIP-74). Small and large ones, taken now and then, a little at a time."""
    rng, brokers, partitions = random.Random(seed), 3, 12
    limit, per_partition, small = 20_000, 5_000, 300
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    for partition in range(partitions):
        for _ in range(30):
            size = large if rng.random() < 0.3 else rng.randint(1, small)
            cluster.log("t", partition).append(build((bytes(size),)))
    options = {"fetch.max.bytes": limit, "max.partition.fetch.bytes": per_partition, "seed": seed}
    consumer = FakeConsumer(cluster, **options)
    consumer.read(*((TopicPartition("t", p), 0) for p in range(partitions)))
    batch = len(build((bytes(large),)))
    most, taken = 0, 0
    while taken < partitions * 30:
        consumer.run_for(rng.randint(1, 60))
        most = max(most, consumer.core.positions.buffered)
        if rng.random() < 0.4:
            taken += sum(len(one.batches) for one in consumer.poll(0, max_bytes=rng.randint(0, 2 * large)))
    assert 0.7 * limit < most <= limit + brokers * batch
    for _, position in consumer.core.positions:
        assert position.buffered == 0


def test_a_thousand_partitions_share_the_bound_and_all_are_read() -> None:
    partitions, limit = 1_000, 100_000
    cluster = FakeCluster(2)
    cluster.add_topic("t", partitions)
    for partition in range(partitions):
        cluster.log("t", partition).append(build((bytes(1_000),)))
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": limit})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(partitions)))
    read: set[int] = set()
    while len(read) < partitions:
        consumer.run_until(lambda: consumer.core.positions.buffered, within_ms=10_000)
        assert consumer.core.positions.buffered <= limit + 2 * 1_100
        read |= {one.tp.partition for one in consumer.poll(0)}
    assert len(cluster.calls(Api.FETCH)) < partitions / 4


def test_a_batch_that_an_answer_cuts_off_takes_memory_too() -> None:
    """With batches of nearly half the limit of a partition, a third of each answer is of no use."""
    limit, per_partition, brokers = 40_000, 5_000, 2
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", 20)
    for partition in range(20):
        for _ in range(6):
            cluster.log("t", partition).append(build((bytes(3_000),)))
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": per_partition})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(20)))
    batches = 0
    while batches < 20 * 6:
        consumer.run_for(300)  # until there is no room for more
        frames: list[Any] = [one.batches[0].view.obj for one in consumer.core.positions.ready]
        answers = {id(frame): len(frame) for frame in frames}
        memory = sum(answers.values())
        assert memory <= limit + brokers * 3_500 + len(answers) * 2_000  # what stands around the records
        batches += sum(len(one.batches) for one in consumer.poll(0))


def _with_large(brokers: int, partitions: int, each: int, size: int) -> FakeCluster:
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", partitions)
    for partition in range(partitions):
        for _ in range(each):
            cluster.log("t", partition).append(build((bytes(size),)))
    return cluster


@pytest.mark.parametrize("seed", range(4))
def test_what_the_application_says_that_it_holds_counts_with_batches_larger_than_the_bound(seed: int) -> None:
    """As a copy does: it takes what has room, says how much that is, and lets go of it later. One of each broker
    comes before their size is known; nothing waits for ever.
    """
    rng, limit, own, large, brokers = random.Random(seed), 16_000, 24_000, 20_000, 3
    cluster = _with_large(brokers, 6, 8, large)
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": limit, "max.partition.fetch.bytes": limit, "seed": seed})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(6)))
    batch, held, taken = len(build((bytes(large),))), list[int](), 0
    for turn in range(2_000):
        consumer.run_for(rng.randint(1, 30))
        room = own - sum(held)
        if room > 0 and (not held or room + limit >= batch):
            found = consumer.poll(0, max_bytes=room)
            held += [one.held for one in found]
            taken += len(found)
        memory = consumer.core.positions.buffered + sum(held)
        assert memory <= (brokers * batch if taken <= brokers else limit + own), (turn, taken)
        if held and rng.random() < 0.5:
            held.pop(0)
        if taken == 6 * 8:
            return
    raise AssertionError(f"{taken} of 48 after all that time")


def test_who_never_says_that_there_is_room_enough_gets_large_batches_all_the_same() -> None:
    cluster = _with_large(3, 6, 8, 20_000)
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": 5_000, "max.partition.fetch.bytes": 5_000})
    consumer.read(*((TopicPartition("t", p), 0) for p in range(6)))
    assert sum(len(consumer.poll(1_000, max_bytes=1)) for _ in range(48)) == 48


def test_a_broker_without_a_backlog_keeps_no_room_for_a_large_batch() -> None:
    """Its Fetch polls long: no caller may wait for that."""
    cluster = _with_large(2, 2, 1, 20_000)
    options = {"fetch.max.bytes": 16_000, "max.partition.fetch.bytes": 16_000, "fetch.max.wait.ms": 10_000}
    consumer = FakeConsumer(cluster, **options)
    consumer.read(*((TopicPartition("t", p), 0) for p in range(2)))
    assert sum(len(consumer.poll()) for _ in range(2)) == 2
    consumer.run_for(100)  # both poll long
    for _ in range(5):
        cluster.log("t", 0).append(build((bytes(20_000),)))
    for _ in range(5):
        asked = consumer.now
        assert len(consumer.poll()) == 1
        assert consumer.completed_ms - asked < 100


def test_a_broker_that_is_hung_keeps_room_for_a_large_batch_for_some_seconds_only() -> None:
    cluster = _with_large(2, 2, 6, 20_000)
    options = {"fetch.max.bytes": 16_000, "max.partition.fetch.bytes": 16_000, "request.timeout.ms": 60_000}
    consumer = FakeConsumer(cluster, **options)
    consumer.read(*((TopicPartition("t", p), 0) for p in range(2)))
    assert len(consumer.poll()) == 2
    held = cluster.control.on(Api.FETCH, Action(hold="before"))
    began, found = consumer.now, 0
    while not found:
        found = len(consumer.poll(10_000))
    assert consumer.completed_ms - began < 12_000
    held.release()


@pytest.mark.parametrize("wait_ms", [0, 400])
def test_brokers_of_large_batches_take_turns_also_where_one_is_paused_meanwhile(wait_ms: int) -> None:
    """Each batch fills the bound: who was asked longest ago is next, and what waits for it is not thrown away."""
    cluster = _with_large(brokers=2, partitions=2, each=40, size=20_000)
    consumer = FakeConsumer(cluster, **{"fetch.max.bytes": 21_000, "max.partition.fetch.bytes": 4_000})
    tps = [TopicPartition("t", number) for number in range(2)]
    consumer.read(*((tp, 0) for tp in tps))
    taken = dict.fromkeys(tps, 0)
    for _ in range(60):
        consumer.run_for(50)
        for one in consumer.poll(0, max_bytes=16_000):
            taken[one.tp] += len(one.batches)
            # It has enough for now, and wants more only when the other one has had its turn, or later.
            consumer.core.positions.pause([one.tp], paused=True)
            consumer.run_for(wait_ms)
        for tp in tps:
            consumer.core.positions.pause([tp], paused=False)
    assert min(taken.values()) >= 0.8 * max(taken.values()) > 5, taken


@pytest.mark.parametrize("brokers", [2, 4])
def test_brokers_that_are_hung_leave_room_for_another_one(brokers: int) -> None:
    """A response of one partition may be as large as the bound. The partitions are read one after the other."""
    cluster = _with_large(brokers, partitions=brokers, each=3, size=2_000)
    options = {"fetch.max.bytes": 16_000, "max.partition.fetch.bytes": 16_000, "request.timeout.ms": 60_000}
    consumer = FakeConsumer(cluster, **options)
    *sick, well = range(brokers)
    hung = {cluster.log("t", partition).leader for partition in sick}
    assert cluster.log("t", well).leader not in hung
    for node in hung:
        cluster.control.on(Api.FETCH, Action(hold="before"), times=None, node=node)
    for partition in sick:
        consumer.read((TopicPartition("t", partition), 0))
        assert consumer.poll(300) == []
    consumer.read((TopicPartition("t", well), 0))
    assert [one.tp.partition for one in consumer.poll(300)] == [well]
