"""Gives the tasks of a running job what is new, takes from them what is gone, and replaces tasks that are lost.

::

    new ranges ──take──► AssignmentTable ──entries──► control group ──version──► control record ──► tasks
    topics that are gone ──release──► ┘                                                              │
    tasks that are lost ──update────► ┘◄──────────── reports: signs of life, settled releases ◄──────┘

The entries are committed first, and their version is announced afterwards: a task that reads the version finds them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from mirror.errors import BrokerError, UnsupportedVersion
from mirror.relay.model.assignments import RELEASED, AssignmentTable
from mirror.relay.model.reports import SETTLED
from mirror.relay.progress.assignment_entries import outdated, requests_of
from mirror.relay.progress.control_record import control_partition
from mirror.spark.discovery.lost_tasks import TaskWatch
from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mirror.client import Admin, TopicPartition
    from mirror.errors import KafkaError
    from mirror.relay.model.assignments import Entry
    from mirror.relay.model.ranges import Range
    from mirror.relay.model.reports import PartitionReport, TaskState
    from mirror.timing import Clock

_ANNOUNCE_EVERY_MS: Final = 1_000
"""Tasks read the control record this often. Each version costs each of them a read of all entries: 65 ms for 10,000."""

_MOST_MOVED: Final = 100
"""So many partitions go back to a task that was lost at a time: each of them stands still for about a second."""
_MOVE_EVERY_MS: Final = 10_000


class AnnouncingRun(Protocol):
    """The run whose tasks are given what is new."""

    @property
    def run(self) -> str:
        """Its identifier."""

    def announce_assignments(self, version: int) -> None:
        """Have the running tasks read the assignments up to ``version``. Raises KafkaError."""


# Invariant: All entries are committed again once a task has begun again, because brokers delete the offsets of a
#   deleted topic and late commits undo entries; of a topic that is gone nothing is kept.
# Test: tests/spark/discovery/test_assigner.py::test_all_entries_are_renewed_once_a_task_has_begun_again
# Test: tests/spark/discovery/test_assigner.py::test_nothing_is_kept_of_a_released_topic_that_does_not_exist_any_more
class Assigner:
    """The assignments of one job, on the target.

    :meth:`ranges` and :meth:`on_status` may be called from any thread, and wait for nothing. The others wait for the
    target, and are for one thread. If they raise KafkaError, :meth:`update` repeats what they have not done.
    """

    def __init__(
        self,
        flow: str,
        job: int,
        rows: Sequence[Sequence[Range]],
        run: AnnouncingRun,
        target: Admin,
        clock: Clock,
        *,
        settle_within_ms: int,
        warn: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        """``rows`` are the ranges that each task begins with.

        A partition that was released and is not settled ``settle_within_ms`` later is given to another task anyway: its
        report may be lost. At least once, this may repeat records; ``warn`` gets a line then. ``report`` gets one once
        all tasks have back what others have copied for them, and one if the target does not offer OffsetDelete.
        """
        self._flow: Final = flow
        self._job: Final = job
        self._group: Final = control_partition(flow)[0]
        self._run: Final = run
        self._target: Final = target
        self._clock: Final = clock
        self._settle_within_ms: Final = settle_within_ms
        self._warn: Final = warn
        self._report: Final = report
        self._lock: Final = threading.Lock()
        """For the table and the watch, which two threads change: held for no call that waits."""
        self._table: Final = AssignmentTable(run.run, job, rows)
        self._watch: Final = TaskWatch(run.run, job, len(rows), clock.now())
        self._live = set(range(len(rows)))
        self._is_away = False
        """Whether a task copies partitions of another one that was lost."""
        self._attempts: Final = dict[int, int]()
        """The newest attempt of each task that has reported."""
        self._has_begun_again = False
        """Whether a task has, since the entries were renewed."""
        self._unreported: Final = set[int]()
        """The tasks that have begun again, and of which no line was printed yet."""
        self._uncommitted: dict[TopicPartition, Entry] = {}
        self._can_delete = True
        """Whether the target offers OffsetDelete, as far as is known."""
        self._is_announced = True
        self._announced_ms = clock.now() - _ANNOUNCE_EVERY_MS
        self._renewed_ms = self._moved_ms = clock.now()

    # --- for any thread

    def ranges(self) -> list[Range]:
        """Return the ranges that have an owner."""
        with self._lock:
            return self._table.ranges()

    def on_status(self, tasks: Sequence[TaskState], reports: Iterable[PartitionReport]) -> None:
        """Take what tasks have reported into account."""
        own = self._run.run, self._job
        with self._lock:
            self._watch.see(tasks, self._clock.now())
            for state in tasks:
                if (state.run, state.job) == own and state.attempt > self._attempts.get(state.task, 0):
                    self._attempts[state.task] = state.attempt
                    self._has_begun_again = True
                    self._unreported.add(state.task)
            for report in reports:
                if report.state == SETTLED and (report.run, report.job) == own:
                    self._table.on_settled(report.target, report.version)

    # --- for the thread that assigns

    def lacking(self, targets: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of these target partitions that no task has, and that may be given to one now."""
        with self._lock:
            return self._table.lacking(targets)

    def settling(self, targets: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of these target partitions that are taken from a task which has not settled that yet."""
        with self._lock:
            return self._table.settling(targets)

    def take(self, ranges: Iterable[Range]) -> dict[TopicPartition, KafkaError]:
        """Give ``ranges`` to the least loaded tasks; what has an owner is left out.

        Return the target partitions whose entries the target refuses: they are committed again with the next call.
        """
        with self._lock:
            entries = self._table.take(ranges, self._live)
        return self._commit(entries)

    def release(self, targets: Collection[TopicPartition]) -> None:
        """Take these target partitions from their tasks."""
        with self._lock:
            entries = self._table.release(targets)
        self._commit(entries)

    def update(self) -> None:
        """Give the partitions of lost tasks to others, and some back to tasks that live again; to be called often.

        A lost task may live, and be unable to report; so may an earlier attempt of a task, for which a later one
        settles. The fence of the other one protects a partition then; at least once, records may be copied
        twice.
        """
        now = self._clock.now()
        with self._lock:
            self._live = self._watch.live(now)
            overdue = self._table.expire(now, self._settle_within_ms)
            displaced = self._table.displace(self._live)
            entries = [*displaced, *self._table.take_home(self._live)]
            if now - self._moved_ms >= _MOVE_EVERY_MS and (moved := self._table.move_home(self._live, _MOST_MOVED)):
                self._moved_ms = now
                entries += moved
            away = self._table.away()
            again = ", ".join(map(str, sorted(self._unreported)))
            self._unreported.clear()
        if again:
            self._warn(
                f"Spark has begun tasks again: {again}; their processes had died, or they failed: see Spark's log"
            )
        if of_tasks := [away[entry.target] for entry in displaced if entry.target in away]:
            lost = ", ".join(map(str, sorted(set(of_tasks))))
            self._warn(
                f"{len(of_tasks)} partitions are copied by other tasks until theirs report again: {lost}; a process or"
                " host may have died, and Spark has no free slot to begin the task again; if it lives, and cannot"
                " report, a flow that copies at least once may copy records twice"
            )
        if self._is_away and not away:
            self._report("each task copies its own partitions again")
        self._is_away = bool(away)
        if overdue:
            self._warn(
                f"{len(overdue)} partitions, such as {min(overdue)}, were taken from a task that has not answered:"
                " others copy them now; in a flow that copies at least once, records may be copied twice"
            )
        self._commit(entries)

    def renew(self, renew_ms: int) -> None:
        """Commit all entries again, if the last time was ``renew_ms`` ago, or a task has begun again since.

        The target forgets old offsets, and with a deleted topic all offsets of it; a task that begins has only these.
        """
        with self._lock:
            if self._clock.now() - self._renewed_ms < renew_ms and not self._has_begun_again:
                return
            self._has_begun_again = False
            self._renewed_ms = self._clock.now()
            entries = self._table.entries()
        self._commit(entries)

    def delete_outdated(self) -> None:
        """Delete entries that every read would return: those of earlier jobs, and of what was released and settled.

        A target without OffsetDelete forgets them by itself once they are not renewed any more.
        """
        with self._lock:
            settled = self._table.settled() - self._uncommitted.keys()
        forgotten = self._delete(settled) if self._can_delete else settled
        with self._lock:
            self._table.forget(forgotten)

    def _delete(self, settled: set[TopicPartition]) -> set[TopicPartition]:
        """Delete the outdated entries; return those of ``settled`` that are not renewed from now on."""
        offsets = self._target.group_offsets(self._group)
        old = outdated(offsets, self._flow, self._run.run, self._job, settled)
        if not old:
            return settled - offsets.keys()  # deleted with its topic
        deleted = self._target.delete_group_offsets(self._group, old, partial=True)
        if any(isinstance(error, UnsupportedVersion) for error in deleted.failed.values()):
            self._can_delete = False
            self._report("the target does not offer OffsetDelete: old assignments stay until it forgets their offsets")
            return settled
        return (settled - offsets.keys()) | (settled & deleted.keys())

    def _commit(self, entries: Iterable[Entry]) -> dict[TopicPartition, KafkaError]:
        self._uncommitted.update((entry.target, entry) for entry in entries)
        refused: dict[TopicPartition, KafkaError] = {}
        for offsets in requests_of(list(self._uncommitted.values())):
            refused |= self._target.commit_group_offsets_async(self._group, offsets).result().failed
        self._is_announced = self._is_announced and len(refused) == len(self._uncommitted)
        self._uncommitted = {target: self._uncommitted[target] for target in refused}
        self._forget([target for target, error in refused.items() if self._is_of_no_topic(target, error)])
        if not self._is_announced:
            self._announce()
        return {target: refused[target] for target in self._uncommitted}

    def _is_of_no_topic(self, target: TopicPartition, error: KafkaError) -> bool:
        """Whether ``target`` was released, and does not exist any more: no offset is committed for it."""
        is_unknown = isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and self._uncommitted[target].owner == RELEASED

    def _forget(self, targets: Collection[TopicPartition]) -> None:
        for target in targets:
            del self._uncommitted[target]
        with self._lock:
            self._table.forget(targets)

    def _announce(self) -> None:
        """Announce a version that no task has read: what was refused before may be committed only now."""
        wait_ms = self._announced_ms + _ANNOUNCE_EVERY_MS - self._clock.now()
        if wait_ms > 0:
            threading.Event().wait(wait_ms / 1000)
        self._announced_ms = self._clock.now()
        with self._lock:
            version = self._table.next_version()
        self._run.announce_assignments(version)
        self._is_announced = True
        with self._lock:
            self._table.on_announced(version, self._clock.now(), self._uncommitted)
