"""Finds what a copy's own producers appended by sequence to a target partition, up to a fence's marker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import NO_TOTALS, ProgressTotals
from mirror.wire.records import AnyBatch, Batch, is_commit_marker


class LastAppend(NamedTuple):
    """The last batch that was appended."""

    end: int
    """The target offset after it."""
    producer_id: int
    batch: tuple[int, int]
    """Its producer epoch and base sequence."""


class SeenBatch(NamedTuple):
    """What is kept of a batch: its bytes belong to a response, whose memory would be kept with them."""

    base_offset: int
    next_offset: int
    append: LastAppend
    records: int
    size: int
    has_log_append_time: bool

    @classmethod
    def of(cls, batch: Batch) -> SeenBatch:
        """Return what is kept of ``batch``."""
        append = LastAppend(batch.next_offset, batch.producer_id, (batch.producer_epoch, batch.base_sequence))
        return cls(batch.base_offset, batch.next_offset, append, batch.count, batch.size, batch.has_log_append_time)


class OwnAppends:
    """Takes the batches of the log from ``start`` on, and keeps offsets and counts of them only.

    Batches of transactions do not count. Each transaction commits the progress behind its data, so a claim by
    sequences covers all that was committed before it; and the mark of such a claim may be before the last of them,
    since a transaction commits its mark before its data has offsets.
    """

    def __init__(self, start: int, producer_ids: Collection[int], fence: ProducerId) -> None:
        """``start`` is an offset of the target; ``fence`` is the (producer id, epoch) of the marker to find."""
        self.start: Final = start
        self._producer_ids: Final = {*producer_ids, fence.producer_id}
        self._fence: Final = fence
        self.first: int | None = None
        """The base offset of the first own batch; None if there is none."""
        self.last: LastAppend | None = None
        """The last own batch; None if there is none."""
        self.totals = NO_TOTALS
        """What was found; bytes as in the log."""
        self.has_append_time = False
        """Whether the broker set the timestamps of one of the batches."""
        self.end: int | None = None
        """The offset after the fence's marker; None until it is found."""
        self.leader_epoch: int | None = None
        """The leader epoch of the target in which the marker was appended."""

    def add(self, batches: Iterable[AnyBatch]) -> bool:
        """Take the next batches of the log; return whether the fence's marker was among them. Raises CorruptBatch."""
        for batch in batches:
            if not isinstance(batch, Batch) or batch.next_offset <= self.start:
                continue
            if batch.is_control:
                if self._is_fence(batch):
                    return self._on_fence(batch)
            elif self._counts(batch):
                self._count(SeenBatch.of(batch))
        return False

    def _on_fence(self, marker: Batch) -> bool:
        self.end = marker.next_offset
        self.leader_epoch = marker.leader_epoch if marker.leader_epoch >= 0 else None
        return True

    def _is_fence(self, marker: Batch) -> bool:
        of_fence = (marker.producer_id, marker.producer_epoch) == self._fence
        return of_fence and is_commit_marker(marker)

    def _counts(self, batch: Batch) -> bool:
        """Whether it was appended by sequence; compaction may have removed the records of a batch."""
        return batch.producer_id in self._producer_ids and not batch.is_transactional and batch.count > 0

    def _count(self, batch: SeenBatch) -> None:
        if self.first is None or batch.base_offset < self.first:
            self.first = batch.base_offset
        if self.last is None or batch.next_offset > self.last.end:
            self.last = batch.append
        records, batches, size = self.totals
        self.totals = ProgressTotals(records + batch.records, batches + 1, size + batch.size)
        self.has_append_time = self.has_append_time or batch.has_log_append_time

    def own(self, batches: Iterable[AnyBatch]) -> Iterable[Batch]:
        """Yield those of ``batches`` that are counted in :attr:`totals`, once the marker was found."""
        for batch in batches:
            if not isinstance(batch, Batch) or batch.is_control or not self._counts(batch):
                continue
            if batch.next_offset > self.start and self.end is not None and batch.next_offset <= self.end:
                yield batch
