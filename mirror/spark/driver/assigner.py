"""Gives the tasks of a running job what is new, and takes from them what is gone.

::

    new ranges ──take──► AssignmentTable ──entries──► control group ──version──► control record ──► tasks
    topics that are gone ──release──► ┘                                                              │
                                      ▲────────────────── settled reports ◄──────────────────────────┘

The entries are committed first, and their version is announced afterwards: a task that reads the version finds them.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.relay.model.assignments import AssignmentTable, target_of
from mirror.relay.model.reports import SETTLED
from mirror.relay.progress.assignment_entries import outdated, requests_of
from mirror.relay.progress.control import control_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mirror.client import Admin, TopicPartition
    from mirror.errors import KafkaError
    from mirror.relay.model.assignments import Entry
    from mirror.relay.model.ranges import Range
    from mirror.relay.model.reports import PartitionReport
    from mirror.spark.run_control import RunControlClient
    from mirror.timing import Clock

_ANNOUNCE_EVERY_MS: Final = 1_000
"""Tasks read the control record this often. Each version costs each of them a read of all entries: 65 ms for 10,000."""


class Assigner:
    """The assignments of one job, on the target. Thread-safe; its calls wait for the target."""

    def __init__(
        self,
        flow: str,
        job: int,
        rows: Sequence[Sequence[Range]],
        control: RunControlClient,
        target: Admin,
        clock: Clock,
        *,
        settle_within_ms: int,
        warn: Callable[[str], None],
    ) -> None:
        """``rows`` are the ranges that each task begins with.

        A partition that was released and is not settled ``settle_within_ms`` later is given to another task anyway: its
        task may have died. At least once, this may repeat records; ``warn`` gets a line then.
        """
        self._flow: Final = flow
        self._job: Final = job
        self._group: Final = control_partition(flow)[0]
        self._control: Final = control
        self._target: Final = target
        self._clock: Final = clock
        self._settle_within_ms: Final = settle_within_ms
        self._warn: Final = warn
        self._table: Final = AssignmentTable(control.run, job, rows)
        self._tasks = set(range(len(rows)))
        """Those that run."""
        self._ranges: Final = {target_of(range_): range_ for row in rows for range_ in row}
        """What has an owner."""
        self._uncommitted: dict[TopicPartition, Entry] = {}
        self._announced_ms = clock.now() - _ANNOUNCE_EVERY_MS
        self._renewed_ms = clock.now()
        self._lock: Final = threading.RLock()

    def ranges(self) -> list[Range]:
        """Return the ranges that have an owner."""
        with self._lock:
            return list(self._ranges.values())

    def lacking(self, targets: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of these target partitions that no task has, and that may be given to one now."""
        with self._lock:
            free = {target_of(range_) for range_ in self._takeable()}
            return self._table.lacking(targets) | (free & set(targets))

    def take(self, ranges: Iterable[Range]) -> dict[TopicPartition, KafkaError]:
        """Give ``ranges`` to the least loaded tasks; what has an owner is left out.

        Return the target partitions whose entries the target refuses: they are committed again with the next call.
        Raises KafkaError if it does not answer; then, too.
        """
        with self._lock:
            self._takeable()
            return self._commit(self._take(ranges))

    def _take(self, ranges: Iterable[Range]) -> list[Entry]:
        load = Counter(self._table.owner(target) for target in self._ranges)
        entries = self._table.take(ranges, {task: load[task] for task in self._tasks})
        self._ranges.update((entry.target, entry.range) for entry in entries)
        return entries

    def release(self, targets: Collection[TopicPartition]) -> None:
        """Take these target partitions from their tasks. Raises KafkaError."""
        with self._lock:
            entries = self._table.release(targets)
            for entry in entries:
                del self._ranges[entry.target]
            self._commit(entries)

    def use(self, live: Collection[int]) -> None:
        """Give the partitions of all tasks but the ``live`` ones to these. Raises KafkaError.

        Nothing waits for a task that does not run. Where one does, and cannot report it, the fence of the other one
        protects a partition; at least once, records may be copied twice.
        """
        with self._lock:
            lost = self._tasks - set(live)
            self._tasks = set(live)
            targets = [target for target in self._ranges if self._table.owner(target) in lost]
            if not targets or not live:
                return
            self._warn(
                f"{len(targets)} partitions are copied by other tasks from now on: Spark does not run the"
                f" task{'s' if len(lost) > 1 else ''} that had them"
            )
            for entry in self._table.release(targets):
                self._table.on_settled(entry.target, entry.version, None)
            self._commit(self._take([replace(self._ranges.pop(target), progress=None) for target in targets]))

    def on_reports(self, reports: Iterable[PartitionReport]) -> None:
        """Take what tasks have reported into account."""
        with self._lock:
            for report in reports:
                if report.state == SETTLED and (report.run, report.job) == (self._control.run, self._job):
                    self._table.on_settled(report.target, report.version, report.progress)

    def renew(self, renew_ms: int) -> None:
        """Commit all entries again, if the last time was ``renew_ms`` ago: the target forgets old offsets.

        Raises KafkaError.
        """
        with self._lock:
            if self._clock.now() - self._renewed_ms >= renew_ms:
                self._renewed_ms = self._clock.now()
                self._commit(self._table.entries())

    def delete_outdated(self) -> None:
        """Delete the entries of earlier jobs, which every read would return. Raises KafkaError."""
        offsets = self._target.group_offsets(self._group)
        if old := outdated(offsets, self._flow, self._control.run, self._job):
            self._target.delete_group_offsets(self._group, old, partial=True)

    def _takeable(self) -> list[Range]:
        now = self._clock.now()
        if late := self._table.overdue(now, self._settle_within_ms):
            first = min(late)
            self._warn(
                f"{len(late)} partitions, such as {first}, were taken from a task that has not answered: others copy"
                " them now; in a flow that copies at least once, records may be copied twice"
            )
        return self._table.takeable(now, self._settle_within_ms)

    def _commit(self, entries: Iterable[Entry]) -> dict[TopicPartition, KafkaError]:
        self._uncommitted.update((entry.target, entry) for entry in entries)
        if not self._uncommitted:
            return {}
        refused: dict[TopicPartition, KafkaError] = {}
        for offsets in requests_of(list(self._uncommitted.values())):
            refused |= self._target.commit_group_offsets_async(self._group, offsets).result().failed
        committed = len(self._uncommitted) - len(refused)
        self._uncommitted = {target: self._uncommitted[target] for target in refused}
        if committed:
            self._announce()
        return refused

    def _announce(self) -> None:
        """Announce a version that no task has read: what was refused before may be committed only now."""
        wait_ms = self._announced_ms + _ANNOUNCE_EVERY_MS - self._clock.now()
        if wait_ms > 0:
            threading.Event().wait(wait_ms / 1000)
        self._table.version += 1
        self._announced_ms = self._clock.now()
        self._control.announce_assignments(self._table.version)
        self._table.on_announced(self._table.version, self._clock.now())
