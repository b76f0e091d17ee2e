"""The states of a transactional producer, and the ways between them (``TransactionManager.State``)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
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


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    # Until its end is asked for, it can still be aborted. From then on only the answer tells: it may have happened.
    State.COMMITTING: frozenset({State.READY, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.FATAL_ERROR}),
    State.ABORTING: frozenset({State.READY, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}
"""Whatever is not here is a bug of ours, or a call that the state does not allow."""


def may_go(current: State, following: State) -> bool:
    """Whether ``following`` may come after ``current``."""
    return following in TRANSITIONS[current]
