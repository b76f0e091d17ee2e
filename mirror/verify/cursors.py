"""Reads the two sides of a partition: whole batches as long as possible, then their records one by one. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import BatchTooLarge, CorruptBatch, FlowError, RecordNotMasked
from mirror.verify.items import Item, identity, item_of, size_of
from mirror.verify.values import Bounds, Named, Rules
from mirror.wire.decode import Record, records_of
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch, Batch

_BASE_OFFSET_END: Final = 8
_HASHED_FROM: Final = 16
"""A batch is hashed without its leader epoch."""


class DamagedBatch(Exception):
    """A batch of a side cannot be read; the text is the reason."""

    def __init__(self, cursor: Cursor, reason: str) -> None:
        super().__init__(reason)
        self.cursor: Final = cursor


class Cursor(ABC):
    """Reads the batches of one side in order, without those that hold nothing to compare.

    A batch is not referenced any more when the next one is read: its memory may be reused then.
    """

    def __init__(self, fetches: Iterable[Fetched], start: int, end: int, rules: Rules) -> None:
        """Records in front of ``start`` and from ``end`` on are passed."""
        self.named: Final[Counter[Named]] = Counter()
        self._rules: Final = rules
        self._start: Final = start
        self._end: Final = end
        self._batches: Final = self._wanted(fetches)
        self._batch: AnyBatch | None = None
        self._items: Iterator[Item] | None = None
        self._first: Item | None = None
        """The next record, unless there is a window."""
        self._waiting: Final = deque[Item]()
        self._waiting_bytes = 0
        self.last: int = start - 1
        """The offset of the last record that was taken."""

    def _wanted(self, fetches: Iterable[Fetched]) -> Iterator[AnyBatch]:
        at = self._start
        for fetched in fetches:
            for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
                if not isinstance(batch, MessageSet) and batch.base_offset >= self._end:
                    return
                if batch.next_offset <= at:
                    continue
                at = batch.next_offset
                if aborted:
                    self.named[Named.ABORTED] += 1
                elif batch.is_control:
                    self.named[Named.MARKERS] += 1
                elif (isinstance(batch, MessageSet) or batch.count) and self._is_wanted(batch):
                    yield batch

    @abstractmethod
    def _is_wanted(self, batch: AnyBatch) -> bool: ...

    @abstractmethod
    def _items_of(self, batch: AnyBatch) -> Iterator[Item]: ...

    def whole_batch(self) -> Batch | None:
        """Return the next batch if none of its records was read, and all are within the bounds."""
        if self._first is None and not self._waiting:
            self._first = self._next_of_batch()
        if self._first is not None or self._waiting:
            return None
        batch = self._next_batch()
        if not isinstance(batch, Batch) or batch.base_offset < self._start or batch.next_offset > self._end:
            return None
        return batch

    def take_batch(self) -> None:
        """Pass the batch that :meth:`whole_batch` returned."""
        if self._batch is not None:
            self.last = self._batch.next_offset - 1
        self._batch = None

    def peek(self) -> Item | None:
        """Return the next record; None behind the last one."""
        if self._first is None:
            self._first = self._waiting[0] if self._waiting else self._read()
        return self._first

    def take(self) -> Item:
        """Pass the record that :meth:`peek` returned, or the first one of the window."""
        item = self._first
        self._first = None
        if self._waiting:
            item = self._waiting.popleft()
            self._waiting_bytes -= size_of(item.record)
        if item is None:
            raise IndexError("there is no next record")
        self.last = item.record.offset
        return item

    def rest(self) -> Iterator[Item]:
        """Take all records that are left."""
        while self.peek() is not None:
            yield self.take()

    def window(self, count: int) -> list[Item]:
        """Return the next ``count`` records, or fewer if there are no more or they have too many bytes."""
        if self._first is not None and not self._waiting:
            self._wait(self._first)
        while len(self._waiting) < count and (not self._waiting or self._waiting_bytes < self._rules.window_bytes):
            item = self._read()
            if item is None:
                break
            self._wait(item)
        return list(self._waiting)

    def _wait(self, item: Item) -> None:
        self._waiting.append(item)
        self._waiting_bytes += size_of(item.record)

    @property
    def read_all(self) -> bool:
        """Whether the window has all records that are left."""
        return self._items is None and self._next_batch() is None

    def _read(self) -> Item | None:
        """Return the next record behind the window; None if there is none."""
        while True:
            item = self._next_of_batch()
            if item is not None:
                return item
            batch = self._next_batch()
            if batch is None:
                return None
            self._items = self._items_of(batch)

    def _next_of_batch(self) -> Item | None:
        """Return the next record of the batch that is being decoded; None if it has no more, or none is."""
        if self._items is None:
            return None
        start, end = self._start, self._end
        try:
            for item in self._items:
                if start <= item.record.offset < end:
                    return item
        except (CorruptBatch, BatchTooLarge) as error:
            raise DamagedBatch(self, str(error)) from error
        self._items = self._batch = None
        return None

    def _next_batch(self) -> AnyBatch | None:
        if self._batch is None:
            self._batch = next(self._batches, None)
        return self._batch


class SourceCursor(Cursor):
    """Reads the records that the flow writes for those of the source."""

    def __init__(self, fetches: Iterable[Fetched], bounds: Bounds, rules: Rules, end: int) -> None:
        """Up to ``end``, behind what is copied: the target may have more already."""
        super().__init__(fetches, bounds.source_start, end, rules)
        self._copied: Final = bounds.source_end
        self._hash: Final = sha256() if rules.hashes else None
        self.passed = 0
        """Records in front of the end of what is copied that were taken."""
        self.bytes = 0
        """Of the batches that were read in front of the end of what is copied."""

    @property
    def digest(self) -> str:
        """The hash of the batches that have records in front of the end of what is copied."""
        return "" if self._hash is None else self._hash.hexdigest()

    def take_batch(self) -> None:
        if self._batch is not None:
            assert isinstance(self._batch, Batch)  # noqa: S101 - whole_batch returned it
            self.passed += self._batch.count
        super().take_batch()

    def take(self) -> Item:
        item = super().take()
        self.passed += item.offset < self._copied
        return item

    def _is_wanted(self, batch: AnyBatch) -> bool:
        if self._rules.is_left_out is not None and self._rules.is_left_out(batch):
            self.named[Named.NOT_LOCAL] += 1
            return False
        for (start, end), settled in self._rules.aside.batches.items():
            if start < batch.next_offset and batch.base_offset < end:
                if not settled:
                    self.named[Named.ASIDE_BATCHES] += 1
                return False
        if batch.base_offset < self._copied:
            self.bytes += batch.size
            if self._hash is not None:
                self._hash.update(batch.view[:_BASE_OFFSET_END])
                self._hash.update(batch.view[_HASHED_FROM:])
        return True

    def _items_of(self, batch: AnyBatch) -> Iterator[Item]:
        number, changes = identity(batch), self._rules.rewrites
        for record in records_of(batch, self._rules.max_batch_bytes):
            if record.offset < self._start:
                continue
            lacking = Named.DROPPED
            try:
                copy = as_written(record, self._rules) if changes else record
            except RecordNotMasked as error:
                if not error.left_out:
                    raise
                copy, lacking = None, Named.UNMASKABLE
            if copy is not None:
                yield item_of(copy, number)
            elif record.offset < self._copied:
                self.named[lacking] += 1


def as_written(record: Record, rules: Rules) -> Record | None:
    """Return what the flow writes for a record; None if it drops it. Raises FlowError if the transform fails."""
    if rules.transform is not None:
        try:
            changed = rules.transform(record)
        except RecordNotMasked:
            raise
        except Exception as error:
            # Any exception: it is a user's code.
            line = " ".join(str(error).split())
            raise FlowError(
                f"the transform failed at offset {record.offset}: {type(error).__name__}: {line}"
            ) from error
        if changed is None:
            return None
        if not isinstance(changed, Record):
            raise FlowError(
                f"the transform gave a {type(changed).__name__}, not a Record or None, at offset {record.offset}"
            )
        record = changed._replace(offset=record.offset)
    if rules.headers:
        record = record._replace(headers=(*record.headers, *rules.headers))
    return record


class TargetCursor(Cursor):
    """Reads the records of the target."""

    def __init__(self, fetches: Iterable[Fetched], bounds: Bounds, rules: Rules) -> None:
        super().__init__(fetches, bounds.target_start, bounds.target_end, rules)

    def _is_wanted(self, batch: AnyBatch) -> bool:
        copied = self._rules.aside.copied
        if not copied or isinstance(batch, MessageSet) or batch.base_offset not in copied:
            return True
        self.named[Named.COPIED_AGAIN] += batch.count  # each is in a transaction of its own
        return False

    def _items_of(self, batch: AnyBatch) -> Iterator[Item]:
        number, has_time, rules = identity(batch), not batch.has_log_append_time, self._rules
        by_flow = rules.is_own is not None and rules.is_own(batch)
        for record in records_of(batch, rules.max_batch_bytes):
            yield item_of(record, number, has_time=has_time, by_flow=by_flow)
