"""One producer's transactions: what its coordinators are asked, and when (``TransactionManager``; KIP-98, 360, 890).

Version 1: the coordinator is told of each partition and group before they are written to, and keeps the epoch over
transactions. Version 2 (KIP-890): brokers tell it themselves, and each end bumps the epoch. Decided per transaction.
"""

from __future__ import annotations

import copy
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
    NOBODY,
    CoordinatorRequest,
    CoordinatorRequestBuilder,
    weight,
)
from mirror.producer.txn.pending_calls import PendingTransactionCalls
from mirror.producer.txn.steps import (
    ADDS,
    OPEN,
    Asked,
    Transaction,
    TransactionState,
    TransactionStep,
    can_go_on,
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
    ErrorAction,
    verdict,
)

_FEATURE: Final = "transaction.version"
_IMPLICIT: Final = 2


class Transactions:
    """State and next step of a transactional producer. Its batches ask it whether, and as whom, they may go."""

    def __init__(self, settings: ProducerSettings, loop: ClusterLoop) -> None:
        assert settings.transactional_id is not None  # noqa: S101 - made for those that have one only
        self.transactional_id: str | None = settings.transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.identity: ProducerId | None = None
        self._settings = settings
        self._network = loop.network
        self._metadata = loop.metadata
        self._asker = CoordinatorRequestBuilder(settings.transactional_id, settings.transaction_timeout_ms)
        self._talk = CoordinatorClient(settings.cluster, loop, self._on_answer, self._on_silence)
        self._txn = Transaction()
        self._step: TransactionStep | None = None
        self._callers = PendingTransactionCalls()
        self._error: KafkaError | None = None
        self._last_error: KafkaError | None = None
        self._renew = False
        self._fenced_ourselves = False
        self._inits_unanswered = 0
        self.count = 0

    # --- what application threads ask; each raises WrongState, NeedsAbort or what ended the producer

    def init(self, event: InitTransactionsEvent) -> None:
        """Begin; a second call joins the first, while that is under way."""
        if self.state is TransactionState.UNINITIALIZED:
            self._go(TransactionState.INITIALIZING)
        elif self.state is not TransactionState.INITIALIZING:
            if self._callers.claim(event):
                return
            self._refuse("init_transactions()")
        self._callers.join(event)

    def begin(self) -> None:
        """A transaction begins, unless the producer has ended meanwhile: then what is sent hears of it."""
        if may_go(self.state, TransactionState.IN_TRANSACTION):
            self._go(TransactionState.IN_TRANSACTION)
            self._callers.go_on()
            self.count += 1
            self._txn = Transaction(implicit=self._network.finalized_feature(_FEATURE) >= _IMPLICIT)

    def add_offsets(self, event: AddOffsetsEvent, now: int) -> None:
        """``event``'s offsets are to be committed with the transaction."""
        if self.state is not TransactionState.IN_TRANSACTION:
            self._refuse("send_offsets_to_transaction()")
        self._txn.began(now)
        self._txn.offsets.append(event)

    def commit(self, event: CommitEvent) -> None:
        """End it as soon as everything is acknowledged; a second call joins the first."""
        if self.state is TransactionState.IN_TRANSACTION:
            self._go(TransactionState.COMMITTING)
        elif self.state is not TransactionState.COMMITTING:
            if self._callers.claim(event):
                return
            self._refuse("commit_transaction()")
        self._callers.join(event)

    def abort(self, event: AbortEvent) -> bool:
        """End it, and have nothing of it seen. Whether there is something to be dropped: a second call joins."""
        if self.state is TransactionState.ABORTING:
            self._callers.join(event)
            return False
        if not may_go(self.state, TransactionState.ABORTING):
            if self._callers.claim(event):
                return False
            self._refuse("abort_transaction()")
        if self._end_is_out():
            now = f"is {self.state.value}, and may have: commit_transaction() again tells the outcome"
            msg = f"abort_transaction(): the producer of {self.transactional_id!r} {now}"
            raise WrongState(msg)
        self._callers.fail(NeedsAbort("the transaction was aborted before it was committed"))
        self._go(TransactionState.ABORTING)
        self._callers.join(event)
        self._txn.wanted.clear()
        self._fail_offsets(NeedsAbort("the transaction was aborted before its offsets were committed"))
        return True

    def leaves_unanswered(self) -> None:
        """A batch of this transaction that had a sequence is lost: left to its fate, given up, or refused.

        Only a new epoch keeps it out of the next transaction, where it may still come to be; and where it was refused,
        only a new epoch lets sequences begin again at 0: what comes next would be out of order without it.
        """
        self._txn.in_doubt = True

    def _end_is_out(self) -> bool:
        """Whether the coordinator was asked to commit, so that it may have."""
        asked = self._txn.end_in_doubt or (self._step is TransactionStep.END and self._talk.busy)
        return self.state is TransactionState.COMMITTING and asked

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
    def fences_in_doubt(self) -> int:
        """How many requests to fence were not answered, that under way included: each may still be carried out.

        A coordinator that was stopped works off what is in its sockets, and fences this producer with it, or the next.
        """
        return self._inits_unanswered + (self._step is TransactionStep.INIT and self._talk.busy)

    # --- what its batches ask

    def refusal(self) -> KafkaError | None:
        """Why nothing can be sent now; None where it can."""
        if self.state is TransactionState.IN_TRANSACTION:
            return None
        return self.failure() or WrongState(f"send: the producer of {self.transactional_id!r} is {self.state.value}")

    def failure(self) -> KafkaError | None:
        """What became of the transaction, or of the producer; None while nothing did."""
        if self.state is TransactionState.ABORTABLE_ERROR:
            return self._needs_abort()
        return self._error if self.state is TransactionState.FATAL_ERROR else None

    def writes_to(self, tp: TopicPartition, now: int) -> None:
        """A batch for ``tp`` has come in."""
        self._txn.began(now)
        if not self._txn.implicit and tp not in self._txn.added and tp not in self._txn.asked:
            self._txn.wanted.add(tp)

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether the queue's batches belong to a transaction that its coordinator knows, or will be told of."""
        if self.state not in OPEN or self.identity is None or self._renew:
            return False
        if not self._txn.implicit and queue.tp not in self._txn.added:
            return False
        if queue.identity != self.identity:
            queue.restart(self.identity)
        asking = (self._talk.busy and self._step is TransactionStep.COMMIT_OFFSETS) or (
            self._txn.implicit and queue.in_flight
        )
        if asking and self.joins(queue):
            return False
        queue.transaction = self.count
        return True

    def joins(self, queue: PartitionQueue) -> bool:
        """Whether the queue's next batch is the first of this transaction that its leader hears of.

        It asks the coordinator about it, and of two such questions at once it drops one (AddPartitionsToTxnManager).
        """
        return queue.joined_transaction != self.count

    def produce_to(self, tp: TopicPartition) -> None:
        """A batch for ``tp`` goes out; under version 2 that adds its partition."""
        del tp
        self._txn.on_coordinator = True

    @property
    def produce_at_most(self) -> int | None:
        """Newer versions of Produce add partitions by themselves."""
        return None if self._txn.implicit else BEFORE_IMPLICIT[Api.PRODUCE]

    def holds_up(self, tp: TopicPartition) -> tuple[DeliveryPhase, KafkaError | None] | None:
        """What keeps a batch of ``tp`` from being sent, as far as that is the coordinator."""
        why = self._last_error or self._talk.why_waiting()
        if self.identity is None or self._renew:
            return DeliveryPhase.FENCING, why
        return None if self._txn.implicit or tp in self._txn.added else (DeliveryPhase.QUEUE, why)

    # --- one turn

    def poll(self, now: int, *, unfinished: Asked, joining: Asked) -> Poll:
        """The next request to a coordinator, where one is due; what batches still do, as in :func:`next_step`."""
        if self._talk.busy:
            return IDLE
        self._step = next_step(self.state, self._txn, renew=self._renew, unfinished=unfinished, joining=joining)
        if self._step is TransactionStep.NOTHING:
            self._ended()
            self._step = None
        if self._step is None:
            return IDLE
        if (wait := self._talk.wait_ms(now)) > 0:
            return Poll([], wait)
        return self._ask(self._step, now)

    def _ask(self, step: TransactionStep, now: int) -> Poll:
        txn = self._txn
        if step is TransactionStep.ADD_PARTITIONS:
            txn.asked, txn.wanted = txn.asked | txn.wanted, set()
        elif step is TransactionStep.ADD_OFFSETS and txn.asked_group is None:
            txn.asked_group = txn.offsets[0].group
        elif step is TransactionStep.COMMIT_OFFSETS and txn.implicit:
            txn.on_coordinator = True
        ask = self._asker.ask(step, self._as_whom(), txn, commit=self.state is TransactionState.COMMITTING)
        at_most = None if txn.implicit else BEFORE_IMPLICIT.get(ask.api)
        try:
            poll = self._talk.begin(ask, at_most=at_most, now=now)
        except KafkaError as error:
            self._refused(error, now, ask)
            return IDLE
        txn.may_be_there = txn.may_be_there or (step in ADDS and bool(poll.requests))
        if not poll.requests and (why := self._talk.why_waiting()) is not None:
            self._note(why)
        return poll

    def _as_whom(self) -> ProducerId:
        if self._step is TransactionStep.INIT or self.identity is None:
            return NOBODY
        if self._step is TransactionStep.NEW_EPOCH and self._fenced_ourselves:
            return ProducerId(self.identity.producer_id, self.identity.epoch + 1)
        return self.identity

    # --- what comes back

    def _on_silence(self, ask: CoordinatorRequest, error: KafkaError, now: int) -> None:
        if isinstance(error, NotRetriable):
            self.end(error)
            return
        self._inits_unanswered += self._step is TransactionStep.INIT
        self._txn.in_doubt = self._txn.in_doubt or self._step is TransactionStep.COMMIT_OFFSETS
        self._txn.end_in_doubt = self._txn.end_in_doubt or self._step is TransactionStep.END
        self._note(error)
        self._talk.retry(ask, now, elsewhere=True)

    def _on_answer(self, ask: CoordinatorRequest, response: Any, now: int) -> None:
        assert self._step is not None  # noqa: S101 - an answer follows a request
        refusals = self._asker.refusals(self._step, response, ask)
        if refusals:
            self._refused(max(refusals, key=weight), now, ask)
            return
        self._talk.succeeded()
        self._last_error = None
        self._done(self._step, response)

    def _done(self, step: TransactionStep, response: Any) -> None:
        txn = self._txn
        match step:
            case TransactionStep.INIT | TransactionStep.RENEW | TransactionStep.NEW_EPOCH:
                self.identity = ProducerId(response.producer_id, response.producer_epoch)
                self._renew = False
                if step is not TransactionStep.RENEW:
                    self._ended(fenced=True)
            case TransactionStep.ADD_PARTITIONS:
                txn.added |= txn.asked
                txn.asked, txn.on_coordinator = set(), True
            case TransactionStep.ADD_OFFSETS:
                txn.groups.add(txn.asked_group or "")
                txn.asked_group, txn.on_coordinator = None, True
            case TransactionStep.COMMIT_OFFSETS:
                txn.offsets.popleft().complete(None)
            case TransactionStep.END:
                if response.producer_id >= 0:
                    self.identity = ProducerId(response.producer_id, response.producer_epoch)
                self._ended()

    def _ended(self, *, fenced: bool = False) -> None:
        """Committed, aborted or initialized: ready for the next one."""
        # What was left unanswered may still arrive, and must not find the epoch that it was sent in: a copy of EndTxn
        # would end the next transaction, whatever that has written so far.
        unanswered = self._txn.in_doubt or self._txn.end_in_doubt
        self._renew = not fenced and (self._renew or (unanswered and not self._txn.implicit))
        self._txn = Transaction()
        self._fenced_ourselves = False
        self._error = self._last_error = None
        self._go(TransactionState.READY)
        self._callers.succeed()

    def _refused(self, error: KafkaError, now: int, ask: CoordinatorRequest) -> None:
        code = error.code if isinstance(error, BrokerError) else -1
        outcome = verdict(code)
        if (
            self._step is TransactionStep.NEW_EPOCH
            and not self._fenced_ourselves
            and outcome in {ErrorAction.FENCED, ErrorAction.RETRY}
        ):
            # The coordinator aborts the transaction in the next epoch, which it never tells anybody: from here on it
            # is this producer's own, or else whoever initialized the transactional id since has a later one still.
            self._fenced_ourselves = outcome is ErrorAction.FENCED or code == CONCURRENT_TRANSACTIONS
            self._talk.retry(ask, now, code=code)
        elif self.state is TransactionState.ABORTING and changes_nothing(self._step, self._txn, code):
            self._talk.succeeded()
            self._txn.forget_asked()
            if self._step is TransactionStep.END:
                self._ended()
                self._renew = True  # what was to be added may still be, behind the end's back
        elif outcome in {ErrorAction.RETRY, ErrorAction.REFRESH_METADATA, ErrorAction.FIND_COORDINATOR}:
            self._note(error)
            if outcome is not ErrorAction.FIND_COORDINATOR:
                # A coordinator that is one has said that it did not; of another's answer (15) that is not sure.
                self._txn.wanted |= self._txn.asked
                self._txn.forget_asked()
            elif self._step is TransactionStep.END:
                self._txn.end_in_doubt = True
            if outcome is ErrorAction.REFRESH_METADATA:
                self._metadata.request_update()
            self._talk.retry(ask, now, code=code, elsewhere=outcome is ErrorAction.FIND_COORDINATOR)
        elif outcome is ErrorAction.FENCED:
            self._talk.succeeded()
            self.fenced(error, now)
        elif ends_only_the_transaction(self.state, self._txn, error):
            self._talk.succeeded()
            self._txn.forget_asked()
            open_ms = self._txn.open_ms(now)
            ended_already = (
                self._step is TransactionStep.END and code == INVALID_TXN_STATE and open_ms >= self._asker.timeout_ms
            )
            self.failed(self._asker.expired(error, open_ms) if ended_already else error)
        else:
            self.end(self._asker.timeout_refused(error) if code == INVALID_TRANSACTION_TIMEOUT else error)

    def _note(self, error: KafkaError) -> None:
        self._last_error = error
        self._callers.note(error)
        for event in self._txn.offsets:
            event.last_error = error

    # --- what goes wrong

    def failed(self, error: KafkaError) -> None:
        """A batch was lost, or the coordinator wants it: the transaction cannot be committed any more."""
        if self.state not in OPEN:
            return
        self._error = error
        self._go(TransactionState.ABORTABLE_ERROR)
        self._fail_offsets(self._needs_abort())
        self._callers.fail(self._needs_abort())

    def fenced(self, error: KafkaError, now: int) -> KafkaError:
        """Brokers say that another producer took over; the clock tells whether it was the coordinator.

        It aborts a transaction that outlives its timeout, in an epoch that it tells nobody: the producer can go on.
        """
        if self._txn.open_ms(now) < self._asker.timeout_ms or not can_go_on(self.state, self._step, self._txn):
            self.end(error)
            return error
        expired = self._asker.expired(error, self._txn.open_ms(now))
        self._txn.in_doubt = True
        self.failed(expired)
        return expired

    def end(self, error: MirrorError) -> None:
        """The producer is of no use any more: closed, fenced, or refused for good."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        if self._end_is_out():
            cause, error = error.__cause__, copy.copy(as_kafka_error(error))
            error.__cause__, error.may_have_been_written = cause, True  # that is: committed
        self._talk.drop()
        self._error = as_kafka_error(error)
        self._go(TransactionState.FATAL_ERROR)
        self._fail_offsets(error)
        self._callers.fail(error)

    def _fail_offsets(self, error: MirrorError) -> None:
        if self._step is TransactionStep.COMMIT_OFFSETS and self._talk.busy:
            # Whether it comes to be is nobody's business any more: a new epoch sees to it.
            self._txn.in_doubt = True
            self._talk.drop()
        self._txn.fail_offsets(error)
