"""A batch on its way, and the queue of its partition: sequences, order, retries (KIP-98, KIP-185)."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.cluster.topics import TopicPartition
from mirror.errors import KafkaError
from mirror.wire.records import Batch

SEQUENCES: Final = 2**31
"""Sequence numbers wrap here (``DefaultRecordBatch.incrementSequence``)."""


class RecordMetadata(NamedTuple):
    """Where a batch landed; ``base_offset`` is -1 where the broker only says that it had it already."""

    tp: TopicPartition
    base_offset: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """One batch from ``send_batch`` to its answer. ``sequence`` is assigned when it is first drained, and kept."""

    tp: TopicPartition
    batch: Batch
    created_ms: int
    future: Future[RecordMetadata] = field(default_factory=Future)
    sequence: int | None = None
    attempts: int = 0
    last_error: KafkaError | None = None

    @property
    def may_have_been_written(self) -> bool:
        """Whether it was handed to a connection that stood: from there on only an answer tells."""
        return self.attempts > 0

    def fail(self, error: KafkaError) -> None:
        """Tell the caller, unless it has been told."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition: ``waiting`` in order, first those to be retried; ``in_flight`` in order of sending.

    ``broken`` is why nothing of this partition can be sent any more: after a batch that has a sequence was given up,
    its successors would be a gap.
    """

    tp: TopicPartition
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int = 0
    failures: int = 0
    not_before_ms: int = 0
    retry_epoch: int = -1
    node: int | None = None
    trouble: KafkaError | None = None
    broken: KafkaError | None = None

    def sendable(self, max_in_flight: int) -> bool:
        """Whether the first waiting batch may go now, as far as order is concerned.

        A retried batch goes alone: what was sent behind it comes back as out of order and follows it.
        """
        if not self.waiting or len(self.in_flight) >= max_in_flight:
            return False
        return not (self.waiting[0].attempts and self.in_flight)

    def drain(self, node: int, producer_id: int, producer_epoch: int) -> ProducerBatch:
        """Take the first waiting batch, stamped with its sequence, to be sent to ``node``."""
        self.node = node
        batch = self.waiting.popleft()
        if batch.sequence is None:
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.batch.count) % SEQUENCES
            batch.batch.patch(producer_id, producer_epoch, batch.sequence)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def requeue(self, batch: ProducerBatch) -> None:
        """Back to wait, in the order of first sending: before every batch that was sent after it."""
        self.in_flight.remove(batch)
        behind = 0
        for other in self.waiting:
            if other.sequence is None or not _before(other, batch):
                break
            behind += 1
        self.waiting.insert(behind, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of this partition is unresolved."""
        earlier = [b for b in (*self.in_flight, *self.waiting) if b.sequence is not None and _before(b, batch)]
        return not earlier


def _before(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether ``one`` was sequenced before ``other``, across the wrap."""
    assert one.sequence is not None  # noqa: S101 - callers compare drained batches only
    assert other.sequence is not None  # noqa: S101 - as above
    distance = (other.sequence - one.sequence) % SEQUENCES
    return 0 < distance < SEQUENCES // 2
