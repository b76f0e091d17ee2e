"""Which task of a job copies which target partition, and how that changes while the tasks live. Pure.

A job begins with fixed rows of ranges, one row per task. What changes afterwards is committed as one :class:`Entry` per
target partition, each under a version, and the control record announces the newest version::

    AssignmentTable ──Entry──► offsets of the control group ──► OwnAssignments of each task ──Change──► its copies
          ▲                                                                                                 │
          └──────────────────── on_settled: a released partition has its last commit ◄──────────────────────┘

A target has one owner from the version that takes it to the report that settles the version that releases it. Reads may
be late, lost or repeated: a task compares the version of each entry with what it has applied. Only a release that is
overdue ends this early, because its task may have died: then the fence of the next attempt protects the partition.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.model.ranges import Range

RELEASED: Final = -1
"""The owner of a target partition that no task may begin to copy."""

MAX_METADATA_BYTES: Final = 4_096
"""What brokers store with an offset (default of ``offset.metadata.max.bytes``)."""


def target_of(range_: Range) -> TopicPartition:
    """Return the target partition of ``range_``."""
    return TopicPartition(range_.target_topic, range_.partition)


@dataclass(frozen=True, slots=True)
class Entry:
    """Who copies a target partition from ``version`` on. The last entry that was written for a partition counts."""

    run: str
    job: int
    """The number of the job in its run. An entry is valid in this job only."""
    version: int
    owner: int
    """The number of the task, from 0; or :data:`RELEASED`."""
    range: Range
    previous: int | None = None
    """The task that has to settle a released partition; None for one that has an owner.

    A task that was retried cannot know otherwise whether it was its earlier attempt that copied the partition.
    """

    @property
    def target(self) -> TopicPartition:
        """The target partition, for which the offset is committed."""
        return target_of(self.range)

    def to_offset(self) -> OffsetAndMetadata:
        """Return the entry as an offset to commit for :attr:`target`; its offset is the job.

        Without the progress if brokers would refuse it for its length: the task then reads it from the target.
        """
        metadata = {
            "v": 2,
            "run": self.run,
            "ver": self.version,
            "task": self.owner,
            "topic": self.range.topic,
            "start": self.range.start,
            "first": self.range.first,
            "end": self.range.source_end,
            "leader": self.range.source_epoch,
            "cluster": self.range.source_cluster_id,
            "id": self.range.topic_id,
        }
        if self.previous is not None:
            metadata["from"] = self.previous
        text = json.dumps(metadata, separators=(",", ":"))
        if self.range.progress is not None:
            longer = json.dumps({**metadata, "progress": self.range.progress}, separators=(",", ":"))
            text = longer if len(longer) <= MAX_METADATA_BYTES else text
        return OffsetAndMetadata(self.job, None, text)


@dataclass(frozen=True, slots=True)
class Change:
    """What a task has to do about its assignments."""

    taken: tuple[Range, ...] = ()
    released: tuple[tuple[TopicPartition, int], ...] = ()
    """Each target partition, with the version to settle. The task may hold nothing of it: then it settles at once."""

    def __bool__(self) -> bool:
        return bool(self.taken or self.released)


class OwnAssignments:
    """The assignments of one attempt of a task.

    It holds nothing before the first :meth:`apply`: another task may have taken a part of its row meanwhile.
    """

    def __init__(self, run: str, job: int, task: int, rows: Sequence[Range]) -> None:
        """``rows`` are the ranges that the job began with for this task."""
        self._job: Final = run, job
        self._task: Final = task
        self._rows: tuple[Range, ...] = tuple(rows)
        """Those of which nothing is decided yet."""
        self._held: Final = dict[TopicPartition, int]()
        """The partitions that this task copies, with the version that it holds them by; 0: its row."""
        self._seen: Final = dict[TopicPartition, int]()
        self.applied = -1
        """The newest version whose entries were applied; -1: none."""

    def apply(self, entries: Mapping[TopicPartition, Entry], version: int) -> Change:
        """Apply ``entries``, read after ``version`` was announced, and return what has changed for this task.

        They may be as new as any later version. An entry that was applied before changes nothing.
        """
        own = {target: entry for target, entry in entries.items() if (entry.run, entry.job) == self._job}
        taken, released = list[Range](), list[tuple[TopicPartition, int]]()
        for row in self._rows:
            if (target := target_of(row)) not in own:
                self._held[target] = 0
                taken.append(row)
        self._rows = ()
        for target, entry in own.items():
            if entry.version <= self._seen.get(target, -1):
                continue
            self._seen[target] = entry.version
            if entry.owner == self._task:
                if target not in self._held:
                    taken.append(entry.range)
                self._held[target] = entry.version
            elif (settles := self._settles(target, entry)) is not None:
                released.append((target, settles))
        self.applied = max(self.applied, version)
        return Change(tuple(taken), tuple(released))

    def _settles(self, target: TopicPartition, entry: Entry) -> int | None:
        """Return the version to settle if ``entry`` takes ``target`` away; None if that is no matter of this task.

        If the partition was given to others without this task's settling it, none waits for it, and the version that
        another task has to settle must not be settled by this one.
        """
        held = self._held.pop(target, None)
        return entry.version if entry.previous == self._task else held


@dataclass(slots=True)
class _Release:
    """A partition that was released, and may be taken once it is free."""

    entry: Entry
    announced_ms: int | None = None
    free: bool = False
    """Whether it is settled, or overdue."""


class AssignmentTable:
    """The assignments of one job, for its driver. Each change has the next version, to be announced once it is stored.

    The driver commits the entries of a change, then announces :attr:`version`, then calls :meth:`on_announced`.
    """

    def __init__(self, run: str, job: int, rows: Sequence[Sequence[Range]], version: int = 0) -> None:
        """``rows`` are the ranges of each task. ``version`` is that of the run's last job: versions never decrease."""
        self.version = version
        """The version of the last change."""
        self._run: Final = run
        self._job: Final = job
        self._rows_version: Final = version
        self._owned: Final = dict[TopicPartition, Entry]()
        self._released: Final = dict[TopicPartition, _Release]()
        for task, row in enumerate(rows):
            for range_ in row:
                self._owned[target_of(range_)] = Entry(run, job, version, task, range_)

    def owner(self, target: TopicPartition) -> int | None:
        """Return the task that copies ``target``; None if it is released or unknown."""
        entry = self._owned.get(target)
        return None if entry is None else entry.owner

    def entries(self) -> list[Entry]:
        """Return every entry of the job, in order to commit it again before the target forgets it."""
        owned = [entry for entry in self._owned.values() if entry.version > self._rows_version]
        return [*owned, *(release.entry for release in self._released.values())]

    def lacking(self, known: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the ``known`` target partitions that were never assigned in this job."""
        return set(known) - self._owned.keys() - self._released.keys()

    def take(self, ranges: Iterable[Range], load: Mapping[int, int]) -> list[Entry]:
        """Assign ``ranges`` to the least loaded of the live tasks, and return the entries to commit.

        ``load`` is the load of each live task, for example the number of its partitions. A partition that has an owner,
        or whose release is neither settled nor overdue, is left out; so are all while no task lives.
        """
        rest = dict(load)
        free = {target_of(range_): range_ for range_ in ranges if self._is_free(target_of(range_))}
        if not rest or not free:
            return []
        self.version += 1
        entries = list[Entry]()
        for target, range_ in free.items():
            task = min(rest, key=lambda each: (rest[each], each))
            rest[task] += 1
            entry = Entry(self._run, self._job, self.version, task, range_)
            self._released.pop(target, None)
            self._owned[target] = entry
            entries.append(entry)
        return entries

    def _is_free(self, target: TopicPartition) -> bool:
        release = self._released.get(target)
        return target not in self._owned and (release is None or release.free)

    def release(self, targets: Collection[TopicPartition]) -> list[Entry]:
        """Release those of ``targets`` that have an owner, and return the entries to commit."""
        owned = [self._owned.pop(target) for target in dict.fromkeys(targets) if target in self._owned]
        if not owned:
            return []
        self.version += 1
        entries = [replace(each, version=self.version, owner=RELEASED, previous=each.owner) for each in owned]
        self._released.update((entry.target, _Release(entry)) for entry in entries)
        return entries

    def on_announced(self, version: int, now: int) -> None:
        """Begin to wait for what was released up to ``version``: tasks can know of it from now on."""
        for release in self._released.values():
            if release.announced_ms is None and release.entry.version <= version:
                release.announced_ms = now

    def on_settled(self, target: TopicPartition, version: int, progress: str | None) -> None:
        """A task of this job has settled ``version`` of ``target``. Another version than that awaited is ignored.

        ``progress`` is that of its last commit, as :attr:`Range.progress` has it.
        """
        release = self._released.get(target)
        if release is None or release.entry.version != version:
            return
        release.entry = replace(release.entry, range=replace(release.entry.range, progress=progress))
        release.free = True

    def overdue(self, now: int, settle_within_ms: int) -> set[TopicPartition]:
        """Return what was not settled within ``settle_within_ms`` after its release was announced, for a warning.

        :meth:`takeable` makes it free.
        """
        return {target for target, release in self._released.items() if _is_overdue(release, now, settle_within_ms)}

    def takeable(self, now: int, settle_within_ms: int) -> list[Range]:
        """Return the ranges of released partitions that may be taken: settled, with their progress, or overdue.

        One that is overdue has no progress. It stays takeable until it is taken.
        """
        for target in self.overdue(now, settle_within_ms):
            release = self._released[target]
            release.entry = replace(release.entry, range=replace(release.entry.range, progress=None))
            release.free = True
        return [release.entry.range for release in self._released.values() if release.free]

    def moves(self, load: Mapping[int, int]) -> list[TopicPartition]:  # noqa: ARG002
        """Return the target partitions to release because the ``load`` of the tasks is uneven: none."""
        return []


def _is_overdue(release: _Release, now: int, settle_within_ms: int) -> bool:
    announced_ms = release.announced_ms
    return not release.free and announced_ms is not None and now - announced_ms >= settle_within_ms
