"""One task's copies together: who is asked for what, how often anything is done, and whose failure is whose."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from mirror.backoff import Backoff
from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import AuthorizationFailed, ConnectionFailed, KafkaError
from mirror.producer.batches import RecordMetadata
from mirror.relay.carriers import done
from mirror.relay.facts import TargetFacts
from mirror.relay.gaps import SourceState
from mirror.relay.orders import Orders
from mirror.relay.partition import PartitionCopy
from mirror.relay.policy import CopyPolicy
from mirror.relay.progress import to_offset
from mirror.relay.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.task import Clients, HandOver, Task
from mirror.timing import FOREVER_MS
from mirror.wire.decode import Record, records_of
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.relay.site import TIMES, made, progress_at

T = TypeVar("T")


class Source:
    """A consumer over a log per partition; a poll that finds nothing takes its time."""

    def __init__(self, clock: FakeClock, logs: dict[int, list[Batch]]) -> None:
        self.clock, self.logs = clock, logs
        self.places: dict[int, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.calls = Counter[str]()
        self.dead: set[int] = set()
        self.back_ms = FOREVER_MS
        self.later: dict[int, list[tuple[int, Batch]]] = {}

    def last_heard(self) -> dict[TopicPartition, int]:
        self.calls["last_heard"] += 1
        dead = self.dead if self.clock.now() < self.back_ms else set()
        return {tp: self.clock.now() for tp in self.assigned - self.paused if tp.partition not in dead}

    def assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self.calls["assign"] += 1
        new = set(tps) - self.assigned
        self.paused = (self.paused & set(tps)) | (new if paused else set())
        self.assigned = set(tps)

    def seek(self, tp: TopicPartition, at: OffsetAndMetadata) -> None:
        assert tp in self.assigned
        self.places[tp.partition] = at.offset

    def pause(self, tps: Collection[TopicPartition]) -> None:
        self.paused |= set(tps)

    def resume(self, tps: Collection[TopicPartition]) -> None:
        self.paused -= set(tps)

    def wake(self) -> None:
        self.calls["wake"] += 1

    def poll(self, timeout_ms: int, *, max_bytes: int) -> list[Fetched]:
        self.calls["poll"] += 1
        assert max_bytes > 0
        found = []
        for partition, batches in self.later.items():
            self.logs[partition] += [batch for at_ms, batch in batches if at_ms <= self.clock.now()]
            self.later[partition] = [(at_ms, batch) for at_ms, batch in batches if at_ms > self.clock.now()]
        for tp in sorted(self.assigned - self.paused):
            at = self.places[tp.partition]
            some = [one for one in self.logs.get(tp.partition, ()) if one.base_offset >= at][:1]
            if some:
                self.places[tp.partition] = some[-1].next_offset
                found.append(
                    Fetched(tp=tp, offset=at, next_offset=some[-1].next_offset, batches=list(some), size=some[0].size)
                )
        self.clock.advance(1 if found else timeout_ms)
        return found

    def last_error(self, tp: TopicPartition) -> KafkaError:
        self.calls[f"last_error {tp.partition}"] += 1
        return ConnectionFailed("no route")


class Target:
    """Producer and admin: answers at once, but not ``silent`` partitions; refuses the progress of ``forbidden``."""

    def __init__(self) -> None:
        self.sent: dict[int, list[Record]] = {}
        self.kept: dict[int, int] = {}
        self.silent: set[int] = set()
        self.forbidden: set[int] = set()

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        del tp
        return None

    def send_batch(
        self, tp: TopicPartition, batch: Batch, *, created_ms: int | None, block: bool, chain: int
    ) -> Future[RecordMetadata]:
        assert not block, "the thread that copies one partition copies the others, too"
        assert chain >= 1
        assert created_ms is None
        if tp.partition in self.silent:
            return Future()
        self.sent.setdefault(tp.partition, []).extend(records_of(batch))
        return done(RecordMetadata(tp, 0))

    def group_offsets_async(
        self, group: str, tps: Collection[TopicPartition], timeout_ms: int
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        assert group
        assert timeout_ms
        return done({tp: to_offset(progress_at(self.kept.get(tp.partition, 0))) for tp in tps})

    def commit_group_offsets_async(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int
    ) -> Future[None]:
        assert group
        assert timeout_ms
        for tp, each in offsets.items():
            if tp.partition in self.forbidden:
                refused: Future[None] = Future()
                refused.set_exception(AuthorizationFailed("no Read on the group", 30))
                return refused
            self.kept[tp.partition] = each.offset
        return done(None)


class Asking:
    """What the source says of itself: all logs were planned to their end."""

    def source_state(self, tp: TopicPartition) -> SourceState:
        del tp
        return SourceState(topic_id="the-id", earliest=0, end=2)

    def __init__(self) -> None:
        self.told: Orders | None = None
        self.asked = 0

    def orders(self) -> Future[Orders | None]:
        self.asked += 1
        return done(self.told)


class AtOnce(Executor):
    """In place of threads that may wait: no time passes in them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return done(fn(*args, **kwargs))


class Waiting:
    """In place of the event that a task sleeps on: time passes instead."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.flag = clock, False

    def set(self) -> None:
        self.flag = True

    def clear(self) -> None:
        self.flag = False

    def is_set(self) -> bool:
        return self.flag

    def wait(self, seconds: float) -> None:
        if not self.flag:
            self.clock.advance(round(seconds * 1000))


class World:
    """A task of ``partitions`` ranges of two records each."""

    def __init__(self, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions = partitions
        self.clock = FakeClock()
        self.source = Source(self.clock, {p: [made(0), made(1)] for p in range(partitions)})
        self.target = Target()
        self.asking = Asking()
        self.end = 2
        self.steps = self.turns = 0
        self._count(monkeypatch)

    def _count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        step, turn = PartitionCopy.step, Task._turn

        def counted_step(copy: PartitionCopy, now: int) -> None:
            self.steps += 1
            step(copy, now)

        def counted_turn(task: Task, now: int) -> None:
            self.turns += 1
            assert self.turns < 20_000, "it goes round and round"
            turn(task, now)

        monkeypatch.setattr(PartitionCopy, "step", counted_step)
        monkeypatch.setattr(Task, "_turn", counted_turn)

    def copy(self, hand_over: HandOver | None = None, **policy: Any) -> list[RangeResult]:
        ranges = [
            Range(
                flow="f",
                topic="t",
                target_topic="paris.t",
                partition=partition,
                start=0,
                end=self.end,
                source_cluster_id="paris",
                topic_id="the-id",
            )
            for partition in range(self.partitions)
        ]
        # Parts of the real faces, as far as a task uses them.
        target = cast("Any", self.target)
        clients = Clients(
            consumer=cast("Any", self.source),
            admin=target,
            inquiries=cast("Any", self.asking),
            target_options={},
            memory=cast("Any", None),
            producer=target,
        )
        task = Task(
            clients,
            CopyPolicy(exactly_once=False, **policy),
            TIMES,
            self.clock,
            Backoff(100, 1_000, random.Random(1)),
            buffer_memory=1_000_000,
            part=1_000,
        )
        task._woken = cast("Any", Waiting(self.clock))
        task._inquirers.shutdown()
        task._inquirers = cast("Any", AtOnce())
        try:
            return task.run(ranges, {"paris.t": TargetFacts()}, 1, hand_over)
        finally:
            task.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(20, monkeypatch)


def test_all_are_copied_and_the_results_are_in_the_order_of_the_ranges(world: World) -> None:
    results = world.copy()
    assert [each.partition for each in results] == list(range(20))
    assert {(each.outcome, each.end, each.records) for each in results} == {(Outcome.COMPLETE, 2, 2)}
    assert world.target.kept == dict.fromkeys(range(20), 2)
    assert all([one.value for one in sent] == [b"0", b"1"] for sent in world.target.sent.values())


def test_a_silent_source_fails_its_partition_alone_and_why_is_asked_once(world: World) -> None:
    for partition in (3, 8):
        del world.source.logs[partition]
    results = world.copy()
    assert {each.partition for each in results if each.outcome is Outcome.FAILED} == {3, 8}
    assert results[3].error == f"t-3: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert world.source.calls["last_error 3"] == world.source.calls["last_error 8"] == 1
    assert world.turns < 100


def test_who_may_not_keep_progress_fails_alone(world: World) -> None:
    world.target.forbidden = {5}
    results = world.copy()
    assert {each.partition for each in results if each.outcome is not Outcome.COMPLETE} == {5}
    assert "no Read on the group" in str(results[5].error)


@pytest.mark.parametrize("silent", [{0}, set(range(20))])
def test_an_epoch_ends_on_time_and_nothing_spins_while_it_waits(world: World, silent: set[int]) -> None:
    world.target.silent = silent
    began = world.clock.wall()
    results = world.copy(until_ms=began + 60_000)
    assert {each.partition for each in results if each.outcome is Outcome.UNFINISHED} == silent
    assert all(each.stuck_since_ms is not None for each in results if each.partition in silent)
    assert began + 60_000 <= world.clock.wall() <= began + 60_000 + TIMES.request_ms + 1_000
    assert world.turns < 1_000
    assert world.steps < 1_000


def test_a_thousand_partitions_cost_what_happens_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1_000, monkeypatch)
    del world.source.logs[7]  # 999 are done soon; then the task waits for one of them
    results = world.copy()
    assert Counter(each.outcome for each in results) == {Outcome.COMPLETE: 999, Outcome.FAILED: 1}
    assert world.steps < 20 * 1_000
    assert world.turns < 200


def test_a_limited_rate_is_waited_for_asleep(world: World) -> None:
    size = made(0).size
    began = world.clock.now()
    results = world.copy(max_bytes_per_second=10 * size)
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert world.clock.now() - began >= 1_900, "40 batches at 10 a second, of which 20 come at once"
    assert world.turns < 500


def keep_the_first(record: Record) -> Record | None:
    return record._replace(value=b"changed") if record.offset == 0 else None


def test_a_flow_s_transform_is_applied(world: World) -> None:
    """It was loaded, and never called: records were copied as they are."""
    results = world.copy(transform=f"{__name__}:keep_the_first")
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert all([one.value for one in sent] == [b"changed"] for sent in world.target.sent.values())
    assert results[0].skipped == {"dropped": 1}


@pytest.mark.parametrize(
    ("held", "after_ms", "wakes"), [(999_999, 10, True), (999_999, 9, False), (100_000, 10, False)]
)
def test_who_waits_for_memory_is_woken_by_an_acknowledgement(held: int, after_ms: int, wakes: bool) -> None:
    """Where nobody was refused room, or all were asked just now, nobody waits, and the task sleeps on."""
    clock = FakeClock()
    clients = cast("Any", SimpleNamespace(consumer=Source(clock, {})))
    backoff = Backoff(100, 1_000, random.Random(1))
    task = Task(clients, CopyPolicy(), TIMES, clock, backoff, buffer_memory=1_000_000, part=1_000)
    try:
        task.holdings.took(held)
        task.holdings.may_take(1_000, 1_000)
        clock.advance(after_ms)
        future: Future[None] = Future()
        task.watch(cast("Any", SimpleNamespace(eager=False)), future, urgent=False)
        future.set_result(None)
        assert task._woken.is_set() == wakes
    finally:
        task.close()


@pytest.fixture
def followed(world: World) -> World:
    world.end = OPEN_END
    return world


def test_what_is_followed_is_copied_until_the_epoch_ends_and_nothing_new_is_no_failure(followed: World) -> None:
    """For many times as long as a source may be silent."""
    began = followed.clock.wall()
    followed.source.later[3] = [(followed.clock.now() + 40_000, made(2))]
    results = followed.copy(until_ms=began + 60_000)
    assert {(each.outcome, each.error) for each in results} == {(Outcome.COMPLETE, None)}
    assert [each.end for each in results] == [3 if partition == 3 else 2 for partition in range(20)]
    assert followed.target.kept[3] == 3, "committed, too"
    assert began + 60_000 <= followed.clock.wall() <= began + 61_000
    assert followed.source.calls["last_heard"] < 60
    assert followed.turns < 1_000
    assert followed.steps < 1_000


def test_a_followed_source_that_answers_no_more_fails_its_partition_alone(followed: World) -> None:
    followed.source.dead = {7}
    results = followed.copy(until_ms=followed.clock.wall() + 60_000)
    failed = [each for each in results if each.outcome is not Outcome.COMPLETE]
    assert [each.partition for each in failed] == [7]
    assert failed[0].error == f"t-7: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert failed[0].end == 2, "and keeps what was copied"
    assert 2 <= failed[0].retries <= 4


def test_a_followed_source_that_comes_back_is_followed_on(followed: World) -> None:
    now = followed.clock.now()
    followed.source.dead, followed.source.back_ms = {7}, now + 20_000
    followed.source.later[7] = [(now + 50_000, made(2))]
    results = followed.copy(until_ms=followed.clock.wall() + 60_000)
    assert {(each.outcome, each.error) for each in results} == {(Outcome.COMPLETE, None)}
    assert (results[7].end, results[7].records) == (3, 3)
    assert results[7].retries


def orders(**changes: Any) -> Orders:
    return Orders(**{"run": "run-1", "host": "h", "since_ms": 1, **changes})


@pytest.mark.parametrize("told", [orders(stop=True), orders(epoch=4), orders(run="run-2")])
def test_an_epoch_ends_early_in_order_when_it_is_told_to(followed: World, told: Orders) -> None:
    began = followed.clock.wall()
    followed.asking.told = told
    results = followed.copy(until_ms=began + 60_000, run="run-1", epoch=3)
    assert {each.outcome for each in results} == {Outcome.COMPLETE}
    assert all(each.end == each.records == followed.target.kept[each.partition] for each in results), "what was sent"
    assert followed.clock.wall() <= began + 2_000


@pytest.mark.parametrize("told", [None, orders(), orders(epoch=3)])
def test_an_epoch_goes_on_while_nobody_tells_it_otherwise_and_asks_once_a_second(
    followed: World, told: Orders | None
) -> None:
    began = followed.clock.wall()
    followed.asking.told = told
    followed.copy(until_ms=began + 60_000, run="run-1", epoch=3)
    assert followed.clock.wall() >= began + 60_000
    assert 50 <= followed.asking.asked <= 61


def test_an_epoch_that_is_told_to_end_waits_for_who_does_not_answer_only_so_long(followed: World) -> None:
    began = followed.clock.wall()
    followed.target.silent = {5}
    followed.asking.told = orders(stop=True)
    results = followed.copy(until_ms=began + 60_000, run="run-1", epoch=3, wind_up_ms=500)
    assert {each.partition for each in results if each.outcome is Outcome.UNFINISHED} <= {5}
    assert followed.clock.wall() <= began + 3_000


def test_nobody_is_asked_for_orders_where_nobody_gives_them(world: World) -> None:
    world.copy()
    assert world.asking.asked == 0
