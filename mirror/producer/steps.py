"""What a transaction consists of, and what comes next in it: a table and a function, nothing else."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.topics import TopicPartition
from mirror.producer.events import AddOffsetsEvent
from mirror.producer.transitions import State

OPEN: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})


class Step(enum.Enum):
    """What comes next: one request to a coordinator, or none."""

    INIT = "fencing older producers"
    RENEW = "getting a new epoch"
    ADD_PARTITIONS = "adding partitions to the transaction"
    ADD_OFFSETS = "adding a group to the transaction"
    COMMIT_OFFSETS = "committing offsets in the transaction"
    END = "ending the transaction"
    NEW_EPOCH = "aborting the transaction by a new epoch"
    NOTHING = "no coordinator has heard of the transaction: there is nothing to end"


@dataclass(slots=True)
class Transaction:
    """What is known of the one under way.

    ``asked`` are the partitions that the coordinator was asked to add, and has not answered for, ``asked_group`` a
    group; ``on_coordinator``: it has the transaction, or (version 2) may have it; ``in_doubt``: a Produce or
    TxnOffsetCommit was never answered, and may still come to be.
    """

    implicit: bool = False
    wanted: set[TopicPartition] = field(default_factory=set)
    asked: set[TopicPartition] = field(default_factory=set)
    added: set[TopicPartition] = field(default_factory=set)
    asked_group: str | None = None
    groups: set[str] = field(default_factory=set)
    offsets: deque[AddOffsetsEvent] = field(default_factory=deque)
    on_coordinator: bool = False
    in_doubt: bool = False
    began_ms: int | None = None


def next_step(state: State, txn: Transaction, *, renew: bool, unfinished: bool) -> Step | None:
    """What to ask next; None where there is nothing (yet).

    ``renew``: the last transaction left something unanswered, which must not find its epoch again; ``unfinished``: some
    batches are not acknowledged yet.
    """
    if state is State.INITIALIZING:
        return Step.INIT
    if state is State.ABORTING:
        return _to_abort(txn)
    if renew and state in {State.READY, *OPEN}:
        return Step.RENEW
    return _to_commit(state, txn, unfinished=unfinished) if state in OPEN else None


def _to_commit(state: State, txn: Transaction, *, unfinished: bool) -> Step | None:
    if txn.wanted or txn.asked:
        return Step.ADD_PARTITIONS
    if txn.offsets:
        known = txn.implicit or txn.offsets[0].group in txn.groups
        return Step.COMMIT_OFFSETS if known else Step.ADD_OFFSETS
    if state is State.IN_TRANSACTION or unfinished:
        return None
    return Step.END if txn.on_coordinator else Step.NOTHING


def _to_abort(txn: Transaction) -> Step:
    # Whether the coordinator has the transaction must be known, to know how to end it.
    if txn.asked:
        return Step.ADD_PARTITIONS
    if txn.asked_group is not None:
        return Step.ADD_OFFSETS
    if not txn.on_coordinator:
        return Step.NOTHING
    return Step.NEW_EPOCH if txn.in_doubt and not txn.implicit else Step.END
