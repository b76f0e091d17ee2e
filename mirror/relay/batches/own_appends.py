"""Finds what a copy's own producers have appended to a target partition, up to a fence's marker. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import NO_TOTALS, ProgressTotals
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.records import AnyBatch, Batch, is_commit_marker


class Committed(enum.Enum):
    """Which of the copy's transactions behind the start of a search are not in the progress."""

    ALL = enum.auto()
    ALL_BUT_FIRST = enum.auto()
    """The first one has stored the progress, and its mark before its data had offsets."""
    UNKNOWN = enum.auto()
    """Then none counts."""


def committed_behind(mark: TargetMark) -> Committed:
    """Return which transactions behind the exact end of the progress's ``mark`` count."""
    if mark.is_exact:
        return Committed.ALL
    return Committed.UNKNOWN if mark.since is None else Committed.ALL_BUT_FIRST


class LastAppend(NamedTuple):
    """The last batch that was appended."""

    end: int
    """The target offset after it."""
    producer_id: int
    batch: tuple[int, int] | None
    """Its producer epoch and base sequence; None in a transaction."""


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
        sequence = None if batch.is_transactional else (batch.producer_epoch, batch.base_sequence)
        append = LastAppend(batch.next_offset, batch.producer_id, sequence)
        return cls(batch.base_offset, batch.next_offset, append, batch.count, batch.size, batch.has_log_append_time)


# Invariant: Only plain batches of the copy's producer ids in front of the fence's marker and those of committed
#   transactions are what the copy has appended: the log says it, nothing else.
# Test: tests/relay/batches/test_own_appends.py::test_own_batches_are_those_of_the_copy_that_its_readers_read
# Test: tests/relay/partition/search/
#   test_position_search.py::test_transaction_that_has_stored_the_progress_is_in_front_of_it_wherever_its_data_is
class OwnAppends:
    """Takes the batches of the log from ``start`` on, and keeps offsets and counts of them only.

    Plain batches count, and those of committed transactions. A transaction commits the progress behind its data, so
    that the latter are behind the progress only if a partition of ``__consumer_offsets`` has lost its last commits.
    """

    def __init__(
        self,
        start: int,
        producer_ids: Collection[int],
        fence: ProducerId,
        committed: Committed = Committed.ALL,
        mark_end: int = 0,
    ) -> None:
        """``start`` is an offset of the target; ``fence`` is the (producer id, epoch) of the marker to find.

        ``mark_end``: a transaction that begins in front of it is in the progress, wherever the log begins.
        """
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
        self.covered_end: int | None = None
        """The offset after the data of the transaction that has stored the progress, if it is behind the start."""
        self.first_is_uncertain = False
        """Whether the first transaction counts, although it may be in the progress: one before it may be deleted."""
        self._committed = committed
        self._mark_end: Final = mark_end
        self._complete_to = start
        """Retention and compaction have removed no batch between the start and this offset."""
        self._open: Final[dict[int, list[SeenBatch]]] = {}
        self._void: Final[set[int]] = set()
        """The base offsets of batches that were aborted, that no marker ends, or that are in the progress."""

    def add(self, batches: Iterable[AnyBatch]) -> bool:
        """Take the next batches of the log; return whether the fence's marker was among them. Raises CorruptBatch."""
        for batch in batches:
            if batch.base_offset <= self._complete_to:
                self._complete_to = max(self._complete_to, batch.next_offset)
            if not isinstance(batch, Batch) or batch.next_offset <= self.start or not self._may_count(batch):
                continue
            if batch.is_control:
                self._end_transaction(batch)
                if self._is_fence(batch):
                    return self._on_fence(batch)
            elif batch.is_transactional:
                self._open.setdefault(batch.producer_id, []).append(SeenBatch.of(batch))
            else:
                self._count(SeenBatch.of(batch))
        return False

    def _may_count(self, batch: Batch) -> bool:
        """Whether the copy has appended ``batch``."""
        return batch.producer_id in self._producer_ids

    def _end_transaction(self, marker: Batch) -> None:
        """Count the batches of the transaction that ends, or not.

        If an election has removed the marker of a transaction, that of the producer's next one ends it, as in the
        broker.
        """
        ended = self._open.pop(marker.producer_id, [])
        if not ended:
            return
        if not is_commit_marker(marker) or self._committed is Committed.UNKNOWN:
            self._leave_out(ended)
        else:
            is_first = self._committed is Committed.ALL_BUT_FIRST
            self._committed = Committed.ALL
            if is_first and ended[0].base_offset < max(self._mark_end, self._complete_to + 1):
                self.covered_end = ended[-1].next_offset
                self._leave_out(ended)
                return
            self.first_is_uncertain |= is_first
            for batch in ended:
                self._count(batch)

    def _leave_out(self, batches: Iterable[SeenBatch]) -> None:
        self._void.update(batch.base_offset for batch in batches)

    def _on_fence(self, marker: Batch) -> bool:
        for batches in self._open.values():
            self._leave_out(batches)  # no reader of committed records reads what no marker ends
        self.end = marker.next_offset
        self.leader_epoch = marker.leader_epoch if marker.leader_epoch >= 0 else None
        return True

    def _is_fence(self, marker: Batch) -> bool:
        of_fence = (marker.producer_id, marker.producer_epoch) == self._fence
        return of_fence and is_commit_marker(marker)

    def _count(self, batch: SeenBatch) -> None:
        if not batch.records:
            return  # compaction has removed them
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
            if not isinstance(batch, Batch) or batch.is_control or not batch.count or not self._may_count(batch):
                continue
            in_time = batch.next_offset > self.start and self.end is not None and batch.next_offset <= self.end
            if in_time and batch.base_offset not in self._void:
                yield batch
