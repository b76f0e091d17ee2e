"""What the copies of a task share: its clients, memory, threads, and what it writes and reads for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.meters import Histogram
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.slow_records import SlowRecords
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.batches.transforms import transform_of
from mirror.relay.byte_limits import RateLimiter, SendWindow, SourceBudget
from mirror.relay.model.observer import TaskObserver, TaskSnapshot
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.origin.records import LogKey
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress.lookup.start_positions import StartPositions
from mirror.relay.task.fetch_steering import FetchSteering
from mirror.relay.task.lifecycle import TaskLifecycle
from mirror.relay.task.position_searches import PositionSearches
from mirror.relay.task.task_records import TaskRecords
from mirror.relay.task.turns import AcquisitionTurns
from mirror.relay.task.undecided_fetches import UndecidedFetches
from mirror.relay.task.workers import TaskWorkers
from mirror.relay.task.writers import Clients, TaskWriters
from mirror.timing import Clock

_LATE_FRACTION: Final = 8
"""A response that takes longer than this fraction of delivery.timeout.ms shrinks the send window."""


class TaskContext:
    """The context of a task's copies (:class:`mirror.relay.partition.context.CopyContext`).

    Only :meth:`on_batch_answered`, :meth:`snapshot`, :meth:`wake` and the callbacks of futures run on other threads
    than the task's.
    """

    def __init__(
        self,
        clients: Clients,
        policy: CopyPolicy,
        timeouts: CopyTimeouts,
        clock: Clock,
        backoff: Backoff,
        lifecycle: TaskLifecycle,
        observer: TaskObserver,
        *,
        buffer_memory: int,
        max_partition_bytes: int,
        lookup_executor: Executor | None,
        wake_event: threading.Event | None,
    ) -> None:
        """For the last two see :class:`mirror.relay.task.task.Task`."""
        now = clock.now()
        consumer, lookups = clients.consumer, clients.lookups
        self.unix_ms: Final = clock.unix_ms
        self.timeouts: Final = timeouts
        self.backoff: Final = backoff
        self.observer: Final = observer
        slow_ms = observer.slow_ms
        self.slow_records: Final = None if slow_ms is None else SlowRecords(slow_ms, observer, clock.now, clock.unix_ms)
        self.latency: Final = Histogram()
        self.commit_durations: Final = Histogram()
        late_ms = max(1, timeouts.delivery_timeout_ms // _LATE_FRACTION)
        self.send_window: Final = SendWindow(buffer_memory, late_ms, now)
        self.source_budget: Final = SourceBudget(buffer_memory)
        self.limits: Final[dict[str, TargetLimits]] = {}
        self.ways: Final[dict[str, WayRules]] = {}
        """The rules of the target topics; without ways, batches go in transactions."""
        self.wake_event: Final = wake_event or threading.Event()
        self.polling = False
        """Whether the task is about to poll the consumer, or does."""
        # Callbacks on network threads append to it; appending and popping are atomic.
        self.to_step: Final = deque[CopyHandle]()
        self._clients: Final = clients
        self._clock: Final = clock
        self.workers: Final = TaskWorkers(buffer_memory, transform_of(policy), lookup_executor)
        submit = self.workers.submit
        origin, budget = clients.origin, self.source_budget
        self._undecided: Final = None if origin is None else UndecidedFetches(origin, submit, budget, self.wake)
        self.steering: Final = FetchSteering(
            consumer,
            budget,
            RateLimiter(policy.max_bytes_per_second, now),
            max_partition_bytes=max_partition_bytes,
            stall_ms=timeouts.stall_ms,
            now=now,
            on_moved=None if self._undecided is None else self._undecided.drop,
        )
        positions, submit_search = clients.positions, self.workers.submit_search
        self.searches: Final = (
            None if positions is None else PositionSearches(positions, lookups, submit_search, clock.now, self.wake)
        )
        self.writers: Final = TaskWriters(clients, policy, self.searches)
        self.records: Final = TaskRecords(
            clients.anchors,
            clients.offsets,
            submit,
            now,
            clock.unix_ms(),
            segments_ms=policy.segments_ms,
        )
        self.turns: Final = AcquisitionTurns(self.wake, clock.now)
        self.start_positions: Final = StartPositions(lookups, submit, clock.now)
        # What the copies call of these, as CopyContext documents it.
        self.keep_anchor: Final = self.records.keep_anchor
        self.keep_segments: Final = self.records.keep_segments
        self.target_leader: Final = clients.admin.known_leader
        self.new_writer: Final = self.writers.new_writer
        self.may_acquire: Final = self.turns.may_begin
        self.on_acquiring: Final = self.turns.begun
        self.read_from: Final = self.steering.read_from
        self.stop_reading: Final = self.steering.stop_reading
        self.source_error: Final = self.steering.source_error
        self.source_state: Final = partial(submit, lookups.source_state)
        self.resolve_start: Final = self.start_positions.resolve_start
        self.compare_target: Final = self.start_positions.compare
        self.reencoder: Final = self.workers.reencoder
        self.may_retry: Final = lifecycle.may_retry
        self.may_fence_again: Final = lifecycle.is_confirmed

    # --- for the task

    def wake(self) -> None:
        """End the wait of the task. Called on any thread."""
        if not self.wake_event.is_set():  # setting it takes a lock
            self.wake_event.set()
        if self.polling:
            self._clients.consumer.wake()

    def take_decided(self, now: int) -> None:
        """Pass on the fetches that have waited for the registry of the source."""
        if self._undecided is not None:
            self.to_step.extend(self.steering.on_polled(self._undecided.take_decided(), now))

    def on_polled(self, fetched: list[Fetched], now: int) -> None:
        """Pass on what a poll has returned, once it is known what of it is copied."""
        if self._undecided is not None:
            fetched = self._undecided.hold(fetched)
        self.to_step.extend(self.steering.on_polled(fetched, now))

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
            latency=self.latency.copy(),
        )

    # --- for the copies

    def no_leader_reason(self, target: TopicPartition) -> str:
        """Return the reason from the admin client's metadata, as ``': <reason>'``, or ``''``."""
        error = self._clients.admin.why_no_leader(target)
        return f": {error}" if error is not None else ""

    def foreign_finder(self, source: TopicPartition, topic_id: Callable[[], str]) -> IsForeign | None:
        """Return what the registry of the source says, once a fetch was decided."""
        if (origin := self._clients.origin) is None:
            return None
        return lambda batch: origin.is_foreign(LogKey.of(source, topic_id()), batch)

    def step_when_done(self, copy: CopyHandle, future: Future[Any]) -> None:
        """Step ``copy`` in the turn after ``future`` is done."""

        def on_done(_: Future[Any]) -> None:
            self.to_step.append(copy)  # before wake checks whether the task waits
            self.wake()

        future.add_done_callback(on_done)

    def on_batch_answered(self, copy: CopyHandle, failed: bool) -> None:
        """Step ``copy`` with the next turn; wake the task for it if a batch failed, or a copy waits for an answer."""
        self.to_step.append(copy)  # before wake checks whether the task waits
        awaited = copy.awaits_acknowledgement or self.send_window.waiting_count
        if failed or awaited or self.steering.may_retry_refused(self._clock.now()):
            self.wake()
