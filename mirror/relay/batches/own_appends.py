"""Finds what a copy's own producers appended to a target partition, up to the marker of a fence. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import ProgressTotals
from mirror.wire.records import AnyBatch, Batch, is_commit_marker


class LastAppend(NamedTuple):
    """The last batch that was appended."""

    end: int
    """The target offset after it."""
    producer_id: int
    batch: tuple[int, int]
    """Its producer epoch and base sequence."""


@dataclass(slots=True)
class _Appended:
    """What was appended by one producer in one transaction, or by all of them outside of aborted transactions."""

    first: int
    records: int = 0
    batches: int = 0
    bytes: int = 0
    has_append_time: bool = False
    last: LastAppend | None = None

    def add(self, other: _Appended) -> None:
        self.first = min(self.first, other.first)
        self.records += other.records
        self.batches += other.batches
        self.bytes += other.bytes
        self.has_append_time = self.has_append_time or other.has_append_time
        if other.last is not None and (self.last is None or self.last.end < other.last.end):
            self.last = other.last


class OwnAppends:
    """Takes the batches of the log from ``start`` on, and keeps offsets and counts of them only.

    A fetch at read_uncommitted does not name the aborted transactions, and one at read_committed waits for the open
    transactions of other producers. So a transaction's batches count once its own marker says that it was committed.
    """

    def __init__(self, start: int, producer_ids: Collection[int], fence: ProducerId) -> None:
        """``start`` is an offset of the target; ``fence`` is the (producer id, epoch) of the marker to find."""
        self._start: Final = start
        self._producer_ids: Final = {*producer_ids, fence.producer_id}
        self._fence: Final = fence
        self._found = _Appended(-1)
        self._open: Final = dict[int, _Appended]()
        self._aborted: Final = defaultdict[int, list[tuple[int, int]]](list)
        self.end: int | None = None
        """The offset after the fence's marker; None until it is found."""
        self.leader_epoch: int | None = None
        """The leader epoch of the target in which the marker was appended."""

    def add(self, batches: Iterable[AnyBatch]) -> bool:
        """Take the next batches of the log; return whether the fence's marker was among them. Raises CorruptBatch."""
        for batch in batches:
            if not isinstance(batch, Batch) or batch.next_offset <= self._start:
                continue
            if batch.producer_id not in self._producer_ids:
                continue
            if not batch.is_control:
                self._on_batch(batch)
            elif self._on_marker(batch):
                return True
        return False

    def _on_batch(self, batch: Batch) -> None:
        if not batch.count:  # compaction has removed its records
            return
        last = LastAppend(batch.next_offset, batch.producer_id, (batch.producer_epoch, batch.base_sequence))
        appended = _Appended(batch.base_offset, batch.count, 1, batch.size, batch.has_log_append_time, last)
        if not batch.is_transactional:
            self._count(appended)
        elif batch.producer_id in self._open:
            self._open[batch.producer_id].add(appended)
        else:
            self._open[batch.producer_id] = appended

    def _on_marker(self, marker: Batch) -> bool:
        committed = is_commit_marker(marker)
        ended = self._open.pop(marker.producer_id, None)
        if ended is not None and committed:
            self._count(ended)
        elif ended is not None:
            self._aborted[marker.producer_id].append((ended.first, marker.base_offset))
        if not committed or (marker.producer_id, marker.producer_epoch) != self._fence:
            return False
        self.end = marker.next_offset
        self.leader_epoch = marker.leader_epoch if marker.leader_epoch >= 0 else None
        return True

    def _count(self, appended: _Appended) -> None:
        if self._found.first < 0:
            self._found.first = appended.first
        self._found.add(appended)

    # --- results, once the marker was found

    @property
    def first(self) -> int | None:
        """The base offset of the first own batch; None if there is none."""
        return self._found.first if self._found.batches else None

    @property
    def last(self) -> LastAppend | None:
        """The last own batch; None if there is none."""
        return self._found.last

    @property
    def totals(self) -> ProgressTotals:
        """What was found, without aborted transactions; bytes as in the log."""
        return ProgressTotals(self._found.records, self._found.batches, self._found.bytes)

    @property
    def has_append_time(self) -> bool:
        """Whether the broker set the timestamps of one of the batches."""
        return self._found.has_append_time

    @property
    def undecided(self) -> frozenset[int]:
        """The own producers with a transaction that no marker had ended before the fence."""
        return frozenset(self._open)

    def own(self, batches: Iterable[AnyBatch]) -> Iterable[Batch]:
        """Yield those of ``batches`` that are counted in :attr:`totals`."""
        for batch in batches:
            if isinstance(batch, Batch) and self._is_counted(batch):
                yield batch

    def _is_counted(self, batch: Batch) -> bool:
        if batch.is_control or not batch.count or batch.producer_id not in self._producer_ids:
            return False
        if batch.next_offset <= self._start or self.end is None or batch.next_offset > self.end:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if not aborted:
            return True
        before = bisect_right(aborted, (batch.base_offset, self.end))
        return not before or batch.base_offset >= aborted[before - 1][1]
