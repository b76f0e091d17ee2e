"""The calls of a transactional producer (KIP-98), waiting or not, before the network thread's own state of it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import ClientClosed, InvalidArgument, KafkaTimeout, NeedsAbort, WrongState
from mirror.producer.batch.batches import copy_of_error
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
from mirror.timing import remaining


class _Phase(enum.Enum):
    """As much of the state as application threads must know at once; the text is for errors."""

    NEW = "not initialized (call init_transactions() first)"
    READY = "not in a transaction (call begin_transaction() first)"
    OPEN = "in a transaction (call commit_transaction() or abort_transaction() first)"
    FAILED = "in a transaction that failed (call abort_transaction() first)"
    COMMITTING = "committing (call commit_transaction() again for the outcome)"
    ABORTING = "aborting (call abort_transaction() again for the outcome)"


_IN_TRANSACTION: Final = (_Phase.OPEN, _Phase.FAILED)
"""Where something can be sent; in a transaction that failed its future says so."""


def _outcome() -> Future[None]:
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()  # to cancel it would tell nobody
    return future


@dataclass(slots=True, eq=False)
class _Asked:
    """A call under way: the phases ``before`` it, ``during`` it and ``after`` its success (None: it changes nothing).

    ``turn`` counts transactions: what one was asked says nothing of the next.
    """

    what: str
    before: _Phase
    during: _Phase | None
    after: _Phase | None
    turn: int
    outcome: Future[None] = field(default_factory=_outcome)


class TransactionCalls:
    """The transactional half of a Producer.

    Every call raises WrongState where the state does not allow it (in all of them: where there is no
    ``transactional.id``), NeedsAbort where the transaction can only be aborted, KafkaTimeout after ``timeout_ms``
    (else ``default.api.timeout.ms``), ClientClosed at the end, and what ended the producer for good: Fenced,
    AuthorizationFailed, or ConfigError where brokers do not allow ``transaction.timeout.ms``.

    A call that ran out of time goes on in the background; the same call again joins it and has its outcome. Until that
    is known no other transaction begins. The calls that end in ``_async`` do not wait: their futures have the outcome.
    The others raise WrongState in callbacks of futures, which run on the network thread, before they have asked it
    anything.
    """

    def __init__(self, thread: NetworkThread, core: ProducerCore, transactional_id: str | None) -> None:
        self._thread: Final = thread
        self._core: Final = core
        self._transactional_id: Final = transactional_id
        self._closed = False
        self._phase = _Phase.NEW
        self._ending: list[Future[None]] = []
        self._turn = 0
        self._ended_by: BaseException | None = None
        self._phase_lock = threading.Lock()

    # --- calls that wait

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Fence every older producer of this ``transactional.id``, whose open transaction is aborted; once, first."""
        self._thread.check_may_wait()
        self._wait(self.init_transactions_async(timeout_ms))

    def begin_transaction(self) -> None:
        """What is sent from here on belongs to a new transaction. Asks nobody, and waits for nothing."""
        self._thread.check_process()
        with self._phase_lock:
            self._check((_Phase.READY,), "begin_transaction()")
            self._thread.submit(self._core, BeginTransactionEvent())
            self._phase = _Phase.OPEN
            self._turn += 1

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` of ``group`` with the transaction, and only with it."""
        self._thread.check_may_wait()
        self._wait(self.send_offsets_to_transaction_async(offsets, group, timeout_ms))

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Commit, after all that was sent is acknowledged; NeedsAbort where some of it was not."""
        self._thread.check_may_wait()
        self._wait(self.commit_transaction_async(timeout_ms))

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort: what was not sent is dropped, and readers of committed records see nothing of the transaction.

        Also while a commit waits for records to be acknowledged: its callers get NeedsAbort. Once the coordinator was
        asked to commit it raises WrongState, and the commit goes on.
        """
        self._thread.check_may_wait()
        self._wait(self.abort_transaction_async(timeout_ms))

    # --- calls that do not

    def init_transactions_async(self, timeout_ms: int | None = None) -> Future[None]:
        """As :meth:`init_transactions`."""
        self._check_open()
        self._check_id("init_transactions()")
        if self._phase is not _Phase.NEW:
            if self._ended_by is not None:
                raise copy_of_error(self._ended_by)
            msg = f"init_transactions(): the producer of {self._transactional_id!r} is initialized already"
            raise WrongState(msg)
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
        self._thread.check_process()
        with self._phase_lock:
            self._check(_IN_TRANSACTION, "send_offsets_to_transaction()")
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
        self._thread.check_process()
        if self._closed or (self._transactional_id is not None and self._phase is not _Phase.OPEN):
            with self._phase_lock:
                self._check(_IN_TRANSACTION, "send")

    def _check(self, wanted: Collection[_Phase], call: str) -> None:
        self._check_open()
        self._check_id(call)
        if self._phase not in wanted:
            if self._ended_by is not None:
                raise copy_of_error(self._ended_by)
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
        self._thread.check_process()
        with self._phase_lock:
            self._check_id(event.what)
            asked = _Asked(event.what, self._phase, during, after, self._turn)
            event.future.add_done_callback(lambda told: self._tell(asked, told))
            if during is not None:
                self._phase = during
                self._ending.append(asked.outcome)
            try:
                self._thread.submit(self._core, event)
            except BaseException:
                self._take_back(asked)
                self._forget(asked)
                raise
        return asked.outcome

    def _take_back(self, asked: _Asked) -> None:
        """It was refused. What has come to be since it was asked is left alone."""
        if asked.during is not None and self._phase is asked.during:
            self._phase = asked.before

    def _forget(self, asked: _Asked) -> None:
        if asked.outcome in self._ending:
            self._ending.remove(asked.outcome)

    def _tell(self, asked: _Asked, told: Future[None]) -> None:
        """Note the new state, and only then wake who waits for it: the next call may come at once."""
        error = told.exception()
        with self._phase_lock:
            if asked.turn == self._turn:
                self._note(asked, error)
            self._forget(asked)
            if error is not None and not isinstance(error, (WrongState, NeedsAbort, KafkaTimeout)):
                self._ended_by = error
        if error is None:
            asked.outcome.set_result(None)
        elif type(error) is KafkaTimeout and asked.after is not None:
            late = KafkaTimeout(f"{error}; it goes on: call {asked.what} again for its outcome")
            late.__cause__ = error.__cause__
            asked.outcome.set_exception(late)
        else:
            asked.outcome.set_exception(copy_of_error(error))

    def _note(self, asked: _Asked, error: BaseException | None) -> None:
        if error is None:
            self._phase = asked.after or self._phase
        elif isinstance(error, WrongState):
            self._take_back(asked)
        elif isinstance(error, NeedsAbort) and self._phase in {_Phase.OPEN, _Phase.COMMITTING}:
            self._phase = _Phase.FAILED

    def _wait(self, outcome: Future[None], stuck_ms: int = STUCK_MS) -> None:
        self._thread.wait(outcome, stuck_ms)

    def _end_transaction(self, deadline_ms: int) -> None:
        """Before the producer closes: join what ends the transaction, or abort it. Raises KafkaError."""
        if wait(list(self._ending), min(self._left_ms(deadline_ms) / 1000, threading.TIMEOUT_MAX)).not_done:
            return  # to ask again would take the answer away from who asked first
        left_ms = self._left_ms(deadline_ms)
        if self._phase is _Phase.COMMITTING:
            ending = self._commit(left_ms)
        elif self._phase in {*_IN_TRANSACTION, _Phase.ABORTING}:
            ending = self._abort(left_ms)
        else:
            return
        self._wait(ending, max(1_000, min(left_ms, STUCK_MS)))

    def _left_ms(self, deadline_ms: int) -> int:
        return remaining(deadline_ms, self._thread.clock.now())
