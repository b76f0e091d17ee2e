"""Carries out the changes of a task's assignments: what it is given it begins, what it is to release it winds up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mirror.client import TopicPartition
from mirror.relay.model.assignments import EARLIER_ENDS_MS, Change, target_of
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.progress.committed import Progress
from mirror.relay.task.assignment_reading import AssignmentReader
from mirror.relay.task.background_read import BackgroundRead
from mirror.relay.task.taking import LoadTaken, Taken
from mirror.relay.task.topic_rules import TopicRules
from mirror.timing import FOREVER_MS

_RELOAD_MS: Final = 1_000
"""How soon what a begin needs is read again if that failed: the clients have backoff of their own."""


def settles_late_until(policy: CopyPolicy, now: int) -> int:
    """Return until when an attempt that begins ``now`` settles nothing that it does not hold.

    An earlier attempt at the task may hold it and live. Exactly once the next fence ends that; at least once nothing
    does but the control record.
    """
    return now + EARLIER_ENDS_MS if policy.attempt and not policy.exactly_once else now


class Settled(NamedTuple):
    """A target partition that the task has released."""

    target: TopicPartition
    copy: PartitionCopy | None
    """It is done; None if the task held nothing of the partition."""
    version: int
    """The version of the assignments that has released it."""


@dataclass(slots=True)
class _Release:
    version: int
    abort_at: int
    """When what is not committed is aborted."""


# Invariant: A task opens nothing before it knows its assignments, and after it settled a release no late answer changes
#   anything: it would fence or disturb what belongs to others by now.
# Test: tests/relay/task/test_assignments.py::test_nothing_is_opened_before_it_is_known_what_was_taken_from_the_task
# Test: tests/relay/task/test_assignments.py::test_a_late_answer_changes_nothing_for_the_next_copy_of_its_partition
class AssignmentChanges:
    """The changes of one task's assignments, until each is carried out. Used on the task's thread.

    A partition that is given back to the task while it winds up begins once that is done and settled.
    """

    def __init__(
        self,
        rows: Sequence[Range],
        progress: Mapping[TopicPartition, Progress],
        reader: AssignmentReader | None,
        load: LoadTaken | None,
        submit: Callable[..., Future[Any]],
        wake: Callable[[], None],
        wind_up_ms: int,
        late_until: int = 0,
    ) -> None:
        """``rows`` are what the job began with for this task; the rules of their target topics are known.

        ``progress`` is what was read of the rows, by target partition. ``reader``: None if nothing changes. ``load``:
        None if nothing has to be read before a partition begins. ``submit`` runs a call in a thread that may wait.
        ``late_until``: as :func:`settles_late_until` says.
        """
        self._rows: Final = rows
        self._reader: Final = reader
        self._load: Final = load
        self._wind_up_ms: Final = wind_up_ms
        self._known = {(row.topic, row.target_topic) for row in rows}
        """The pairs of topics that the configuration selects, and whose rules are known.

        A known target topic does not suffice: an entry may name another source topic for it.
        """
        self._progress = progress
        """Of rows that begin as soon as it is known which do. It is too old for those that come from another task."""
        self._to_load: Final = dict[TopicPartition, Range]()
        self._to_begin: Final = {} if reader is not None else {target_of(row): row for row in rows}
        failed = "what was assigned to this task cannot begin yet; retrying"
        self._loading: Final = BackgroundRead[Taken](submit, wake, failed)
        self._asked = list[Range]()
        self._load_at = 0
        self._releases: Final = dict[TopicPartition, _Release]()
        self._settled = list[Settled]()
        self._late = list[Settled]()
        """What is settled at :attr:`_late_until`."""
        self._late_until: Final = late_until

    # --- what is to be done

    @property
    def version(self) -> int:
        """Up to which version the changes are known; 0 before any."""
        return 0 if self._reader is None else max(0, self._reader.applied)

    @property
    def _is_undecided(self) -> bool:
        """Whether it is not known yet which rows others have."""
        return self._reader is not None and self._reader.applied < 0

    @property
    def waiting(self) -> list[Range]:
        """What is assigned to the task, as far as it knows, and has not begun."""
        if self._is_undecided:
            return list(self._rows)
        return [*self._to_begin.values(), *self._to_load.values()]

    def update(self, copies: Mapping[TopicPartition, PartitionCopy], now: int) -> list[PartitionCopy]:
        """Wind up what is to be released, and abort what takes too long; return the copies to step.

        ``copies`` are all of the task.
        """
        change = None if self._reader is None else self._reader.take()
        winding_up = [] if change is None else self._apply(change, copies, now)
        return [*winding_up, *self._abort_overdue(copies, now)]

    def _apply(self, change: Change, copies: Mapping[TopicPartition, PartitionCopy], now: int) -> list[PartitionCopy]:
        winding_up = [self._release(target, version, copies.get(target), now) for target, version in change.released]
        for taken in change.taken:
            known = self._load is None or (taken.topic, taken.target_topic) in self._known
            (self._to_begin if known else self._to_load)[target_of(taken)] = taken
        if self._late and (begun := {target_of(taken) for taken in change.taken}):
            self._late = [one for one in self._late if one.target not in begun]
        return [copy for copy in winding_up if copy is not None]

    def _release(
        self, target: TopicPartition, version: int, copy: PartitionCopy | None, now: int
    ) -> PartitionCopy | None:
        self._to_begin.pop(target, None)
        self._to_load.pop(target, None)
        if copy is None and now < self._late_until:
            self._late.append(Settled(target, copy, version))
        elif copy is None or copy.done:
            self._settled.append(Settled(target, copy, version))
        elif (release := self._releases.get(target)) is not None:
            release.version = version
        else:
            self._releases[target] = _Release(version, now + self._wind_up_ms)
            copy.wind_up(now, immediately=False)
            return copy
        return None

    # --- what is done

    def _abort_overdue(self, copies: Mapping[TopicPartition, PartitionCopy], now: int) -> list[PartitionCopy]:
        overdue = [target for target, release in self._releases.items() if now >= release.abort_at]
        for target in overdue:
            self._releases[target].abort_at = FOREVER_MS
            copies[target].wind_up(now, immediately=True)
        return [copies[target] for target in overdue]

    def on_done(self, copy: PartitionCopy) -> None:
        """The result of ``copy`` is final."""
        if (release := self._releases.pop(copy.target, None)) is not None:
            self._settled.append(Settled(copy.target, copy, release.version))

    def take_settled(self, now: int) -> list[Settled]:
        """Return, once each, the partitions that are released."""
        settled, self._settled = self._settled, []
        if self._late and now >= self._late_until:
            late, self._late = self._late, []
            settled += late
        return settled

    def take_ready(self, copies: Mapping[TopicPartition, PartitionCopy], now: int) -> Taken | None:
        """Return, once, the ranges that may begin, and what was read for others; None if there is neither.

        ``copies`` are all of the task.
        """
        if self._is_undecided:
            return None
        progress, self._progress = self._progress, {}
        loaded = self._take_loaded(now)
        if self._to_load and self._load is not None and not self._loading.in_progress and now >= self._load_at:
            self._asked = list(self._to_load.values())
            self._loading.begin(self._load, self._asked)
        ready = [target for target in self._to_begin if target not in copies]
        if not ready and loaded is None:
            return None
        loaded = loaded or Taken([], TopicRules({}, {}), progress)
        return replace(loaded, ranges=[self._to_begin.pop(target) for target in ready])

    def _take_loaded(self, now: int) -> Taken | None:
        was_loading = self._loading.in_progress
        if (taken := self._loading.take()) is None:
            if was_loading and not self._loading.in_progress:
                self._load_at = now + _RELOAD_MS
            return None
        self._known.update((one.topic, one.target_topic) for one in taken.ranges)
        loaded = {target_of(one): one for one in taken.ranges}
        for one in self._asked:
            target = target_of(one)
            if self._to_load.get(target) is one:  # otherwise it was released meanwhile
                del self._to_load[target]
                if target in loaded:
                    self._to_begin[target] = loaded[target]
        return taken

    def forget_topics(self, targets: Collection[str]) -> set[str]:
        """Nothing of these target topics is copied any more; return those of which nothing waits to begin, either.

        Their rules are to be read again before another partition of them begins.
        """
        if self._load is None:
            return set()
        gone = set(targets) - {one.target_topic for one in self.waiting}
        self._known = {pair for pair in self._known if pair[1] not in gone}
        return gone

    def due_ms(self) -> int:
        """Return when the task has to call again if nothing wakes it before."""
        due_ms = min((release.abort_at for release in self._releases.values()), default=FOREVER_MS)
        due_ms = min(due_ms, self._late_until) if self._late else due_ms
        return min(due_ms, self._load_at) if self._to_load and not self._loading.in_progress else due_ms
