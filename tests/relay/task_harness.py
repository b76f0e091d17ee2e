"""Runs a task without brokers, with a source, a target and a clock that count the calls they receive."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from mirror.backoff import Backoff
from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.errors import AuthorizationFailed, ConnectionFailed, KafkaError
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.futures import done, failed
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.progress.committed import to_offset
from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookup.lookup_results import LogBounds, TargetTopics
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.task.assignment_reading import LoadEntries
from mirror.relay.task.reporting import SendReport
from mirror.relay.task.taking import LoadTaken
from mirror.relay.task.task import Task
from mirror.relay.task.topic_rules import TopicRules
from mirror.relay.task.writers import Clients
from mirror.timing import FOREVER_MS
from mirror.wire.decode import Record, records_of
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.relay.copy_harness import made, progress_at
from tests.relay.hand_context import TIMES, TOPIC_ID

T = TypeVar("T")


class Source:
    """A consumer over a log per partition; a poll that finds nothing lets its timeout pass."""

    def __init__(self, clock: FakeClock, logs: dict[int, list[Batch]]) -> None:
        self.clock, self.logs = clock, logs
        self.positions: dict[int, int] = {}
        self.topics: set[uuid.UUID | None] = set()
        self.topic_id: uuid.UUID | None = None
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.calls = Counter[str]()
        self.dead: set[int] = set()
        self.back_ms = FOREVER_MS
        self.partition_limits: list[int] = []
        """The most bytes of a partition at a time: each limit that was set."""
        self.throttles = False
        """Its responses throttle the client for a second, and have no records."""
        self.later: dict[int, list[tuple[int, Batch]]] = {}

    def last_responses(self) -> dict[TopicPartition, LastResponse]:
        self.calls["last_responses"] += 1
        dead = self.dead if self.clock.now() < self.back_ms else set()
        ends = {number: batches[-1].next_offset for number, batches in self.logs.items() if batches}
        return {
            tp: LastResponse(
                self.clock.now(), ends.get(tp.partition, 0), self.clock.now() + 1_000 if self.throttles else 0
            )
            for tp in self.assigned - self.paused
            if tp.partition not in dead
        }

    def incremental_assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        assert paused
        assert not self.assigned & set(tps)
        self.calls["assigned"] += len(tps)
        self.paused |= set(tps)
        self.assigned |= set(tps)

    def incremental_unassign(self, tps: Collection[TopicPartition]) -> None:
        assert self.assigned >= set(tps)
        self.paused -= set(tps)
        self.assigned -= set(tps)

    def seek(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        assert tp in self.assigned
        self.positions[tp.partition] = position.offset
        self.topics.add(position.topic_id)

    def limit_partitions(self, size: int) -> None:
        self.partition_limits.append(size)

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
            offset = self.positions[tp.partition]
            batch = next((batch for batch in self.logs.get(tp.partition, ()) if batch.base_offset >= offset), None)
            if batch is not None:
                self.positions[tp.partition] = batch.next_offset
                ends, topic_id = batch.next_offset, self.topic_id
                found.append(
                    Fetched(tp=tp, offset=offset, next_offset=ends, batches=[batch], size=batch.size, topic_id=topic_id)
                )
        self.clock.advance(1 if found else timeout_ms)
        return found

    def last_error(self, tp: TopicPartition) -> KafkaError:
        self.calls[f"last_error {tp.partition}"] += 1
        return ConnectionFailed("no route")


class Target:
    """Producer and admin. It never answers for ``silent`` partitions, and refuses to commit ``forbidden`` ones."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.sent: dict[int, list[Record]] = {}
        self.committed: dict[int, int] = {}
        self.commit_order: list[tuple[int, str]] = []
        """(time in ms, group) of each commit."""
        self.topic_id = TOPIC_ID
        self.silent: set[int] = set()
        self.unanswered: list[partial[None]] = []
        """Write the batches of silent partitions, and answer them."""
        self.opened: list[int] = []
        """The partitions whose progress was read."""
        self.forbidden: set[int] = set()

    producer_id = 7

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        del tp
        return None

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        del tp
        return None

    def post_batch(self, tp: TopicPartition, batch: Batch, callback: Callback, *, chain: int) -> None:
        assert chain >= 1
        waits = any(answer.args[0] == tp for answer in self.unanswered)  # they are written in order
        if tp.partition in self.silent or waits:
            self.unanswered.append(partial(self._write, tp, batch, callback))
        else:
            self._write(tp, batch, callback)

    def _write(self, tp: TopicPartition, batch: Batch, callback: Callback) -> None:
        self.sent.setdefault(tp.partition, []).extend(records_of(batch))
        callback(RecordMetadata(tp, len(self.sent[tp.partition]) - int(batch.count)))

    def group_offsets_async(
        self, group: str, tps: Collection[TopicPartition], timeout_ms: int, *, require_stable: bool
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        assert group
        assert timeout_ms
        assert not require_stable, "at least once no copy waits for a claim of another one"
        self.opened += [tp.partition for tp in tps]
        return done(
            {tp: to_offset(progress_at(self.committed.get(tp.partition, 0), topic_id=self.topic_id)) for tp in tps}
        )

    def commit_offset_async(
        self, group: str, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int
    ) -> Future[None]:
        assert timeout_ms
        if tp.partition in self.forbidden:
            return failed(AuthorizationFailed("no Read on the group", 30))
        self.committed[tp.partition] = offset.offset
        self.commit_order.append((self.clock.now(), group))
        return done(None)


class Lookups:
    """Answers lookups of source and target: all logs end where they were planned to, and the target is empty."""

    def source_state(self, tp: TopicPartition, copied_topic: str) -> SourceState:
        del tp
        assert copied_topic == "the-id"
        return SourceState(topic_id="the-id", earliest=0, end=2)

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.stops_at_ms = FOREVER_MS
        """When the run is asked to stop."""
        self.control: RunControl | None = None
        self.control_reads = self.control_from = 0
        self.added: list[TopicPartition] = []
        self.removed: list[TopicPartition] = []
        self.described: list[Collection[str] | None] = []
        self.written: dict[TopicPartition, ProgressRecord] = {}

    def add_targets(self, targets: Collection[TopicPartition]) -> None:
        self.added += targets

    def remove_targets(self, targets: Collection[TopicPartition]) -> None:
        self.removed += targets

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        self.described.append(topics)
        assert timeout_ms
        return done(TargetTopics({}))

    def target_bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[LogBounds]:
        del tp
        assert timeout_ms
        return done(LogBounds(0, 0, 0))

    def log_end(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        del tp
        assert timeout_ms
        return done((10**6, 0))

    def epoch_end(self, tp: TopicPartition, leader_epoch: int, timeout_ms: int) -> Future[int]:
        del tp
        assert leader_epoch == 0
        assert timeout_ms
        return done(10**6)

    def write_progress_records(self, records: dict[TopicPartition, ProgressRecord], timeout_ms: int) -> None:
        assert timeout_ms
        self.written |= records

    def run_control(self) -> Future[RunControl | None]:
        self.control_reads += 1
        if self.control is None or self.control_reads <= self.control_from:
            return done(None)
        stops = self.control.stop or self.clock.now() >= self.stops_at_ms
        return done(replace(self.control, stop=stops, seen_ms=self.control_reads))


class InlineExecutor(Executor):
    """Runs lookups in the calling thread, in no time."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return done(fn(*args, **kwargs))


class PassingTime(threading.Event):
    """The event that a task waits for; its wait lets time pass instead."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self.clock.advance(round(timeout * 1000))
        return self.is_set()


class TaskHarness:
    """A task of ``partitions`` ranges of two records each, with its source, target and clock."""

    def __init__(self, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions = partitions
        self.clock = FakeClock()
        self.source = Source(self.clock, {p: [made(0), made(1)] for p in range(partitions)})
        self.target = Target(self.clock)
        self.lookups = Lookups(self.clock)
        self.origin: Any = None
        self.max_partition_bytes = 1_000
        self.load_entries: LoadEntries | None = None
        self.load_taken: LoadTaken | None = None
        self.send_report: SendReport = lambda _: None
        self.timeouts = TIMES
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
            assert self.turns < 20_000, "the task turns without end"
            turn(task, now)

        monkeypatch.setattr(PartitionCopy, "step", counted_step)
        monkeypatch.setattr(Task, "_turn", counted_turn)

    def range_of(self, partition: int) -> Range:
        return Range(
            flow="f",
            topic="t",
            target_topic="paris.t",
            partition=partition,
            start=0,
            end=self.end,
            source_cluster_id="paris",
            topic_id=self.target.topic_id,
        )

    def copy(self, stops_after_ms: int | None = None, **policy: Any) -> list[RangeResult]:
        """``stops_after_ms``: when its run is asked to stop; None: its ranges end."""
        if stops_after_ms is not None:
            self.lookups.stops_at_ms = self.clock.now() + stops_after_ms
            self.lookups.control = self.lookups.control or RunControl(run="run-1", host="h", since_ms=1, job=3)
            policy = {"run": "run-1", "job": 3, **policy}
        ranges = [self.range_of(partition) for partition in range(self.partitions)]
        # They implement the part of the clients that a task uses.
        target = cast("Any", self.target)
        clients = Clients(
            consumer=cast("Any", self.source),
            admin=target,
            lookups=cast("Any", self.lookups),
            producer_settings=cast("Any", SimpleNamespace(cluster="target")),
            memory=cast("Any", None),
            producer=target,
            positions=None,
            origin=self.origin,
            load_entries=self.load_entries,
            load_taken=self.load_taken,
            send_report=self.send_report,
        )
        task = Task(
            clients,
            CopyPolicy(exactly_once=False, **policy),
            self.timeouts,
            self.clock,
            Backoff(100, 1_000, random.Random(1)),
            ranges,
            TopicRules({"paris.t": TargetLimits()}, {}),
            flow="f",
            batch_size=1,
            buffer_memory=1_000_000,
            max_partition_bytes=self.max_partition_bytes,
            lookup_executor=InlineExecutor(),
            wake_event=PassingTime(self.clock),
        )
        try:
            return task.run()
        finally:
            task.close()
