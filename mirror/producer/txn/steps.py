"""The states of a transactional producer (``TransactionManager.State``), and the step that comes next. Pure."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, MirrorError
from mirror.producer.events import AddOffsetsEvent
from mirror.wire.error_codes import INVALID_TXN_STATE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorAction, verdict


class TransactionState(enum.Enum):
    """What a transactional producer is doing; the text is for errors."""

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function, and states are hashed several times for each batch

    UNINITIALIZED = "not initialized (call init_transactions() first)"
    INITIALIZING = "being initialized"
    READY = "not in a transaction (call begin_transaction() first)"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTABLE_ERROR = "in a transaction that failed (call abort_transaction())"
    ABORTING = "aborting"
    FATAL_ERROR = "at its end (close it and make another one)"


TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.UNINITIALIZED: frozenset({TransactionState.INITIALIZING, TransactionState.FATAL_ERROR}),
    TransactionState.INITIALIZING: frozenset({TransactionState.READY, TransactionState.FATAL_ERROR}),
    TransactionState.READY: frozenset({TransactionState.IN_TRANSACTION, TransactionState.FATAL_ERROR}),
    TransactionState.IN_TRANSACTION: frozenset(
        {
            TransactionState.COMMITTING,
            TransactionState.ABORTING,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.FATAL_ERROR,
        }
    ),
    # Until EndTxn is sent, it can be aborted. Afterwards only the response says whether it was committed.
    TransactionState.COMMITTING: frozenset(
        {
            TransactionState.READY,
            TransactionState.ABORTING,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.FATAL_ERROR,
        }
    ),
    TransactionState.ABORTABLE_ERROR: frozenset({TransactionState.ABORTING, TransactionState.FATAL_ERROR}),
    TransactionState.ABORTING: frozenset({TransactionState.READY, TransactionState.FATAL_ERROR}),
    TransactionState.FATAL_ERROR: frozenset(),
}
"""Any other transition is a bug here, or a call that the state does not allow."""


def may_go(current: TransactionState, following: TransactionState) -> bool:
    """Whether the transition from ``current`` to ``following`` is allowed."""
    return following in TRANSITIONS[current]


OPEN: Final = frozenset({TransactionState.IN_TRANSACTION, TransactionState.COMMITTING})

LazyCheck = Callable[[], bool]
"""Evaluated only where it matters: these checks visit all batches, and most turns need neither."""


class TransactionStep(enum.Enum):
    """The next step: one request to a coordinator, or none."""

    __hash__ = (
        object.__hash__
    )  # Enum.__hash__ is a Python function, and steps are hashed several times for each transaction

    INIT = "fencing older producers"
    RENEW = "getting a new epoch"
    ADD_PARTITIONS = "adding partitions to the transaction"
    ADD_OFFSETS = "adding a group to the transaction"
    COMMIT_OFFSETS = "committing offsets in the transaction"
    END = "ending the transaction"
    NEW_EPOCH = "aborting the transaction by a new epoch"
    NOTHING = "no coordinator knows the transaction: there is nothing to end"


ADDS: Final = frozenset({TransactionStep.ADD_PARTITIONS, TransactionStep.ADD_OFFSETS})


@dataclass(slots=True)
class Transaction:
    """What is known of the current transaction."""

    implicit: bool = False
    """Transaction version 2: brokers add the partitions (KIP-890)."""
    wanted: set[TopicPartition] = field(default_factory=set)
    """Partitions to be added."""
    pending: set[TopicPartition] = field(default_factory=set)
    """Partitions of an AddPartitionsToTxn without a response."""
    added: set[TopicPartition] = field(default_factory=set)
    pending_group: str | None = None
    """The group of an AddOffsetsToTxn without a response."""
    groups: set[str] = field(default_factory=set)
    offsets: deque[AddOffsetsEvent] = field(default_factory=deque)
    on_coordinator: bool = False
    """The coordinator has the transaction or, under version 2, may have it."""
    may_be_on_coordinator: bool = False
    """A request to add something was sent, whatever its response."""
    in_doubt: bool = False
    """A Produce or TxnOffsetCommit had no response, and may still be executed."""
    add_in_doubt: bool = False
    """A request to add something had no response, and may still be executed."""
    end_in_doubt: bool = False
    """An EndTxn had no response: the transaction may have ended, and another producer may have continued."""
    began_ms: int | None = None

    def began(self, now: int) -> None:
        """Record its first batch or offsets.

        The coordinator's timeout starts a little later, with the first request.
        """
        if self.began_ms is None:
            self.began_ms = now

    def open_ms(self, now: int) -> int:
        """Return how long it has been open."""
        return 0 if self.began_ms is None else now - self.began_ms

    def clear_pending(self) -> None:
        """The coordinator added nothing."""
        self.pending, self.pending_group = set(), None

    def fail_offsets(self, error: MirrorError) -> None:
        """Fail the calls whose offsets are not committed with it."""
        for event in self.offsets:
            event.fail(error)
        self.offsets.clear()


def next_step(
    state: TransactionState, txn: Transaction, *, renew: bool, unfinished: LazyCheck, joining: LazyCheck
) -> TransactionStep | None:
    """Return the next step; None if nothing is to be done (yet).

    ``renew``: requests of the last transaction without a response must not find their epoch valid; ``unfinished``: some
    batches are not acknowledged yet; ``joining``: some partition has none acknowledged in this transaction.
    """
    if state is TransactionState.INITIALIZING:
        return TransactionStep.INIT
    if state is TransactionState.ABORTING:
        return _to_abort(txn)
    if renew and state in {TransactionState.READY, *OPEN}:
        return TransactionStep.RENEW
    return _to_commit(state, txn, unfinished=unfinished, joining=joining) if state in OPEN else None


# Invariant: Offsets wait until each partition's first batch is acknowledged: a coordinator drops one of two
#   simultaneous verifications.
# Test: tests/producer/test_one_addition_at_a_time.py::test_offsets_wait_for_the_first_batch
def _to_commit(
    state: TransactionState, txn: Transaction, *, unfinished: LazyCheck, joining: LazyCheck
) -> TransactionStep | None:
    if txn.wanted or txn.pending:
        return TransactionStep.ADD_PARTITIONS
    if txn.offsets:
        if not txn.implicit and txn.offsets[0].group not in txn.groups:
            return TransactionStep.ADD_OFFSETS
        # Brokers verify both with the coordinator, and drop one of two verifications at a time.
        return None if joining() else TransactionStep.COMMIT_OFFSETS
    if state is TransactionState.IN_TRANSACTION or unfinished():
        return None
    return TransactionStep.END if txn.on_coordinator else TransactionStep.NOTHING


def _to_abort(txn: Transaction) -> TransactionStep:
    if not txn.on_coordinator:
        # Nothing was written in it. EndTxn shows whether there is something to end.
        return TransactionStep.END if txn.may_be_on_coordinator else TransactionStep.NOTHING
    return TransactionStep.NEW_EPOCH if txn.in_doubt and not txn.implicit else TransactionStep.END


def changes_nothing(step: TransactionStep | None, txn: Transaction, code: int) -> bool:
    """Whether ``code`` does not matter to a transaction that is being aborted: nothing was added, or it never began."""
    if step is TransactionStep.END:
        return code == INVALID_TXN_STATE and not txn.on_coordinator
    return step in ADDS and verdict(code) is not ErrorAction.FENCED


def can_continue(state: TransactionState, step: TransactionStep | None, txn: Transaction) -> bool:
    """Whether the next epoch belongs to this producer, if the coordinator has aborted the transaction.

    It does not if the transaction may have ended before: then that epoch may be the one of a newer producer.
    """
    late_abort = (
        state is TransactionState.ABORTING and step is TransactionStep.END and txn.on_coordinator and not txn.implicit
    )
    return not txn.end_in_doubt and (state in OPEN or late_abort)


def ends_only_the_transaction(state: TransactionState, txn: Transaction, error: KafkaError) -> bool:
    """Whether the producer can abort and continue after ``error`` of a coordinator."""
    code = error.code if isinstance(error, BrokerError) else -1
    if state is TransactionState.COMMITTING and txn.end_in_doubt and code != INVALID_TXN_STATE:
        return False  # it may have been committed before this error
    missing = isinstance(error, AuthorizationFailed) and code != TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return state in {*OPEN, TransactionState.ABORTABLE_ERROR} and (missing or verdict(code) is ErrorAction.ABORTABLE)
