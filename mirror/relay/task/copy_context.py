"""What the copies of a task share: its clients, memory, threads, and what it writes and reads for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.consumer.fetched import Fetched
from mirror.meters import Histogram
from mirror.relay.batches.batch_pipeline import SubmitReencode
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.flow_control import RateLimiter, SendWindow, SourceBudget
from mirror.relay.model.observer import TaskObserver, TaskSnapshot
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.way import Way
from mirror.relay.offsets.segments import Segment
from mirror.relay.origin.records import LogKey
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.partition.writers.target_writer import TargetWriter
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.log_reading import THROTTLED
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.lookup.start_positions import StartPositions
from mirror.relay.progress.target_log import TargetMark
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
        self.unix_ms: Final = clock.unix_ms
        self.timeouts: Final = timeouts
        self.backoff: Final = backoff
        self.observer: Final = observer
        self.commit_durations: Final = Histogram()
        late_ms = max(1, timeouts.delivery_timeout_ms // _LATE_FRACTION)
        self.send_window: Final = SendWindow(buffer_memory, late_ms, now)
        self.source_budget: Final = SourceBudget(buffer_memory)
        self.limits: Final[dict[str, TargetLimits]] = {}
        self.ways: Final[dict[str, WayRules]] = {}
        """The rules of the target topics; without ways, batches go in transactions."""
        self.active: Final[set[PartitionCopy]] = set()
        """The copies that are not done."""
        self.wake_event: Final = wake_event or threading.Event()
        self.polling = False
        """Whether the task is about to poll the consumer, or does."""
        # Callbacks on network threads append to it; appending and popping are atomic.
        self.to_step: Final = deque[CopyHandle]()
        self._clients: Final = clients
        self._clock: Final = clock
        self._lifecycle: Final = lifecycle
        self.workers: Final = TaskWorkers(buffer_memory, policy.transform, lookup_executor)
        submit, wake = self.workers.submit, self.wake
        self.steering: Final = FetchSteering(
            clients.consumer,
            self.source_budget,
            RateLimiter(policy.max_bytes_per_second, now),
            max_partition_bytes=max_partition_bytes,
            stall_ms=timeouts.stall_ms,
            now=now,
        )
        positions, lookups = clients.positions, clients.lookups
        self.searches: Final = (
            None
            if positions is None
            else PositionSearches(positions, lookups, self.workers.submit_search, clock.now, wake)
        )
        self.writers: Final = TaskWriters(clients, policy, self.searches)
        self.records: Final = TaskRecords(clients.anchors, clients.offsets, submit, now, clock.unix_ms())
        self.turns: Final = AcquisitionTurns(wake)
        self.start_positions: Final = StartPositions(lookups, submit, clock.now)
        origin, budget = clients.origin, self.source_budget
        self._undecided: Final = None if origin is None else UndecidedFetches(origin, submit, budget, wake)

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
        )

    # --- for the copies

    def keep_anchor(self, copy: CopyHandle, anchor: Anchor) -> None:
        """Write it with those of other copies."""
        self.records.keep_anchor(copy, anchor)

    def keep_segments(self, copy: CopyHandle, segments: Sequence[Segment]) -> None:
        """Write them with those of other copies."""
        self.records.keep_segments(copy, segments)

    def target_leader(self, copy: CopyHandle) -> tuple[int, int] | None:
        """Return (node, leader epoch) from the admin client's metadata."""
        return self._clients.admin.known_leader(copy.target)

    def no_leader_reason(self, copy: CopyHandle) -> str:
        """Return the reason from the admin client's metadata, as ``': <reason>'``, or ``''``."""
        error = self._clients.admin.why_no_leader(copy.target)
        return f": {error}" if error is not None else ""

    def new_writer(self, copy: CopyHandle, way: Way | None) -> TargetWriter:
        """Create the writer of another attempt."""
        return self.writers.new_writer(copy, way)

    def may_acquire(self, copy: CopyHandle) -> bool:
        """Limit how many copies do so at a time."""
        return self.turns.may_begin(copy)

    def on_acquiring(self, call: Future[Any]) -> None:
        """Count it until it is done, or its turn is over."""
        self.turns.begun(call, self._clock.now())

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """Fetch from ``offset`` with the next turn."""
        self._drop_undecided(copy)
        self.steering.read_from(copy, offset, leader_epoch, topic_id)

    def stop_reading(self, copy: CopyHandle) -> None:
        """Fetch nothing for ``copy`` with the next turn."""
        self._drop_undecided(copy)
        self.steering.stop_reading(copy)

    def _drop_undecided(self, copy: CopyHandle) -> None:
        if self._undecided is not None:
            self._undecided.drop(copy.source)

    def source_state(self, copy: CopyHandle) -> Future[SourceState]:
        """Look up the source's id and bounds in a thread."""
        return self.workers.submit(self._clients.lookups.source_state, copy.source, copy.copied_topic_id)

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
        return self.start_positions.resolve_start(
            copy.target, progress, mark, timeout_ms, shrunk_to, continues=continues, to_end=to_end
        )

    def compare_target(self, copy: CopyHandle, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """Query the target on the network thread."""
        return self.start_positions.compare(copy.target, mark, timeout_ms)

    def reencoder(self, copy: CopyHandle) -> SubmitReencode:
        """Return a function that re-encodes in the encoder's thread; partitions take turns."""
        return self.workers.reencoder(copy.source)

    def foreign_finder(self, copy: CopyHandle) -> IsForeign | None:
        """Return what the registry of the source says, once a fetch was decided."""
        if (origin := self._clients.origin) is None:
            return None
        # The id changes where a topic was made again, and the flow skips what is lost.
        return lambda batch: origin.is_foreign(LogKey.of(copy.source, copy.read_topic_id), batch)

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

    def may_retry(self) -> bool:
        """Whether the task lasts, and not only by copies that have expired."""
        return self._lifecycle.may_retry(self.active)

    def may_fence_again(self) -> bool:
        """Whether the control record was read since, and names this run."""
        return self._lifecycle.is_confirmed(self._clock.now())

    def source_error(self, copy: CopyHandle) -> str:
        """Return why nothing comes from the source partition as ``': <error>'``, or ``''``."""
        consumer = self._clients.consumer
        response = consumer.last_responses().get(copy.source)
        if response is not None and response.throttled_until_ms > 0:
            return f": {THROTTLED}"
        error = consumer.last_error(copy.source)
        return f": {error}" if error is not None else ""
