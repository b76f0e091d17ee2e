"""The states of a transactional producer, and the ways between them (``TransactionManager.State``)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


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
