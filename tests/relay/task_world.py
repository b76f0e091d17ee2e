"""A task's world without brokers: a source, a target and time, that count what they are asked."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from typing import Any, TypeVar, cast

import pytest

from mirror.backoff import Backoff
from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.errors import AuthorizationFailed, ConnectionFailed, KafkaError
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.futures import done
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.progress.committed import to_offset
from mirror.relay.progress.control import RunControl
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookups import LogBounds, TargetTopics
from mirror.relay.task.task import Clients, HandOver, Task
from mirror.timing import FOREVER_MS
from mirror.wire.decode import Record, records_of
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.relay.site import TIMES, TOPIC_ID, made, progress_at

T = TypeVar("T")


class Source:
    """A consumer over a log per partition; a poll that finds nothing takes its time."""

    def __init__(self, clock: FakeClock, logs: dict[int, list[Batch]]) -> None:
        self.clock, self.logs = clock, logs
        self.places: dict[int, int] = {}
        self.topics: set[uuid.UUID | None] = set()
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.calls = Counter[str]()
        self.dead: set[int] = set()
        self.back_ms = FOREVER_MS
        self.later: dict[int, list[tuple[int, Batch]]] = {}

    def last_heard(self) -> dict[TopicPartition, LastResponse]:
        self.calls["last_heard"] += 1
        dead = self.dead if self.clock.now() < self.back_ms else set()
        ends = {number: batches[-1].next_offset for number, batches in self.logs.items() if batches}
        return {
            tp: LastResponse(self.clock.now(), ends.get(tp.partition, 0))
            for tp in self.assigned - self.paused
            if tp.partition not in dead
        }

    def assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self.calls["assign"] += 1
        new = set(tps) - self.assigned
        self.paused = (self.paused & set(tps)) | (new if paused else set())
        self.assigned = set(tps)

    def seek(self, tp: TopicPartition, at: OffsetAndMetadata) -> None:
        assert tp in self.assigned
        self.places[tp.partition] = at.offset
        self.topics.add(at.topic_id)

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
        self.topic_id = TOPIC_ID
        self.silent: set[int] = set()
        self.forbidden: set[int] = set()

    producer_id = 7

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        del tp
        return None

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        del tp
        return None

    def post_batch(
        self, tp: TopicPartition, batch: Batch, callback: Callback, *, created_ms: int | None, chain: int
    ) -> None:
        assert chain >= 1
        assert created_ms is None
        if tp.partition in self.silent:
            return
        self.sent.setdefault(tp.partition, []).extend(records_of(batch))
        callback(RecordMetadata(tp, len(self.sent[tp.partition]) - int(batch.count)))

    def group_offsets_async(
        self, group: str, tps: Collection[TopicPartition], timeout_ms: int
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        assert group
        assert timeout_ms
        return done({tp: to_offset(progress_at(self.kept.get(tp.partition, 0), topic_id=self.topic_id)) for tp in tps})

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

    def source_state(self, tp: TopicPartition, copied_topic: str) -> SourceState:
        del tp
        assert copied_topic == "the-id"
        return SourceState(topic_id="the-id", earliest=0, end=2)

    def __init__(self) -> None:
        self.told: RunControl | None = None
        self.asked = self.told_after = 0

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        del topics
        assert timeout_ms
        return done(TargetTopics({}))

    def target_bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[LogBounds]:
        del tp
        assert timeout_ms
        return done(LogBounds(0, 0, 0))

    def epoch_end(self, tp: TopicPartition, leader_epoch: int, timeout_ms: int) -> Future[int]:
        del tp
        assert (leader_epoch, timeout_ms > 0) == (0, True)
        return done(10**6)

    def orders(self) -> Future[RunControl | None]:
        self.asked += 1
        return done(self.told if self.asked > self.told_after else None)


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
                topic_id=self.target.topic_id,
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
            return task.run(ranges, {"paris.t": TargetLimits()}, 1, hand_over)
        finally:
            task.close()
