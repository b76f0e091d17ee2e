"""How a partition's batches and progress are written to the target, and the writer that does so in transactions.

:mod:`.sequence_writer` and :mod:`.at_least_once_writer` write them separately. Nothing here waits: results arrive on
the network thread, through callbacks and futures.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Protocol

from mirror.client import Admin, BufferMemory, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.producer.batch.batches import Callback
from mirror.producer.id_gate import OnProducerId
from mirror.producer.settings import ProducerSettings
from mirror.relay.batches.aside import ASIDE_PARTITION
from mirror.relay.futures import done, then
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import (
    PartitionTransactions,
    Search,
    fence_and_find,
    fence_and_find_after_loss,
    read_latest_progress,
)
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import TargetLoss
from mirror.timing import FOREVER_MS, deadline
from mirror.wire.records import Batch


class TargetWriter(Protocol):
    """Writes the batches and progress of one attempt. :meth:`open` comes first, and nothing after :meth:`close`."""

    @property
    def atomic(self) -> bool:
        """Whether a commit includes everything sent, and waits for its acknowledgement.

        If so, nothing is sent while a commit is in flight. If not, a commit may include only what is acknowledged.
        """
        ...

    @property
    def way(self) -> Way | None:
        """The way in which it writes exactly once; None if it writes at least once."""
        ...

    @property
    def acquired(self) -> bool:
        """Whether it may send and commit: no attempt has to be ended, and nothing has to be searched for, first.

        Otherwise :meth:`acquire` has succeeded.
        """
        ...

    @property
    def valid_until_ms(self) -> int:
        """Until when it may send (ms since 1970): later, brokers may have forgotten its fence."""
        ...

    @property
    def advanced_ms(self) -> int:
        """When :meth:`acquire` last read something new of the logs, in monotonic ms; 0 if it has not."""
        ...

    @property
    def producer_id(self) -> int:
        """The producer id of the batches; -1 while there is none."""
        ...

    @property
    def fences_in_doubt(self) -> int:
        """How many fences of this writer, or of the next, would not show that a newer attempt exists.

        Each of its own requests without an answer may still be executed.
        """
        ...

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        """Read the progress. In transactions, fence earlier attempts first.

        ``planned`` is the progress that the planner has read, and is returned if a lower bound is enough.
        """
        ...

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """Note that the target's log ends at ``log_end``, where the attempt would begin at ``progress``.

        In transactions, the progress is exact if the log ends with it. Otherwise the log may hold more: a partition of
        ``__consumer_offsets`` may have lost its last commits, and other producers may write to the target. None: the
        log may grow, as nothing shows whether an earlier attempt by sequences still appends.
        """
        ...

    def acquire(self, progress: Progress, timeout_ms: int, loss: TargetLoss | None) -> Future[FoundPosition]:
        """Fence earlier attempts, and find out what they have appended behind ``progress``.

        With a ``loss`` of the target, ``progress`` is an anchor, and what still stands behind it is found out. Fails
        with FlowError if that is not possible, KafkaTimeout after ``timeout_ms`` without progress. At least once there
        is no fence, and what stands behind an anchor is repeated.
        """
        ...

    def acquire_timeout(self) -> KafkaTimeout:
        """Return the error of an :meth:`acquire` that takes too long: the step that has not ended, and why."""
        ...

    def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
        """Send ``batch``. Raises KafkaTimeout if memory is full.

        In transactions it fails with AcknowledgedRecordsLost if it is appended below ``log_end``.
        """
        ...

    def send_aside(self, batch: Batch, callback: Callback) -> None:
        """Send ``batch`` to the flow's aside topic, before any progress that includes it. Raises as :meth:`send`."""
        ...

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit ``progress``."""
        ...

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int, pending_bytes: int) -> int:
        """Return when to commit progress that is pending since ``pending_since_ms``.

        Within ``interval_ms``, or a few of them if the ``pending_bytes``, which were sent since, do not matter.
        """
        ...

    def close(self, timeout_ms: int) -> Future[None]:
        """Abort what is not committed. The future is done after ``timeout_ms`` at the latest, and never fails."""
        ...


class ExactlyOnceWriter:
    """Writes data and progress in the same transactions (KIP-98), with a producer of its own."""

    atomic = True
    way = Way.TRANSACTIONS
    valid_until_ms = FOREVER_MS

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        settings: ProducerSettings,
        admin: Admin,
        memory: BufferMemory,
        search: Search,
        on_producer_id: OnProducerId | None = None,
        aside: str = "",
    ) -> None:
        """``settings`` are any partition's of this task: only the transactional.id differs.

        ``aside`` is the flow's aside topic.
        """
        self._aside: Final = TopicPartition(aside, ASIDE_PARTITION)
        self._flow: Final = flow
        self._tp: Final = tp
        self._admin: Final = admin
        self._transactions: Final = PartitionTransactions(flow, tp, settings, memory, on_producer_id)
        self._search: Final = search
        self.acquired = False

    @property
    def producer_id(self) -> int:
        """As assigned by the coordinator."""
        return self._transactions.producer.producer_id

    @property
    def advanced_ms(self) -> int:
        """As the search says."""
        return self._search.advanced_ms

    @property
    def fences_in_doubt(self) -> int:
        """As counted by the producer."""
        return self._transactions.producer.fences_in_doubt

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        """Fence first, then read: the fence ends the open transaction of an older attempt (KIP-447)."""
        del planned
        fenced = self._transactions.producer.init_transactions_async(timeout_ms)

        def check(progress: Progress | None) -> Future[Progress | None]:
            # An attempt in transactions cannot commit any more. Plain batches are shut out by a marker only. Whether
            # the log holds more than the progress says, its end shows (note_target_end).
            self.acquired = progress is None or progress.way is Way.TRANSACTIONS
            return done(progress)

        read = then(fenced, lambda _: read_latest_progress(self._admin, self._flow, self._tp, timeout_ms))
        return then(read, check)

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """As :meth:`TargetWriter.note_target_end`."""
        mark = progress.target
        if log_end is None or (mark is not None and mark.may_precede_appends(log_end)):
            self.acquired = False

    def acquire(self, progress: Progress, timeout_ms: int, loss: TargetLoss | None) -> Future[FoundPosition]:
        """Write a marker, behind which plain batches of earlier attempts are refused, and search up to it."""

        def on_found(found: FoundPosition) -> Future[FoundPosition]:
            self.acquired = True
            return done(found)

        if loss is None:
            taken = fence_and_find(self._transactions, self._search, progress, progress.way, timeout_ms)
        else:
            taken = fence_and_find_after_loss(self._transactions, self._search, progress, loss, timeout_ms)
        return then(taken, on_found)

    def acquire_timeout(self) -> KafkaTimeout:
        """As the search or the producer says."""
        return self._search.timeout_error() or self._transactions.timeout_error()

    def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
        """Send in the transaction, which begins with its first batch."""
        self._transactions.begin()
        self._transactions.producer.post_batch(self._tp, batch, callback, log_end=log_end)

    # Invariant: A record goes aside in the transaction that commits the progress behind it: once, or not at all.
    # Test: tests/copying/test_aside.py::test_killed_attempt_leaves_each_record_aside_once
    def send_aside(self, batch: Batch, callback: Callback) -> None:
        """Send in the same transaction as the records in front of it and the progress behind it."""
        self._transactions.begin()
        self._transactions.producer.post_batch(self._aside, batch, callback)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit with the transaction; in a new one if none is open."""
        exact = replace(progress, way=Way.TRANSACTIONS, producer_id=-1)
        return self._transactions.commit(exact, timeout_ms)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int, pending_bytes: int) -> int:
        """Commit after the interval."""
        del pending_bytes
        return deadline(pending_since_ms, interval_ms)

    def close(self, timeout_ms: int) -> Future[None]:
        """Abort immediately: consumers of committed records would wait behind the transaction until it expires."""
        self._search.close()
        return self._transactions.close(timeout_ms)
