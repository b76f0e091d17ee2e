"""Cores are polled for a reason only: each reason counts, without one no core is polled, and none is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.cluster.connection.pools import ROOM_BYTES, SLOW_AFTER_MS
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.scheduler import Scheduler
from mirror.cluster.types import TopicPartition
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from tests.cluster.workers import Job, JobEvent, Worker
from tests.examples import examples
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

T0 = TopicPartition("t", 0)


class World:
    """A cluster of three brokers, and workers in one loop."""

    def __init__(self, workers: int, *, every_turn: bool = False, pool: int = 8) -> None:
        self.cluster = FakeCluster(3)
        self.cluster.add_topic("t", 3)
        self.client = FakeClient(self.cluster, **{"connections.per.broker": pool})
        self.sent: list[str] = []
        self.workers = [Worker(self.client.loop, self.sent, every_turn=every_turn) for _ in range(workers)]
        for worker in self.workers:
            self.client.submit(None, JoinEvent(worker))

    def job(self, worker: int, job: Job) -> None:
        self.client.submit(self.workers[worker], JobEvent(job))

    def finish(self, name: str, within_ms: int = 60_000) -> int:
        """When the job of this name was done."""
        self.client.run_until(lambda: name in self.done(), within_ms)
        return self.done()[name]

    def done(self) -> dict[str, int]:
        return dict(found for worker in self.workers for found in worker.done)

    def warm(self) -> None:
        """Everything is known and connected, and no core has anything to do."""
        for tp in (TopicPartition("t", number) for number in range(3)):
            self.job(0, Job(f"warm {tp}", tp))
            self.finish(f"warm {tp}")
        self.client.run_for(2_000)
        for worker in self.workers:
            worker.polls = 0


@pytest.fixture
def world() -> World:
    made = World(20)
    made.warm()
    return made


def test_an_event_is_a_reason_for_its_core_alone(world: World) -> None:
    world.job(7, Job("a", T0))
    world.finish("a")
    assert [number for number, worker in enumerate(world.workers) if worker.polls] == [7]


def test_the_wait_that_was_announced_is_kept(world: World) -> None:
    began = world.client.now
    world.job(3, Job("later", T0, due_ms=700))
    world.job(4, Job("much later", T0, due_ms=9_000))
    assert world.finish("later") - began == 700
    assert world.finish("much later") - began == 9_000
    assert world.workers[3].polls <= 4
    assert world.workers[4].polls <= 4
    assert not world.workers[5].polls


def test_touching_is_a_reason(world: World) -> None:
    world.client.network.horizon_ms = world.client.now + 1
    world.client.loop.touch(world.workers[2])
    world.client.loop.run_once()
    world.client.loop.run_once()
    assert [worker.polls for worker in world.workers[:4]] == [0, 0, 1, 0]


def test_one_of_every_turn_is_polled_in_every_turn(world: World) -> None:
    eager = Worker(world.client.loop, [], every_turn=True)
    world.client.submit(None, JoinEvent(eager))
    for turn in range(1, 6):
        world.client.network.horizon_ms = world.client.now + 1
        world.client.loop.run_once()
        assert eager.polls == turn
    assert not any(worker.polls for worker in world.workers)


def test_joining_is_a_reason(world: World) -> None:
    newcomer = Worker(world.client.loop, [])
    newcomer.add(Job("brought along", T0))
    world.client.submit(None, JoinEvent(newcomer))
    world.client.run_until(lambda: newcomer.done, 100)


def test_an_answer_is_a_reason(world: World) -> None:
    began = world.client.now
    world.job(2, Job("first", T0, then=Job("second", T0)))
    assert world.finish("second") - began < 10


def test_a_time_out_is_a_reason(world: World) -> None:
    world.cluster.control.on(Api.METADATA, Action(stall_ms=20_000))
    began = world.client.now
    world.job(2, Job("patient", T0, timeout_ms=1_000))
    assert 1_000 <= world.finish("patient") - began < 1_200


def test_a_new_leader_is_a_reason(world: World) -> None:
    world.job(2, Job("to a new topic", TopicPartition("new", 0)))
    world.client.run_for(3_000)
    assert not world.done().get("to a new topic")
    world.cluster.add_topic("new")
    world.finish("to a new topic", 2_000)


def test_a_coordinator_found_is_a_reason(world: World) -> None:
    for number in range(20):
        world.job(number, Job(f"group {number}", T0, group=f"g{number}"))
    for number in range(20):
        world.finish(f"group {number}", 2_000)


def test_a_connection_that_becomes_ready_is_a_reason(world: World) -> None:
    world.cluster.brokers[1].connect_ms = 5_000
    world.cluster.disconnect(1)
    began = world.client.now
    world.job(2, Job("slowly connected", T0))
    assert 5_000 <= world.finish("slowly connected") - began <= 5_200


def test_a_failure_is_a_reason_and_the_broker_that_comes_back_another(world: World) -> None:
    world.cluster.kill(1)
    world.job(2, Job("to the dead", T0))
    world.client.run_for(5_000)
    world.cluster.start(1)
    world.finish("to the dead", 3_000)


def test_the_end_of_throttling_is_a_reason(world: World) -> None:
    def throttle(call: ServerCall) -> Action | None:
        slow = call.api is Api.METADATA and "slowed" not in seen
        seen.append("slowed")
        return Action(rewrite=lambda body: replace(body, throttle_time=2_000)) if slow else None

    seen: list[str] = []
    world.cluster.control.add(throttle)
    began = world.client.now
    world.job(2, Job("first", T0))
    world.finish("first")
    world.job(3, Job("second", T0))
    assert 2_000 <= world.finish("second") - began <= 2_010
    assert world.workers[3].polls <= 4


def test_room_is_a_reason_for_those_that_were_refused_in_their_order() -> None:
    world = World(6, pool=1)
    world.warm()
    order = [5, 2, 4, 0, 3]
    held = world.cluster.control.on(Api.METADATA, Action(hold="after"))
    world.job(1, Job("full", T0, size=ROOM_BYTES))
    world.client.run_for(10)
    for number in order:
        world.job(number, Job(f"job {number}", T0, size=ROOM_BYTES))
        world.client.run_for(5)
    assert len(world.done()) == 3, "those that warmed up"
    held.release()
    for number in order:
        world.finish(f"job {number}", 5_000)
    assert world.sent[-5:] == [f"job {number}" for number in order]


def test_those_that_were_refused_go_before_who_comes_later() -> None:
    world = World(6, pool=1)
    world.warm()
    held = world.cluster.control.on(Api.METADATA, Action(hold="after"))
    world.job(1, Job("full", T0, size=ROOM_BYTES))
    world.job(2, Job("refused", T0, size=ROOM_BYTES))
    world.client.run_for(10)
    held.release()
    world.client.run_until(lambda: "full" in world.done(), 10)
    world.job(0, Job("late", T0, size=ROOM_BYTES))
    world.finish("late")
    assert world.sent[-2:] == ["refused", "late"]


def test_a_slow_connection_that_may_be_replaced_is_a_reason() -> None:
    world = World(6, pool=1)
    world.warm()
    world.cluster.control.on(Api.METADATA, Action(stall_ms=20_000))
    began = world.client.now
    world.job(1, Job("stalled", T0, size=ROOM_BYTES))
    world.client.run_for(10)
    world.job(2, Job("refused", T0))
    assert world.finish("refused") - began <= SLOW_AFTER_MS + 10


def test_one_that_left_is_not_woken_by_what_it_had_planned(world: World) -> None:
    world.job(2, Job("planned", T0, due_ms=700))
    world.client.run_for(10)
    world.client.call(LeaveEvent(world.workers[2], *world.client.timer()))
    world.client.run_for(2_000)  # a poll of one that left fails there


def test_one_that_left_has_no_alarm() -> None:
    turns: Scheduler[Worker] = Scheduler()
    worker = Worker(World(0).client.loop, [])
    turns.join(worker)
    assert turns.due_cores(0) == [worker]
    turns.polled(worker, 0, 100)
    turns.leave(worker)
    assert turns.next_ms() == FOREVER_MS
    assert not turns.due_cores(100)


def test_what_comes_for_one_that_left_does_not_bring_it_back(world: World) -> None:
    held = world.cluster.control.on(Api.METADATA, Action(hold="after"))
    world.job(2, Job("a", T0))
    world.client.run_for(100)
    assert world.sent[-1] == "a"
    world.client.call(LeaveEvent(world.workers[2], *world.client.timer()))
    assert world.workers[2].left
    polls = world.workers[2].polls
    held.release()
    world.finish("a")
    world.client.run_for(1_000)
    assert world.workers[2].polls == polls
    assert world.workers[2] not in world.client.loop.cores


# --- against a loop that polls everybody in every turn

ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("job"), st.integers(0, 4), st.integers(0, 2), st.sampled_from([0, 0, 30, 700]), st.booleans()
        ),
        st.tuples(st.just("run"), st.sampled_from([0, 1, 20, 400, 3_000])),
        st.tuples(st.sampled_from(["kill", "start", "disconnect", "stall", "throttle"]), st.integers(1, 3)),
        st.tuples(st.just("move"), st.integers(0, 2), st.integers(1, 3)),
    ),
    max_size=25,
)


def _act(world: World, number: int, action: tuple[Any, ...]) -> None:
    cluster = world.cluster
    match action:
        case "job", worker, partition, delay_ms, grouped:
            group = f"g{partition}" if grouped else ""
            job = Job(f"job {number}", TopicPartition("t", partition), delay_ms, group, size=ROOM_BYTES // 2)
            world.job(worker, job)
        case "run", ms:
            world.client.run_for(ms)
        case "move", partition, node:
            cluster.move("t", partition, node)
        case "kill", node:
            cluster.kill(node)
        case "start", node:
            cluster.start(node)
        case "disconnect", node:
            cluster.disconnect(node)
        case "stall", node:
            cluster.control.on(Api.METADATA, Action(stall_ms=1_500), node=node)
        case "throttle", node:
            slow = Action(rewrite=lambda body: replace(body, throttle_time=900))
            cluster.control.on(Api.METADATA, slow, node=node)


def _history(actions: list[tuple[Any, ...]], *, every_turn: bool, pool: int) -> dict[str, int]:
    world = World(5, every_turn=every_turn, pool=pool)
    jobs = 0
    for number, action in enumerate(actions):
        jobs += action[0] == "job"
        _act(world, number, action)
    for node in world.cluster.brokers:
        world.cluster.start(node)
    world.client.run_until(lambda: len(world.done()) == jobs, 120_000)
    return world.done()


@settings(max_examples=examples(25, 60))
@given(ACTIONS)
def test_nobody_is_forgotten(actions: list[tuple[Any, ...]]) -> None:
    """With little room: everything is done in the end, as in a loop that polls everybody in every turn."""
    eager, lazy = (_history(actions, every_turn=every_turn, pool=1) for every_turn in (True, False))
    assert eager.keys() == lazy.keys()


@settings(max_examples=examples(25, 60))
@given(ACTIONS)
def test_nobody_comes_later_than_if_all_were_polled_in_every_turn(actions: list[tuple[Any, ...]]) -> None:
    eager, lazy = (_history(actions, every_turn=every_turn, pool=8) for every_turn in (True, False))
    assert lazy == eager
