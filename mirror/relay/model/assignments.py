"""Which task of a job copies which target partition, and how that changes while the tasks live. Pure.

A job begins with fixed rows of ranges, one row per task. What changes afterwards is committed as one :class:`Entry` per
target partition, each under a version, and the control record announces the newest version::

    AssignmentTable ──Entry──► offsets of the control group ──► OwnAssignments of each task ──Change──► its copies
          ▲                                                                                                 │
          └──────────────────── on_settled: a released partition has its last commit ◄──────────────────────┘

A target has one owner from the version that takes it to the report that settles the version that releases it. Reads may
be late, lost or repeated: a task compares the version of each entry with what it has applied. Only a task that is lost
does not settle, and a release that is overdue is not waited for: then the fence of the next attempt protects the
partition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.model.ranges import Range

RELEASED: Final = -1
"""The owner of a target partition that no task may begin to copy."""
EARLIER_ENDS_MS: Final = 30_000
"""By when an earlier attempt that lives has ended: the control record names the later one after a report and a
heartbeat (13 s), each task reads it once a second, and winds up (5 s)."""
LATE_VERSIONS: Final = 900
"""For so many versions a task remembers what an entry that is gone had: a commit that a broker executes late may bring
the entry back. Versions are announced a second apart, so this is at least 15 minutes."""


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
        """Return the entry as an offset to commit for :attr:`target`; its offset is the job."""
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
        return OffsetAndMetadata(self.job, None, json.dumps(metadata, separators=(",", ":")))


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
        """The version of each entry that was applied, until :data:`LATE_VERSIONS` after the job had it last."""
        self._gone = dict[TopicPartition, int]()
        """The announced version that was first without an entry which was applied."""
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
        self._forget(own, version)
        self.applied = max(self.applied, version)
        return Change(tuple(taken), tuple(released))

    # Invariant: An entry that was applied and is gone is not applied again if a late commit brings it back.
    # Test: tests/relay/model/test_assignments.py::test_an_entry_that_a_late_commit_brings_back_is_not_applied_again
    def _forget(self, own: Collection[TopicPartition], version: int) -> None:
        # What an announced version is without was deleted. A reading of before may be without what came later.
        gone = [target for target, seen in self._seen.items() if seen <= version and target not in own]
        self._gone = {target: self._gone.get(target, version) for target in gone}
        for target in [target for target, since in self._gone.items() if version - since >= LATE_VERSIONS]:
            del self._seen[target], self._gone[target]

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
    home: int | None = None
    """The task that it goes to; None: it does not move."""
    announced_ms: int | None = None
    free: bool = False
    """Whether it is settled, or is not waited for any more."""
    settled: bool = False


# Invariant: A target partition has one owner from the version that takes it to the report that settles its release.
# Test: tests/relay/task/test_assignments_model.py::TestAssignments
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
        self._in_rows: Final = frozenset(target_of(range_) for row in rows for range_ in row)
        self._owned: Final = dict[TopicPartition, Entry]()
        self._released: Final = dict[TopicPartition, _Release]()
        self._homes: Final = dict[TopicPartition, int]()
        """The task of each partition that another one copies because that task was lost."""
        for task, row in enumerate(rows):
            for range_ in row:
                self._owned[target_of(range_)] = Entry(run, job, version, task, range_)

    def ranges(self) -> list[Range]:
        """Return the ranges that have an owner."""
        return [entry.range for entry in self._owned.values()]

    def entries(self) -> list[Entry]:
        """Return every entry of the job, in order to commit it again before the target forgets it."""
        owned = [entry for entry in self._owned.values() if entry.version > self._rows_version]
        return [*owned, *(release.entry for release in self._released.values())]

    def lacking(self, known: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the ``known`` target partitions that have no owner, and may be taken."""
        return set(known) - self._owned.keys() - self.settling(known)

    def settling(self, known: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the ``known`` target partitions that are released, and may not be taken yet."""
        return {target for target, release in self._released.items() if not release.free} & set(known)

    def away(self) -> dict[TopicPartition, int]:
        """Return the own task of each partition that another one copies, or has copied until it is home again."""
        moving = {target: release.home for target, release in self._released.items() if release.home is not None}
        return self._homes | moving

    def settled(self) -> set[TopicPartition]:
        """Return those that are released and settled, and do not move: without an entry, no task takes them either.

        What is in a row needs its entry: the next attempt of the task would take it.
        """
        ended = {target for target, release in self._released.items() if release.settled and release.home is None}
        return ended - self._in_rows

    # --- changes

    def take(self, ranges: Iterable[Range], live: Collection[int]) -> list[Entry]:
        """Assign ``ranges`` to the ``live`` tasks with the fewest partitions, and return the entries to commit.

        A partition that moves goes to its own task if that lives. One that has an owner, or whose release is neither
        settled nor overdue, is left out; so are all while no task lives.
        """
        free = {target_of(range_): range_ for range_ in ranges}
        return self._assign([free[target] for target in self.lacking(free) if live], live)

    def _assign(self, ranges: Collection[Range], live: Collection[int]) -> list[Entry]:
        if not ranges:
            return []
        self.version += 1
        load = Counter(dict.fromkeys(live, 0))
        load.update(entry.owner for entry in self._owned.values() if entry.owner in load)
        entries = list[Entry]()
        for range_ in sorted(ranges, key=lambda each: (each.target_topic, each.partition)):
            target = target_of(range_)
            release, home = self._released.pop(target, None), self._homes.pop(target, None)
            if release is not None:
                home = release.home
            task = min(load, key=lambda each: (each != home, load[each], each))
            load[task] += 1
            if home is not None and task != home:
                self._homes[target] = home
            self._owned[target] = entry = Entry(self._run, self._job, self.version, task, range_)
            entries.append(entry)
        return entries

    def release(self, targets: Collection[TopicPartition]) -> list[Entry]:
        """Release those of ``targets`` that have an owner, and return the entries to commit."""
        owned = [self._owned.pop(target) for target in dict.fromkeys(targets) if target in self._owned]
        if not owned:
            return []
        self.version += 1
        entries = [replace(each, version=self.version, owner=RELEASED, previous=each.owner) for each in owned]
        for entry in entries:
            self._homes.pop(entry.target, None)
            self._released[entry.target] = _Release(entry)
        return entries

    def forget(self, targets: Iterable[TopicPartition]) -> None:
        """Keep nothing of ``targets`` that were released, and have no entry any more."""
        for target in targets:
            self._released.pop(target, None)

    def displace(self, live: Collection[int]) -> list[Entry]:
        """Give the partitions of lost tasks, which are all but the ``live`` ones, to these; return the entries.

        Nothing waits for a task that is lost: what it was to settle is free.
        """
        if not live:
            return []
        for release in self._released.values():
            release.free = release.free or release.entry.previous not in live
        lost = [entry for entry in self._owned.values() if entry.owner not in live]
        for entry in lost:
            self._homes.setdefault(entry.target, entry.owner)
        return self._assign([entry.range for entry in lost], live)

    def move_home(self, live: Collection[int], most: int) -> list[Entry]:
        """Release up to ``most`` partitions whose own task lives again; return the entries to commit.

        None while some are on their way: :meth:`take_home` takes these once they are free.
        """
        if any(release.home is not None for release in self._released.values()):
            return []
        moving = {target: home for target, home in self._homes.items() if home in live}
        entries = self.release(list(moving)[:most])
        for entry in entries:
            self._released[entry.target].home = moving[entry.target]
        return entries

    def take_home(self, live: Collection[int]) -> list[Entry]:
        """Take what :meth:`move_home` has released, and is free; return the entries to commit."""
        releases = self._released.values()
        return self.take([one.entry.range for one in releases if one.home is not None and one.free], live)

    # --- what becomes of them

    def next_version(self) -> int:
        """Return a version that no task has read, to be announced for entries that are stored later than others."""
        self.version += 1
        return self.version

    def on_announced(self, version: int, now: int, refused: Collection[TopicPartition] = ()) -> None:
        """Begin to wait for what was released up to ``version``: tasks can know of it from now on.

        They cannot of what the target has ``refused``: another version is announced once that is committed.
        """
        for target, release in self._released.items():
            if release.announced_ms is None and release.entry.version <= version and target not in refused:
                release.announced_ms = now

    def on_settled(self, target: TopicPartition, version: int) -> None:
        """A task of this job has settled ``version`` of ``target``. Another version than that awaited is ignored."""
        release = self._released.get(target)
        if release is not None and release.entry.version == version:
            release.free = release.settled = True

    def expire(self, now: int, settle_within_ms: int) -> set[TopicPartition]:
        """Free what was not settled within ``settle_within_ms`` after its release was announced, and return it."""
        overdue = set[TopicPartition]()
        for target, release in self._released.items():
            announced_ms = release.announced_ms
            if not release.free and announced_ms is not None and now - announced_ms >= settle_within_ms:
                release.free = True
                overdue.add(target)
        return overdue
