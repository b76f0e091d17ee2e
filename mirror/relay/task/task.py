"""A task: the loop that steps the copies of its ranges on one thread."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final

from mirror.backoff import Backoff
from mirror.client import TopicPartition
from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.relay.model.assignments import OwnAssignments, target_of
from mirror.relay.model.observer import NullObserver, TaskObserver
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.partition.waiting import unfinished
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.control_record import Command, RunControl
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.task.assignment_reading import AssignmentReader
from mirror.relay.task.changes import AssignmentChanges, settles_late_until
from mirror.relay.task.copy_context import TaskContext
from mirror.relay.task.lifecycle import TaskLifecycle
from mirror.relay.task.periods import PeriodObserver
from mirror.relay.task.reporting import TaskReporter
from mirror.relay.task.topic_rules import RulesRefresh, TopicRules
from mirror.relay.task.upkeep import Upkeep
from mirror.relay.task.writers import Clients
from mirror.timing import FOREVER_MS, Clock

_MAX_WAIT_MS: Final = 1_000
_MOST_STEPPED: Final = 200
"""How many copies are stepped in one turn because something has happened: what is assigned to the task, and commits of
others, must not wait for thousands that open at once."""


# Invariant: The loop does not spin: its steps are proportional to events, also of a thousand followed partitions, which
#   may be idle for hours.
# Test: tests/relay/task/test_task.py::test_steps_of_a_thousand_partitions_are_proportional_to_their_events
# Test: tests/relay/task/test_task.py::test_followed_partitions_are_copied_until_the_task_stops_and_may_be_idle
class Task:
    """Steps the copies of one task.

    Everything runs on the thread that calls :meth:`run`, and nothing in it waits for a single copy.
    """

    def __init__(
        self,
        clients: Clients,
        policy: CopyPolicy,
        timeouts: CopyTimeouts,
        clock: Clock,
        backoff: Backoff,
        rows: Sequence[Range],
        rules: TopicRules,
        progress: Mapping[TopicPartition, Progress] | None = None,
        *,
        flow: str,
        batch_size: int,
        buffer_memory: int,
        max_partition_bytes: int,
        observer: TaskObserver | None = None,
        lookup_executor: Executor | None = None,
        wake_event: threading.Event | None = None,
    ) -> None:
        """``rows`` are what the job begins with for this task; ``rules`` are those of their target topics.

        ``progress`` is what was read of them, by target partition.

        ``lookup_executor`` and ``wake_event`` replace threads and waiting in tests.
        """
        now = clock.now()
        self._clients: Final = clients
        self._policy: Final = policy
        self._clock: Final = clock
        self._batch_size: Final = batch_size
        self._copies: list[PartitionCopy] = []
        self._by_target: Final[dict[TopicPartition, PartitionCopy]] = {}
        self._due: Final = DeadlineHeap[PartitionCopy]()
        self._lifecycle: Final = TaskLifecycle(policy, timeouts, self._read_control, self._on_command, clock.now)
        self._periods: Final = PeriodObserver(observer or NullObserver(), self._on_failed)
        self._context: Final = TaskContext(
            clients,
            policy,
            timeouts,
            clock,
            backoff,
            self._lifecycle,
            self._periods,
            buffer_memory=buffer_memory,
            max_partition_bytes=max_partition_bytes,
            lookup_executor=lookup_executor,
            wake_event=wake_event,
        )
        self._active: Final = self._lifecycle.active
        self._set_rules(rules)
        submit, change, wake = self._context.workers.submit, self._context.workers.submit_change, self._context.wake
        self._lives_on: Final = not rows or any(row.open_ended for row in rows)
        """Whether the task goes on without partitions, since it may be given some: that of a job without an end."""
        self._reader: Final = (
            AssignmentReader(
                OwnAssignments(policy.run, policy.job, policy.task, rows),
                clients.load_entries,
                change,
                wake,
            )
            if policy.run and clients.load_entries is not None and self._lives_on
            else None
        )
        self._changes: Final = AssignmentChanges(
            rows,
            progress or {},
            self._reader,
            clients.load_taken,
            change,
            wake,
            self._lifecycle.wind_up_ms,
            settles_late_until(policy, now),
        )
        self._reporter: Final = TaskReporter(clients.send_report, policy, flow, clock.unix_ms, now)
        self._upkeep: Final = Upkeep(policy, self._periods.end_period, clock.unix_ms, now)
        self._refresh: Final = RulesRefresh(clients.read_rules, submit, wake, policy.refresh_ms, now)

    def close(self) -> None:
        """Start nothing more, and free the copies; lookups that run end by their own timeouts."""
        self._context.workers.close()
        for copy in self._copies:
            copy.release()
        for copy in self._active:
            self._due.clear(copy)
        for known in (self._copies, self._active, self._by_target):
            known.clear()
        self._context.start_positions.forget()

    def run(self) -> list[RangeResult]:
        """Copy what is assigned to the task until each range has its result, or the task is to stop.

        Return the results of what it has at its end: of its rows in their order, then of what it was given meanwhile.
        """
        self._context.observer.task_started(self._context.snapshot)
        while self._goes_on:
            self._turn(self._clock.now())
        now = self._clock.now()
        self._change_assignments(now)
        self._reporter.end(now, self._by_target, self._changes.version, self._lifecycle.stop_reason)
        error = unfinished(self._lifecycle.stop_reason)
        unbegun = [RangeResult.initial(one, one.start, Outcome.UNFINISHED, error) for one in self._changes.waiting]
        return [copy.result for copy in self._copies] + unbegun

    @property
    def _goes_on(self) -> bool:
        may_begin = self._lives_on or bool(self._changes.waiting)
        return bool(self._active) or (may_begin and self._lifecycle.lasts)

    # --- what the task leaves

    def progress_records(self) -> dict[TopicPartition, ProgressRecord]:
        """Return the committed progress by target partition, as the progress topic stores it."""
        return _records_of(self._copies)

    def unwritten_anchors(self) -> dict[AnchorKey, Anchor]:
        """Return the anchors that were not written in the background, once the task has ended."""
        return self._context.records.unwritten_anchors()

    def write_offsets(self) -> None:
        """Write what is left of the offset index, once the task has ended, and wait for it."""
        self._context.records.write_offsets()

    # --- what is assigned to it

    def _read_control(self) -> Future[RunControl | None]:
        control = self._clients.lookups.run_control()
        control.add_done_callback(lambda _: self._context.wake())
        return control

    def _on_command(self, command: Command) -> None:
        if self._reader is not None:
            self._reader.follow(command)

    def _change_assignments(self, now: int) -> None:
        """Begin what the task was given, and wind up, settle and forget what it is to release."""
        changes = self._changes
        self._context.to_step.extend(changes.update(self._by_target, now))
        settled = changes.take_settled(now)
        for target, copy, version in settled:
            self._reporter.settle(target, copy, version, now)
        released = [copy for _, copy, _ in settled if copy is not None]
        # The target forgets the progress of a deleted topic, and the task that copies it next has to know of it.
        self._write_progress(released)
        self._forget(released)
        if not self._lifecycle.lasts or (taken := changes.take_ready(self._by_target, now)) is None:
            return
        targets = [target_of(one) for one in taken.ranges]
        if changes.version:
            self._context.start_positions.add_targets(targets)
        self._reporter.on_taken(targets, changes.version)
        self._set_rules(taken.rules)
        for result in taken.refused:
            self._reporter.refuse(result, changes.version)
        for copied in taken.ranges:
            self._begin(copied, taken.progress.get(target_of(copied)), now)
        self._size_fetches()

    def _size_fetches(self) -> None:
        self._context.steering.size_for(sum(copy.range.end > copy.range.start for copy in self._active))

    def _begin(self, copied: Range, progress: Progress | None, now: int) -> None:
        context, topic = self._context, copied.target_topic
        limits, ways = context.limits[topic], context.ways.get(topic)
        copy = PartitionCopy(copied, self._policy, limits, self._batch_size, context, now, ways, progress)
        self._copies.append(copy)
        self._by_target[copy.target] = copy
        self._active.add(copy)

    def _forget(self, copies: Collection[PartitionCopy]) -> None:
        """Keep nothing of ``copies``, which are done: their partitions may be given to this task again."""
        if not copies:
            return
        gone = set(copies)
        self._copies = [copy for copy in self._copies if copy not in gone]
        targets = [copy.target for copy in gone]
        self._context.start_positions.remove_targets(targets)
        self._periods.forget(targets)
        for copy in gone:
            self._on_done(copy)
            del self._by_target[copy.target]
            copy.release()
        gone_topics = {copy.range.target_topic for copy in gone} - {copy.range.target_topic for copy in self._copies}
        for topic in self._changes.forget_topics(gone_topics):
            self._context.limits.pop(topic, None)
            self._context.ways.pop(topic, None)
        self._size_fetches()

    def _on_done(self, copy: PartitionCopy) -> None:
        self._active.discard(copy)
        self._due.clear(copy)

    # --- while it lives long

    def _set_rules(self, rules: TopicRules) -> None:
        self._context.limits.update(rules.limits)
        self._context.ways.update(rules.ways)

    def _on_failed(self, target: TopicPartition) -> None:
        self._refresh.on_failed(target.topic)
        self._reporter.on_failed(target)

    def _maintain(self, now: int) -> None:
        context = self._context
        context.to_step.extend(self._upkeep.update(self._active, now))
        context.records.write_due(now)
        if context.records.is_progress_due(now):
            self._write_progress(self._copies)
        if (read := self._refresh.update(self._ranges, now)) is None:
            return
        news = TopicRules(context.limits, context.ways).news(read)
        self._set_rules(news)
        changed = news.limits.keys() | news.ways.keys()
        for copy in self._copies if changed else ():
            if (topic := copy.range.target_topic) in changed:
                copy.set_rules(context.limits[topic], context.ways.get(topic))

    def _write_progress(self, copies: Collection[PartitionCopy]) -> None:
        if records := _records_of(copies):
            context, write = self._context, self._clients.lookups.write_progress_records
            context.workers.submit(write, records, context.timeouts.stall_ms)

    def _ranges(self) -> Iterable[Range]:
        return (copy.range for copy in self._copies)

    # --- one turn

    def _turn(self, now: int) -> None:
        context, steering = self._context, self._context.steering
        context.take_decided(now)
        stepped = self._step_due(now)
        self._step_queued(now, stepped)
        context.to_step.extend(self._lifecycle.update(now))
        steering.check_responses(now)
        for copy in stepped:
            if copy.done:
                self._on_done(copy)
                self._changes.on_done(copy)
            else:
                self._due.set(copy, copy.due_ms(now))
        self._change_assignments(now)
        self._maintain(now)
        self._reporter.update(now, self._by_target, self._changes.version, self._lifecycle.stop_reason)
        steering.update(now, stepped, self._active)
        context.writers.flush()
        if context.searches is not None:
            context.searches.update(now)
        self._wait(now)

    def _step_due(self, now: int) -> set[PartitionCopy]:
        # Not in `to_step`: behind thousands that open, copies would not use their turn for many turns of the loop.
        due: set[CopyHandle] = {*self._due.due(now), *self._context.turns.take_ready(self._active, now)}
        to_step = self._context.to_step
        for _ in range(min(_MOST_STEPPED, len(to_step))):
            due.add(to_step.popleft())
        stepped = self._active & due
        for copy in stepped:
            copy.step(now)
        return stepped

    def _step_queued(self, now: int, stepped: set[PartitionCopy]) -> None:
        """Step those that queue in the send window, in turn, each once: if memory is full, they queue again."""
        window = self._context.send_window
        queued = window.waiting_count
        while queued and (copy := window.next_sender(now)) is not None:
            queued -= 1
            assert isinstance(copy, PartitionCopy)  # noqa: S101 - only copies queue
            copy.step(now)
            stepped.add(copy)

    def _wait(self, now: int) -> None:
        """Fetch or wait until something happens, or is due. A copy that is to be stepped meanwhile wakes the task."""
        context = self._context
        if context.to_step or not self._goes_on:
            return
        steering, wake_event = context.steering, context.wake_event
        throttled_ms = steering.throttled_ms(now)
        until = min(now + _MAX_WAIT_MS, self._due_ms(now))
        context.polling = not throttled_ms and steering.can_fetch  # before the event is read: wake sets it first
        if wake_event.is_set() or until <= now:
            wake_event.clear()
            timeout_ms = 0
        else:
            timeout_ms = max(1, min(until - now, throttled_ms or until - now))
        if not context.polling:
            wake_event.wait(timeout_ms / 1000)
            wake_event.clear()
            steering.on_not_polled(now)
            return
        fetched = self._clients.consumer.poll(timeout_ms, max_bytes=steering.room)
        context.polling = False
        wake_event.clear()
        context.on_polled(fetched, self._clock.now())

    def _due_ms(self, now: int) -> int:
        context, searches = self._context, self._context.searches
        return min(
            self._due.next_ms(),
            context.send_window.due_ms(now),
            context.steering.due_ms(now),
            context.turns.due_ms(),
            FOREVER_MS if searches is None else searches.due_ms(),
            self._lifecycle.due_ms(),
            self._changes.due_ms(),
            self._reporter.due_ms(),
            self._upkeep.due_ms,
        )


def _records_of(copies: Iterable[PartitionCopy]) -> dict[TopicPartition, ProgressRecord]:
    return {
        copy.target: ProgressRecord(*committed)
        for copy in copies
        if (committed := copy.recorder.committed_progress) is not None
    }
