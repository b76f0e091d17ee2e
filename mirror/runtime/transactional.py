"""The calls of a transactional producer (KIP-98), waiting or not, before the network thread's own state of it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Final

from mirror.cluster.topics import OffsetAndMetadata, TopicPartition
from mirror.errors import ClientClosed, InvalidArgument, KafkaError, KafkaTimeout, NeedsAbort, WrongState
from mirror.producer.appending import fresh
from mirror.producer.core import ProducerCore
from mirror.producer.events import (
    AbortEvent,
    AddOffsetsEvent,
    BeginTransactionEvent,
    CommitEvent,
    InitTransactionsEvent,
    TransactionEvent,
)
from mirror.runtime import arguments
from mirror.runtime.thread import STUCK_MS, NetworkThread


class _Phase(enum.Enum):
    """As much of the state as application threads must know at once; the text is for errors."""

    NEW = "not initialized (call init_transactions() first)"
    READY = "not in a transaction (call begin_transaction() first)"
    OPEN = "in a transaction"
    COMMITTING = "committing (call commit_transaction() again for the outcome)"
    ABORTING = "aborting (call abort_transaction() again for the outcome)"


class TransactionCalls:
    """The transactional half of a Producer.

    Every call raises WrongState where the state does not allow it (in all of them: where there is no
    ``transactional.id``), NeedsAbort where the transaction can only be aborted, KafkaTimeout after ``timeout_ms``
    (else ``default.api.timeout.ms``), ClientClosed at the end, and what ended the producer for good: Fenced,
    AuthorizationFailed, or ConfigError where brokers do not allow ``transaction.timeout.ms``.

    A call that ran out of time goes on in the background; the same call again joins it and has its outcome. Until that
    is known no other transaction begins. The calls that end in ``_async`` do not wait: their futures have the outcome.
    """

    def __init__(self, thread: NetworkThread, core: ProducerCore, transactional_id: str | None) -> None:
        self._thread: Final = thread
        self._core: Final = core
        self._transactional_id: Final = transactional_id
        self._closed = False
        self._phase = _Phase.NEW
        self._ending: Future[None] | None = None
        self._ended_by: BaseException | None = None
        self._phase_lock = threading.Lock()

    # --- calls that wait

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Fence every older producer of this ``transactional.id``, whose open transaction is aborted; once, first."""
        self._outcome(self.init_transactions_async(timeout_ms))

    def begin_transaction(self) -> None:
        """What is sent from here on belongs to a new transaction. Asks nobody, and waits for nothing."""
        with self._phase_lock:
            self._check(_Phase.READY, "begin_transaction()")
            self._thread.submit(self._core, BeginTransactionEvent())
            self._phase = _Phase.OPEN

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` of ``group`` with the transaction, and only with it."""
        self._outcome(self.send_offsets_to_transaction_async(offsets, group, timeout_ms))

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Commit, after all that was sent is acknowledged; NeedsAbort where some of it was not."""
        self._outcome(self.commit_transaction_async(timeout_ms))

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort: what was not sent is dropped, and readers of committed records see nothing of the transaction."""
        self._outcome(self.abort_transaction_async(timeout_ms))

    # --- calls that do not

    def init_transactions_async(self, timeout_ms: int | None = None) -> Future[None]:
        """As :meth:`init_transactions`."""
        self._check_open()
        event = InitTransactionsEvent("init_transactions()", *self._timer(timeout_ms))
        return self._ask(event, during=None, after=_Phase.READY)

    def send_offsets_to_transaction_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str,
        timeout_ms: int | None = None,
    ) -> Future[None]:
        """As :meth:`send_offsets_to_transaction`; what it is given is checked at once."""
        wanted = arguments.offsets(offsets)
        if not arguments.text("a group", group):
            msg = "a group must not be empty"
            raise InvalidArgument(msg)
        timer = self._timer(timeout_ms)
        with self._phase_lock:
            self._check(_Phase.OPEN, "send_offsets_to_transaction()")
        if not wanted:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ask(AddOffsetsEvent(group, wanted, *timer), during=None, after=None)

    def commit_transaction_async(self, timeout_ms: int | None = None) -> Future[None]:
        """As :meth:`commit_transaction`."""
        self._check_open()
        return self._commit(timeout_ms)

    def abort_transaction_async(self, timeout_ms: int | None = None) -> Future[None]:
        """As :meth:`abort_transaction`."""
        self._check_open()
        return self._abort(timeout_ms)

    def _commit(self, timeout_ms: int | None) -> Future[None]:
        event = CommitEvent("commit_transaction()", *self._timer(timeout_ms))
        return self._ask(event, during=_Phase.COMMITTING, after=_Phase.READY)

    def _abort(self, timeout_ms: int | None) -> Future[None]:
        event = AbortEvent("abort_transaction()", *self._timer(timeout_ms))
        return self._ask(event, during=_Phase.ABORTING, after=_Phase.READY)

    # --- the state of it

    def _may_send(self) -> None:
        """Raise unless what is sent now has a place to go."""
        if self._closed or (self._transactional_id is not None and self._phase is not _Phase.OPEN):
            with self._phase_lock:
                self._check(_Phase.OPEN, "send")

    def _check(self, wanted: _Phase, call: str) -> None:
        self._check_open()
        self._check_id(call)
        if self._phase is not wanted:
            if self._ended_by is not None:
                raise fresh(self._ended_by)
            msg = f"{call}: the producer of {self._transactional_id!r} is {self._phase.value}"
            raise WrongState(msg)

    def _check_id(self, call: str) -> None:
        if self._transactional_id is None:
            msg = f"{call}: this producer has no transactional.id; set one to use transactions"
            raise WrongState(msg)

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Producer is closed"
            raise ClientClosed(msg)

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._thread.timer(arguments.timeout(timeout_ms))

    def _ask(self, event: TransactionEvent, during: _Phase | None, after: _Phase | None) -> Future[None]:
        """Hand ``event`` over; the state is ``during`` until its outcome, and ``after`` after its success."""
        outcome: Future[None] = Future()
        outcome.set_running_or_notify_cancel()  # to cancel it would tell nobody
        with self._phase_lock:
            self._check_id(event.what)
            before, self._phase = self._phase, during or self._phase
            self._ending = outcome if during is not None else self._ending
            event.future.add_done_callback(lambda told: self._tell(outcome, told, before, after))
            try:
                self._thread.submit(self._core, event)
            except KafkaError:
                self._phase = before
                raise
        return outcome

    def _tell(self, outcome: Future[None], told: Future[None], before: _Phase, after: _Phase | None) -> None:
        """Note the new state, and only then wake who waits for it: the next call may come at once."""
        error = told.exception()
        with self._phase_lock:
            if error is None:
                self._phase = after or self._phase
            elif isinstance(error, WrongState):
                self._phase = before
            elif isinstance(error, NeedsAbort):
                self._phase = _Phase.OPEN
            elif not isinstance(error, KafkaTimeout):
                self._ended_by = error
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(fresh(error))

    def _outcome(self, outcome: Future[None]) -> None:
        self._thread.wait(outcome, STUCK_MS)

    def _end_transaction(self, timeout_ms: int) -> None:
        """Before the producer closes: join what ends the transaction, or abort it. Raises KafkaError."""
        asked = [] if self._ending is None or self._ending.done() else [self._ending]
        if wait(asked, min(timeout_ms / 1000, threading.TIMEOUT_MAX)).not_done:
            return  # to ask again would take the answer away from who asked first
        if self._phase is _Phase.COMMITTING:
            self._outcome(self._commit(timeout_ms))
        elif self._phase in {_Phase.OPEN, _Phase.ABORTING}:
            self._outcome(self._abort(timeout_ms))
