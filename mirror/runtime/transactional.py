"""The transactional calls of a producer (KIP-98) in the application's threads, blocking or as futures."""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Iterable, Mapping
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
    AddPartitionsEvent,
    BeginTransactionEvent,
    CommitEvent,
    InitTransactionsEvent,
    TransactionEvent,
)
from mirror.runtime import arguments
from mirror.runtime.thread import STUCK_MS, NetworkThread
from mirror.timing import remaining


class _Phase(enum.Enum):
    """The part of the state that application threads need synchronously. The values are for error texts."""

    NEW = "not initialized (call init_transactions() first)"
    READY = "not in a transaction (call begin_transaction() first)"
    OPEN = "in a transaction (call commit_transaction() or abort_transaction() first)"
    FAILED = "in a transaction that failed (call abort_transaction() first)"
    COMMITTING = "committing (call commit_transaction() again for the outcome)"
    ABORTING = "aborting (call abort_transaction() again for the outcome)"


_IN_TRANSACTION: Final = (_Phase.OPEN, _Phase.FAILED)
"""The phases in which records can be sent. In a failed transaction their futures get the error."""


def _outcome() -> Future[None]:
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()  # a cancelled future would not stop the call
    return future


@dataclass(slots=True, eq=False)
class _PendingCall:
    """A pending call, with the phases before it, during it, and after its success. None: it does not change the phase.

    ``turn`` is the number of its transaction: its outcome does not change the phase of a later transaction.
    """

    what: str
    before: _Phase
    during: _Phase | None
    after: _Phase | None
    turn: int
    outcome: Future[None] = field(default_factory=_outcome)


class TransactionCalls:
    """The transactional half of a Producer.

    Every call raises WrongState if the state does not allow it (all calls require a ``transactional.id``), NeedsAbort
    if the transaction can only be aborted, KafkaTimeout after ``timeout_ms`` (default: ``default.api.timeout.ms``), and
    ClientClosed after close. It also raises the error that ended the producer permanently: Fenced, AuthorizationFailed,
    or ConfigError if the brokers do not allow ``transaction.timeout.ms``.

    A call that timed out or was interrupted (Ctrl-C) continues in the background. Repeat the same call to wait for its
    outcome; until then no other transaction can begin. Calls whose names end in ``_async`` do not wait; their futures
    get the outcome. Callbacks of futures run on the network thread, and there the other calls raise WrongState without
    sending anything.
    """

    def __init__(self, thread: NetworkThread, core: ProducerCore, transactional_id: str | None) -> None:
        self.network_thread: Final = thread
        self.core: Final = core
        """What the network thread runs; neither is for applications."""
        self._transactional_id: Final = transactional_id
        self._closed = False
        self._phase = _Phase.NEW
        self._ending: list[Future[None]] = []
        self._turn = 0
        self._ended_by: BaseException | None = None
        self._phase_lock = threading.Lock()

    # --- calls that wait

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Fence older producers of this ``transactional.id`` and abort their open transaction. Call it once, first."""
        self.network_thread.check_may_wait()
        self._wait(self.init_transactions_async(timeout_ms))

    def begin_transaction(self) -> None:
        """Begin a transaction: it contains the records sent from now on. Sends no request and does not wait."""
        self.network_thread.check_process()
        with self._phase_lock:
            self._check((_Phase.READY,), "begin_transaction()")
            self.network_thread.submit(self.core, BeginTransactionEvent())
            self._phase = _Phase.OPEN
            self._turn += 1

    def add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction, so that its end writes a marker into each of them (a fence).

        Nothing has to be sent to them. Does not wait: the commit does, and has the error of a refusal. Raises
        InvalidArgument.
        """
        wanted = arguments.partitions(tps)
        self.network_thread.check_process()
        with self._phase_lock:
            self._check(_IN_TRANSACTION, "add_partitions()")
            if wanted:
                self.network_thread.submit(self.core, AddPartitionsEvent(wanted))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` of ``group`` as part of the transaction."""
        self.network_thread.check_may_wait()
        self._wait(self.send_offsets_to_transaction_async(offsets, group, timeout_ms))

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Wait until all records are acknowledged, then commit. Raises NeedsAbort if a record was not acknowledged."""
        self.network_thread.check_may_wait()
        self._wait(self.commit_transaction_async(timeout_ms))

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort: drop unsent records. Consumers with read_committed see no records of the transaction.

        While a commit waits for acknowledgements, it may be aborted; its callers get NeedsAbort. After the request to
        commit was sent, the call raises WrongState, and the commit continues.
        """
        self.network_thread.check_may_wait()
        self._wait(self.abort_transaction_async(timeout_ms))

    # --- calls that do not wait

    def init_transactions_async(self, timeout_ms: int | None = None) -> Future[None]:
        """Like :meth:`init_transactions`, without waiting."""
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
        """Like :meth:`send_offsets_to_transaction`, without waiting. Raises InvalidArgument itself."""
        wanted = arguments.offsets(offsets)
        if not arguments.text("a group", group):
            msg = "a group must not be empty"
            raise InvalidArgument(msg)
        timer = self._timer(timeout_ms)
        self.network_thread.check_process()
        with self._phase_lock:
            self._check(_IN_TRANSACTION, "send_offsets_to_transaction()")
        if not wanted:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ask(AddOffsetsEvent(group, wanted, *timer), during=None, after=None)

    def commit_transaction_async(self, timeout_ms: int | None = None) -> Future[None]:
        """Like :meth:`commit_transaction`, without waiting."""
        self._check_open()
        return self._commit(timeout_ms)

    def abort_transaction_async(self, timeout_ms: int | None = None) -> Future[None]:
        """Like :meth:`abort_transaction`, without waiting."""
        self._check_open()
        return self._abort(timeout_ms)

    def _commit(self, timeout_ms: int | None) -> Future[None]:
        event = CommitEvent("commit_transaction()", *self._timer(timeout_ms))
        return self._ask(event, during=_Phase.COMMITTING, after=_Phase.READY)

    def _abort(self, timeout_ms: int | None) -> Future[None]:
        event = AbortEvent("abort_transaction()", *self._timer(timeout_ms))
        return self._ask(event, during=_Phase.ABORTING, after=_Phase.READY)

    # --- state

    @property
    def _in_transaction(self) -> bool:
        """Whether there is a transaction that has not ended."""
        return self._phase not in {_Phase.NEW, _Phase.READY}

    def _may_send(self) -> None:
        """Raise if records cannot be sent in the current phase."""
        self.network_thread.check_process()
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
        return self.network_thread.timer(arguments.timeout(timeout_ms))

    def _ask(self, event: TransactionEvent, during: _Phase | None, after: _Phase | None) -> Future[None]:
        """Submit ``event``. The phase is ``during`` until its outcome, and ``after`` if it succeeds."""
        self.network_thread.check_process()
        with self._phase_lock:
            self._check_id(event.what)
            call = _PendingCall(event.what, self._phase, during, after, self._turn)
            event.future.add_done_callback(lambda future: self._complete(call, future))
            if during is not None:
                self._phase = during
                self._ending.append(call.outcome)
            try:
                self.network_thread.submit(self.core, event)
            except BaseException:
                self._restore_phase(call)
                self._remove(call)
                raise
        return call.outcome

    def _restore_phase(self, call: _PendingCall) -> None:
        """Restore the phase before a refused call, unless the phase has changed since."""
        if call.during is not None and self._phase is call.during:
            self._phase = call.before

    def _remove(self, call: _PendingCall) -> None:
        if call.outcome in self._ending:
            self._ending.remove(call.outcome)

    def _complete(self, call: _PendingCall, future: Future[None]) -> None:
        """Set the new phase before completing the future: a waiting thread may make its next call immediately."""
        error = future.exception()
        with self._phase_lock:
            if call.turn == self._turn:
                self._set_phase(call, error)
            self._remove(call)
            if error is not None and not isinstance(error, (WrongState, NeedsAbort, KafkaTimeout)):
                self._ended_by = error
        if error is None:
            call.outcome.set_result(None)
        elif type(error) is KafkaTimeout and call.after is not None:
            timed_out = KafkaTimeout(f"{error}; it continues: call {call.what} again for its outcome")
            timed_out.__cause__ = error.__cause__
            call.outcome.set_exception(timed_out)
        else:
            call.outcome.set_exception(copy_of_error(error))

    def _set_phase(self, call: _PendingCall, error: BaseException | None) -> None:
        if error is None:
            self._phase = call.after or self._phase
        elif isinstance(error, WrongState):
            self._restore_phase(call)
        elif isinstance(error, NeedsAbort) and self._phase in {_Phase.OPEN, _Phase.COMMITTING}:
            self._phase = _Phase.FAILED

    def _wait(self, outcome: Future[None], stuck_ms: int = STUCK_MS) -> None:
        self.network_thread.wait(outcome, stuck_ms)

    def _end_transaction(self, deadline_ms: int) -> None:
        """Wait for a pending commit or abort, else abort an open transaction, before closing. Raises KafkaError."""
        if wait(list(self._ending), min(self._left_ms(deadline_ms) / 1000, threading.TIMEOUT_MAX)).not_done:
            return  # a repeated call would take the outcome from the thread that waits for it
        left_ms = self._left_ms(deadline_ms)
        if self._phase is _Phase.COMMITTING:
            ending = self._commit(left_ms)
        elif self._phase in {*_IN_TRANSACTION, _Phase.ABORTING}:
            ending = self._abort(left_ms)
        else:
            return
        self._wait(ending, max(1_000, min(left_ms, STUCK_MS)))

    def _left_ms(self, deadline_ms: int) -> int:
        return remaining(deadline_ms, self.network_thread.clock.now())
