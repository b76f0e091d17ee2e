"""What is to be fetched from which broker is kept up to date by changes alone: an idle partition costs nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import (
    AssignEvent,
    LimitPartitionsEvent,
    PauseEvent,
    PositionEvent,
    SeekEvent,
    UnassignEvent,
)
from mirror.consumer.fetch_routes import FetchRoutes
from mirror.consumer.fetching import Fetching
from mirror.consumer.offsets import Offsets
from mirror.consumer.positions import Position, Positions
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

MANY = 1_000


def test_idle_partitions_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of the loop went through all partitions twice, each Fetch five times: 12 ms with 300 of them."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", MANY)
    consumer = FakeConsumer(cluster)
    consumer.read(*((TopicPartition("t", number), 0) for number in range(MANY)))
    consumer.run_for(2_000)
    checked: list[TopicPartition] = []
    place, validates = FetchRoutes._place, Offsets._needs_validation

    def placed(routes: FetchRoutes, tp: TopicPartition, position: Position, offset: int, now: int) -> int:
        checked.append(tp)
        return place(routes, tp, position, offset, now)

    def validated(offsets: Offsets, tp: TopicPartition, position: Position) -> bool:
        checked.append(tp)
        return validates(offsets, tp, position)

    monkeypatch.setattr(FetchRoutes, "_place", placed)
    monkeypatch.setattr(Offsets, "_needs_validation", validated)
    monkeypatch.setattr(Positions, "__iter__", lambda _: pytest.fail("all partitions were gone through"))
    cluster.received.clear()
    for number in range(20):
        cluster.log("t", number).append_values(b"x")
        assert [one.tp.partition for one in consumer.poll()] == [number]
    consumer.run_for(2_000)
    assert len(checked) <= 20 * 8
    named = [sum(len(topic.partitions) for topic in call.body.topics) for call in cluster.calls(Api.FETCH)]
    assert sum(named) <= 20


def test_consumer_without_partitions_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is polled in every turn; beside a busy producer that took 6% of the network thread."""
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    cluster.log("t").append_values(b"x")
    consumer, tp = FakeConsumer(cluster), TopicPartition("t", 0)
    consumer.read((tp, 0))
    assert [one.tp for one in consumer.poll()] == [tp]
    consumer.submit(consumer.core, AssignEvent([]))
    consumer.run_for(2_000)
    with monkeypatch.context() as patched:
        patched.setattr(Fetching, "poll", lambda *_: pytest.fail("there is nothing to fetch"))
        patched.setattr(Offsets, "poll", lambda *_: pytest.fail("there is nothing to look up"))
        cluster.move("t", 0, 1)
        consumer.run_for(2_000)
    cluster.log("t").append_values(b"y")
    consumer.read((tp, 1))
    assert [one.tp for one in consumer.poll()] == [tp]


def test_a_change_of_one_topic_concerns_its_partitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response for a new topic had all partitions of a task decided about again."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", 50)
    cluster.add_topic("u", 1)
    u0 = TopicPartition("u", 0)
    cluster.log(*u0).append_values(b"x")
    consumer = FakeConsumer(cluster)
    consumer.read((u0, 1), *((TopicPartition("t", number), 0) for number in range(50)))
    consumer.run_for(2_000)
    checked: list[TopicPartition] = []
    place, validates = FetchRoutes._place, Offsets._needs_validation

    def placed(routes: FetchRoutes, tp: TopicPartition, position: Position, offset: int, now: int) -> int:
        checked.append(tp)
        return place(routes, tp, position, offset, now)

    def validated(offsets: Offsets, tp: TopicPartition, position: Position) -> bool:
        checked.append(tp)
        return validates(offsets, tp, position)

    monkeypatch.setattr(FetchRoutes, "_place", placed)
    monkeypatch.setattr(Offsets, "_needs_validation", validated)
    cluster.move("u", 0, cluster.log(*u0).leader % 3 + 1)
    cluster.log(*u0).append_values(b"y")
    assert [one.tp for one in consumer.poll()] == [u0]
    assert set(checked) == {u0}


@pytest.mark.parametrize("incremental", [False, True])
def test_a_partition_that_is_assigned_later_is_read_and_its_position_found_also_while_it_is_paused(
    incremental: bool,
) -> None:
    """Nothing else changes then: neither the metadata, nor another position."""
    cluster = FakeCluster()
    cluster.add_topic("t", 3)
    tps = [TopicPartition("t", number) for number in range(3)]
    for tp in tps:
        cluster.log(*tp).append_values(b"x", b"y")
    consumer = FakeConsumer(cluster, **{"auto.offset.reset": "earliest"})
    consumer.submit(consumer.core, AssignEvent(tps[:1]))
    assert [one.tp for one in consumer.poll()] == tps[:1]
    consumer.run_for(2_000)
    consumer.submit(consumer.core, AssignEvent(tps[1:2] if incremental else tps[:2], incremental=incremental))
    assert [one.tp for one in consumer.poll()] == tps[1:2]
    consumer.submit(consumer.core, AssignEvent(tps[2:] if incremental else tps, paused=True, incremental=incremental))
    consumer.run_for(2_000)
    assert consumer.call(PositionEvent(tps[2], *consumer.timer()), consumer.core) == 0


def test_the_limit_of_each_partition_may_be_lowered_while_it_is_read() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    tp = TopicPartition("t", 0)
    for _ in range(20):
        cluster.log(*tp).append_values(b"x" * 1_000)
    consumer = FakeConsumer(cluster, **{"max.partition.fetch.bytes": 10_000})
    consumer.submit(consumer.core, LimitPartitionsEvent(3_000))
    consumer.read((tp, 0))
    limited = [len(one.batches) for one in consumer.poll()]
    consumer.submit(consumer.core, LimitPartitionsEvent(100_000))
    unlimited = [len(one.batches) for _ in range(3) for one in consumer.poll()]
    assert max(limited) <= 3 < max(unlimited) <= 10, "not more than the setting"


def _without_empty(by_node: Mapping[int, Collection[object]]) -> dict[int, Collection[object]]:
    return {node: found for node, found in by_node.items() if found}


class Reader:
    """A consumer of twelve partitions, to which anything may happen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = FakeCluster(3)
        self.tps = [TopicPartition("t", number) for number in range(12)]
        self.cluster.add_topic("t", len(self.tps))
        options = {"max.partition.fetch.bytes": 200, "fetch.max.bytes": self.chance.choice([600, 5_000])}
        self.consumer = FakeConsumer(self.cluster, **options, seed=seed)
        self.consumer.read(*((tp, 0) for tp in self.tps))
        self.fetching, self.positions = self.consumer.core.fetching, self.consumer.core.positions

    def some(self) -> list[TopicPartition]:
        assigned = [tp for tp, _ in self.positions]
        return self.chance.sample(assigned, min(len(assigned), self.chance.randint(1, 4)))

    def append(self) -> None:
        for tp in self.some():
            self.cluster.log(*tp).append_values(*[b"x" * self.chance.randint(1, 90)] * self.chance.randint(1, 4))

    def poll(self) -> None:
        self.consumer.poll(self.chance.randint(0, 50), self.chance.choice([None, 100]))

    def pause(self) -> None:
        self.consumer.submit(self.consumer.core, PauseEvent(self.some(), paused=self.chance.random() < 0.5))

    def seek(self) -> None:
        for tp in self.some():
            self.consumer.submit(self.consumer.core, SeekEvent(tp, 0, self.chance.choice([None, 0])))

    def move(self) -> None:
        self.cluster.move("t", self.chance.choice(self.tps).partition, self.chance.randint(1, 3))

    def refuse(self) -> None:
        code = self.chance.choice([errors.NOT_LEADER, errors.UNKNOWN_TOPIC_OR_PARTITION])
        breaks = self.chance.random() < 0.3
        self.cluster.control.on(
            Api.FETCH, Action(errors=dict.fromkeys(self.some(), code), close="after" if breaks else "")
        )

    def assign(self) -> None:
        assigned = self.chance.sample(self.tps, self.chance.randint(1, len(self.tps)))
        before = [tp for tp, _ in self.positions]
        self.consumer.submit(self.consumer.core, AssignEvent(assigned))
        for tp in set(assigned).difference(before):
            self.consumer.submit(self.consumer.core, SeekEvent(tp, 0, None))

    def assign_more(self) -> None:
        """Those that are assigned keep their positions."""
        self.consumer.run_for(1)
        before = {tp for tp, _ in self.positions}
        added = self.chance.sample(self.tps, 3)
        self.consumer.submit(self.consumer.core, AssignEvent(added, incremental=True))
        self.consumer.run_for(1)
        assert {tp for tp, _ in self.positions} == {*before, *added}
        for tp in set(added).difference(before):
            self.consumer.submit(self.consumer.core, SeekEvent(tp, 0, None))

    def unassign(self) -> None:
        self.consumer.run_for(1)
        if len(left := dict(self.positions)) > 4:
            removed = self.some()
            self.consumer.submit(self.consumer.core, UnassignEvent(removed))
            self.consumer.run_for(1)
            assert dict(self.positions).keys() == left.keys() - set(removed)

    @property
    def actions(self) -> list[Callable[[], None]]:
        return [
            self.append,
            self.append,
            self.poll,
            self.poll,
            self.pause,
            self.seek,
            self.move,
            self.refuse,
            self.assign,
            self.assign_more,
            self.unassign,
        ]


@pytest.mark.parametrize("seed", range(12))
def test_the_routes_are_those_of_a_fresh_start_whatever_has_happened(seed: int) -> None:
    reader = Reader(seed)
    routes = reader.fetching.routes
    for _ in range(120):
        reader.chance.choice(reader.actions)()
        reader.consumer.run_for(reader.chance.choice([1, 20, 300]))
        routes.update(reader.consumer.now)
        metadata = reader.consumer.loop.metadata
        fresh = FetchRoutes(reader.fetching._settings, metadata, reader.positions, reader.fetching._topics)
        fresh.log_ends.update(routes.log_ends)
        fresh.update(reader.consumer.now)
        assert _without_empty(routes.by_node) == _without_empty(fresh.by_node)
        assert _without_empty(routes._behind) == _without_empty(fresh._behind)
