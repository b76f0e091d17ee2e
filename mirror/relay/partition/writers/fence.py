"""Fences the earlier attempts at a target partition, and finds the exact position behind them (KIP-98).

A transaction marker raises the producer epoch that the partition's leader requires, even if the transaction holds no
data. So one empty transaction shuts out every earlier attempt, and what is in the log before its marker is all that
these will ever have appended.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Protocol

from mirror.client import Admin, BufferMemory, Producer, TopicPartition
from mirror.errors import BrokerError, KafkaError, KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.producer.id_gate import OnProducerId
from mirror.producer.settings import ProducerSettings
from mirror.relay.futures import done, failed, then, with_error
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import (
    NO_TOTALS,
    Progress,
    from_offset,
    group_of,
    latest_of,
    lazy_group_of,
    to_offset,
)
from mirror.relay.progress.position import Appenders, FoundPosition
from mirror.relay.progress.target_loss import TargetLoss
from mirror.wire.error_codes import UNSTABLE_OFFSET_COMMIT

PENDING_MS: Final = 5_000
"""How long offsets may stay pending once their transaction has ended, in ms: old coordinators apply markers later."""


class Search(Protocol):
    """Finds the exact position for one attempt."""

    @property
    def advanced_ms(self) -> int:
        """When it last read something new, in monotonic ms; 0 before it began."""
        ...

    def find(
        self, progress: Progress, appenders: Appenders, fence: ProducerId, timeout_ms: int, loss: TargetLoss | None
    ) -> Future[FoundPosition]:
        """Find the position behind what ``appenders`` have appended before ``fence``.

        With a ``loss``, the progress is an anchor, and what transactions have committed behind it counts, too. The
        future fails with KafkaTimeout if it has read nothing new for ``timeout_ms``.
        """
        ...

    def timeout_error(self) -> KafkaTimeout | None:
        """Return the error of a search that takes too long; None if none is in progress."""
        ...

    def close(self) -> None:
        """Read nothing more; a search that has not ended fails."""
        ...


def transactional_id(flow: str, tp: TopicPartition) -> str:
    """Return the id of a flow and target partition: the next copy fences the last one, however ranges are assigned.

    It is unambiguous, since neither a flow's name nor a partition's number has a dot.
    """
    return f"mirror.{flow}.{tp.topic}.{tp.partition}"


class PartitionTransactions:
    """The transactions of one attempt at one partition."""

    def __init__(
        self,
        flow: str,
        tp: TopicPartition,
        settings: ProducerSettings,
        memory: BufferMemory,
        on_producer_id: OnProducerId | None = None,
    ) -> None:
        """``settings`` are any partition's of this task: only the transactional.id differs.

        ``on_producer_id``: as of :class:`Producer`; a fence sends no batch.
        """
        self._tp: Final = tp
        self._group: Final = group_of(flow, tp)
        settings = replace(settings, transactional_id=transactional_id(flow, tp))
        self.producer: Final = Producer(settings, memory=memory, on_producer_id=on_producer_id)
        self.claim_epoch = -1
        """The producer epoch in which :meth:`fence` has committed its claim: no other claim of the producer has it."""
        self._in_transaction = False

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self._in_transaction:
            self.producer.begin_transaction()
            self._in_transaction = True

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Commit ``progress`` with the open transaction, or in a new one."""
        self.begin()
        offsets = {self._tp: to_offset(progress)}
        offsets_sent = self.producer.send_offsets_to_transaction_async(offsets, self._group, timeout_ms)
        committed = self.producer.commit_transaction_async(timeout_ms)
        committed.add_done_callback(self._on_commit_ended)
        # The error of the offsets says more than that of the commit, which fails with it.
        return then(committed, lambda _: offsets_sent, otherwise=offsets_sent)

    def _on_commit_ended(self, committed: Future[None]) -> None:
        if committed.exception() is None:
            self._in_transaction = False

    def fence(self, claim: Progress, timeout_ms: int) -> Future[ProducerId]:
        """Commit ``claim`` for this attempt in a transaction without data, which writes a marker to the partition.

        The result is the producer id and epoch of the marker, and of what may be sent behind it.
        """
        self.begin()
        claim = self._sign(claim)
        self.producer.add_partitions([self._tp])
        return then(self.commit(claim, timeout_ms), lambda _: self._check_identity(claim, timeout_ms, self.fence))

    def claim(self, claim: Progress, timeout_ms: int) -> Future[ProducerId]:
        """Commit ``claim`` in a transaction that writes no marker to the partition: it was fenced before."""
        claim = self._sign(claim)
        return then(self.commit(claim, timeout_ms), lambda _: self._check_identity(claim, timeout_ms, self.claim))

    # Invariant: A claim whose marker was never written is aborted by an empty transaction; pending offsets of a
    #   transaction with data are not touched, but explained.
    # Test: tests/copying/test_pending_offsets.py::test_claim_without_a_marker_is_aborted
    # Test: tests/copying/test_pending_offsets.py::test_offsets_of_transactions_that_stay_pending_are_explained
    def abort_pending(self, progress: Progress, timeout_ms: int) -> Future[None]:
        """Abort what an earlier transaction has left pending, in both partitions, in one that has the same to abort."""
        self.begin()
        self.producer.add_partitions([self._tp])
        sent = self.producer.send_offsets_to_transaction_async({self._tp: to_offset(progress)}, self._group, timeout_ms)

        def abort(_: None) -> Future[None]:
            self._in_transaction = False
            return self.producer.abort_transaction_async(timeout_ms)

        return then(sent, abort)

    def _sign(self, claim: Progress) -> Progress:
        identity = self.producer.identity
        assert identity is not None  # noqa: S101 - the producer is initialized
        self.claim_epoch = identity.epoch
        return replace(claim, producer_id=identity.producer_id, attempt=identity.epoch)

    def _check_identity(
        self, claim: Progress, timeout_ms: int, again: Callable[[Progress, int], Future[ProducerId]]
    ) -> Future[ProducerId]:
        identity = self.producer.identity
        assert identity is not None  # noqa: S101 - a transaction was committed under it
        if identity.producer_id == claim.producer_id:
            return done(identity)
        # The epochs were used up: the coordinator has assigned another producer id, which the claim has to name.
        return again(claim, timeout_ms)

    def timeout_error(self) -> KafkaTimeout:
        """Return the error of a fence that takes too long: the step of the producer that has not ended, and why.

        If it has none to do, the progress is being read, which is refused while offsets of a transaction are pending.
        """
        step, why = self.producer.pending_step
        reason = "" if why is None else f": {why}"
        step = step or f"reading the progress (group {self._group!r})"
        return KafkaTimeout(f"{self._tp}: {step} did not succeed{reason}")

    def close(self, timeout_ms: int) -> Future[None]:
        """Abort the open transaction, and close the producer. The future is done in time, and never fails."""
        aborted: Future[None]
        if self._in_transaction:
            try:
                aborted = self.producer.abort_transaction_async(timeout_ms)
            except KafkaError as error:  # fenced, or in a fatal state: there is nothing to abort any more
                aborted = failed(error)
        else:
            aborted = done(None)
        closed: Future[None] = Future()

        def close_producer(_: Future[None]) -> None:
            self.producer.close_async()
            closed.set_result(None)

        aborted.add_done_callback(close_producer)
        return closed


def fence_and_find(
    transactions: PartitionTransactions, search: Search, progress: Progress, way: Way, timeout_ms: int
) -> Future[FoundPosition]:
    """Fence earlier attempts with ``progress`` as the claim of this ``way``, and find what is appended behind it.

    The transactional id was initialized, and ``progress`` read afterwards: so no earlier attempt changes the claim.
    """
    # Until this attempt commits the position that it finds, the next one searches for all of these, too.
    claim = replace(progress, way=way, earlier_ids=progress.appender_ids, ended=False)
    fenced = transactions.fence(claim, timeout_ms)
    # In transactions nothing is behind the progress, unless its last commits were lost: then the log shows it.
    ended = progress.ended or progress.way is Way.TRANSACTIONS

    def find(fence: ProducerId) -> Future[FoundPosition]:
        appenders = Appenders(progress.appender_ids | {fence.producer_id}, ended=ended)
        return search.find(claim, appenders, fence, timeout_ms, None)

    return then(fenced, find)


def fence_and_find_after_loss(
    transactions: PartitionTransactions, search: Search, anchored: Progress, loss: TargetLoss, timeout_ms: int
) -> Future[FoundPosition]:
    """Fence earlier attempts, find what still stands behind the anchor ``anchored``, and claim that position.

    The fence's claim is the progress as it was: until the position is known, each attempt detects the loss again. The
    new claim is committed before anything is sent. It is behind the old one, and lazy progress cannot say that.
    """
    lost = loss.progress
    assert lost is not None  # noqa: S101 - a truncation is shown by the progress
    earlier = loss.producer_ids | lost.appender_ids

    def claim(found: FoundPosition) -> Future[FoundPosition]:
        claimed = replace(found.progress, way=Way.SEQUENCES, earlier_ids=frozenset(), ended=False)
        # What stands there was counted when it was copied.
        mended = replace(found, appended=NO_TOTALS, loss=loss)
        return then(transactions.claim(claimed, timeout_ms), lambda _: done(mended))

    def find(fence: ProducerId) -> Future[FoundPosition]:
        appenders = Appenders((earlier | {fence.producer_id}) - {-1}, ended=False)
        return search.find(anchored, appenders, fence, timeout_ms, loss)

    fenced = transactions.fence(replace(lost, earlier_ids=lost.appender_ids, ended=False), timeout_ms)
    return then(then(fenced, find), claim)


class PendingOffsets(KafkaTimeout):
    """The progress could not be read, since a transaction that has ended still has offsets of its group pending."""

    def __init__(self, error: KafkaTimeout) -> None:
        super().__init__(
            f"{error}: a transaction of this copy has ended without a marker in __consumer_offsets, which brokers skip"
            " if the partition has no leader; kafka-transactions.sh find-hanging finds it, and abort ends it"
        )


def read_latest_progress(
    admin: Admin, flow: str, tp: TopicPartition, timeout_ms: int, *, require_stable: bool = True, at_once: bool = False
) -> Future[Progress | None]:
    """Read one partition's progress: its claim and, by sequences, its lazy progress.

    Unless ``require_stable``, a pending claim is not waited for: a killed attempt's is pending until it is fenced.
    ``at_once``: both are read at the same time, since the claim is likely by sequences. Each is a lower bound, in
    whichever order they are read.
    """
    early = _read(admin, lazy_group_of(flow, tp), tp, timeout_ms) if at_once else None

    def read_lazy(claim: Progress | None) -> Future[Progress | None]:
        if claim is None or claim.way is not Way.SEQUENCES:
            return done(claim)
        lazy = early or _read(admin, lazy_group_of(flow, tp), tp, timeout_ms)
        return then(lazy, lambda found: done(latest_of(claim, found)))

    return then(read_claim(admin, flow, tp, timeout_ms, require_stable=require_stable), read_lazy)


def read_claim(
    admin: Admin, flow: str, tp: TopicPartition, timeout_ms: int, *, require_stable: bool = True
) -> Future[Progress | None]:
    """Read one partition's claim; unless ``require_stable``, without one that is pending."""
    return _read(admin, group_of(flow, tp), tp, timeout_ms, require_stable=require_stable)


def _read(
    admin: Admin, group: str, tp: TopicPartition, timeout_ms: int, *, require_stable: bool = True
) -> Future[Progress | None]:
    """Read one partition's offset on its own: it must not wait for another one's pending transaction."""
    found = admin.group_offsets_async(group, [tp], timeout_ms, require_stable=require_stable)
    read = then(found, lambda offsets: done(from_offset(offsets[tp]) if tp in offsets else None))
    return with_error(read, _explained)


def _explained(error: BaseException) -> BaseException:
    """Return PendingOffsets for a call that has timed out since offsets are pending, and any other error as it is."""
    cause = error.__cause__
    if isinstance(error, KafkaTimeout) and isinstance(cause, BrokerError) and cause.code == UNSTABLE_OFFSET_COMMIT:
        return PendingOffsets(error)
    return error
