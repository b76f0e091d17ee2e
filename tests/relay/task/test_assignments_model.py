"""One table of assignments and the tasks of its jobs, with any order, delay, loss and repetition of what they exchange.

No task holds a partition that the table has given to another one, but for what was overdue: that is fenced. Once faults
have stopped, each partition is copied by the task that the table names.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.assignments import AssignmentTable, Change, Entry, OwnAssignments, target_of
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.assignment_entries import entries_of, outdated
from mirror.relay.progress.control_record import Command
from mirror.relay.task.assignment_reading import AssignmentReader, LoadEntries
from tests.examples import examples

FLOW, RUN = "f", "run"
TASKS, PARTITIONS, JOBS = 2, 2, 2
SETTLE_MS = 1_000


def range_of(partition: int) -> Range:
    return Range(
        flow=FLOW,
        topic="t",
        target_topic="a.t",
        partition=partition,
        start=0,
        end=OPEN_END,
        source_cluster_id="paris",
        topic_id="id",
    )


RANGES: Final = {target_of(each): each for each in map(range_of, range(PARTITIONS))}


@dataclass(frozen=True)
class Settled:
    """A report in the status topic."""

    job: int
    task: int
    target: TopicPartition
    version: int


class Attempt:
    """An attempt of a task: it holds partitions, and winds up those that are released."""

    def __init__(self, site: AssignmentsModel, job: int, task: int, number: int, rows: list[Range]) -> None:
        self._site: Final = site
        self.job: Final = job
        self.task: Final = task
        self._number: Final = number
        self._own: Final = OwnAssignments(RUN, job, task, rows)
        self._reader: Final = AssignmentReader(self._own, dict, self._submit, lambda: None)
        self.commands: list[Command] = []
        """Responses that are on their way."""
        self.read: tuple[Future[Mapping[TopicPartition, Entry]], dict[TopicPartition, OffsetAndMetadata]] | None = None
        """What is being read, and what there was when it was asked for."""
        self.copying: set[TopicPartition] = set()
        self.ending: dict[TopicPartition, int] = {}
        self._again: set[TopicPartition] = set()
        self.fenced: set[TopicPartition] = set()

    def __repr__(self) -> str:
        return f"job {self.job} task {self.task} attempt {self._number}"

    def holds(self, target: TopicPartition) -> bool:
        return target in self.copying or target in self.ending

    def _submit(self, _: LoadEntries) -> Future[Any]:
        assert self.read is None, "one read at a time"
        self.read = Future(), dict(self._site.offsets)
        return self.read[0]

    def on_command(self) -> None:
        if self.commands:
            self._reader.follow(self.commands.pop(0))
            self._take()

    def on_read(self, outcome: str) -> None:
        if self.read is None:
            return
        (future, before), self.read = self.read, None
        if outcome == "fails":
            future.set_exception(KafkaTimeout("the coordinator does not answer"))
        else:
            offsets = before if outcome == "before" else self._site.offsets
            future.set_result(entries_of(offsets, FLOW, RUN, self.job))
        self._take()

    def on_old_read(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if self._own.applied >= 0:
            self._on_change(self._own.apply(entries_of(offsets, FLOW, RUN, self.job), 0))

    def _take(self) -> None:
        if (change := self._reader.take()) is not None:
            self._on_change(change)

    def _on_change(self, change: Change) -> None:
        for target, version in change.released:
            self._again.discard(target)
            if self.holds(target):
                self.copying.discard(target)
                self.ending[target] = version
            else:
                self._site.reports.append(Settled(self.job, self.task, target, version))
        for range_ in change.taken:
            if (target := target_of(range_)) in self.ending:
                self._again.add(target)
            else:
                self._begin(target)

    def _begin(self, target: TopicPartition) -> None:
        assert target not in self.copying
        self.copying.add(target)

    def on_wound_up(self, target: TopicPartition) -> None:
        if target not in self.ending:
            return
        self._site.reports.append(Settled(self.job, self.task, target, self.ending.pop(target)))
        if target in self._again:
            self._again.discard(target)
            self._begin(target)


_tasks = st.integers(0, TASKS - 1)
_targets = st.sampled_from(sorted(RANGES))
_owners = st.lists(st.sampled_from([*range(TASKS), None]), min_size=PARTITIONS, max_size=PARTITIONS)
_any = st.integers(0, 30)
"""The number of something of which there are a few."""
_STEPS: Final = [
    *("release", "release", "take", "follow", "follow", "end", "end", "reports", "reports", "overdue", "old"),
    *("lost", "home", "delete", "start"),
]
_reads = st.sampled_from(["before", "after", "fails"])


class AssignmentsModel(RuleBasedStateMachine):
    """The control group, the driver with its table, the tasks, and their reports."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.earlier: list[dict[TopicPartition, OffsetAndMetadata]] = []
        """What there was in this job."""
        self.job = self.announced = self.now = 0
        self.rows: list[list[Range]] = []
        self.table = AssignmentTable(RUN, 0, [])
        self.uncommitted: list[Entry] = []
        self.attempts: dict[int, Attempt] = {}
        """Those that live."""
        self.ghosts: list[Attempt] = []
        """Attempts of earlier jobs, whose processes last for a while."""
        self.begun: dict[int, int] = {}
        self.reports: list[Settled] = []
        self.lost: set[int] = set()
        """The tasks that are taken for lost, some of which live."""
        self.displaced: set[tuple[int, TopicPartition]] = set()
        """Tasks and what was given to others while they were taken for lost: they are fenced, and learn of it late."""
        self.released: set[TopicPartition] = set()
        """What is to be taken again, but for what moves."""
        self.unsettled: set[TopicPartition] = set()
        """What may be taken although it is not settled: it is overdue, or its task is taken for lost."""

    # --- the driver

    @initialize(owners=_owners)
    def begin(self, owners: list[int | None]) -> None:
        self.new_job(owners, delete=True)
        for task in range(TASKS):
            self.follow(task)

    @precondition(lambda self: self.job < JOBS)
    @rule(owners=_owners, delete=st.booleans())
    def new_job(self, owners: list[int | None], delete: bool) -> None:
        """The partitions that have no owner come later."""
        self.ghosts += self.attempts.values()
        self.job += 1
        rows: list[list[Range]] = [[] for _ in range(TASKS)]
        for task, range_ in zip(owners, RANGES.values(), strict=True):
            if task is not None:
                rows[task].append(range_)
        self.rows = rows
        self.table = AssignmentTable(RUN, self.job, rows, self.table.version)
        for each in (
            self.uncommitted,
            self.earlier,
            self.attempts,
            self.begun,
            self.released,
            self.unsettled,
            self.lost,
            self.displaced,
        ):
            each.clear()
        if delete:
            for target in outdated(self.offsets, FLOW, RUN, self.job):
                del self.offsets[target]

    @property
    def live(self) -> set[int]:
        """The tasks that may be given partitions."""
        return self.attempts.keys() - self.lost

    def _on_taken(self, entries: list[Entry]) -> None:
        self.uncommitted += entries
        for entry in entries:
            target, unsettled = entry.target, entry.target in self.unsettled
            self.displaced -= {(entry.owner, target)}
            self.displaced |= {(task, target) for task in self.lost}
            self.unsettled.discard(target)
            self.released.discard(target)
            for attempt in self.attempts.values():
                if attempt.task == entry.owner:
                    attempt.fenced.discard(target)
                elif unsettled and attempt.holds(target):
                    attempt.fenced.add(target)
                else:
                    assert not self._has(attempt, target), f"{attempt} still holds {target}"

    def _announce(self) -> None:
        """Commit all entries and announce their version, without a fault."""
        for _ in range(len(self.uncommitted) + 1):
            self.commit()

    def _reports_arrive(self) -> None:
        while self.reports:
            self.report_arrives(0, repeated=False)

    @rule(steps=st.lists(st.tuples(st.sampled_from(_STEPS), _targets, _tasks), min_size=3, max_size=12))
    def goes_well(self, steps: list[tuple[str, TopicPartition, int]]) -> None:
        """Do some of the steps that a partition takes from one task to another, without a fault."""
        for step, tp, task in steps:
            if step in {"follow", "end"}:
                self.follow(task)
                if step == "end":
                    self._end(task)
            elif step == "old":
                for each in range(TASKS):
                    self.old_entries_arrive(each, TASKS * tp.partition + task)
            else:
                self._drive(step, tp, task)
                self._announce()
            self.each_partition_has_one_owner()

    def _drive(self, step: str, tp: TopicPartition, task: int) -> None:
        if step == "release":
            self.release(tp)
        elif step == "delete":
            self.delete_settled()
        elif step == "start":
            self.start(task)
        elif step == "take":
            self.take(tp)
        elif step == "lost":
            self.is_taken_for_lost(task)
        elif step == "home":
            self.reports_again(task)
            self.move_home()
        else:
            self.now += SETTLE_MS if step == "overdue" else 0
            if step == "reports":
                self._reports_arrive()
            self.take_released()

    @rule(tp=_targets)
    def take(self, tp: TopicPartition) -> None:
        self._on_taken(self.table.take([RANGES[tp]], self.live))

    @rule()
    def take_released(self) -> None:
        """Take what is free again."""
        self.unsettled |= self.table.expire(self.now, SETTLE_MS)
        self._on_taken(self.table.take_home(self.live))
        self._on_taken(self.table.take([RANGES[each] for each in sorted(self.released)], self.live))

    @rule(task=_tasks)
    def is_taken_for_lost(self, task: int) -> None:
        """It does not report, and may live; the others do."""
        if self.live - {task}:
            self.lost.add(task)
            settling = self.table.settling(RANGES)
            self._on_taken(self.table.displace(self.live))
            self.unsettled |= settling - self.table.settling(RANGES)

    @rule(task=_tasks)
    def reports_again(self, task: int) -> None:
        self.lost.discard(task)

    @rule()
    def move_home(self) -> None:
        self.uncommitted += self.table.move_home(self.live, 1)

    @rule()
    def delete_settled(self) -> None:
        """Delete the entries of what is settled. No task has a reading of before, when it was not."""
        settled = self.table.settled() - {each.target for each in self.uncommitted}
        for target in settled:
            del self.offsets[target]
            self.earlier.clear()
        self.table.forget(settled)

    @rule(tp=_targets)
    def release(self, tp: TopicPartition) -> None:
        entries = self.table.release([tp])
        self.uncommitted += entries
        self.released.update(each.target for each in entries)

    @rule(done=st.booleans(), answered=st.booleans())
    def commit(self, done: bool = True, answered: bool = True) -> None:
        """Commit one entry, or announce the version that all entries belong to."""
        if not self.uncommitted:
            self.announced = max(self.announced, self.table.version)
            self.table.on_announced(self.table.version, self.now)
        elif done:
            entry = self.uncommitted[0]
            self.offsets[entry.target] = entry.to_offset()
            self.earlier.append(dict(self.offsets))
            if answered:
                del self.uncommitted[0]

    @rule(ms=st.sampled_from([1, SETTLE_MS]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: self.reports)
    @rule(number=_any, repeated=st.booleans())
    def report_arrives(self, number: int, repeated: bool) -> None:
        at = number % len(self.reports)
        report = self.reports[at] if repeated else self.reports.pop(at)
        if report.job == self.job:
            self.table.on_settled(report.target, report.version)

    @rule(tp=_targets, task=_tasks, version=_any, run=st.sampled_from([RUN, "other"]))
    def others_write(self, tp: TopicPartition, task: int, version: int, run: str) -> None:
        """Entries of other runs and jobs, where none of this job is: OffsetCommit compares nothing."""
        if tp not in entries_of(self.offsets, FLOW, RUN, self.job):
            self.offsets[tp] = Entry(run, self.job - (run == RUN), version, task, RANGES[tp]).to_offset()

    # --- the tasks

    @rule(task=_tasks, lost=st.booleans())
    def start(self, task: int, lost: bool = False) -> None:
        """Begin an attempt, after the end of an earlier one, whose reports may be ``lost``."""
        if lost:
            self.reports = [each for each in self.reports if (each.job, each.task) != (self.job, task)]
        self.begun[task] = number = self.begun.get(task, -1) + 1
        self.attempts[task] = Attempt(self, self.job, task, number, self.rows[task])

    @rule(task=_tasks)
    def die(self, task: int) -> None:
        self.attempts.pop(task, None)

    def _attempt(self, number: int) -> Attempt | None:
        attempts = [*self.attempts.values(), *self.ghosts]
        return attempts[number % len(attempts)] if attempts else None

    def follow(self, task: int) -> None:
        """Read everything without a fault."""
        if task not in self.attempts:
            self.start(task)
        attempt = self.attempts[task]
        attempt.commands.append(Command(version=self.announced))
        while attempt.commands or attempt.read:
            attempt.on_command()
            attempt.on_read("after")

    def _end(self, task: int) -> None:
        for target in list(self.attempts[task].ending):
            self.attempts[task].on_wound_up(target)

    @rule(task=_tasks)
    def read_fails(self, task: int) -> None:
        if (attempt := self.attempts.get(task)) is not None and attempt.read is None:
            attempt.commands[:] = [Command(version=self.announced)]
            attempt.on_command()
            attempt.on_read("fails")

    @rule(number=_any)
    def control_is_read(self, number: int) -> None:
        if (attempt := self._attempt(number)) is not None:
            attempt.commands.append(Command(version=self.announced))

    @rule(number=_any, lost=st.booleans())
    def command_arrives(self, number: int, lost: bool) -> None:
        if (attempt := self._attempt(number)) is not None:
            if lost:
                del attempt.commands[:1]
            attempt.on_command()

    @rule(number=_any, outcome=_reads)
    def entries_arrive(self, number: int, outcome: str) -> None:
        if (attempt := self._attempt(number)) is not None:
            attempt.on_read(outcome)

    @rule(task=_tasks, number=_any)
    def old_entries_arrive(self, task: int, number: int) -> None:
        if (attempt := self.attempts.get(task)) is not None and self.earlier:
            attempt.on_old_read(self.earlier[-1 - number % len(self.earlier)])

    @rule(number=_any, tp=_targets)
    def wind_up_ends(self, number: int, tp: TopicPartition) -> None:
        if (attempt := self._attempt(number)) is not None:
            attempt.on_wound_up(tp)

    # --- what holds

    def _has(self, attempt: Attempt, target: TopicPartition) -> bool:
        is_other = target in attempt.fenced or (attempt.task, target) in self.displaced
        return attempt.holds(target) and not is_other

    @invariant()
    def each_partition_has_one_owner(self) -> None:
        for target in RANGES:
            owners = [each for each in self.attempts.values() if self._has(each, target)]
            assert len(owners) <= 1, f"{owners} hold {target}"

    def teardown(self) -> None:
        """Without further faults, each partition is copied by its owner, and what is released is settled in time."""
        self.lost.clear()
        for _ in range(3 + 2 * PARTITIONS):
            self.move_home()
            self._announce()
            for task in range(TASKS):
                self.follow(task)
                self._end(task)
            self._reports_arrive()
            self.take_released()
            self.each_partition_has_one_owner()
        for target in RANGES:
            holders = [each.task for each in self.attempts.values() if each.holds(target)]
            entry = self.table._owned.get(target)
            owner = None if entry is None else entry.owner
            assert holders == ([] if owner is None else [owner]), f"{target} is of task {owner}"
            assert (owner is None) == (target in self.table.lacking([target])), f"{target} is released for ever"
        assert self.table.move_home(range(TASKS), PARTITIONS) == [], "what has moved goes back"


TestAssignments = AssignmentsModel.TestCase
TestAssignments.settings = settings(max_examples=examples(20, 800), stateful_step_count=40)
