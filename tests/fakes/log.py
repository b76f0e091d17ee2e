"""One partition's log: bytes, leader, producer states, transactions (``UnifiedLog``, ``ProducerStateManager``)."""

from __future__ import annotations

import bisect
import copy
from collections import deque
from dataclasses import dataclass, field

from mirror.errors import CorruptBatch
from mirror.wire.records import Batch
from tests.fakes import errors
from tests.fakes.record_batches import (
    ABORT,
    COMMIT,
    MADE_MS,
    appended_at,
    batches_in,
    build,
    build_marker,
    crc32c,
    stamped,
)

_CACHED_BATCHES = 5
"""``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``."""
_SEQUENCES = 2**31


@dataclass(slots=True)
class ProducerState:
    """What the broker remembers of one producer id: ``recent`` as (first sequence, last sequence, base offset)."""

    epoch: int
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_CACHED_BATCHES))
    last_ms: int = -1
    """The newest timestamp of its last batch, or the time of its marker: its expiry counts from there."""
    written_ms: int = 0
    """When its last batch or marker was written."""


@dataclass(slots=True)
class Aborted:
    """One aborted transaction's span, its marker included."""

    producer_id: int
    first_offset: int
    last_offset: int


def lone_batch(data: bytes) -> Batch | None:
    """The one batch that ``data`` is, if it is one."""
    try:
        batches = batches_in(data)
    except CorruptBatch:
        return None
    return batches[0] if len(batches) == 1 and batches[0].size == len(data) else None


@dataclass(slots=True)
class PartitionLog:
    """``data`` is what a fetch reads; offsets of its batches are in ``index`` as (base, next, position)."""

    leader: int
    leader_epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    data: bytearray = field(default_factory=bytearray)
    index: list[tuple[int, int, int]] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    open_transactions: dict[int, int] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)
    verifying: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id -> (epoch, lowest sequence) of what asks to begin a transaction here."""
    preferred_replica: int | None = None
    reports_start: bool = False
    """Whether a refusal says where the log begins, as the protocol has it; Apache Kafka's brokers answer -1."""
    replicated_to: int | None = None
    """The offset before which the in-sync followers have everything; None: they have all of it at once."""
    epoch_start: int = 0
    """The log's end when ``leader_epoch`` began."""
    unread_bytes: int = 0
    """What it takes besides ``data``: of records that no test reads."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """(First offset, marker's offset) of the transactions that have ended."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data) + self.unread_bytes

    @property
    def high_watermark(self) -> int:
        return self.end_offset if self.replicated_to is None else min(self.replicated_to, self.end_offset)

    @property
    def last_stable_offset(self) -> int:
        """Also a transaction that has ended is unstable until its marker is replicated (``firstUnstableOffset``)."""
        high = self.high_watermark
        unreplicated = [first for first, marker in self.ended if marker >= high]
        return min([*self.open_transactions.values(), *unreplicated, high])

    def batches(self) -> list[Batch]:
        return batches_in(self.data)

    # --- writing

    def is_outdated(self, one: Batch) -> bool:
        """Whether a newer epoch of its producer has been here, if only in a marker."""
        state = self.producers.get(one.producer_id)
        return state is not None and one.producer_epoch < state.epoch

    def has_open(self, one: Batch) -> bool:
        """Whether it goes on with a transaction that is open here."""
        state = self.producers.get(one.producer_id)
        return one.producer_id in self.open_transactions and state is not None and state.epoch == one.producer_epoch

    def begin_verification(self, one: Batch) -> None:
        """From now on nothing above the lowest sequence seen may come first (``VerificationStateEntry``)."""
        epoch, lowest = self.verifying.get(one.producer_id, (-1, -1))
        if one.producer_epoch > epoch or (one.producer_epoch == epoch and one.base_sequence < lowest):
            self.verifying[one.producer_id] = (one.producer_epoch, one.base_sequence)

    def produce(
        self, data: bytes, *, from_zero: bool = False, unix_ms: int = 0, append_time: bool = False
    ) -> tuple[int, int]:
        """(error code, base offset) of what a producer sent at ``unix_ms``.

        ``from_zero``: a transactional producer that is not known here must begin with sequence 0 (KIP-890).
        ``append_time``: the topic has LogAppendTime.
        """
        try:
            batches = batches_in(data)
        except CorruptBatch:
            return errors.CORRUPT_MESSAGE, -1
        if len(batches) != 1 or batches[0].size != len(data):
            return errors.INVALID_RECORD, -1
        one = batches[0]
        code, known_offset = self._validate(one), -1
        if not code and one.producer_id >= 0:
            code, known_offset = self._check_producer(one, from_zero=from_zero and one.is_transactional)
        if code or known_offset >= 0:
            return code, known_offset
        return 0, self._keep(Batch(memoryview(appended_at(one.view, unix_ms))) if append_time else one, unix_ms)

    @staticmethod
    def _validate(one: Batch) -> int:
        """What ``LogValidator`` refuses."""
        if crc32c(bytes(one.view[21:])) != one.crc:
            return errors.CORRUPT_MESSAGE
        if one.is_control or one.base_offset or one.last_offset_delta != one.count - 1:
            return errors.INVALID_RECORD
        return errors.INVALID_TIMESTAMP if one.has_log_append_time else 0

    def _check_producer(self, one: Batch, *, from_zero: bool) -> tuple[int, int]:
        """(error code, offset of a duplicate or -1). ``ProducerAppendInfo.checkSequence`` of Apache Kafka 4.

        A producer id that the partition does not know may begin with any sequence; a duplicate that is no longer
        among the last five is out of order (45), too: current brokers do not answer 46 themselves.
        """
        if self.is_outdated(one):
            return errors.INVALID_PRODUCER_EPOCH, -1
        state = self.producers.get(one.producer_id)
        recent = list(state.recent) if state is not None and state.epoch == one.producer_epoch else []
        last = (one.base_sequence + one.count - 1) % _SEQUENCES
        for first_seen, last_seen, offset in recent:
            if (first_seen, last_seen) == (one.base_sequence, last):
                return 0, offset
        follows = (recent[-1][1] + 1) % _SEQUENCES if recent else 0
        _, lowest = self.verifying.get(one.producer_id, (-1, _SEQUENCES))
        if one.base_sequence > lowest or ((state is not None or from_zero) and one.base_sequence != follows):
            return errors.OUT_OF_ORDER_SEQUENCE, -1
        mixed = one.producer_id in self.open_transactions and not one.is_transactional
        return errors.INVALID_TXN_STATE if mixed else 0, -1

    def _keep(self, one: Batch, unix_ms: int = 0) -> int:
        offset = self.end_offset
        if one.producer_id >= 0:
            self._remember(one, offset, unix_ms)
            self.verifying.pop(one.producer_id, None)
        self._write(stamped(one.view, offset, self.leader_epoch), offset + one.last_offset_delta + 1)
        return offset

    def _remember(self, one: Batch, offset: int, unix_ms: int) -> None:
        state = self.producers.get(one.producer_id)
        if state is None or state.epoch != one.producer_epoch:
            state = self.producers[one.producer_id] = ProducerState(one.producer_epoch)
        last = (one.base_sequence + one.count - 1) % _SEQUENCES
        state.recent.append((one.base_sequence, last, offset))
        state.last_ms, state.written_ms = one.max_timestamp, unix_ms
        if one.is_transactional:
            self.open_transactions.setdefault(one.producer_id, offset)

    def _remember_marker(self, producer_id: int, epoch: int, unix_ms: int) -> None:
        """``ProducerStateEntry.update``: in the same epoch, the sequences stay."""
        state = self.producers.get(producer_id)
        if state is None or state.epoch < epoch:
            state = self.producers[producer_id] = ProducerState(epoch)
        state.last_ms = state.written_ms = unix_ms

    def _write(self, kept: bytes | bytearray, next_offset: int) -> None:
        self.index.append((self.end_offset, next_offset, len(self.data)))
        self.data += kept
        self.end_offset = next_offset

    def append(self, data: bytes | bytearray) -> int:
        """The test's own way in: whatever batch it likes, gaps and all; its base offset."""
        view = memoryview(bytearray(data))
        return self._keep(Batch(view))

    def append_values(self, *values: bytes, attributes: int = 0, producer_id: int = -1, epoch: int = 0) -> int:
        """One batch of records; its base offset. With a ``producer_id`` it carries no meaningful sequence."""
        data = build(
            values,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
        )
        return self.append(data)

    def refuses_marker(self, producer_id: int, epoch: int, *, bumped: bool) -> bool:
        """Whether a marker comes too late for its epoch (``ProducerAppendInfo.checkProducerEpoch``).

        ``bumped``: it ends a transaction of version 2, in the epoch after the transaction's. Then it may repeat the
        epoch that is known only if no transaction is open in that epoch.
        """
        state = self.producers.get(producer_id)
        if state is None or epoch > state.epoch:
            return False
        return epoch < state.epoch or (bumped and producer_id in self.open_transactions)

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0, unix_ms: int = MADE_MS) -> int:
        """Write the marker; its offset. Its epoch shuts out what is older."""
        offset = self.end_offset
        self._remember_marker(producer_id, epoch, unix_ms)
        self.verifying.pop(producer_id, None)
        first = self.open_transactions.pop(producer_id, None)
        kind = COMMIT if commit else ABORT
        marker = build_marker(producer_id, epoch, kind, base_offset=offset, timestamp=unix_ms)
        self._write(stamped(marker, offset, self.leader_epoch), offset + 1)
        self.ended = [one for one in self.ended if one[1] >= self.high_watermark]
        if first is not None:
            self.ended.append((first, offset))
        if first is not None and not commit:
            self.aborted.append(Aborted(producer_id, first, offset))
        return offset

    def expire_producers(self, checked_ms: int, expiration_ms: int) -> None:
        """Forget those that the last check, at ``checked_ms``, found too old (``isProducerExpired``)."""
        for producer_id, state in list(self.producers.items()):
            known = state.written_ms <= checked_ms and producer_id not in self.open_transactions
            if known and checked_ms - state.last_ms >= expiration_ms:
                del self.producers[producer_id]

    def delete_before(self, offset: int) -> None:
        """Retention: whole batches go."""
        self.start_offset = offset

    def truncate(self, offset: int, *, new_replica: bool = False) -> None:
        """Whole batches at the end go, as after an unclean election; producers are known by what is left.

        That is what a follower knows that has replicated everything up to ``offset``; a ``new_replica`` has seen only
        what retention had left when it began.
        """
        while self.index and self.index[-1][0] >= offset:
            del self.data[self.index.pop()[2] :]
        self.end_offset = self.index[-1][1] if self.index else self.start_offset
        self.start_offset = min(self.start_offset, self.end_offset)  # a replica's log never ends before its start
        self.epoch_start = min(self.epoch_start, self.end_offset)
        if self.replicated_to is not None:
            self.replicated_to = min(self.replicated_to, self.end_offset)
        self._reload_producers(self.start_offset if new_replica else 0)

    def follower(self) -> PartitionLog:
        """The log as the in-sync followers have it."""
        if self.high_watermark == self.end_offset:
            return self
        known = copy.deepcopy(self)
        known.truncate(self.high_watermark)
        known.producers = {each: state for each, state in known.producers.items() if each in self.producers}
        return known

    def _reload_producers(self, start: int) -> None:
        """From the log itself (``UnifiedLog.rebuildProducerState``, ``TransactionIndex.truncateTo``)."""
        for state in (self.producers, self.open_transactions, self.verifying):
            state.clear()
        self.aborted = [one for one in self.aborted if one.last_offset < self.end_offset]
        self.ended = [one for one in self.ended if one[1] < self.end_offset]
        for one in self.batches():
            if one.producer_id < 0 or one.next_offset <= start:
                continue
            if one.is_control:
                self._remember_marker(one.producer_id, one.producer_epoch, one.max_timestamp)
                self.open_transactions.pop(one.producer_id, None)
            else:
                self._remember(one, one.base_offset, 0)

    def move(self, node: int, *, epochs: int = 1) -> None:
        """Another leader (or the same one elected again), in a new epoch."""
        self.leader = node
        self.leader_epoch += epochs
        self.epoch_start = self.end_offset

    # --- reading

    def read(self, offset: int, max_bytes: int, *, committed: bool, whole_first: bool) -> tuple[bytes, int]:
        """(bytes, offset after the last whole batch) from the one that holds ``offset``; the end may be cut."""
        limit = self.last_stable_offset if committed else self.high_watermark
        first = bisect.bisect_right(self.index, offset, key=lambda entry: entry[1])
        after = bisect.bisect_left(self.index, limit, key=lambda entry: entry[0])
        if first >= after:
            return b"", offset
        start = self.index[first][2]
        size = min(self._position(after) - start, max_bytes)
        if whole_first:
            size = max(size, self._position(first + 1) - start)
        whole = [n for n in range(first, after) if self._position(n + 1) <= start + size]
        if not whole:
            return b"", offset  # not even a piece of the first one (ReplicaManager)
        return bytes(self.data[start : start + size]), self.index[whole[-1]][1]

    def _position(self, batch: int) -> int:
        return self.index[batch][2] if batch < len(self.index) else len(self.data)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above ``epoch`` (``LeaderEpochFileCache.endOffsetFor``)."""
        if epoch > self.leader_epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.end_offset
        begun = {self.leader_epoch: self.epoch_start}
        for one in reversed(self.batches()):
            if one.leader_epoch < self.leader_epoch:
                begun[one.leader_epoch] = one.base_offset
        floor = max((known for known in begun if known <= epoch), default=epoch)
        return floor, max(self.start_offset, begun[min(known for known in begun if known > epoch)])

    def aborted_between(self, offset: int, upper: int) -> list[Aborted]:
        """As the transaction index tells them: those that reach into [offset, upper)."""
        return [one for one in self.aborted if one.last_offset >= offset and one.first_offset < upper]
