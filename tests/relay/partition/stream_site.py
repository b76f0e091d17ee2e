"""One partition of a stream: the driver's table gives it to one of two tasks, takes it away, and begins other jobs.

The attempts are those of :mod:`.sequences_site`, with a control record, entries and plans of any age. Besides, what the
source returns may be damaged or refused, its log may be cut back, and the target may lose the last commits of its
groups.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mirror.relay.model.assignments import AssignmentTable, Entry
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.model.reports import SETTLED, PartitionReport, TaskState
from mirror.relay.progress.assignment_entries import requests_of
from mirror.relay.progress.committed import Progress, group_of
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.wire.api import Api
from mirror.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from tests.fakes import errors
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import values_of
from tests.relay.partition.sequences_site import FLOW, SOURCE, TARGET, CopySite, Jitter
from tests.relay.simulation import Process

TASKS: Final = 2
_RUN: Final = "run-1"
_ROUND_MS: Final = 500
"""How often the driver renews its record, gives away what was settled, and begins lost tasks again."""
_SETTLES_WITHIN_MS: Final = 8_000
_STOPS_WITHIN_MS: Final = 8_000
_COPIES_WITHIN_MS: Final = 120_000
"""A failed attempt is retried after 15 s, a source that has stalled is asked after 10 s, and calls to a process that
does not answer have timeouts of some seconds."""
_MOST_ALIVE: Final = 6
_PASSED: Final = -1
"""A response that is passed on as it is."""


class StreamSite(CopySite):
    """A site whose attempts are those of a job's tasks, except the last one, which copies what there is then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.simulation.stays_in_poll = True
        self._control = RunControl(run=_RUN, host="h", since_ms=1, generation=1, seen_ms=1)
        self._table = AssignmentTable(_RUN, 0, [])
        self._row = replace(self.range(), end=OPEN_END)
        self._tasks: dict[int, Process] = {}
        """The present attempt of each task of the present job."""
        self._wanted = 0
        """The task that gets the partition next."""
        self._settled: int | None = None
        """How many batches the log had when a release was settled with an exact position; None: it was not."""
        self._ends = False
        self._plans: list[Progress | None] = [None]
        self._streams: list[list[bytes]] = []
        """What the source held when its log was cut back, each time."""
        self._examined: set[str] = set()
        self._again_ms: dict[str, int] = {}
        self._delays_ms: dict[str, int] = {}
        self._failing: dict[str, list[int | None]] = defaultdict(list)
        """What happens to the next fetches of records, by process."""
        self.source.control.add(self._decide_fetch)
        self._round()

    @property
    def has_room(self) -> bool:
        return len(self.alive) < _MOST_ALIVE

    # --- the driver

    def _round(self) -> None:
        self._announce(seen_ms=self._control.seen_ms + 1)
        self.target.after(_ROUND_MS, self._round)
        if self._ends:
            return
        for task, process in list(self._tasks.items()):
            if process.ended:
                self._begin(task)  # Spark does
        self._table.expire(self.target.clock.now(), _SETTLES_WITHIN_MS)
        if entries := self._table.take([replace(self.range(), end=OPEN_END)], {self._wanted}):
            self._check_settled()
            self._commit(entries)

    def _announce(self, **changes: Any) -> None:
        self._control = replace(self._control, version=self._table.version, **changes)
        group, tp = control_partition(FLOW)
        record = self._control.to_offset()
        self.target.groups[group][tp] = GroupOffset(record.offset, -1, record.metadata)

    def _commit(self, entries: list[Entry]) -> None:
        """Store the entries, then announce them."""
        for offsets in requests_of(entries):
            for tp, entry in offsets.items():
                self.target.groups[control_partition(FLOW)[0]][tp] = GroupOffset(entry.offset, -1, entry.metadata)
        self._announce()
        self._table.on_announced(self._table.version, self.target.clock.now())

    def _begin(self, task: int) -> None:
        before = self._tasks.get(task)
        attempt = 0 if before is None else before.policy.attempt + 1
        policy = replace(
            self.policy, run=_RUN, generation=1, job=self._control.job, task=task, attempt=attempt, wind_up_ms=2_000
        )
        row = [] if task else [self._row]
        name = f"attempt-{len(self.simulation.processes)}"
        self._tasks[task] = self.simulation.start(name, row, policy, partial(self._on_report, policy.job), FLOW)

    def _on_report(self, job: int, report: TaskState | PartitionReport) -> None:
        if isinstance(report, TaskState) or report.state != SETTLED or job != self._control.job:
            return
        self._table.on_settled(report.target, report.version)
        others = [one for one in self.alive if one not in self._tasks.values()]
        self._settled = self._appended if report.result.outcome is Outcome.COMPLETE and not others else None

    @property
    def _appended(self) -> int:
        return sum(not one.is_control for one in self.log.batches())

    def _check_settled(self) -> None:
        """Nothing of a task comes into the log once it has settled a release in order."""
        settled, self._settled = self._settled, None
        assert settled is None or self._appended <= settled, "a batch was appended after its task had settled"

    # --- how it changes hands

    def job_begins(self, plan_age: int = 0, *, in_order: bool = True) -> None:
        """The next job, with the plan of so many jobs before.

        ``in_order``: the tasks of the one before have ended; otherwise they are taken for lost, and learn of it late.
        """
        if not self.has_room:
            return
        job, before = self._control.job + 1, [one for one in self._tasks.values() if not one.suspended]
        self._tasks = {}
        self._settled = None
        if in_order:
            self._announce(job=job)
            self.simulation.run(until=lambda: all(one.ended for one in before), ms=_STOPS_WITHIN_MS)
            for one in before:
                if not one.ended:
                    one.kill()
            self.check()
        self._plan()
        self.planned = self._plans[max(0, len(self._plans) - 1 - plan_age)]
        self._row = replace(self.range(), end=OPEN_END)
        self._table = AssignmentTable(_RUN, job, [[self._row], *[[]] * (TASKS - 1)], self._table.version)
        self._announce(job=job)
        for task in range(TASKS):
            self._begin(task)

    def moves(self, task: int) -> None:
        """The partition is released; ``task`` gets it once that is settled, or too late."""
        self._wanted = task
        self._commit(self._table.release([TARGET]))

    def task_is_lost(self, task: int) -> None:
        """Its host is taken for lost, and goes on: another attempt begins beside it."""
        if self.has_room and task in self._tasks:
            self._settled = None
            self._begin(task)

    def task_stands_still(self, number: int, ms: int) -> None:
        """While its networks and the other processes go on."""
        if alive := self.alive:
            alive[-1 - number % len(alive)].stands_until_ms = self.target.clock.now() + ms

    def changes_hands(
        self,
        change: str,
        task: int = 0,
        plan_age: int = 0,
        *,
        in_order: bool = True,
        before: int = 0,
        first_ms: int = 950,
        stands_ms: tuple[int, int] = (0, 0),
        batches: int = 1,
        later_ms: int = 100,
        every_ms: int = 40,
    ) -> None:
        """It goes to another attempt in one of the ways above. Batches are written ``before`` that, and later.

        Two tasks stand still: one from ``first_ms`` on, the other when the first of the batches is written.
        """
        self.source_trickles(before, 0, every_ms)
        self.time_passes(every_ms * before // 2)
        if change == "job_begins":
            self.job_begins(plan_age, in_order=in_order)
        elif change == "task_is_lost":
            self.task_is_lost(task)
        else:
            self.moves(task)
        self.time_passes(first_ms)
        own_ms, other_ms = stands_ms
        self.task_stands_still(1, other_ms)
        self.source.after(later_ms, lambda: self.task_stands_still(0, own_ms))
        self.source_trickles(batches, later_ms, every_ms)

    # --- the source

    def source_trickles(self, batches: int, later_ms: int, every_ms: int) -> None:
        for number in range(batches):
            self.source.after(later_ms + every_ms * number, lambda: self.source_grows([1], 0))

    def fetch_fails(self, number: int, code: int | None, skipped: int, times: int, again_ms: int) -> None:
        """Of the records that a process fetches: ``times`` responses, after some that are ``skipped``.

        They are refused with ``code``, or damaged (None). What is fetched instead takes ``again_ms``.
        """
        if alive := self.alive:
            name = alive[-1 - number % len(alive)].name
            self._failing[name] = [*[_PASSED] * skipped, *[code] * times]
            self._again_ms[name] = again_ms

    def _decide_fetch(self, call: ServerCall) -> Action | None:
        """What becomes of a fetch is decided when it is answered, which may be long after it was sent."""
        if call.api is not Api.FETCH:
            return None
        name = self.simulation.owners.get(("paris", call.connection), "")
        assert isinstance(self.source.control, Jitter)
        action = self.source.control.delays()
        action.stall_ms += self._delays_ms.pop(name, 0)
        action.rewrite = partial(self._answer_fetch, name)
        return action

    def _answer_fetch(self, name: str, response: FetchResponse) -> FetchResponse:
        failing = self._failing[name]
        if not failing or not any(part.records for topic in response.responses for part in topic.partitions):
            return response
        code = failing.pop(0)
        if code == _PASSED:
            return response
        self._delays_ms[name] = self._again_ms[name]
        return replace(response, responses=tuple(_failed(topic, code) for topic in response.responses))

    def source_leader_moves(self, node: int, *, epoch_unknown: bool) -> None:
        """``epoch_unknown``: it does not know the leader epochs of its log at once."""
        self.source_log.move(node)
        if epoch_unknown:
            refused = Action(errors={SOURCE: errors.UNKNOWN_LEADER_EPOCH})
            self.source.control.on(Api.OFFSET_FOR_LEADER_EPOCH, refused, times=2)

    def source_is_cut_back(self, batches: int, node: int, counts: list[int]) -> None:
        """An unclean election: the last ``batches`` are lost, and others are written."""
        log = self.source_log
        bases = [one.base_offset for one in log.batches() if not one.is_control]
        if not bases:
            return
        self._streams.append(self.stream)
        log.truncate(bases[-min(batches, len(bases))])
        log.move(node)
        kept = [value for one in log.batches() if not one.is_control for value in values_of(one.view)]
        self.stream = [value for value in kept if value != b"aborted"]
        self.source_grows(counts, 0)

    def gaps_are_skipped(self, *, skipped: bool) -> None:
        """Attempts that begin later resume behind gaps, or fail."""
        self.policy = replace(self.policy, on_gap="skip" if skipped else "fail")

    def gap_is_skipped_once(self, batches: int, counts: list[int], ms: int) -> None:
        """A job moves back in the source, and the next one, which does not skip gaps, dies when it has begun."""
        skipped = self.policy.on_gap == "skip"
        self._tasks_die()
        self.gaps_are_skipped(skipped=True)
        self.source_is_cut_back(batches, 2, counts)
        self.changes_hands("job_begins")
        self.time_passes(2_000)
        self._tasks_die()
        self.gaps_are_skipped(skipped=False)
        self.source_grows([1], 0)
        self.job_begins()
        self.time_passes(ms)
        self._tasks_die()
        self.gaps_are_skipped(skipped=skipped)
        self.job_begins()

    def _tasks_die(self) -> None:
        for one in self._tasks.values():
            if not one.ended:
                one.kill()
        self._tasks = {}

    # --- what must hold

    def _plan(self) -> None:
        self.flow_is_planned()
        self._plans.append(self.planned)
        self.planned = None

    def check(self) -> None:
        super().check()
        for one in self.simulation.processes:
            if one.results and one.name not in self._examined:
                self._examined.add(one.name)
                self._check_fenced(one)

    def _check_fenced(self, process: Process) -> None:
        """An attempt is FENCED only if another one has fenced it."""
        result = process.results[0] if process.results else None
        if result is None or result.outcome is not Outcome.FENCED:
            return
        owners = self.simulation.owners
        fenced = any(
            call.received_ms >= process.began_ms and owners.get(("berlin", call.connection)) != process.name
            for call in self.target.calls(Api.INIT_PRODUCER_ID)
            if call.body.transactional_id is not None
        )
        assert fenced, (
            f"{process.name} is the only one that has fenced since it began, and ends as fenced: {result.error}"
        )

    def check_prefix(self, values: list[bytes]) -> None:
        self._position_of(values)

    def _position_of(self, values: list[bytes]) -> tuple[list[bytes], int]:
        """Return the stream of which ``values`` are the last, and how far they go there.

        A copy that was in a log when that was cut back goes on in a later one, where the two diverge.
        """
        later = [*self._streams, self.stream]
        current, at = later.pop(0), 0
        for number, value in enumerate(values):
            while not (at < len(current) and current[at] == value):
                assert later, (
                    f"{value!r}, number {number}, does not follow in {values} of {[*self._streams, self.stream]}"
                )
                following = later.pop(0)
                at = min(at, _common(current, following))
                current = following
            at += 1
        return current, at

    def _check_result(self, result: RangeResult) -> None:
        excused = set(self.excused)
        if self._streams and (self._commits_lost or not self._has_moved_on):
            self.excused.add("position-unproved")
        super()._check_result(result)
        self.excused = excused

    @property
    def _has_moved_on(self) -> bool:
        """Whether the target has records that the source has since its log was cut back last.

        Until then, it may have records behind the progress that the source has lost. The attempt that has moved on has
        proved its position, and committed it.
        """
        return self._position_of(self.visible(committed=True))[0] is self.stream

    def _check_complete(self) -> None:
        values = self.visible(committed=True)
        current, at = self._position_of(values)
        if current is not self.stream:
            at = min(at, _common(current, self.stream))
        assert at == len(self.stream), f"{values} of {self.stream}"

    def check_index(self) -> None:
        if not self._streams:  # otherwise it has offsets of records that the source has lost
            super().check_index()

    # --- the end

    def finish(self) -> None:
        """The present attempt copies everything once faults have stopped; so does another one, without any fault."""
        self._check_progress()
        self.gaps_are_skipped(skipped=True)
        committed = self.target.groups[group_of(FLOW, TARGET)].get(TARGET)
        while committed is not None and self.source_log.end_offset <= committed.offset:
            self.source_grows([1], 0)  # a range that ends at the progress shows no cut: the next one does
        super().finish()

    def end_faults(self) -> None:
        super().end_faults()
        self._failing.clear()
        self._delays_ms.clear()
        self.source.control.add(self._decide_fetch)

    def _check_progress(self) -> None:
        present = list(self._tasks.values())
        for one in self.alive:
            one.suspended = one not in present  # if it was, the others may have copied
            one.stands_until_ms = 0
        self.end_faults()
        self.log.replicated_to = None
        self.source_grows([1], 0)
        until_ms = self.target.clock.now() + _COPIES_WITHIN_MS
        while not self._is_complete and self.target.clock.now() < until_ms:
            self.simulation.run(ms=1_000)
        self._ends = True
        self._announce(stop=True)
        present = [one for one in self._tasks.values() if not one.killed]
        self.simulation.run(until=lambda: all(one.ended for one in present), ms=_STOPS_WITHIN_MS)
        assert all(one.results is not None for one in present), "a task does not stop"
        self.check()
        for one in present:
            if self._streams and one.policy.on_gap == "fail":
                continue  # gaps fail an attempt by the policy with which it has begun
            for result in one.results or ():
                if result.outcome is not Outcome.FENCED:
                    self._check_result(result)

    @property
    def _is_complete(self) -> bool:
        try:
            self._check_complete()
        except AssertionError:
            return False
        return True


def _common(one: list[bytes], other: list[bytes]) -> int:
    """How many records two logs have in common."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _failed(topic: FetchResponseTopic, code: int | None) -> FetchResponseTopic:
    return replace(topic, partitions=tuple(_failed_part(part, code) for part in topic.partitions))


def _failed_part(part: FetchResponsePartition, code: int | None) -> FetchResponsePartition:
    if not part.records:
        return part
    if code is not None:
        return FetchResponsePartition(part.partition_index, code, records=memoryview(b""))
    records = bytearray(part.records)
    records[-1] ^= 1
    return replace(part, records=memoryview(records))
