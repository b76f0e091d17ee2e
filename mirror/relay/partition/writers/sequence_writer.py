"""Writes exactly once without transactions: one fence for each attempt, then plain idempotent batches.

::

    open ──► (something is to be sent or committed) ──► acquire: initialize, read, fence, search ──► send, commit

An attempt that has nothing to send does not fence. What it sends is visible at once to every reader, and needs no
commit: the log itself says what was appended. The lazy progress only says where the next attempt begins to read.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.client import LATEST, Admin, BufferMemory, Producer, TopicPartition
from mirror.errors import ClientClosed, FlowError, KafkaError, KafkaTimeout
from mirror.producer.batch.queue import LAST_ADOPTABLE_EPOCH
from mirror.relay.futures import done, failed, or_else, then
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import (
    PENDING_MS,
    PartitionTransactions,
    PendingOffsets,
    Search,
    fence_and_find,
    fence_and_find_after_loss,
    read_claim,
    read_latest_progress,
)
from mirror.relay.progress.committed import Progress, ProgressChanged, metadata_error, to_offset
from mirror.relay.progress.committer import LAZY_BYTES, ProgressCommitter, commit_due_ms, lazy_interval_ms

if TYPE_CHECKING:
    from mirror.producer.batch.batches import Callback
    from mirror.producer.settings import ProducerSettings
    from mirror.relay.progress.position import FoundPosition
    from mirror.relay.progress.target_loss import TargetLoss
    from mirror.wire.records import Batch


FENCE_VALID_MS: Final = 3_600_000
"""How old the fence of an attempt may be at most. Each fence renews the transactional id, which the coordinator forgets
after ``transactional.id.expiration.ms``: another fence would then get another producer id, and not shut this attempt
out. It also writes the claim: see :func:`fence_valid_ms`."""
_LAST_EPOCH: Final = LAST_ADOPTABLE_EPOCH - 100
"""The last epoch under which an attempt sends. Each attempt that is killed before its marker is written uses up an
epoch, or two: the next marker must still be one of the same producer id, or it would not shut this attempt out."""


_ENDS_TIMEOUT_MS: Final = 3_000
_LEAST_VALID_MS: Final = 30_000
"""An attempt sends at least this long after it began to fence: half of the shortest ``offsets.retention.minutes``. With
less, one whose fence and search take long would end before it has sent anything, and so would the next one."""


# Invariant: Nothing is sent under a fence that is more than an hour old: coordinators forget transactional ids, and the
#   next fence would not shut this one out.
# Test: tests/relay/partition/test_sequences.py::test_fence_that_may_be_forgotten_sends_nothing_more
def fence_valid_ms(renew_ms: int) -> int:
    """Return for how many ms an attempt may send under its fence.

    Only a fence renews the claim, which is due when it is ``renew_ms`` old (0: never).
    """
    return min(FENCE_VALID_MS, renew_ms) if renew_ms > 0 else FENCE_VALID_MS


class SharedClients(NamedTuple):
    """What the writers of a task share."""

    producer: Producer
    committer: ProgressCommitter
    admin: Admin
    memory: BufferMemory
    fence_valid_ms: int
    """For how long they may send under a fence."""


class SequenceWriter:
    """Sends in the producer that all partitions of a task share, under the identity of this partition's fence."""

    atomic = False
    way = Way.SEQUENCES

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        settings: ProducerSettings,
        shared: SharedClients,
        chain: int,
        search: Search,
    ) -> None:
        """``settings`` are those of the fencing producer; ``chain`` numbers the attempts in the shared one."""
        self._flow: Final = flow
        self._tp: Final = tp
        self._settings: Final = settings
        self._admin: Final = shared.admin
        self._memory: Final = shared.memory
        self._shared: Final = shared.producer
        self._committer: Final = shared.committer
        self._valid_ms: Final = shared.fence_valid_ms
        self._chain: Final = chain
        self._search: Final = search
        self._fencing: PartitionTransactions | None = None
        self._fenced_ms = 0
        self._claim_epoch = -1
        self._opened_with: Progress | None = None
        self._closed = False
        self._lock: Final = Lock()
        """The steps of :meth:`acquire` run on other threads than :meth:`close`."""
        self.producer_id = -1
        self.acquired = False

    @property
    def advanced_ms(self) -> int:
        """As the search says."""
        return self._search.advanced_ms

    @property
    def fences_in_doubt(self) -> int:
        """As counted by the fencing producer."""
        return 0 if self._fencing is None else self._fencing.producer.fences_in_doubt

    @property
    def valid_until_ms(self) -> int:
        """As :attr:`TargetWriter.valid_until_ms`."""
        return self._fenced_ms + max(self._valid_ms, _LEAST_VALID_MS)

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        """Read the progress only, unless it is ``planned``: a copy that has nothing to send needs no fence.

        A killed attempt may have left its claim pending, until its transaction expires or is fenced. This is not
        waited for: the progress before it is a lower bound, and :meth:`acquire` reads again when it has fenced. So is
        ``planned``, if another attempt has copied since. Without any progress, the log is read to its end for what was
        copied: see :meth:`_abort_open`.
        """
        if planned is not None:
            self._opened_with = planned
            return done(planned)

        def on_read(progress: Progress | None) -> Future[Progress | None]:
            self._opened_with = progress
            return done(progress)

        read = self._read_progress(timeout_ms, require_stable=False)
        stable = then(read, lambda found: self._abort_open(timeout_ms) if found is None else done(found))
        return then(stable, on_read)

    def _abort_open(self, timeout_ms: int) -> Future[Progress | None]:
        """Abort the transaction that a killed attempt may have left open in the target partition, if one is open there.

        Otherwise the log could not be read to its end before that transaction times out. Return the progress. A leader
        that does not answer soon is left to what follows.
        """

        def initialize(stable: int | None, end: int | None) -> Future[Progress | None]:
            if stable is None or end is None or stable == end:
                return done(None)
            fencing = self._new_fencing()
            if fencing is None:
                return failed(self._closed_error())
            return then(fencing.producer.init_transactions_async(timeout_ms), lambda _: read_again(fencing))

        def read_again(fencing: PartitionTransactions) -> Future[Progress | None]:
            fencing.producer.close_async()  # :meth:`acquire` fences with another one
            return self._read_progress(timeout_ms, require_stable=True)

        stable, end = (self._end(isolation, timeout_ms) for isolation in ("read_committed", "read_uncommitted"))
        return then(stable, lambda first: then(end, lambda second: initialize(first, second)))

    def _end(self, isolation: str, timeout_ms: int) -> Future[int | None]:
        timeout_ms = min(timeout_ms, _ENDS_TIMEOUT_MS)
        ends = self._admin.list_offsets_async({self._tp: LATEST}, isolation=isolation, timeout_ms=timeout_ms)
        found = then(ends, lambda answer: done(answer[self._tp].offset if self._tp in answer else None))
        return or_else(found, KafkaError, lambda: done(None))

    def _new_fencing(self) -> PartitionTransactions | None:
        """Return a new fencing producer. None if the writer is closed: it would fence the next attempt."""
        with self._lock:
            if self._closed:
                return None
            self._fencing = PartitionTransactions(self._flow, self._tp, self._settings, self._memory)
            return self._fencing

    def _read_progress(self, timeout_ms: int, *, require_stable: bool) -> Future[Progress | None]:
        stable = require_stable
        return read_latest_progress(self._admin, self._flow, self._tp, timeout_ms, require_stable=stable, at_once=True)

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        """Do nothing: the log is read in any case."""

    def _closed_error(self) -> ClientClosed:
        return ClientClosed(f"{self._tp}: the attempt has ended before it had acquired the partition")

    # Invariant: What was concluded from the progress holds for that progress only: if another attempt has changed it
    #   before the fence, it is read again.
    # Test: tests/relay/partition/test_sequences.py::test_progress_that_another_attempt_has_changed_is_read_again
    def acquire(self, progress: Progress, timeout_ms: int, loss: TargetLoss | None) -> Future[FoundPosition]:
        """Initialize the transactional id, read the progress again, fence, and find the exact position."""
        if (fencing := self._new_fencing()) is None:
            return failed(self._closed_error())
        initialized = fencing.producer.init_transactions_async(timeout_ms)
        read = then(initialized, lambda _: self._read_stable(fencing, timeout_ms))

        def take(found: Progress | None) -> Future[FoundPosition]:
            if found is not None and found.way is Way.SEQUENCES:  # an earlier claim was kept
                self._committer.keeps_metadata = True
            if loss is None:
                base = _base_of(self._opened_with, progress, found)
                return fence_and_find(fencing, self._search, base, Way.SEQUENCES, timeout_ms)
            if found != self._opened_with:
                raise ProgressChanged  # the loss was that of another progress
            return fence_and_find_after_loss(fencing, self._search, progress, loss, timeout_ms)

        checked = then(then(read, take), lambda found: self._check_claim(found, timeout_ms))
        return then(checked, lambda found: self._adopt(found, progress, timeout_ms, loss))

    # Invariant: By sequences, nothing is sent to a target that does not keep the metadata of committed offsets: the
    #   claim would read as an exact position in transactions, and the next attempt would repeat what this one appends.
    # Test: tests/relay/task/test_metadata_on_fakes.py::test_nothing_is_sent_by_sequences_without_metadata
    def _check_claim(self, found: FoundPosition, timeout_ms: int) -> Future[FoundPosition]:
        """Read the claim that was just committed, unless a claim of the task's target was read before.

        Raises FlowError if it has no metadata. To read each one would be a request more for each of 10,000 partitions.
        """
        if self._committer.keeps_metadata:
            return done(found)

        def check(claim: Progress | None) -> Future[FoundPosition]:
            if claim is None:
                raise ProgressChanged  # it was deleted
            if not claim.time_ms:
                raise metadata_error(self._flow)
            self._committer.keeps_metadata = True
            return done(found)

        return then(read_claim(self._admin, self._flow, self._tp, timeout_ms), check)

    def _read_stable(self, fencing: PartitionTransactions, timeout_ms: int) -> Future[Progress | None]:
        """Read the progress behind the initialization, which has ended the transactions of all earlier attempts.

        A broker skips the marker of a partition that has no leader at that moment, and completes the transaction all
        the same (TransactionMarkerChannelManager, seen with Apache Kafka 4.3): its offsets stay pending for ever. By
        sequences these are a claim without data, so it is aborted. What its attempt has appended is searched for: the
        producer id is that of this fence.
        """
        opened = self._opened_with
        if opened is None or opened.way is not Way.SEQUENCES:
            return self._read_progress(timeout_ms, require_stable=True)

        def abort_claim() -> Future[Progress | None]:
            aborted = fencing.abort_pending(opened, timeout_ms)
            return then(aborted, lambda _: self._read_progress(timeout_ms, require_stable=True))

        def reopen(found: Progress | None) -> Future[Progress | None]:
            return done(None if found is None else replace(found, ended=False))

        read = self._read_progress(min(timeout_ms, PENDING_MS), require_stable=True)
        return or_else(read, PendingOffsets, lambda: then(abort_claim(), reopen))

    def _adopt(
        self, found: FoundPosition, progress: Progress, timeout_ms: int, loss: TargetLoss | None
    ) -> Future[FoundPosition]:
        fencing = self._fencing
        assert fencing is not None  # noqa: S101 - it has fenced
        identity = fencing.producer.identity
        assert identity is not None  # noqa: S101 - as above
        fencing.producer.close_async()
        if identity.epoch > _LAST_EPOCH:
            return self.acquire(progress, timeout_ms, loss)  # until the coordinator assigns another producer id
        with self._lock:
            if self._closed:  # the next attempt may have adopted already
                return failed(self._closed_error())
            self._fenced_ms, self._claim_epoch = progress.time_ms, fencing.claim_epoch
            self._shared.adopt(self._tp, identity, self._chain)
            self.producer_id, self.acquired = identity.producer_id, True
        return done(found)

    def acquire_timeout(self) -> KafkaTimeout:
        """As the search or the fencing producer says."""
        if (late := self._search.timeout_error()) is not None:
            return late
        assert self._fencing is not None  # noqa: S101 - it began with one
        return self._fencing.timeout_error()

    def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
        """Send in order, under the fence's producer id and epoch. A loss is found when the answer is processed."""
        del log_end
        self._shared.post_batch(self._tp, batch, callback, chain=self._chain)

    def send_aside(self, batch: Batch, callback: Callback) -> None:
        """Raise FlowError: what goes aside is decided by what may change, and goes in transactions."""
        del batch, callback
        raise FlowError(f"{self._tp}: by sequences nothing goes aside")

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit the lazy progress. The claim of a fenced attempt is another one, or is behind it.

        Before the partition is acquired, it is that of the attempt that has ended, moved over what is not sent.
        """
        lazy = replace(progress, way=Way.SEQUENCES, earlier_ids=frozenset())
        if self.acquired:
            lazy = replace(lazy, producer_id=self.producer_id, attempt=self._claim_epoch)
        elif (opened := self._opened_with) is not None:
            lazy = replace(lazy, producer_id=opened.producer_id, attempt=opened.attempt)
        return self._committer.commit(self._tp, to_offset(lazy), timeout_ms)

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int, pending_bytes: int) -> int:
        """Commit when the other partitions of the group do; seldom while that is little to search."""
        if pending_bytes < LAZY_BYTES:
            interval_ms = lazy_interval_ms(interval_ms)
        return commit_due_ms(self._tp, pending_since_ms, interval_ms)

    def close(self, timeout_ms: int) -> Future[None]:
        """Send nothing more. What was sent may still be appended, until the next attempt fences this one."""
        with self._lock:
            self._closed = True
        self._search.close()
        if self.acquired:
            self._shared.release(self._tp)
            return done(None)
        return done(None) if self._fencing is None else self._fencing.close(timeout_ms)


def _base_of(opened: Progress | None, resolved: Progress, found: Progress | None) -> Progress:
    """Return where an attempt begins that has read the progress again, and ``found`` it.

    That is ``resolved``, if nothing has changed since the attempt ``opened``; otherwise an attempt of before has copied
    on meanwhile, and it is what was found. Raises ProgressChanged if one of them has started over.
    """
    if found == opened:
        return resolved
    if found is None or opened is None or not found.generation == opened.generation == resolved.generation:
        raise ProgressChanged
    target = resolved.target if found.target is None else found.target
    return replace(found, target=target, time_ms=resolved.time_ms, claimed_ms=0, claimed_by=None)
