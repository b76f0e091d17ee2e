"""The transactions of one producer (``TransactionManager``; KIP-98, KIP-360, KIP-890). No I/O.

Transaction version 1: the producer adds each partition and group to the transaction before it writes to them, and
the epoch stays over transactions. Version 2 (KIP-890): brokers add the partitions, and each end bumps the epoch. The
version is chosen for each transaction.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, Final

from mirror.cluster.events import as_kafka_error
from mirror.cluster.loop import ClusterLoop
from mirror.cluster.requests import IDLE, Poll
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, DeliveryPhase, KafkaError, MirrorError, NeedsAbort, NotRetriable, WrongState
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.producer.events import AbortEvent, AddOffsetsEvent, CommitEvent, InitTransactionsEvent
from mirror.producer.settings import ProducerSettings
from mirror.producer.txn.coordinator_client import CoordinatorClient
from mirror.producer.txn.coordinator_requests import (
    BEFORE_IMPLICIT,
    NO_PRODUCER,
    CoordinatorRequest,
    CoordinatorRequestBuilder,
    severity,
)
from mirror.producer.txn.pending_calls import PendingTransactionCalls
from mirror.producer.txn.steps import (
    ADDS,
    OPEN,
    LazyCheck,
    Transaction,
    TransactionState,
    TransactionStep,
    can_continue,
    changes_nothing,
    ends_only_the_transaction,
    may_go,
    next_step,
)
from mirror.wire.api import Api
from mirror.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    UNKNOWN_SERVER_ERROR,
    ErrorAction,
    verdict,
)

_FEATURE: Final = "transaction.version"
_IMPLICIT: Final = 2


class Transactions:
    """The state of a transactional producer, and the requests to its coordinators that follow from it."""

    def __init__(self, settings: ProducerSettings, loop: ClusterLoop) -> None:
        assert settings.transactional_id is not None  # noqa: S101 - created for producers that have one only
        self.transactional_id: str | None = settings.transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.identity: ProducerId | None = None
        self.settled: ProducerId | None = None
        """The identity after the last transaction, or the initialization. It is the one of that transaction's markers,
        as far as there are any: an epoch that was renewed after a transaction in doubt has none."""
        self._settings = settings
        self._network = loop.network
        self._metadata = loop.metadata
        self._requests = CoordinatorRequestBuilder(settings.transactional_id, settings.transaction_timeout_ms)
        self._coordinator = CoordinatorClient(settings.cluster, loop)
        self._txn = Transaction()
        self._step: TransactionStep | None = None
        self._pending_calls = PendingTransactionCalls()
        self._error: KafkaError | None = None
        self._last_error: KafkaError | None = None
        self._renew = False
        self._fenced_ourselves = False
        self._fences_unanswered = 0
        self.count = 0
        """The number of the current, or last, transaction."""

    # --- calls of application threads; each raises WrongState, NeedsAbort or the error that ended the producer

    def init(self, event: InitTransactionsEvent) -> None:
        """Start to fence older producers; a second call joins a pending one."""
        if self.state is TransactionState.UNINITIALIZED:
            self._go(TransactionState.INITIALIZING)
        elif self.state is not TransactionState.INITIALIZING:
            if self._pending_calls.claim(event):
                return
            self._refuse("init_transactions()")
        self._pending_calls.join(event)

    # Invariant: The protocol version is chosen for each transaction, by the finalized transaction.version, not by what
    #   requests the broker knows.
    # Test: tests/producer/test_transactions.py::test_the_version_is_chosen_again_for_each_transaction
    def begin(self) -> None:
        """Begin a transaction, unless the producer has ended meanwhile: then its sends fail with the error."""
        if may_go(self.state, TransactionState.IN_TRANSACTION):
            self._go(TransactionState.IN_TRANSACTION)
            self._pending_calls.begin_next()
            self.count += 1
            self._txn = Transaction(implicit=self._network.finalized_feature(_FEATURE) >= _IMPLICIT)

    def add_offsets(self, event: AddOffsetsEvent, now: int) -> None:
        """Commit the offsets of ``event`` with the transaction."""
        if self.state is not TransactionState.IN_TRANSACTION:
            self._refuse("send_offsets_to_transaction()")
        self._txn.began(now)
        self._txn.offsets.append(event)

    def add_partitions(self, tps: Collection[TopicPartition], now: int) -> None:
        """Add ``tps`` to the transaction, also under version 2: its end writes a marker into each of them.

        A transaction that has failed meanwhile stays as it is: its commit has the error.
        """
        if self.state is TransactionState.IN_TRANSACTION:
            self._txn.began(now)
            self._txn.wanted.update(set(tps) - self._txn.added - self._txn.pending)

    def commit(self, event: CommitEvent) -> None:
        """Commit as soon as everything is acknowledged; a second call joins a pending one."""
        if self.state is TransactionState.IN_TRANSACTION:
            self._go(TransactionState.COMMITTING)
        elif self.state is not TransactionState.COMMITTING:
            if self._pending_calls.claim(event):
                return
            self._refuse("commit_transaction()")
        self._pending_calls.join(event)

    def abort(self, event: AbortEvent) -> bool:
        """Abort; return whether batches are to be dropped, which they are not if the call joins a pending one."""
        if self.state is TransactionState.ABORTING:
            self._pending_calls.join(event)
            return False
        if not may_go(self.state, TransactionState.ABORTING):
            if self._pending_calls.claim(event):
                return False
            self._refuse("abort_transaction()")
        if self._may_have_committed():
            now = f"is {self.state.value}, and may have: call commit_transaction() again for the outcome"
            msg = f"abort_transaction(): the producer of {self.transactional_id!r} {now}"
            raise WrongState(msg)
        self._pending_calls.fail(NeedsAbort("the transaction was aborted before it was committed"))
        self._go(TransactionState.ABORTING)
        self._pending_calls.join(event)
        self._txn.wanted.clear()
        self._fail_offsets(NeedsAbort("the transaction was aborted before its offsets were committed"))
        return True

    def batch_lost(self) -> None:
        """Record that a batch of this transaction with a sequence is lost: abandoned, given up or refused.

        Only a new epoch keeps an abandoned batch out of the next transaction, in which it may still be written. If it
        was refused, only a new epoch lets sequences restart at 0: the next batch would be out of order otherwise.
        """
        self._txn.in_doubt = True

    def _may_have_committed(self) -> bool:
        """Whether an EndTxn was sent, so that the coordinator may have committed."""
        pending = self._txn.end_in_doubt or (self._step is TransactionStep.END and self._coordinator.busy)
        return self.state is TransactionState.COMMITTING and pending

    def _refuse(self, call: str) -> None:
        if self.state is TransactionState.FATAL_ERROR and self._error is not None:
            raise self._error
        if self.state is TransactionState.ABORTABLE_ERROR:
            raise self._needs_abort()
        msg = f"{call}: the producer of {self.transactional_id!r} is {self.state.value}"
        raise WrongState(msg)

    def _needs_abort(self) -> NeedsAbort:
        error = NeedsAbort(f"the transaction failed, call abort_transaction(): {self._error}")
        error.__cause__ = self._error
        return error

    def _go(self, state: TransactionState) -> None:
        if not may_go(self.state, state):
            msg = f"a transactional producer does not go from {self.state.name} to {state.name}"
            raise AssertionError(msg)
        self.state = state

    @property
    def pending_step(self) -> tuple[str | None, KafkaError | None]:
        """The text of the step that has not ended, None if there is none, and its last error."""
        step = self._step
        return (None if step is None else step.value), (self._last_error or self._coordinator.why_waiting())

    @property
    def fences_in_doubt(self) -> int:
        """The number of fencing requests (InitProducerId) without a response, including one in flight.

        Each may still be executed: a coordinator that was paused processes the requests in its sockets when it
        continues, and so fences this producer, or its successor.
        """
        return self._fences_unanswered + (self._step is TransactionStep.INIT and self._coordinator.busy)

    # --- calls of the sender

    def refusal(self) -> KafkaError | None:
        """Return the error that prevents sending now; None if there is none."""
        if self.state is TransactionState.IN_TRANSACTION:
            return None
        return self.failure() or WrongState(f"send: the producer of {self.transactional_id!r} is {self.state.value}")

    def failure(self) -> KafkaError | None:
        """Return the error that ended the transaction or the producer; None if there is none."""
        if self.state is TransactionState.ABORTABLE_ERROR:
            return self._needs_abort()
        return self._error if self.state is TransactionState.FATAL_ERROR else None

    def add_partition(self, tp: TopicPartition, now: int) -> None:
        """Record that a batch for ``tp`` was enqueued; under version 1 the partition is to be added."""
        self._txn.began(now)
        if not self._txn.implicit and tp not in self._txn.added and tp not in self._txn.pending:
            self._txn.wanted.add(tp)

    def may_send(self, queue: PartitionQueue) -> bool:
        """Return whether batches of ``queue`` may be sent in this transaction; sets the queue's identity."""
        if self.state not in OPEN or self.identity is None or self._renew:
            return False
        if not self._txn.implicit and queue.tp not in self._txn.added:
            return False
        if queue.identity != self.identity:
            queue.restart(self.identity)
        asking = (self._coordinator.busy and self._step is TransactionStep.COMMIT_OFFSETS) or (
            self._txn.implicit and queue.in_flight
        )
        if asking and self.joins_transaction(queue):
            return False
        queue.transaction = self.count
        return True

    def joins_transaction(self, queue: PartitionQueue) -> bool:
        """Whether the next batch of ``queue`` is the first of this transaction at its leader.

        The leader then verifies the transaction with its coordinator, and drops one of two such verifications at a
        time (AddPartitionsToTxnManager).
        """
        return queue.joined_transaction != self.count

    def batch_sent(self, tp: TopicPartition) -> None:
        """Record that a batch is sent; under version 2 that adds its partition."""
        del tp
        self._txn.on_coordinator = True

    @property
    def max_produce_version(self) -> int | None:
        """The highest version of Produce that does not add partitions by itself; None under version 2."""
        return None if self._txn.implicit else BEFORE_IMPLICIT[Api.PRODUCE]

    def blocking_phase(self, tp: TopicPartition) -> tuple[DeliveryPhase, KafkaError | None] | None:
        """Return the phase in which a batch of ``tp`` waits for a coordinator, with the last error.

        It is None if the batch waits for none.
        """
        why = self._last_error or self._coordinator.why_waiting()
        if self.identity is None or self._renew:
            return DeliveryPhase.FENCING, why
        return None if self._txn.implicit or tp in self._txn.added else (DeliveryPhase.QUEUE, why)

    # --- one turn

    def poll(self, now: int, *, unfinished: LazyCheck, joining: LazyCheck) -> Poll:
        """Return the next request to a coordinator if one is due; the arguments are those of :func:`next_step`."""
        if self._coordinator.busy:
            return IDLE
        self._step = next_step(self.state, self._txn, renew=self._renew, unfinished=unfinished, joining=joining)
        if self._step is TransactionStep.NOTHING:
            self._finish()
            self._step = None
        if self._step is None:
            return IDLE
        if (wait := self._coordinator.wait_ms(now)) > 0:
            return Poll([], wait)
        return self._send_step(self._step, now)

    def _send_step(self, step: TransactionStep, now: int) -> Poll:
        txn = self._txn
        if step is TransactionStep.ADD_PARTITIONS:
            txn.pending, txn.wanted = txn.pending | txn.wanted, set()
        elif step is TransactionStep.ADD_OFFSETS and txn.pending_group is None:
            txn.pending_group = txn.offsets[0].group
        elif step is TransactionStep.COMMIT_OFFSETS and txn.implicit:
            txn.on_coordinator = True
        request = self._requests.request_of(
            step, self._request_identity(), txn, commit=self.state is TransactionState.COMMITTING
        )
        max_version = None if txn.implicit else BEFORE_IMPLICIT.get(request.api)
        try:
            poll = self._coordinator.begin(
                request, answered=self._on_response, failed=self._on_failure, max_version=max_version, now=now
            )
        except KafkaError as error:
            self._on_refusal(error, now, request)
            return IDLE
        txn.may_be_on_coordinator = txn.may_be_on_coordinator or (step in ADDS and bool(poll.requests))
        if not poll.requests and (why := self._coordinator.why_waiting()) is not None:
            self._record_error(why)
        return poll

    # Invariant: An abort never fences a newer producer of the transactional id: it names the epoch that the coordinator
    #   is known to have had, never (-1, -1).
    # Test: tests/producer/test_transaction_ends.py::test_a_batch_that_is_unanswered_when_it_is_aborted_is_shut_out
    def _request_identity(self) -> ProducerId:
        if self._step is TransactionStep.INIT or self.identity is None:
            return NO_PRODUCER
        if self._step is TransactionStep.NEW_EPOCH and self._fenced_ourselves:
            return ProducerId(self.identity.producer_id, self.identity.epoch + 1)
        return self.identity

    # --- responses

    def _on_failure(self, request: CoordinatorRequest, error: KafkaError, now: int) -> None:
        if isinstance(error, NotRetriable):
            self.end(error)
            return
        self._fences_unanswered += self._step is TransactionStep.INIT
        self._txn.in_doubt = self._txn.in_doubt or self._step is TransactionStep.COMMIT_OFFSETS
        self._txn.add_in_doubt = self._txn.add_in_doubt or self._step in ADDS
        self._txn.end_in_doubt = self._txn.end_in_doubt or self._step is TransactionStep.END
        self._record_error(error)
        self._coordinator.retry(request, now, elsewhere=True)

    def _on_response(self, request: CoordinatorRequest, response: Any, now: int) -> None:
        assert self._step is not None  # noqa: S101 - a response follows a request
        refusals = self._requests.refusals(self._step, response, request)
        if refusals:
            error = max(refusals, key=severity)
            if self._step is TransactionStep.END and error.code == UNKNOWN_SERVER_ERROR:
                # A coordinator that fences this producer for a newer one throws an IllegalStateException meanwhile
                # (TransactionCoordinator.endTransaction, PREPARE_EPOCH_FENCE). Its next response names the fence.
                self._on_failure(request, error, now)
            else:
                self._on_refusal(error, now, request)
            return
        self._coordinator.succeeded()
        self._last_error = None
        self._apply_response(self._step, response)

    def _apply_response(self, step: TransactionStep, response: Any) -> None:
        txn = self._txn
        match step:
            case TransactionStep.INIT | TransactionStep.RENEW | TransactionStep.NEW_EPOCH:
                self.identity = ProducerId(response.producer_id, response.producer_epoch)
                self._renew = False
                if step is not TransactionStep.RENEW:
                    self._finish(fenced=True)
            case TransactionStep.ADD_PARTITIONS:
                txn.added |= txn.pending
                txn.pending, txn.on_coordinator = set(), True
            case TransactionStep.ADD_OFFSETS:
                txn.groups.add(txn.pending_group or "")
                txn.pending_group, txn.on_coordinator = None, True
            case TransactionStep.COMMIT_OFFSETS:
                txn.offsets.popleft().complete(None)
            case TransactionStep.END:
                if response.producer_id >= 0:
                    self.identity = ProducerId(response.producer_id, response.producer_epoch)
                self._finish()

    # Invariant: Doubt never reaches the next transaction: after an unanswered request of one, the next begins under a
    #   new epoch.
    # Test: tests/producer/test_late_copies.py::test_late_produce_never_joins_the_next_transaction
    def _finish(self, *, fenced: bool = False) -> None:
        """Become ready for the next transaction, after a commit, an abort or the initialization."""
        # Requests without a response may still be executed, and must not find their epoch valid then: a late EndTxn
        # would end the next transaction, whatever that has written so far.
        # A late addition would begin one, whose timeout fences this producer and the batches under its epoch.
        unanswered = self._txn.in_doubt or self._txn.end_in_doubt or self._txn.add_in_doubt
        self._renew = not fenced and (self._renew or (unanswered and not self._txn.implicit))
        self._txn = Transaction()
        self.settled = self.identity
        self._fenced_ourselves = False
        self._error = self._last_error = None
        self._go(TransactionState.READY)
        self._pending_calls.succeed()

    def _on_refusal(self, error: KafkaError, now: int, request: CoordinatorRequest) -> None:
        code = error.code if isinstance(error, BrokerError) else -1
        outcome = verdict(code)
        if (
            self._step is TransactionStep.NEW_EPOCH
            and not self._fenced_ourselves
            and outcome in {ErrorAction.FENCED, ErrorAction.RETRY}
        ):
            # The coordinator aborts the transaction in the next epoch, which it reports to no producer. So that epoch
            # is this producer's own, unless another one initialized the transactional id since, with a later epoch.
            self._fenced_ourselves = outcome is ErrorAction.FENCED or code == CONCURRENT_TRANSACTIONS
            self._coordinator.retry(request, now, code=code)
        elif self.state is TransactionState.ABORTING and changes_nothing(self._step, self._txn, code):
            self._coordinator.succeeded()
            self._txn.clear_pending()
            if self._step is TransactionStep.END:
                self._finish()
                self._renew = True  # the partition may still be added after the end
        elif outcome in {ErrorAction.RETRY, ErrorAction.REFRESH_METADATA, ErrorAction.FIND_COORDINATOR}:
            self._record_error(error)
            if outcome is not ErrorAction.FIND_COORDINATOR:
                # A coordinator refused, so nothing was added. After NOT_COORDINATOR and the like that is not certain.
                self._txn.wanted |= self._txn.pending
                self._txn.clear_pending()
            elif self._step is TransactionStep.END:
                self._txn.end_in_doubt = True
            if outcome is ErrorAction.REFRESH_METADATA:
                self._metadata.request_update()
            self._coordinator.retry(request, now, code=code, elsewhere=outcome is ErrorAction.FIND_COORDINATOR)
        elif outcome is ErrorAction.FENCED:
            self._coordinator.succeeded()
            self.fenced(error, now)
        elif ends_only_the_transaction(self.state, self._txn, error):
            self._coordinator.succeeded()
            self._txn.clear_pending()
            self._on_abortable(error, code, self._txn.open_ms(now))
        else:
            self.end(self._requests.timeout_refused(error) if code == INVALID_TRANSACTION_TIMEOUT else error)

    def _on_abortable(self, error: KafkaError, code: int, open_ms: int) -> None:
        """Let the transaction fail, or the producer end if a newer one has aborted the transaction.

        Under version 2 the coordinator takes the epoch before an abort for that of a repeated EndTxn, and compares the
        outcomes. So it refuses the commit by INVALID_TXN_STATE, not as fenced, as long as the newer producer has no
        epoch yet (``TransactionCoordinator.endTransaction``).
        """
        if self._step is not TransactionStep.END or code != INVALID_TXN_STATE:
            self.failed(error)
        elif open_ms >= self._requests.timeout_ms:
            self.failed(self._requests.expired(error, open_ms))
        elif self._txn.implicit and self._txn.on_coordinator:
            self.end(self._requests.aborted_by_another(error))
        else:
            self.failed(error)

    def _record_error(self, error: KafkaError) -> None:
        self._last_error = error
        self._pending_calls.note(error)
        for event in self._txn.offsets:
            event.last_error = error

    # --- failures

    def failed(self, error: KafkaError) -> None:
        """Let the transaction fail: a batch was lost, or its coordinator refused it. It can only be aborted."""
        if self.state not in OPEN:
            return
        self._error = error
        self._go(TransactionState.ABORTABLE_ERROR)
        self._fail_offsets(self._needs_abort())
        self._pending_calls.fail(self._needs_abort())

    # Invariant: A transaction that outlived transaction.timeout.ms differs from a fence by the clock, and its producer
    #   continues.
    # Test: tests/producer/
    #   test_transaction_ends.py::test_a_transaction_that_outlives_its_timeout_is_aborted_and_gone_on_from
    def fenced(self, error: KafkaError, now: int) -> KafkaError:
        """Process a fencing error of a broker, and return the error for the batches.

        The coordinator aborts a transaction that outlives its timeout in an epoch that it reports to no producer. If
        this one did, the producer can continue after an abort; otherwise another producer has fenced it.
        """
        if self._txn.open_ms(now) < self._requests.timeout_ms or not can_continue(self.state, self._step, self._txn):
            self.end(error)
            return error
        expired = self._requests.expired(error, self._txn.open_ms(now))
        self._txn.in_doubt = True
        self.failed(expired)
        return expired

    def end(self, error: MirrorError) -> None:
        """End the producer: it was closed, fenced, or refused for good."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        if self._may_have_committed():
            cause, error = error.__cause__, copy.copy(as_kafka_error(error))
            error.__cause__, error.may_have_been_written = cause, True  # that is, committed
        self._coordinator.drop()
        self._error = as_kafka_error(error)
        self._go(TransactionState.FATAL_ERROR)
        self._fail_offsets(error)
        self._pending_calls.fail(error)

    def _fail_offsets(self, error: MirrorError) -> None:
        if self._step is TransactionStep.COMMIT_OFFSETS and self._coordinator.busy:
            # Its outcome is open: a new epoch makes it irrelevant.
            self._txn.in_doubt = True
            self._coordinator.drop()
        self._txn.fail_offsets(error)
