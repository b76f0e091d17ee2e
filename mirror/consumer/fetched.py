"""What a fetch brought, as views into the answer's own bytes."""

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
    """The memory of one partition's part of an answer (``runtime.pages``)."""

    @property
    def held(self) -> int:
        """Bytes of memory that it keeps, where its neighbours are released."""
        ...

    def release(self) -> None:
        """Nobody needs its bytes any more. Called once, from any thread."""
        ...


PartsOf = Callable[[Sequence[memoryview]], Sequence[FetchedPart]]
"""The parts of an answer that these views are all of, in their order; none where they need no releasing."""


@dataclass(slots=True, kw_only=True)
class Fetched:
    """Batches of one partition in order, or the ``error`` that stopped it (it is not fetched again until a seek).

    ``offset`` is where the fetch began (it may lie inside the first batch), ``next_offset`` where the next one will.
    ``batches`` are made anew from their bytes at each look (:class:`mirror.wire.records.Batches`). ``size`` is their
    bytes; ``held`` what their part of the answer takes, with a last batch that was cut off. The views keep the whole
    answer's memory alive, but for what is released of it. ``topic_id`` is the topic that they were read from, where
    brokers know ids.
    """

    tp: TopicPartition
    offset: int
    next_offset: int
    batches: Sequence[AnyBatch] = field(default_factory=list)
    size: int = 0
    held: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    topic_id: uuid.UUID | None = None
    aborted: tuple[AbortedTransaction, ...] = ()
    error: KafkaError | None = None
    part: FetchedPart | None = field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """Done with all batches: their bytes are undefined from here on, and their memory may go back to the system.

        Not before the last of them is acknowledged: until then it may have to be sent again. From any thread; to do it
        again does nothing. Other entries of the same answer stay as they are. Without it the memory of an answer goes
        as a whole, once no batch of it is left.
        """
        part, self.part = self.part, None
        if part is not None:
            part.release()

    def records(self) -> Iterator[Record]:
        """The records, decoded: from ``offset`` on, without markers and aborted transactions.

        Raises CorruptBatch, or ``error`` where there is one.
        """
        if self.error is not None:
            raise self.error
        for batch, aborted in without_aborted(self.batches, self.aborted):
            if not aborted:
                yield from (record for record in records_of(batch) if record.offset >= self.offset)


def without_aborted(
    batches: Sequence[AnyBatch], aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[AnyBatch, bool]]:
    """Each batch, and whether it belongs to an aborted transaction (``CompletedFetch.containsAbortMarker``).

    ``aborted`` is the answer's own list. A producer's transaction is void from its first offset to its next marker;
    which marker need not be read: had it been a commit, the transaction would not be listed.
    """
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    void: set[int] = set()
    for batch in batches:
        while upcoming and upcoming[-1].first_offset < batch.next_offset:
            void.add(upcoming.pop().producer_id)
        yield batch, bool(void) and batch.is_transactional and not batch.is_control and batch.producer_id in void
        if batch.is_control:
            void.discard(batch.producer_id)
