"""Transactional ids as their coordinator keeps them (``TransactionCoordinator``, ``TransactionMetadata``): no messages.

Both protocols, as brokers of Apache Kafka 4.3 have them: version 2 (KIP-890) bumps the epoch with every end. While a
transaction's markers are not all written nearly everything is answered with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mirror.cluster.types import TopicPartition
from tests.fakes import errors

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

FEATURE = "transaction.version"
MAX_TIMEOUT_MS = 900_000
"""``transaction.max.timeout.ms``."""
LAST_EPOCH = 32_766
"""One below the largest, which is kept for fencing."""
_RETRY_MARKERS_MS = 100

Target = TopicPartition | str
"""Where a marker goes: a partition, or a group's offsets."""


class State(enum.Enum):
    EMPTY = "nothing since InitProducerId"
    ONGOING = "something was added"
    ENDING = "markers are being written"
    ENDED = "all markers are written"


class _Refused(Exception):
    """A partition knows a later epoch than the marker's."""


class Answer(NamedTuple):
    """Error code, and the producer's id and epoch where there are any."""

    code: int
    producer_id: int = -1
    epoch: int = -1


@dataclass(slots=True)
class Transaction:
    """``targets`` are those without their marker; ``committed`` and ``bumped`` say how the last one ended.

    ``written`` are markers that are not replicated yet, as (leader epoch, offset). ``next_id`` takes over when the
    markers are written, where the epochs have run out.
    """

    producer_id: int
    timeout_ms: int
    epoch: int = -1
    last_epoch: int = -1
    previous_id: int = -1
    next_id: int = -1
    state: State = State.EMPTY
    targets: set[Target] = field(default_factory=set)
    written: dict[Target, tuple[int, int]] = field(default_factory=dict)
    number: int = 0
    begun_ms: int = -1
    committed: bool = False
    bumped: bool = False


class Transactions:
    """All transactional ids. Which broker coordinates which one is the cluster's business.

    Markers are written ``marker_ms`` of the cluster after the end, those of leaders that are down when they are up.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.ids: dict[str, Transaction] = {}
        self._cluster = cluster
        self._begun = 0

    # --- InitProducerId

    def init(self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int) -> Answer:
        """A newcomer (-1, -1) gets the next epoch; who names its own goes on, unless it was fenced (KIP-360)."""
        if not transactional_id:
            return Answer(errors.INVALID_REQUEST)
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            return Answer(errors.INVALID_TRANSACTION_TIMEOUT)
        txn = self.ids.get(transactional_id)
        if txn is None:
            txn = self.ids[transactional_id] = Transaction(self._cluster.new_producer_id(), timeout_ms)
        code = self._check_init(txn, producer_id, epoch)
        if not code and txn.state is State.ONGOING:
            self._fence(txn)
            code = errors.CONCURRENT_TRANSACTIONS
        code = code or self._next_epoch(txn, None if producer_id < 0 else epoch)
        if code:
            return Answer(code)
        txn.timeout_ms, txn.state = timeout_ms, State.EMPTY
        return Answer(0, txn.producer_id, txn.epoch)

    @staticmethod
    def _check_init(txn: Transaction, producer_id: int, epoch: int) -> int:
        if txn.state is State.ENDING:
            return errors.CONCURRENT_TRANSACTIONS
        retried = producer_id == txn.previous_id and epoch >= LAST_EPOCH
        known = producer_id in {-1, txn.producer_id} or txn.epoch == -1 or retried
        return 0 if known else errors.PRODUCER_FENCED

    def _next_epoch(self, txn: Transaction, expected: int | None) -> int:
        """Bump, or repeat the last answer, or an error code."""
        used_up = txn.epoch >= LAST_EPOCH
        before = (txn.producer_id, txn.epoch)
        if used_up and expected in {None, txn.epoch}:
            txn.producer_id, txn.epoch = self._cluster.new_producer_id(), 0
        elif used_up:
            return errors.UNKNOWN_SERVER_ERROR  # a real broker's own mistake
        elif expected in {None, txn.epoch} or txn.epoch == -1:
            txn.epoch += 1
        else:
            txn.previous_id = before[0]
            return 0 if expected == txn.last_epoch else errors.PRODUCER_FENCED
        txn.previous_id = before[0]
        txn.last_epoch = -1 if expected is None else before[1]
        return 0

    # --- what becomes part of a transaction

    def add(self, transactional_id: str, producer_id: int, epoch: int, targets: set[Target]) -> int:
        """AddPartitionsToTxn, AddOffsetsToTxn, and what Produce 12 and TxnOffsetCommit 5 do by themselves."""
        txn = self.ids.get(transactional_id)
        if txn is None:
            return errors.INVALID_PRODUCER_ID_MAPPING
        if txn.state is State.ENDING:
            return errors.CONCURRENT_TRANSACTIONS
        if txn.producer_id != producer_id:
            return errors.INVALID_PRODUCER_ID_MAPPING
        if txn.epoch != epoch:
            return errors.PRODUCER_FENCED
        if txn.state is not State.ONGOING:
            txn.state, txn.begun_ms = State.ONGOING, self._cluster.clock.unix_ms()
            self._begun += 1
            self._limit(txn, self._begun)
        txn.targets |= targets
        return 0

    def _limit(self, txn: Transaction, number: int) -> None:
        """The coordinator aborts what outlives its timeout, in a new epoch."""
        txn.number = number

        def expire() -> None:
            if txn.state is State.ONGOING and txn.number == number:
                self._fence(txn)

        self._cluster.after(txn.timeout_ms, expire)

    def verify(self, transactional_id: str, producer_id: int, epoch: int, target: Target) -> int:
        """Whether ``target`` was added, as leaders ask since 3.6 (KIP-890)."""
        txn = self.ids.get(transactional_id)
        if txn is None or txn.producer_id != producer_id:
            return errors.INVALID_PRODUCER_ID_MAPPING
        if txn.epoch != epoch:
            return errors.PRODUCER_FENCED
        if txn.state is State.ENDING:
            return errors.CONCURRENT_TRANSACTIONS
        return 0 if target in txn.targets else errors.TRANSACTION_ABORTABLE

    # --- the end

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, bump: bool) -> Answer:
        """EndTxn, with ``bump`` from version 5 on."""
        txn = self.ids.get(transactional_id)
        if txn is None:
            return Answer(errors.INVALID_PRODUCER_ID_MAPPING)
        return (
            self._end_bumping(txn, producer_id, epoch, commit) if bump else self._end(txn, producer_id, epoch, commit)
        )

    def _end(self, txn: Transaction, producer_id: int, epoch: int, commit: bool) -> Answer:
        if txn.producer_id != producer_id:
            return Answer(errors.INVALID_PRODUCER_ID_MAPPING)
        if txn.epoch != epoch:
            return Answer(errors.PRODUCER_FENCED)
        if txn.state is State.ENDING:
            return Answer(errors.CONCURRENT_TRANSACTIONS)
        if txn.state is State.ONGOING:
            self._begin_end(txn, commit=commit, bumped=False)
            return Answer(0)
        repeated = txn.state is State.ENDED and txn.committed is commit
        return Answer(0 if repeated else errors.INVALID_TXN_STATE)

    def _end_bumping(self, txn: Transaction, producer_id: int, epoch: int, commit: bool) -> Answer:
        if txn.state is State.ENDING:
            return Answer(errors.CONCURRENT_TRANSACTIONS)
        wrapped = txn.previous_id == producer_id and epoch == LAST_EPOCH and txn.epoch == 0
        if txn.producer_id != producer_id and not wrapped:
            return Answer(errors.INVALID_PRODUCER_ID_MAPPING)
        repeated = txn.state is State.ENDED and txn.bumped and (wrapped or txn.epoch == epoch + 1)
        if not repeated and txn.epoch != epoch:
            return Answer(errors.PRODUCER_FENCED)
        if repeated:
            same = txn.committed is commit
            return Answer(0, txn.producer_id, txn.epoch) if same else Answer(errors.INVALID_TXN_STATE)
        if txn.state is not State.ONGOING and commit:
            return Answer(errors.INVALID_TXN_STATE)
        self._bump_and_end(txn, commit=commit)
        return Answer(0, txn.producer_id, txn.epoch) if txn.next_id < 0 else Answer(0, txn.next_id, 0)

    def _bump_and_end(self, txn: Transaction, *, commit: bool) -> None:
        txn.next_id = self._cluster.new_producer_id() if txn.epoch >= LAST_EPOCH else -1
        txn.last_epoch, txn.epoch = txn.epoch, txn.epoch + 1
        self._begin_end(txn, commit=commit, bumped=True)

    def _fence(self, txn: Transaction) -> None:
        """Abort in an epoch that is reported to no producer, or that only this producer can request (version 2)."""
        if self._cluster.features.get(FEATURE, 0) > 1:
            self._bump_and_end(txn, commit=False)
            return
        txn.epoch, txn.last_epoch = txn.epoch + 1, -1
        self._begin_end(txn, commit=False, bumped=False)

    def _begin_end(self, txn: Transaction, *, commit: bool, bumped: bool) -> None:
        txn.state, txn.committed, txn.bumped = State.ENDING, commit, bumped
        if txn.targets and self._cluster.marker_ms:
            self._cluster.after(self._cluster.marker_ms, lambda: self._write_markers(txn))
        else:
            self._write_markers(txn)

    def _write_markers(self, txn: Transaction) -> None:
        try:
            txn.targets = {target for target in txn.targets if not self._write_marker(txn, target)}
        except _Refused:
            return  # it never ends: none of its markers is sent any more (TransactionMarkerRequestCompletionHandler)
        if txn.targets:
            self._cluster.after(_RETRY_MARKERS_MS, lambda: self._write_markers(txn))
            return
        txn.written.clear()
        txn.state = State.ENDED
        if txn.next_id >= 0:
            txn.previous_id, txn.producer_id, txn.epoch, txn.next_id = txn.producer_id, txn.next_id, 0, -1

    def _write_marker(self, txn: Transaction, target: Target) -> bool:
        """Whether it is written and replicated; a topic that is gone needs none."""
        cluster = self._cluster
        if isinstance(target, str):
            if not cluster.is_up(cluster.coordinator(target)):
                return False
            cluster.end_group_transaction(target, txn.producer_id, txn.epoch, commit=txn.committed)
            return True
        log = cluster.partition_of(cluster.topics.get(target.topic), target.partition)
        if log is None:
            return True
        if not cluster.is_up(log.leader):
            return False
        leader_epoch, offset = txn.written.get(target, (-1, -1))
        if leader_epoch != log.leader_epoch:
            cluster.expire_producers(log)
            if log.refuses_marker(txn.producer_id, txn.epoch, bumped=txn.bumped):
                raise _Refused
            now = cluster.clock.unix_ms()
            offset = log.end_transaction(txn.producer_id, commit=txn.committed, epoch=txn.epoch, unix_ms=now)
            txn.written[target] = log.leader_epoch, offset
        return log.high_watermark > offset
