"""Fetched batches, as views into the bytes of the Fetch response."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.wire.decode import Record, records_of
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch


class FetchedPart(Protocol):
    """The memory of one partition's records in a response (``runtime.memory.buffer_recycling``)."""

    @property
    def held(self) -> int:
        """Bytes of memory that stay in use while this part is not released, though its neighbours are."""
        ...

    def release(self) -> None:
        """Allow the memory to be reused. Called once, from any thread."""
        ...


PartsOf = Callable[[Sequence[memoryview]], Sequence[FetchedPart]]
"""Maps the records of a response, in order, to their parts; empty where they need no release."""


@dataclass(slots=True, kw_only=True)
class Fetched:
    """Batches of one partition in order, or the ``error`` that stopped it (it is not fetched again until a seek).

    The views keep the memory of the whole response alive, except for parts that are released.
    """

    tp: TopicPartition
    offset: int
    """The offset of the fetch; it may be inside the first batch."""
    next_offset: int
    """The offset of the next fetch."""
    batches: Sequence[AnyBatch] = field(default_factory=list)
    """Each access parses them from their bytes (:class:`mirror.wire.records.Batches`)."""
    size: int = 0
    """Bytes of the batches."""
    held: int = 0
    """Bytes of memory of their part of the response, including a batch that ``max_bytes`` cut off."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    topic_id: uuid.UUID | None = None
    """The topic that they were read from; None on brokers without topic ids."""
    aborted: tuple[AbortedTransaction, ...] = ()
    error: KafkaError | None = None
    received_ms: int = 0
    """When the response came, by the client's clock (ms)."""
    part: FetchedPart | None = field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """Release the memory of all batches; their bytes are undefined afterwards.

        Call it once the last of them is acknowledged: until then it may have to be sent again. May be called from any
        thread, and more than once. Other entries of the same response are not affected. Without this call the memory
        of a response is freed as a whole, when no batch of it is referenced any more.
        """
        part, self.part = self.part, None
        if part is not None:
            part.release()

    def records(self) -> Iterator[Record]:
        """Decode the records from ``offset`` on, without control records and aborted transactions.

        Raises CorruptBatch, or ``error`` if it is set.
        """
        if self.error is not None:
            raise self.error
        for batch, aborted in without_aborted(self.batches, self.aborted):
            if not aborted:
                yield from (record for record in records_of(batch) if record.offset >= self.offset)


def without_aborted(
    batches: Sequence[AnyBatch], aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[AnyBatch, bool]]:
    """Yield each batch, and whether it belongs to an aborted transaction (``CompletedFetch.containsAbortMarker``).

    ``aborted`` is the list of the response. A listed transaction extends from its first offset to the producer's next
    control batch, which need not be decoded: a committed transaction would not be listed.
    """
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    for batch in batches:
        while upcoming and upcoming[-1].first_offset < batch.next_offset:
            aborted_producers.add(upcoming.pop().producer_id)
        yield (
            batch,
            bool(aborted_producers)
            and batch.is_transactional
            and not batch.is_control
            and batch.producer_id in aborted_producers,
        )
        if batch.is_control:
            aborted_producers.discard(batch.producer_id)
