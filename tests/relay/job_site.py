"""A job with several tasks between two clusters in memory, and the part of its driver that assigns partitions."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.assignments import AssignmentTable, Entry
from mirror.relay.model.ranges import OPEN_END, Range, RangeResult
from mirror.relay.model.reports import SETTLED, PartitionReport, TaskState
from mirror.relay.progress import control_record
from mirror.relay.progress.assignment_entries import requests_of
from mirror.relay.progress.committed import Progress, read_progress
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes.record_batches import build
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair

RUN: Final = "run-1"
JOB: Final = 1


class JumpingClock(SystemClock):
    """The real time, except that days of the calendar pass when a test says so."""

    ahead_ms = 0

    def unix_ms(self) -> int:
        return super().unix_ms() + self.ahead_ms


class JobSite:
    """Tasks in threads; ``rows`` are the partitions that each begins with."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, rows: Sequence[Sequence[int]], *, exactly_once: bool = True, by: str = ""
    ) -> None:
        monkeypatch.setattr(control_record, "POLL_INTERVAL_MS", 20)
        partitions = 1 + max((each for row in rows for each in row), default=0)
        self.clock = JumpingClock()
        monkeypatch.setattr("mirror.relay.task.copy_ranges.SystemClock", lambda: self.clock)
        self.pair = FakePair(monkeypatch, partitions=partitions, exactly_once=exactly_once)
        self.pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}
        self.by = {"exactly_once_by": by or "sequences"} if exactly_once else {}
        self.rows = [[self.range_of(each) for each in row] for row in rows]
        self.table = AssignmentTable(RUN, JOB, self.rows)
        self.control = RunControl(run=RUN, host="h", since_ms=1, job=JOB, generation=1, seen_ms=1)
        self.reports: list[TaskState | PartitionReport] = []
        self.written = dict.fromkeys(range(partitions), 0)
        self.tasks: dict[tuple[int, int], Future[list[RangeResult]]] = {}
        self._admin = Admin({"bootstrap.servers": self.pair.target.bootstrap})
        self._pool = ThreadPoolExecutor()
        self._ended = threading.Event()
        self.announce()
        self._heart = self._pool.submit(self._beat)

    def range_of(self, partition: int) -> Range:
        return replace(self.pair.range_of(partition), end=OPEN_END)

    @staticmethod
    def target(partition: int) -> TopicPartition:
        return TopicPartition("paris.t", partition)

    # --- tasks

    def begin(self, task: int, attempt: int = 0, **policy: Any) -> Future[list[RangeResult]]:
        """Begin an attempt of a task."""
        options: dict[str, Any] = {"run": RUN, "job": JOB, "generation": 1, "task": task, "attempt": attempt}
        options |= {"commit_interval_ms": 100, **self.by, **policy}
        begun = self._pool.submit(self.pair.copy_all, self.rows[task], send=self.reports.append, flow=FLOW, **options)
        self.tasks[task, attempt] = begun
        return begun

    def begin_all(self, **policy: Any) -> None:
        for task in range(len(self.rows)):
            self.begin(task, **policy)

    # --- the driver

    def _beat(self) -> None:
        while not self._ended.wait(0.5):
            self.announce(seen_ms=self.control.seen_ms + 1)

    def announce(self, **changes: Any) -> None:
        """Write the control record."""
        self.control = replace(self.control, version=self.table.version, **changes)
        group, tp = control_partition(FLOW)
        self._admin.commit_group_offsets(group, {tp: self.control.to_offset()})

    def commit(self, entries: Sequence[Entry]) -> None:
        """Store the entries, then announce them."""
        for offsets in requests_of(entries):
            self._admin.commit_group_offsets(control_partition(FLOW)[0], offsets)
        self.announce()
        self.table.on_announced(self.table.version, 0)

    def release(self, *partitions: int) -> None:
        self.commit(self.table.release([self.target(each) for each in partitions]))

    def settled(self, partition: int) -> PartitionReport:
        """Wait until the release of ``partition`` is settled."""

        def found() -> list[PartitionReport]:
            return [
                one for one in self.reported(partition) if (one.state, one.version) == (SETTLED, self.table.version)
            ]

        eventually(lambda: bool(found()), what=f"the settled report of {partition}")
        report = found()[-1]
        self.table.on_settled(report.target, report.version)
        return report

    def take(self, tasks: Collection[int], *, overdue: bool = False) -> None:
        """Give what is settled to the least loaded of ``tasks``; ``overdue``: also what is not."""
        if overdue:
            self.table.expire(2, 1)
        self.commit(self.table.take(map(self.range_of, self.written), tasks))

    def move(self, partition: int, task: int) -> PartitionReport:
        """Move a partition to ``task``."""
        self.release(partition)
        report = self.settled(partition)
        self.take({task})
        return report

    def reported(self, partition: int) -> list[PartitionReport]:
        return [
            one for one in self.reports if isinstance(one, PartitionReport) and one.target == self.target(partition)
        ]

    # --- records

    def write(self, partition: int, size: int = 1) -> None:
        """Write a record, whose value is its number, filled up to ``size``."""
        value = (b"%d" % self.written[partition]).ljust(size)
        self.pair.source.log("t", partition).append(build([value], timestamp=self.clock.unix_ms()))
        self.written[partition] += 1

    def copied(self, *partitions: int) -> None:
        """Wait until all is copied that was written."""
        for each in partitions or self.written:
            eventually(
                lambda each=each: len(self.pair.values(each)) >= self.written[each],  # type: ignore[misc]
                what=f"{self.written[each]} records of {each}",
            )

    def check(self) -> None:
        """The target holds each record once, in order."""
        for partition, count in self.written.items():
            assert [int(value) for value in self.pair.values(partition)] == list(range(count)), partition

    @property
    def fences(self) -> int:
        calls = self.pair.target.calls(Api.INIT_PRODUCER_ID)
        return sum(call.body.transactional_id is not None for call in calls)

    def progress(self, partition: int) -> Progress:
        """What is committed."""
        return read_progress(self._admin, FLOW, [self.target(partition)])[self.target(partition)]

    def committed(self, *partitions: int) -> None:
        """Wait until the progress is that of all that was written."""
        self.copied(*partitions)
        for each in partitions or self.written:
            eventually(
                lambda each=each: self.progress(each).offset == self.written[each],  # type: ignore[misc]
                what=f"the progress of {each}",
            )

    # --- the end

    def stop(self) -> dict[tuple[int, int], list[RangeResult]]:
        """Stop the job in order; return the results of each attempt."""
        self.announce(stop=True)
        return {each: task.result(30) for each, task in self.tasks.items()}

    def end(self) -> None:
        for cluster in (self.pair.source, self.pair.target):
            cluster.control.clear()  # a test that has failed must not hold up the tasks
        self._ended.set()
        if any(not task.done() for task in self.tasks.values()):
            self.stop()
        self._heart.result(10)
        self._pool.shutdown()
        self._admin.close()
