"""Looks on the target for what a flow leaves out, because flows have written it to the source. Pure.

::

    source: what was left out ──► wanted ◄── target: what others have written there
                                    └──────► Absent

A record is recognized by key, value and headers, not by its place: what several flows write has no common order. What
the flow itself has written to the target does not count: a record that has come back to the source is there only so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mirror.consumer.fetched import Fetched
from mirror.verify.cursors import Cursor, TargetCursor, as_written
from mirror.verify.items import Item, digest_of, identity, item_of
from mirror.verify.values import Absent, Bounds, Rules
from mirror.wire.decode import Record, records_of
from mirror.wire.records import AnyBatch

_MOST_WANTED: Final = 200_000
"""So many records are looked for at a time."""
_MOST_ABSENT: Final = 10_000
"""With so many, the search ends."""

ReadLog = Callable[[int, int], Generator[Fetched]]
"""Reads a log from one offset to another; the generator is closed before the next call."""


@dataclass(slots=True)
class _Wanted:
    """Equal records that were left out."""

    first: int
    last: int
    count: int
    key: bytes | None
    is_deletion: bool


# Invariant: Of a flow of local records neither side is believed: what it left out of the source is looked for in the
#   target, and what it wrote there under its producer ids has to be in the source.
# Test: tests/verify/test_left_out.py::test_whatever_is_absent_is_counted
# Test: tests/spark/verification/test_both_directions_on_fakes.py::test_record_that_came_back_is_not_complete
# Test: tests/spark/verification/
#   test_both_directions_on_fakes.py::test_record_under_the_id_of_the_flow_that_the_source_lacks_is_foreign
class LeftOut:
    """The search for what was left out of one partition; :meth:`run` does it, and may be called once."""

    def __init__(
        self, source: Iterable[Fetched], read_target: ReadLog, bounds: Bounds, rules: Rules, back: Rules | None = None
    ) -> None:
        """``back`` is what the flow of the other direction does to records; None if none is known."""
        self._read_target: Final = read_target
        self._bounds: Final = bounds
        self._rules: Final = rules
        self._back: Final = back if back is not None and back.rewrites else None
        self._source: Final = _FlowsRecords(source, bounds, rules).rest()
        self._wanted: Final[dict[bytes, _Wanted]] = {}
        self._absent: Final[dict[bytes, _Wanted]] = {}
        self._by_key: Final[dict[bytes, bytes]] = {}
        """The digest of the last record of each key that is wanted or absent, if the target is compacted."""

    def run(self, log_start: int) -> Absent | None:
        """Return what the target does not have; its log begins at ``log_start``.

        Raises what the logs raise, DamagedBatch, and FlowError if the transform of the other flow fails.
        """
        at, enough = self._bounds.target_start, False
        while not enough and self._fill():
            at = self._search(at, log_start)
            enough = len(self._absent) >= _MOST_ABSENT
        if self._rules.target_compacted:
            self._drop_removed_deletions(log_start)
        if not self._absent:
            return None
        found = self._absent.values()
        start, end = min(one.first for one in found), max(one.last for one in found) + 1
        return Absent(start, end, sum(one.count for one in found), is_exact=not enough)

    def _fill(self) -> bool:
        """Take the next records that were left out; return whether there are any."""
        compacted = self._rules.target_compacted
        for item in self._source:
            key = item.record.key
            if compacted and key is not None and (superseded := self._by_key.pop(key, None)) is not None:
                # The target's cleaner may have removed it: it has the later one, or had it.
                self._wanted.pop(superseded, None)
                self._absent.pop(superseded, None)
            if item.by_flow:
                self._want(item.record)
            if len(self._wanted) >= _MOST_WANTED:
                break
        return bool(self._wanted)

    def _want(self, record: Record) -> None:
        digest = digest_of(record)
        known = self._absent.get(digest) or self._wanted.get(digest)
        if known is None:
            offset = record.offset
            self._wanted[digest] = _Wanted(offset, offset, 1, record.key, record.value is None)
        else:
            known.last, known.count = record.offset, known.count + 1
        if self._rules.target_compacted and record.key is not None:
            self._by_key[record.key] = digest

    def _search(self, start: int, log_start: int) -> int:
        """Look for what is wanted from ``start`` on, then in front of it; return where the next search is to begin.

        Each flow keeps the order of its records, so that those which follow are not in front of what was found first.
        """
        first: int | None = None
        for begin, end in ((start, self._bounds.target_end), (log_start, start)):
            with contextlib.closing(self._items(begin, end)) as items:
                while self._wanted and (item := next(items, None)) is not None:
                    if not item.by_flow and self._take(item.record) and first is None:
                        first = item.offset
        self._absent.update(self._wanted)
        self._wanted.clear()
        return start if first is None else first

    def _items(self, start: int, end: int) -> Generator[Item]:
        """Yield the records of the target between two offsets."""
        bounds = Bounds(source_start=0, source_end=0, target_start=start, target_end=end)
        with contextlib.closing(self._read_target(start, end)) as fetches:
            yield from TargetCursor(fetches, bounds, self._rules).rest()

    def _take(self, record: Record) -> bool:
        """Whether a record of the target is wanted; it is not wanted any more then."""
        copies = [record]
        if self._back is not None and (copy := as_written(record, self._back)) is not None:
            copies.append(copy)
        found = [self._wanted.pop(digest_of(one), None) for one in copies]
        for one in found:
            if one is not None and one.key is not None:
                self._by_key.pop(one.key, None)
        return any(one is not None for one in found)

    def _drop_removed_deletions(self, log_start: int) -> None:
        """Forget deletions whose key has no value in the target: the cleaner removes them in time."""
        deletions = {one.key: digest for digest, one in self._absent.items() if one.is_deletion and one.key is not None}
        valid = set[bytes]()
        for item in self._items(log_start, self._bounds.target_end) if deletions else ():
            key = item.record.key
            if key is not None and key in deletions:
                (valid.discard if item.record.value is None else valid.add)(key)
        for key, digest in deletions.items():
            if key not in valid:
                del self._absent[digest]


class _FlowsRecords(Cursor):
    """Reads what flows have written to the source; all of it if later records may have superseded some."""

    def __init__(self, fetches: Iterable[Fetched], bounds: Bounds, rules: Rules) -> None:
        super().__init__(fetches, bounds.source_start, bounds.source_end, rules)

    def _by_flow(self, batch: AnyBatch) -> bool:
        return self._rules.is_left_out is not None and self._rules.is_left_out(batch)

    def _is_wanted(self, batch: AnyBatch) -> bool:
        return self._rules.target_compacted or self._by_flow(batch)

    def _items_of(self, batch: AnyBatch) -> Iterator[Item]:
        number, by_flow = identity(batch), self._by_flow(batch)
        for record in records_of(batch, self._rules.max_batch_bytes):
            yield item_of(record, number, by_flow=by_flow)
