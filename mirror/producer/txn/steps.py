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

    __hash__ = object.__hash__  # Enum's is a Python function, and this is asked several times for each batch

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
    # Until its end is asked for, it can still be aborted. From then on only the answer tells: it may have happened.
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
"""Whatever is not here is a bug of ours, or a call that the state does not allow."""


def may_go(current: TransactionState, following: TransactionState) -> bool:
    """Whether ``following`` may come after ``current``."""
    return following in TRANSITIONS[current]


OPEN: Final = frozenset({TransactionState.IN_TRANSACTION, TransactionState.COMMITTING})

Asked = Callable[[], bool]
"""What is found out only where it matters: these questions go over all batches, and most turns ask neither."""


class TransactionStep(enum.Enum):
    """What comes next: one request to a coordinator, or none."""

    __hash__ = object.__hash__  # Enum's is a Python function, and this is asked several times for each transaction

    INIT = "fencing older producers"
    RENEW = "getting a new epoch"
    ADD_PARTITIONS = "adding partitions to the transaction"
    ADD_OFFSETS = "adding a group to the transaction"
    COMMIT_OFFSETS = "committing offsets in the transaction"
    END = "ending the transaction"
    NEW_EPOCH = "aborting the transaction by a new epoch"
    NOTHING = "no coordinator has heard of the transaction: there is nothing to end"


ADDS: Final = frozenset({TransactionStep.ADD_PARTITIONS, TransactionStep.ADD_OFFSETS})


@dataclass(slots=True)
class Transaction:
    """What is known of the one under way.

    ``asked`` are the partitions that the coordinator was asked to add, and has not answered for, ``asked_group`` a
    group; ``on_coordinator``: it has the transaction, or (version 2) may have it; ``may_be_there``: it was asked to add
    something, whatever it answered; ``in_doubt``: a Produce or TxnOffsetCommit was never answered, and may still come
    to be; ``end_in_doubt``: nor was an EndTxn, so that it may be over, and another producer may have gone on.
    """

    implicit: bool = False
    wanted: set[TopicPartition] = field(default_factory=set)
    asked: set[TopicPartition] = field(default_factory=set)
    added: set[TopicPartition] = field(default_factory=set)
    asked_group: str | None = None
    groups: set[str] = field(default_factory=set)
    offsets: deque[AddOffsetsEvent] = field(default_factory=deque)
    on_coordinator: bool = False
    may_be_there: bool = False
    in_doubt: bool = False
    end_in_doubt: bool = False
    began_ms: int | None = None

    def began(self, now: int) -> None:
        """It has its first batch or offsets; the coordinator's clock starts a little later, when it hears of it."""
        if self.began_ms is None:
            self.began_ms = now

    def open_ms(self, now: int) -> int:
        """How long it has been open."""
        return 0 if self.began_ms is None else now - self.began_ms

    def forget_asked(self) -> None:
        """The coordinator has answered, and added nothing."""
        self.asked, self.asked_group = set(), None

    def fail_offsets(self, error: MirrorError) -> None:
        """They will not be committed with it."""
        for event in self.offsets:
            event.fail(error)
        self.offsets.clear()


def next_step(
    state: TransactionState, txn: Transaction, *, renew: bool, unfinished: Asked, joining: Asked
) -> TransactionStep | None:
    """What to ask next; None where there is nothing (yet).

    ``renew``: the last transaction left something unanswered, which must not find its epoch again; ``unfinished``: some
    batches are not acknowledged yet; ``joining``: some partition has none acknowledged in this transaction.
    """
    if state is TransactionState.INITIALIZING:
        return TransactionStep.INIT
    if state is TransactionState.ABORTING:
        return _to_abort(txn)
    if renew and state in {TransactionState.READY, *OPEN}:
        return TransactionStep.RENEW
    return _to_commit(state, txn, unfinished=unfinished, joining=joining) if state in OPEN else None


def _to_commit(
    state: TransactionState, txn: Transaction, *, unfinished: Asked, joining: Asked
) -> TransactionStep | None:
    if txn.wanted or txn.asked:
        return TransactionStep.ADD_PARTITIONS
    if txn.offsets:
        if not txn.implicit and txn.offsets[0].group not in txn.groups:
            return TransactionStep.ADD_OFFSETS
        # Brokers ask the coordinator about both, and of two questions at once one is dropped.
        return None if joining() else TransactionStep.COMMIT_OFFSETS
    if state is TransactionState.IN_TRANSACTION or unfinished():
        return None
    return TransactionStep.END if txn.on_coordinator else TransactionStep.NOTHING


def _to_abort(txn: Transaction) -> TransactionStep:
    if not txn.on_coordinator:
        # Nothing was written in it. An EndTxn finds out whether there is something to end.
        return TransactionStep.END if txn.may_be_there else TransactionStep.NOTHING
    return TransactionStep.NEW_EPOCH if txn.in_doubt and not txn.implicit else TransactionStep.END


def changes_nothing(step: TransactionStep | None, txn: Transaction, code: int) -> bool:
    """Whether ``code`` is all the same to a transaction that is being aborted: nothing was added, or ever begun."""
    if step is TransactionStep.END:
        return code == INVALID_TXN_STATE and not txn.on_coordinator
    return step in ADDS and verdict(code) is not ErrorAction.FENCED


def can_go_on(state: TransactionState, step: TransactionStep | None, txn: Transaction) -> bool:
    """Whether the next epoch is nobody else's, if the transaction's coordinator has aborted it.

    Not where it may have ended before: then that epoch is the one of whoever came next.
    """
    late_abort = (
        state is TransactionState.ABORTING and step is TransactionStep.END and txn.on_coordinator and not txn.implicit
    )
    return not txn.end_in_doubt and (state in OPEN or late_abort)


def ends_only_the_transaction(state: TransactionState, txn: Transaction, error: KafkaError) -> bool:
    """Whether the producer can abort and go on after ``error``, with which a coordinator refused something."""
    code = error.code if isinstance(error, BrokerError) else -1
    if state is TransactionState.COMMITTING and txn.end_in_doubt and code != INVALID_TXN_STATE:
        return False  # it may have been committed, before whatever this is came to be
    missing = isinstance(error, AuthorizationFailed) and code != TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return state in {*OPEN, TransactionState.ABORTABLE_ERROR} and (missing or verdict(code) is ErrorAction.ABORTABLE)
