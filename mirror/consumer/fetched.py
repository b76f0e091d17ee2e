"""What a fetch brought, as views into the answer's own bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mirror.cluster.topics import TopicPartition
from mirror.errors import KafkaError
from mirror.wire.decode import Record, records_of
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import Batch


@dataclass(slots=True, kw_only=True)
class Fetched:
    """Batches of one partition in order, or the ``error`` that stopped it (it is not fetched again until a seek).

    ``offset`` is where the fetch began (it may lie inside the first batch), ``next_offset`` where the next one will.
    The views keep the whole answer's memory alive.
    """

    tp: TopicPartition
    offset: int
    next_offset: int
    batches: list[Batch] = field(default_factory=list)
    size: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()
    error: KafkaError | None = None

    def records(self) -> Iterator[Record]:
        """The records, decoded: from ``offset`` on, without markers and aborted transactions.

        Raises CorruptBatch, or ``error`` where there is one.
        """
        if self.error is not None:
            raise self.error
        for batch, aborted in without_aborted(self.batches, self.aborted):
            if not aborted:
                yield from (record for record in records_of(batch) if record.offset >= self.offset)


def without_aborted(batches: Sequence[Batch], aborted: Sequence[AbortedTransaction]) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether it belongs to an aborted transaction (``CompletedFetch.containsAbortMarker``).

    ``aborted`` is the answer's own list. A producer's transaction is void from its first offset to its next marker;
    which marker need not be read: had it been a commit, the transaction would not be listed.
    """
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    void: set[int] = set()
    for batch in batches:
        while upcoming and upcoming[-1].first_offset < batch.next_offset:
            void.add(upcoming.pop().producer_id)
        yield batch, batch.is_transactional and not batch.is_control and batch.producer_id in void
        if batch.is_control:
            void.discard(batch.producer_id)
