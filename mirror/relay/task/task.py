"""A task: the loop that steps the copies of its ranges on one thread, and what the copies share."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.client import TopicPartition
from mirror.meters import Histogram
from mirror.relay.batches.batch_pipeline import SubmitReencode
from mirror.relay.batches.classify import IsForeign
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.batches.way_rules import WayRules
from mirror.relay.flow_control import RateLimiter, SendWindow, SourceBudget
from mirror.relay.model.assignments import OwnAssignments, target_of
from mirror.relay.model.observer import NullObserver, TaskObserver, TaskSnapshot
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.offsets.segments import Segment
from mirror.relay.origin.records import LogKey
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.partition.states import unfinished
from mirror.relay.partition.writers.target_writer import TargetWriter
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.control import Command, RunControl
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.log_reading import THROTTLED
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.lookup.start_positions import StartPositions
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.readback.written import WrittenBatch
from mirror.relay.task.additions import Additions
from mirror.relay.task.assignment_reading import AssignmentReader
from mirror.relay.task.changes import AssignmentChanges
from mirror.relay.task.epoch import EpochLifecycle, HandOver
from mirror.relay.task.fetch_steering import FetchSteering
from mirror.relay.task.lifecycle import Lifecycle, TaskLifecycle
from mirror.relay.task.neighbours import serve_neighbours
from mirror.relay.task.periods import PeriodObserver
from mirror.relay.task.position_searches import PositionSearches
from mirror.relay.task.reading_back import new_read_back, read_back_observer
from mirror.relay.task.reporting import ReportingObserver, TaskReporter
from mirror.relay.task.running_copies import CedeRequests, running_copies
from mirror.relay.task.taking import Taken
from mirror.relay.task.task_records import TaskRecords
from mirror.relay.task.topic_rules import TopicRules
from mirror.relay.task.turns import AcquisitionTurns
from mirror.relay.task.undecided_fetches import UndecidedFetches
from mirror.relay.task.upkeep import RulesRefresh, Upkeep
from mirror.relay.task.workers import TaskWorkers
from mirror.relay.task.writers import Clients, TaskWriters
from mirror.timing import FOREVER_MS, Clock

_MAX_WAIT_MS: Final = 1_000
_MOST_STEPPED: Final = 200
"""How many copies are stepped in one turn because something has happened: additions and commits of others must not
wait for thousands that open at once."""
_LATE_FRACTION: Final = 8
"""A response that takes longer than this fraction of delivery.timeout.ms shrinks the send window."""


class Task:
    """Steps the copies of one task, and is their context (:class:`mirror.relay.partition.context.CopyContext`).

    Everything runs on the thread that calls :meth:`run`, and nothing in it waits for a single copy. Only
    :meth:`on_batch_answered`, :meth:`snapshot` and the callbacks of futures run on other threads.
    """

    def __init__(
        self,
        clients: Clients,
        policy: CopyPolicy,
        timeouts: CopyTimeouts,
        clock: Clock,
        backoff: Backoff,
        *,
        buffer_memory: int,
        max_partition_bytes: int,
        observer: TaskObserver | None = None,
        lookup_executor: Executor | None = None,
        wake_event: threading.Event | None = None,
    ) -> None:
        """``lookup_executor`` and ``wake_event`` replace threads and waiting in tests."""
        now = clock.now()
        self.unix_ms: Final = clock.unix_ms
        self.timeouts: Final = timeouts
        self.commit_durations: Final = Histogram()
        late_ms = max(1, timeouts.delivery_timeout_ms // _LATE_FRACTION)
        self.send_window: Final = SendWindow(buffer_memory, late_ms, now)
        self.source_budget: Final = SourceBudget(buffer_memory)
        self.backoff: Final = backoff
        self._clients: Final = clients
        self._policy: Final = policy
        self._clock: Final = clock
        self._copies: list[PartitionCopy] = []
        self._by_target: Final[dict[TopicPartition, PartitionCopy]] = {}
        self._active: set[PartitionCopy] = set()
        self._due: dict[PartitionCopy, int] = {}
        self._next_due_ms = now
        """The earliest of :attr:`_due` when the task last waited; they change only after :meth:`_step_due`."""
        self._steering: Final = FetchSteering(
            clients.consumer,
            self.source_budget,
            RateLimiter(policy.max_bytes_per_second, now),
            max_partition_bytes=max_partition_bytes,
            stall_ms=timeouts.stall_ms,
            now=now,
        )
        self._lifecycle: Final[Lifecycle] = (
            TaskLifecycle(policy, timeouts, self._read_control, self._on_command, now)
            if policy.follows
            else EpochLifecycle(policy, timeouts, clock.unix_ms, self._read_control, now)
        )
        # Callbacks on network threads append to it; appending and popping are atomic.
        self._to_step: deque[CopyHandle] = deque()
        self._wake_event: Final = wake_event or threading.Event()
        self._polling = self._under_lease = False
        self._workers: Final = TaskWorkers(buffer_memory, policy.transform, lookup_executor)
        positions, submit_search = clients.positions, self._workers.submit_search
        self._searches: Final = (
            None
            if positions is None
            else PositionSearches(positions, clients.lookups, submit_search, clock.now, self._wake)
        )
        self._writers: Final = TaskWriters(clients, policy, self._searches, lambda: self._under_lease)
        submit = self._workers.submit
        self._records: Final = TaskRecords(
            clients.anchors, clients.offsets, self._write_progress, submit, now, clock.unix_ms()
        )
        self._cede_requests: Final = CedeRequests(self._wake)
        self._turns: Final = AcquisitionTurns(self._wake)
        origin, budget = clients.origin, self.source_budget
        self._undecided: Final = None if origin is None else UndecidedFetches(origin, submit, budget, self._wake)
        self._start_positions: Final = StartPositions(clients.lookups, self._workers.submit, clock.now)
        load = clients.load_additions
        self._additions: Final = None if load is None else Additions(policy, load, submit, self._wake)
        self._batch_size = 0
        self._limits: dict[str, TargetLimits] = {}
        self._ways: dict[str, WayRules] = {}
        self._reader: AssignmentReader | None = None
        self._changes: AssignmentChanges | None = None
        self._reporter: TaskReporter | None = None
        self._upkeep: Upkeep | None = None
        self._refresh: RulesRefresh | None = None
        self._lives_on = False
        self._read_back: Final = new_read_back(clients, policy, clock.unix_ms)
        self._periods: Final = PeriodObserver(ReportingObserver(observer or NullObserver(), self._on_failed))
        self.observer: Final = read_back_observer(self._periods, self._read_back, clock.now)

    def close(self) -> None:
        """Start nothing more, and free the copies; lookups that run end by their own timeouts."""
        self._workers.close()
        for copy in self._copies:
            copy.release()
        self._copies, self._active, self._due = [], set(), {}
        self._by_target.clear()
        self._start_positions.forget()

    def run(
        self,
        ranges: Sequence[Range],
        limits: Mapping[str, TargetLimits],
        batch_size: int,
        hand_over: HandOver | None = None,
        way_rules: Mapping[str, WayRules] | None = None,
        *,
        flow: str = "",
    ) -> list[RangeResult]:
        """Copy ``ranges`` until each has its result; return the results in order, then those of ranges that were added.

        ``limits`` and ``way_rules`` are those of the target topics; without rules, all batches go in transactions.
        If the policy grants a lease, ``hand_over`` receives the results at
        the end of the epoch, and the copies continue until the next epoch's attempts take over, at most for the lease.
        It is not called if all copies end before, or a control command ends the epoch. ``flow`` names the flow of a
        task that begins without ranges.
        """
        self.observer.task_started(self.snapshot)
        now = self._clock.now()
        if hand_over is not None and self._read_back is not None:
            hand_over = self._read_back.delaying(hand_over)
        if hand_over is not None and self._clients.producer is not None:
            hand_over = self._announcing(hand_over)
        if isinstance(self._lifecycle, EpochLifecycle):
            self._lifecycle.begin(hand_over, now)
        self._batch_size = batch_size
        if isinstance(self._lifecycle, TaskLifecycle):
            self._assign(ranges, TopicRules(limits, way_rules or {}), flow, self._lifecycle.wind_up_ms, now)
        else:
            self._begin_copies(ranges, limits, way_rules or {}, now)
        try:
            while self._goes_on:
                self._turn(self._clock.now())
            if self._read_back is not None:
                self._read_back.end(self._clock.now)
        finally:
            running_copies.remove(self._cede_requests)
            self._cede_requests.end()
        unbegun = self._end_assignments(self._clock.now())
        return [copy.result for copy in self._copies] + unbegun

    def _begin_copies(
        self, ranges: Sequence[Range], limits: Mapping[str, TargetLimits], ways: Mapping[str, WayRules], now: int
    ) -> None:
        self._limits.update(limits)
        for copied in ranges:
            topic = copied.target_topic
            copy = PartitionCopy(copied, self._policy, limits[topic], self._batch_size, self, now, ways.get(topic))
            self._copies.append(copy)
            self._by_target[copy.target] = copy
            self._active.add(copy)

    # --- assignments that change

    def _assign(self, rows: Sequence[Range], rules: TopicRules, flow: str, wind_up_ms: int, now: int) -> None:
        """Begin to follow the assignments of the task: its ``rows``, and what becomes of them."""
        clients, policy = self._clients, self._policy
        submit, change = self._workers.submit, self._workers.submit_change
        self._limits.update(rules.limits)
        self._ways.update(rules.ways)
        self._upkeep = Upkeep(policy, self._end_period, self.unix_ms, now)
        if clients.read_rules is not None and policy.refresh_ms:
            self._refresh = RulesRefresh(clients.read_rules, submit, self._wake, policy.refresh_ms, now)
        self._lives_on = not rows or any(row.open_ended for row in rows)
        if policy.run and clients.load_entries is not None:
            own = OwnAssignments(policy.run, policy.epoch, policy.task, rows)
            self._reader = AssignmentReader(own, clients.load_entries, change, self._wake)
        self._changes = AssignmentChanges(rows, self._reader, clients.load_taken, change, self._wake, wind_up_ms)
        if clients.send_report is not None:
            self._reporter = TaskReporter(
                clients.send_report, policy, flow or rows[0].flow, self._read_back_of, self.unix_ms, now
            )

    @property
    def _goes_on(self) -> bool:
        """Whether anything is copied, or may be: a task of a stream that has no partition may be given some."""
        changes = self._changes
        may_begin = changes is not None and (self._lives_on or bool(changes.waiting))
        return bool(self._active) or (may_begin and self._lifecycle.lasts)

    def _on_command(self, command: Command) -> None:
        if self._reader is not None:
            self._reader.follow(command)

    def _on_failed(self, target: TopicPartition) -> None:
        if self._refresh is not None:
            self._refresh.on_failed()
        if self._reporter is not None:
            self._reporter.on_failed(target)

    def _change_assignments(self, now: int) -> None:
        """Begin what the task was given, and wind up, settle and forget what it is to release."""
        if (changes := self._changes) is None:
            return
        self._to_step.extend(changes.update(self._by_target, now))
        if settled := changes.take_settled():
            if self._read_back is not None:
                # Before it is reported: what is not read yet then counts as unverified in the copy's result.
                self._read_back.forget([target for target, _, _ in settled])
            for target, copy, version in settled:
                if self._reporter is not None:
                    self._reporter.settle(target, copy, version, now)
            self._forget([copy for _, copy, _ in settled if copy is not None])
        if self._lifecycle.lasts and (taken := changes.take_ready(self._by_target, now)) is not None:
            self._begin_taken(taken, changes.version, now)

    def _begin_taken(self, taken: Taken, version: int, now: int) -> None:
        targets = [target_of(one) for one in taken.ranges]
        if version:
            self._start_positions.add_targets(targets)
        self._limits.update(taken.rules.limits)
        self._ways.update(taken.rules.ways)
        if self._reporter is not None:
            self._reporter.on_taken(targets, version)
        self._begin_copies(taken.ranges, self._limits, self._ways, now)

    def _end_period(self, copy: PartitionCopy, now: int) -> None:
        self._periods.end_period(copy, self._read_back_of(copy.target), now)

    def _read_back_of(self, target: TopicPartition) -> dict[str, Any] | None:
        return None if self._read_back is None else self._read_back.so_far(target)

    def _maintain(self, now: int) -> None:
        if self._upkeep is not None:
            self._to_step.extend(self._upkeep.update(self._active, now))
        if self._refresh is None or (read := self._refresh.update(self._by_target, now)) is None:
            return
        news = TopicRules(self._limits, self._ways).news(read)
        self._limits.update(news.limits)
        self._ways.update(news.ways)
        changed = news.limits.keys() | news.ways.keys()
        for copy in self._copies if changed else ():
            if (topic := copy.range.target_topic) in changed:
                copy.set_rules(self._limits[topic], self._ways.get(topic))

    def _forget(self, copies: Collection[PartitionCopy]) -> None:
        """Keep nothing of ``copies``, which are done: their partitions may be given to this task again."""
        gone = set(copies)
        self._copies = [copy for copy in self._copies if copy not in gone]
        targets = [copy.target for copy in gone]
        self._start_positions.remove_targets(targets)
        self._periods.forget(targets)
        for copy in gone:
            self._active.discard(copy)
            self._due.pop(copy, None)
            del self._by_target[copy.target]
            copy.release()

    @property
    def _stop_reason(self) -> str:
        return self._lifecycle.stop_reason if isinstance(self._lifecycle, TaskLifecycle) else ""

    def _end_assignments(self, now: int) -> list[RangeResult]:
        """Report the end of the task; return the results of what was assigned to it, and has not begun."""
        self._change_assignments(now)
        if self._changes is None:
            return []
        if self._reporter is not None:
            self._reporter.end(now, self._by_target, self._changes.version, self._stop_reason)
        error = unfinished(self._stop_reason)
        return [RangeResult.initial(one, one.start, Outcome.UNFINISHED, error) for one in self._changes.waiting]

    def _take_additions(self, now: int) -> None:
        """Begin to copy what was added to the epoch: not after its end, when the next epoch's plan has it."""
        if self._additions is None or not self._lifecycle.lasts:
            return
        if (addition := self._additions.take(self._targets)) is not None:
            self._start_positions.add_targets([TopicPartition(r.target_topic, r.partition) for r in addition.ranges])
            ways = {} if self._clients.producer is None else addition.rules.ways  # in transactions without a producer
            self._begin_copies(addition.ranges, addition.rules.limits, ways, now)

    def _targets(self) -> list[TopicPartition]:
        return [copy.target for copy in self._copies]

    def _announcing(self, hand_over: HandOver) -> HandOver:
        """Let the next epoch's task on this host find the copies that continue, before it can begin."""

        def announced(results: list[RangeResult]) -> None:
            cluster, flow = self._clients.producer_settings.cluster, self._copies[0].range.flow
            continuing = [copy.target for copy in self._active if copy.runs_under_lease]
            running_copies.add(cluster, flow, continuing, self._cede_requests)
            self._under_lease = True
            if self._clients.neighbours is not None:
                serve_neighbours(self._policy.run, running_copies)
            hand_over(results)

        return announced

    def snapshot(self) -> TaskSnapshot:
        """Return the present use of memory and network; from any thread."""
        clients = self._clients
        return TaskSnapshot(
            buffer=clients.memory.size - clients.memory.free,
            buffer_size=clients.memory.size,
            in_flight=self.send_window.in_flight_bytes,
            held=self.source_budget.held,
            networks={"source": clients.consumer.network(), "target": clients.admin.network()},
            commits=self.commit_durations.copy(),
        )

    @property
    def may_be_last(self) -> bool:
        """Whether no epoch may follow for long, so that its progress is written to the progress topic now."""
        return self._lifecycle.may_be_last

    def progress_records(self) -> dict[TopicPartition, ProgressRecord]:
        """Return the committed progress by target partition, as the progress topic stores it."""
        return {
            copy.target: ProgressRecord(*committed)
            for copy in self._copies
            if (committed := copy.recorder.committed_progress) is not None
        }

    def unwritten_anchors(self) -> dict[AnchorKey, Anchor]:
        """Return the anchors that were not written in the background, once the task has ended."""
        return self._records.unwritten_anchors()

    def write_offsets(self) -> None:
        """Write what is left of the offset index, once the task has ended, and wait for it."""
        self._records.write_offsets()

    # --- one turn

    def _turn(self, now: int) -> None:
        self._to_step.extend(self._cede_requests.pass_on(self._by_target, self._active, now))
        self._to_step.extend(self._turns.take_ready(self._active, now))
        if self._undecided is not None:
            self._to_step.extend(self._steering.on_polled(self._undecided.take_decided(), now))
        stepped = self._step_due(now)
        self._step_queued(now, stepped)
        self._to_step.extend(self._lifecycle.update(now, self._copies, self._active))
        self._take_additions(now)
        self._steering.check_responses(now)
        for copy in stepped:
            if copy.done:
                self._active.discard(copy)
                self._due.pop(copy, None)
                if self._changes is not None:
                    self._changes.on_done(copy)
            else:
                self._due[copy] = copy.due_ms(now)
        self._change_assignments(now)
        self._maintain(now)
        if self._reporter is not None and self._changes is not None:
            self._reporter.update(now, self._by_target, self._changes.version, self._stop_reason)
        self._records.write_due(now)
        if self._read_back is not None:
            self._read_back.step(now)
        self._steering.update(now, stepped, self._active)
        self._writers.flush()
        if self._searches is not None:
            self._searches.update(now)
        self._wait(now)

    def _step_due(self, now: int) -> set[PartitionCopy]:
        due: set[CopyHandle] = set()
        if now >= self._next_due_ms:
            due.update(copy for copy, due_ms in self._due.items() if due_ms <= now)
        for _ in range(min(_MOST_STEPPED, len(self._to_step))):
            due.add(self._to_step.popleft())
        stepped = self._active & due
        for copy in stepped:
            copy.step(now)
        return stepped

    def _step_queued(self, now: int, stepped: set[PartitionCopy]) -> None:
        """Step those that queue in the send window, in turn, each once: if memory is full, they queue again."""
        queued = self.send_window.waiting_count
        while queued and (copy := self.send_window.next_sender(now)) is not None:
            queued -= 1
            assert isinstance(copy, PartitionCopy)  # noqa: S101 - only copies queue
            copy.step(now)
            stepped.add(copy)

    def _write_progress(self) -> None:
        self._workers.submit(
            self._clients.lookups.write_progress_records, self.progress_records(), self.timeouts.stall_ms
        )

    def _wait(self, now: int) -> None:
        """Fetch or wait until something happens, or is due. A copy that is to be stepped meanwhile wakes the task."""
        self._next_due_ms = min(self._due.values(), default=FOREVER_MS)
        if self._to_step or not self._goes_on:
            return
        steering = self._steering
        throttled_ms = steering.throttled_ms(now)
        until = min(
            self._next_due_ms,
            now + _MAX_WAIT_MS,
            self.send_window.due_ms(now),
            self._lifecycle.due_ms(now),
            steering.due_ms(now),
            self._turns.due_ms(),
            FOREVER_MS if self._searches is None else self._searches.due_ms(),
            FOREVER_MS if self._read_back is None else self._read_back.due_ms(),
            FOREVER_MS if self._changes is None else self._changes.due_ms(),
            FOREVER_MS if self._reporter is None else self._reporter.due_ms(),
            FOREVER_MS if self._upkeep is None else self._upkeep.due_ms,
        )
        self._polling = not throttled_ms and steering.can_fetch  # before the event is read: _wake sets it first
        if self._wake_event.is_set() or until <= now:
            self._wake_event.clear()
            timeout_ms = 0
        else:
            timeout_ms = max(1, min(until - now, throttled_ms or until - now))
        if not self._polling:
            self._wake_event.wait(timeout_ms / 1000)
            self._wake_event.clear()
            steering.on_not_polled(now)
            return
        fetched = self._clients.consumer.poll(timeout_ms, max_bytes=steering.room)
        self._polling = False
        self._wake_event.clear()
        if self._undecided is not None:
            fetched = self._undecided.hold(fetched)
        self._to_step.extend(steering.on_polled(fetched, self._clock.now()))

    # --- the context of the copies

    def keep_anchor(self, copy: CopyHandle, anchor: Anchor) -> None:
        """Write it with those of other copies."""
        self._records.keep_anchor(copy, anchor)

    def keep_segments(self, copy: CopyHandle, segments: Sequence[Segment]) -> None:
        """Write them with those of other copies."""
        self._records.keep_segments(copy, segments)

    def read_back(self, copy: CopyHandle, written: Sequence[WrittenBatch]) -> None:
        """Compare them with the next turns."""
        if self._read_back is not None:
            limits = self._limits.get(copy.target.topic)
            compacted = limits is not None and limits.compacted
            self._read_back.add(copy.target, written, self._clock.now(), compacted=compacted)

    def target_leader(self, copy: CopyHandle) -> tuple[int, int] | None:
        """Return (node, leader epoch) from the admin client's metadata."""
        return self._clients.admin.known_leader(copy.target)

    def no_leader_reason(self, copy: CopyHandle) -> str:
        """Return the reason from the admin client's metadata, as ``': <reason>'``, or ``''``."""
        error = self._clients.admin.why_no_leader(copy.target)
        return f": {error}" if error is not None else ""

    def new_writer(self, copy: CopyHandle, way: Way | None) -> TargetWriter:
        """Create the writer of another attempt."""
        return self._writers.new_writer(copy, way)

    def may_acquire(self, copy: CopyHandle, *, continues: bool) -> bool:
        """Limit how many copies do so at a time."""
        return self._turns.may_begin(copy, continues=continues)

    def on_acquiring(self, call: Future[Any], *, continues: bool) -> None:
        """Count it until it is done, or its turn is over."""
        self._turns.begun(call, self._clock.now(), continues=continues)

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """Fetch from ``offset`` with the next turn."""
        self._drop_undecided(copy)
        self._steering.read_from(copy, offset, leader_epoch, topic_id)

    def stop_reading(self, copy: CopyHandle) -> None:
        """Fetch nothing for ``copy`` with the next turn."""
        self._drop_undecided(copy)
        self._steering.stop_reading(copy)

    def _drop_undecided(self, copy: CopyHandle) -> None:
        if self._undecided is not None:
            self._undecided.drop(copy.source)

    def source_state(self, copy: CopyHandle) -> Future[SourceState]:
        """Look up the source's id and bounds in a thread."""
        return self._workers.submit(self._clients.lookups.source_state, copy.source, copy.copied_topic_id)

    def resolve_start(
        self,
        copy: CopyHandle,
        progress: Progress | None,
        mark: TargetMark | None,
        timeout_ms: int,
        shrunk_to: int | None,
        *,
        continues: bool = False,
        to_end: bool = False,
    ) -> Future[StartPosition]:
        """Query the target on the network thread; lookups that wait run in a thread."""
        return self._start_positions.resolve_start(
            copy.target, progress, mark, timeout_ms, shrunk_to, continues=continues, to_end=to_end
        )

    def compare_target(self, copy: CopyHandle, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """Query the target on the network thread."""
        return self._start_positions.compare(copy.target, mark, timeout_ms)

    def reencoder(self, copy: CopyHandle) -> SubmitReencode:
        """Return a function that re-encodes in the encoder's thread; partitions take turns."""
        return self._workers.reencoder(copy.source)

    def foreign_finder(self, copy: CopyHandle) -> IsForeign | None:
        """Return what the registry of the source says, once a fetch was decided."""
        if (origin := self._clients.origin) is None:
            return None
        # The id changes where a topic was made again, and the flow skips what is lost.
        return lambda batch: origin.is_foreign(LogKey.of(copy.source, copy.read_topic_id), batch)

    def step_when_done(self, copy: CopyHandle, future: Future[Any]) -> None:
        """Step ``copy`` in the turn after ``future`` is done."""

        def on_done(_: Future[Any]) -> None:
            self._to_step.append(copy)  # before _wake checks whether the task waits
            self._wake()

        future.add_done_callback(on_done)

    def on_batch_answered(self, copy: CopyHandle, failed: bool) -> None:
        """Step ``copy`` with the next turn; wake the task for it if a batch failed, or a copy waits for an answer."""
        self._to_step.append(copy)  # before _wake checks whether the task waits
        awaited = copy.awaits_acknowledgement or self.send_window.waiting_count
        if failed or awaited or self._steering.may_retry_refused(self._clock.now()):
            self._wake()

    def _wake(self) -> None:
        if not self._wake_event.is_set():  # setting it takes a lock
            self._wake_event.set()
        if self._polling:
            self._clients.consumer.wake()

    def _read_control(self) -> Future[RunControl | None]:
        control = self._clients.lookups.run_control()
        control.add_done_callback(lambda _: self._wake())
        if self._additions is not None:
            self._additions.follow(control)
        return control

    def may_retry(self, copy: CopyHandle, *, fenced: bool) -> bool:
        """Whether any expired copy may be retried; a ``fenced`` one only if no other run has taken over."""
        del copy
        if fenced and not self._policy.follows and not self.may_fence_again():
            return False
        return self._lifecycle.may_retry(self._active)

    def may_fence_again(self) -> bool:
        """Whether the control record was read since, and names this run."""
        return self._lifecycle.is_confirmed(self._clock.now())

    def source_error(self, copy: CopyHandle) -> str:
        """Return why nothing comes from the source partition as ``': <error>'``, or ``''``."""
        response = self._clients.consumer.last_responses().get(copy.source)
        if response is not None and response.throttled_until_ms > 0:
            return f": {THROTTLED}"
        error = self._clients.consumer.last_error(copy.source)
        return f": {error}" if error is not None else ""
