"""The queue of one partition: order, sequences and epochs (KIP-98, KIP-185, KIP-360)."""

from __future__ import annotations

import itertools
import operator
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.cluster.pools import Slot
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import ProducerBatch

SEQUENCES: Final = 2**31
"""Sequence numbers wrap here (``DefaultRecordBatch.incrementSequence``)."""
_EXPIRES: Final = operator.attrgetter("expires_ms")
LAST_EPOCH: Final = 2**15 - 1
_REMEMBERED_MS: Final = 3_600_000
"""After that long, count on a broker's having forgotten the producer id (its ``producer.id.expiration.ms``: a day)."""

_CHAINS: Final = 8
"""Broken chains that a partition remembers; whoever has begun so many others sends nothing into the first any more."""


class ProducerId(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition: ``waiting`` in order, first those to be retried; ``in_flight`` in order of sending.

    ``gaps`` are the batches that were given up after they got their sequences, in order, as long as nothing tells that
    they were written: their successors may be one too high. Nothing new is sent until that is resolved: either a later
    answer shows that they were written after all, or the epoch is bumped, and sequences begin again at 0. Each
    partition has an epoch of its own, since brokers keep them by partition: what happens to one is nothing to the
    others.

    ``broken`` are the chains that have lost a batch, with why: the last few of them.

    ``transaction`` counts the one that its batches in flight belong to, ``joined`` the last one in which the broker
    has acknowledged some.
    """

    tp: TopicPartition
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    identity: ProducerId | None = None
    next_sequence: int = 0
    gaps: list[ProducerBatch] = field(default_factory=list)
    failures: int = 0
    concurrent: int = 0
    not_before_ms: int = 0
    retry_epoch: int = -1
    slot: Slot | None = None
    slow: bool = False
    topic_id: uuid.UUID | None = None
    trouble: KafkaError | None = None
    last_ack_ms: int | None = None
    transaction: int = 0
    joined: int = 0
    broken: dict[int, KafkaError] = field(default_factory=dict)
    _known: bool = False

    @property
    def gap(self) -> ProducerBatch | None:
        """The last of ``gaps``."""
        return self.gaps[-1] if self.gaps else None

    def oldest_untold(self) -> ProducerBatch | None:
        """The first to expire of those whose callers wait. Nothing told is among ``waiting``, which is in order."""
        untold = [batch for batch in self.in_flight if not batch.told]
        return min((*untold, *itertools.islice(self.waiting, 1)), key=_EXPIRES, default=None)

    def broken_by(self, batch: ProducerBatch) -> KafkaError | None:
        """What its chain has lost; None while that is whole, and where it is of none."""
        return None if batch.chain is None else self.broken.get(batch.chain)

    def break_chain(self, chain: int, error: KafkaError) -> None:
        """A batch of ``chain`` was lost, to ``error``."""
        self.broken[chain] = error
        if len(self.broken) > _CHAINS:
            del self.broken[next(iter(self.broken))]

    # --- what may go

    @property
    def proven(self) -> bool:
        """Whether anything of it was acknowledged, ever."""
        return self.last_ack_ms is not None

    def ready_in_ms(self, linger_ms: int, flushed_ms: int, now: int) -> int:
        """Milliseconds until the first waiting batch has lingered; 0 where it goes as soon as it can."""
        first = self.waiting[0]
        if first.complete or first.attempts or len(self.waiting) > 1 or first.created_ms <= flushed_ms:
            return 0
        return max(0, first.created_ms + linger_ms - now)

    def sendable(self, max_in_flight: int, now: int) -> bool:
        """Whether the first waiting batch may go now, as far as order is concerned.

        A retried batch goes alone: what was sent behind it comes back as out of order and follows it, and what is sent
        behind it from now on could make the broker, which remembers five, forget that it was written. So does the first
        that a broker gets from a producer id: it would take its successor without it.
        """
        if not self.waiting:
            return False
        if not self.in_flight:
            return True
        # Of those in flight only the first can be a retried one, since it went alone.
        retried = self.waiting[0].attempts > 0 or self.in_flight[0].attempts > 1
        return len(self.in_flight) < max_in_flight and not self.gaps and not retried and self._remembered(now)

    def _remembered(self, now: int) -> bool:
        return self._known and self.last_ack_ms is not None and now - self.last_ack_ms < _REMEMBERED_MS

    @property
    def is_joining(self) -> bool:
        """Whether its first batch in this transaction is under way: its leader verifies, or adds, the partition."""
        return bool(self.in_flight) and self.joined != self.transaction

    def will_join(self, transaction: int) -> bool:
        """Whether it has a batch that is sent, or about to be, and none acknowledged in ``transaction`` so far."""
        if self.joined == transaction:
            return False
        return bool(self.in_flight) or (bool(self.waiting) and self.waiting[0].complete)

    @property
    def must_restart(self) -> bool:
        """Whether the first waiting batch cannot go under the sequences so far.

        A batch in doubt keeps its sequence, and is sent with it until it is answered for or expires: an attempt that
        was never answered may still reach the broker, and under another sequence it would be written twice. What
        comes behind one that is not in doubt cannot have been written, either.
        """
        return self.gap is not None and not self.in_flight and not (self.waiting and self.waiting[0].in_doubt)

    @property
    def exhausted(self) -> bool:
        """Whether there is no next epoch: another producer id is needed."""
        return self.identity is not None and self.identity.epoch >= LAST_EPOCH

    def lives_in(self, topic_id: uuid.UUID | None) -> None:
        """The topic's id, as last told: another one means an empty log, which knows nothing of this producer."""
        if topic_id is None or topic_id is self.topic_id or self.in_flight:
            return
        if self.topic_id is not None and topic_id != self.topic_id:
            self._known = False
        self.topic_id = topic_id

    def restart(self, identity: ProducerId) -> None:
        """Go on under ``identity``, with sequences from 0; only while nothing is in flight."""
        if self.identity is not None and identity.producer_id != self.identity.producer_id:
            self._known = False
        self.identity, self.next_sequence, self.gaps = identity, 0, []
        for batch in self.waiting:
            batch.sequence = None

    def bump(self) -> None:
        """The next epoch of the same producer id; brokers take what a merely idempotent producer says (KIP-360)."""
        assert self.identity is not None  # noqa: S101 - something has been sent under it
        self.restart(ProducerId(self.identity.producer_id, self.identity.epoch + 1))

    def drain(self, slot: Slot, now: int, *, transactional: bool) -> ProducerBatch:
        """Take the first waiting batch, sealed and stamped with its sequence, to be sent on ``slot``."""
        assert self.identity is not None  # noqa: S101 - asked for before anything is drained
        self.slot = slot
        batch = self.waiting.popleft()
        made = batch.seal()
        if batch.sequence is None:
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + made.count) % SEQUENCES
            made.patch(*self.identity, batch.sequence, transactional=transactional)
        batch.sent(now)
        self.in_flight.append(batch)
        return batch

    # --- what came back

    def acknowledged(self, batch: ProducerBatch, now: int) -> None:
        """``batch`` is in the log, and with it everything that came before."""
        self.in_flight.remove(batch)
        self.failures = self.concurrent = self.not_before_ms = 0
        self.last_ack_ms, self._known, self.slow = now, True, False
        self.joined = self.transaction
        self.gaps = [gap for gap in self.gaps if before(batch, gap)]

    def requeue(self, batch: ProducerBatch) -> None:
        """Back to wait, in the order of first sending: before every batch that was sent after it."""
        self.in_flight.remove(batch)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        behind = 0
        for other in self.waiting:
            if other.sequence is None or not before(other, batch):
                break
            behind += 1
        self.waiting.insert(behind, batch)

    def given_up(self, batch: ProducerBatch) -> None:
        """``batch`` will not be sent again."""
        if batch.sequence is not None and batch not in self.gaps:
            self.gaps.insert(sum(before(gap, batch) for gap in self.gaps), batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of this partition is still to be acknowledged."""
        return not any(b.sequence is not None and before(b, batch) for b in (*self.in_flight, *self.waiting))

    def expects_out_of_order(self, batch: ProducerBatch) -> bool:
        """Whether "out of order" is no news of ``batch``: one before it has not been written, so far or at all."""
        return any(before(gap, batch) for gap in self.gaps) or not self.is_first(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], *, transactional: bool) -> None:
        """``batch``, in flight, was cut into ``parts``, which go instead of it, under its sequences."""
        assert batch.sequence is not None and self.identity is not None  # noqa: S101, PT018 - it was sent
        self.in_flight.remove(batch)
        sequence = batch.sequence
        for part in parts:
            part.sequence = sequence
            made = part.seal()
            made.patch(*self.identity, sequence, transactional=transactional)
            sequence = (sequence + made.count) % SEQUENCES
            self._insert(part)


def before(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether ``one`` was sequenced before ``other``, across the wrap."""
    assert one.sequence is not None  # noqa: S101 - callers compare drained batches only
    assert other.sequence is not None  # noqa: S101 - as above
    distance = (other.sequence - one.sequence) % SEQUENCES
    return 0 < distance < SEQUENCES // 2
