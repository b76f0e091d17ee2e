"""The offset index of one partition, and translation in both directions. Pure.

What the segments say is laid over each other in the order of the target's log: where a source offset was copied more
than once (at least once, or after the source lost records), the last copy counts. What no segment says is a hole, which
is to be found in the logs. An answer is exact, or it says that it is unknown.
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from mirror.relay.offsets.extents import Extent, is_full
from mirror.relay.offsets.segments import Segment
from mirror.relay.progress.committed import Beginning
from mirror.wire.integers import INT64_MAX


class Place(enum.StrEnum):
    """What an offset means in the other log. The values are published (``mirror offsets --json``)."""

    RECORD = "record"
    """The record at the offset is at the other offset."""
    NEXT = "next"
    """There is no record of the copy at the offset: the other one is that of the next record."""
    END = "end"
    """No record from the offset on is copied yet, and all before it are: the other one is the end of what is copied."""
    NOT_COPIED = "not-copied"
    """Not all records in front of the offset are copied yet: the other one is the end of what is copied."""
    UNKNOWN = "unknown"
    """It cannot be known."""


class Translation(NamedTuple):
    """The other offset, and what it is; None if it is not known."""

    place: Place
    offset: int | None


UNKNOWN: Final = Translation(Place.UNKNOWN, None)
_MOST_MISSING: Final = 100
"""At least once, the copies are searched in vain at most so often: each time takes as long as there are copies."""


class Hole(NamedTuple):
    """Source offsets ``[start, end)`` of which no segment says anything."""

    start: int
    end: int
    target_start: int
    """Their records are not in front of this target offset."""
    target_end: int | None
    """Their records are in front of this target offset; None: the target's end."""


class _Entry(NamedTuple):
    """An extent, and the source offsets up to ``end`` behind it, which have no record of the copy."""

    source: int
    target: int
    length: int
    end: int


# Invariant: A translation is exact, or it says that it is unknown: a group that continues there reads all that it has
#   not read.
# Test: tests/relay/offsets/test_index_model.py::test_every_offset_is_translated_to_the_same_record_and_back
class OffsetIndex:
    """What is known of a partition, up to the progress of its copy."""

    def __init__(
        self,
        segments: Iterable[Segment],
        copied_to: int,
        *,
        exactly_once: bool,
        beginning: Beginning | None = None,
        target_end: int | None = None,
    ) -> None:
        """``segments`` are those of the present logs; ``copied_to`` is the next source offset to copy.

        ``beginning``: None if it is not known; then the first segment is the beginning. ``target_end`` is what
        :meth:`mirror.relay.progress.target_log.TargetMark.indexed_end` returns at the progress; at least once, what is
        behind it may be a later repetition.
        """
        self._copied_to: Final = copied_to
        self._exactly_once: Final = exactly_once
        self._target_end: Final = None if exactly_once else target_end
        self._source, self._target, self._length, self._end = (array("q") for _ in range(4))
        self._copies: list[Extent] = []
        """At least once: all extents in the order of the target's log."""
        self._unknown: set[tuple[int, int]] = set()
        parts = sorted((one for one in segments if one.start < copied_to), key=lambda one: one.target_start)
        # Behind a full segment is another one, which may be lost.
        more = bool(parts) and is_full(max(parts, key=lambda one: one.start).encoded)
        self._appended_to: Final = target_end if exactly_once and not more else None
        self._begin_at(beginning, parts)
        entries: Iterable[_Entry] = chain.from_iterable(
            _entries(part.extents, part.start, part.end.offset, part.target_start) for part in parts
        )
        if any(later.target_start < earlier.end.target.end for earlier, later in pairwise(parts)):
            entries = sorted(entries, key=lambda one: one.target)
        self._lay(entries)
        self._copies.sort(key=lambda one: one.target)
        self._is_consistent = self._is_monotonic()
        if not (exactly_once or self._is_consistent):
            self._put_in_order()
            self._is_consistent = True

    def _begin_at(self, beginning: Beginning | None, parts: Sequence[Segment]) -> None:
        """Begin with an entry for no offset: behind it there is a hole if the first segment begins later."""
        is_valid = beginning is not None and beginning.source <= self._copied_to
        if beginning is not None and is_valid and all(beginning.source <= one.start for one in parts):
            for column, value in zip(self._columns, (*beginning, 0, beginning.source), strict=True):
                column.append(value)
        self._target_begin = next(iter([*self._target, *(one.target_start for one in parts)]), None)

    @property
    def _columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self._source, self._target, self._length, self._end

    @property
    def begin(self) -> int | None:
        """The first source offset that it covers; None if there is none."""
        return self._source[0] if self._source and self._is_consistent else None

    @property
    def target_begin(self) -> int | None:
        """The first target offset that it covers; None if there is none."""
        return self._target_begin if self._is_consistent else None

    @property
    def copied_to(self) -> int:
        """The next source offset to copy."""
        return self._copied_to

    @property
    def known_target_end(self) -> int:
        """The target offset behind the last record that it knows; 0 if it knows none."""
        if not self._target or not self._is_consistent:
            return 0
        return max(target + length for target, length in zip(self._target, self._length, strict=True))

    # --- laying extents over each other

    def _lay(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            if entry.source >= self._copied_to:
                continue
            length = min(entry.length, self._copied_to - entry.source)
            end = min(entry.end, self._copied_to)
            if self._target_end is not None and entry.target + length > self._target_end:
                length = max(0, self._target_end - entry.target)
                end = entry.source + length
            clipped = _Entry(entry.source, entry.target, length, end)
            if not self._exactly_once and length:
                self._copies.append(Extent(clipped.source, clipped.target, length))
            self._overlay(clipped)

    # Invariant: Of the copies of a record the last one counts that is in front of those of later records: a late copy
    #   of an attempt that was not fenced would let groups skip records.
    # Test: tests/relay/offsets/test_index.py::test_late_copy_behind_those_of_later_records_does_not_count
    # Test: tests/relay/offsets/
    #   test_attempts_at_once.py::test_no_group_skips_a_record_whatever_attempts_append_between_each_other
    def _overlay(self, entry: _Entry) -> None:
        if entry.end <= entry.source:
            return
        if not self._end or entry.source >= self._end[-1]:
            for column, value in zip(self._columns, entry, strict=True):
                column.append(value)
            return
        first = bisect_right(self._end, entry.source)
        last = bisect_left(self._source, entry.end)
        laid = [entry]
        if first < last:
            before, behind = self._at(first), self._at(last - 1)
            if before.source < entry.source:
                length = min(before.length, entry.source - before.source)
                laid.insert(0, before._replace(length=length, end=entry.source))
            if behind.end > entry.end:
                cut = max(0, entry.end - behind.source)
                left = behind.length - cut
                end_target = behind.target + behind.length
                laid.append(
                    _Entry(entry.end, behind.target + cut if left > 0 else end_target, max(0, left), behind.end)
                )
        for column, values in zip(self._columns, zip(*laid, strict=True), strict=True):
            column[first:last] = array("q", values)

    def _at(self, position: int) -> _Entry:
        return _Entry(self._source[position], self._target[position], self._length[position], self._end[position])

    def _is_monotonic(self) -> bool:
        return all(
            target + length <= following
            for target, length, following in zip(self._target, self._length, self._target[1:], strict=False)
        )

    def _put_in_order(self) -> None:
        """At least once: of each record the last copy counts that is in front of those of the later records.

        An attempt that is not fenced may append a record once more behind copies of later ones, and a group that goes
        on there would skip these. What has no known copy in front of them becomes a hole.
        """
        entries = [self._at(position) for position in range(len(self._source))]
        first = [one for one in entries[:1] if one.source == one.end]
        for column in self._columns:
            del column[:]
        for entry in [*first, *reversed([*_in_order(entries, self._copies)])]:
            for column, value in zip(self._columns, entry, strict=True):
                column.append(value)

    # --- holes

    def fill(self, hole: Hole, extents: Sequence[Extent]) -> None:
        """Take what was found in the logs for ``hole``. If that is contradictory, and leaves it open, it is unknown."""
        self.leave_unknown(hole)
        self._lay(_entries(extents, hole.start, hole.end, hole.target_start))
        self._copies.sort(key=lambda one: one.target)

    def holes(self) -> list[Hole]:
        """Return the holes in front of what is known; what is behind it may still be being copied."""
        found = (self._hole_behind(position) for position in range(len(self._source) - 1))
        return [hole for hole in found if hole is not None and self._is_consistent]

    def leave_unknown(self, hole: Hole) -> None:
        """The logs do not have what is missing in ``hole`` any more."""
        self._unknown.add((hole.start, hole.end))

    def _hole_behind(self, position: int) -> Hole | None:
        """Return the hole behind an entry; None if there is none."""
        start = self._end[position]
        target_start = self._target[position] + self._length[position]
        if position + 1 == len(self._source):
            nothing_appended = self._appended_to is not None and self._appended_to <= target_start
            if nothing_appended or start >= self._copied_to:
                return None
            return Hole(start, self._copied_to, target_start, self._target_end)
        end, target_end = self._source[position + 1], self._target[position + 1]
        return None if start == end else Hole(start, end, target_start, target_end)

    def _is_unknown(self, hole: Hole) -> bool:
        return (hole.start, hole.end) in self._unknown

    # --- translation

    def translate(self, offset: int) -> Translation | Hole:
        """Return the target offset of a source offset, or the hole that is to be filled first."""
        begin = self.begin
        if offset > self._copied_to:
            return Translation(Place.NOT_COPIED, None) if begin is None else self._copied_end(Place.NOT_COPIED)
        if begin is None or offset < begin:
            return UNKNOWN
        position = bisect_right(self._source, offset) - 1
        if offset < self._source[position] + self._length[position]:
            return Translation(Place.RECORD, self._target[position] + offset - self._source[position])
        for following in range(position, len(self._source)):
            if following > position and self._length[following]:
                return Translation(Place.NEXT, self._target[following])
            if (hole := self._hole_behind(following)) is not None:
                return UNKNOWN if self._is_unknown(hole) else hole
        return self._copied_end(Place.END)

    def _copied_end(self, place: Place) -> Translation | Hole:
        hole = self._hole_behind(len(self._source) - 1)
        if hole is not None:
            return Translation(place, None) if self._is_unknown(hole) else hole
        return Translation(place, self._target[-1] + self._length[-1])

    def translate_back(self, target_offset: int) -> Translation | Hole:
        """Return the source offset of a target offset, or the hole that is to be filled first."""
        begin = self.target_begin
        if begin is None or target_offset < begin:
            return UNKNOWN
        return self._at_copy(target_offset) or self._back(target_offset)

    def _at_copy(self, target_offset: int) -> Translation | None:
        """At least once, return the record at a target offset if a copy is known to be there, whether it counts or not.

        Behind it is what was not read before, or is read again.
        """
        position = bisect_right(self._copies, target_offset, key=lambda extent: extent.target) - 1
        if position < 0:
            return None
        source, target, length = self._copies[position]
        is_there = target_offset < target + length
        return Translation(Place.RECORD, source + target_offset - target) if is_there else None

    def _back(self, target_offset: int) -> Translation | Hole:
        position = max(0, bisect_right(self._target, target_offset) - 1)
        for following in range(position, len(self._source)):
            target, length = self._target[following], self._length[following]
            if length and target_offset < target + length:
                if target_offset < target:
                    return Translation(Place.NEXT, self._source[following])
                return Translation(Place.RECORD, self._source[following] + target_offset - target)
            if (hole := self._hole_behind(following)) is not None:
                return UNKNOWN if self._is_unknown(hole) else hole
        return Translation(Place.END, self._copied_to)

    # --- what the source does not have

    def gap_around(self, target_offset: int) -> tuple[int, int | None]:
        """Return the end of the copy's last known record in front of a target offset, and the start of the next one.

        None: no later one is known. Holes that :meth:`translate_back` has not asked for count as no records.
        """
        if self._exactly_once:
            targets, lengths = self._target, self._length
        else:
            targets, lengths = (array("q", (extent[field] for extent in self._copies)) for field in (1, 2))
        position = bisect_right(targets, target_offset)
        before, behind = position - 1, position
        while before >= 0 and not lengths[before]:
            before -= 1
        while behind < len(targets) and not lengths[behind]:
            behind += 1
        start = (self._target_begin or 0) if before < 0 else targets[before] + lengths[before]
        if start > target_offset:
            return target_offset, target_offset
        return start, targets[behind] if behind < len(targets) else None

    def parts(self, sources: tuple[int, int], targets: tuple[int, int]) -> Iterator[Extent | Hole]:
        """Yield the extents and holes that may be in these offsets [start, end) of both logs, in order.

        At least once, first the extents of all copies, in the order of the target's log.
        """
        if not self._exactly_once:
            yield from self._copies
        first = max(0, bisect_right(self._source, sources[0]) - 1, bisect_right(self._target, targets[0]) - 1)
        if first == 0:
            yield self._front
        for position in range(first, len(self._source)):
            source, target, length, _ = self._at(position)
            if source >= sources[1] or target >= targets[1]:
                return
            if self._exactly_once:
                yield Extent(source, target, length)
            if (hole := self._hole_behind(position)) is not None:
                yield hole

    @property
    def _front(self) -> Hole:
        """What is not known in front of the first entry."""
        begin, target_begin = self.begin, self.target_begin
        return Hole(0, self._copied_to, 0, None) if begin is None else Hole(0, begin, 0, target_begin)

    def read_again(self, target_offset: int, source_offset: int) -> int:
        """Return of how many source offsets from ``source_offset`` on there is a copy in front of a target offset."""
        ends = (
            extent.source + min(extent.length, target_offset - extent.target)
            for extent in self._copies
            if extent.target < target_offset
        )
        return max(0, max(ends, default=source_offset) - source_offset)


def _entries(extents: Iterable[Extent], start: int, end: int, target_start: int) -> Iterator[_Entry]:
    """Yield ``extents`` with what is behind each of them, in the source offsets ``[start, end)``."""
    last = Extent(start, target_start, 0)
    for extent in extents:
        if extent.source > last.source:
            yield _Entry(*last, extent.source)
        last = extent
    if end > last.source:
        yield _Entry(*last, end)


def _in_order(entries: Sequence[_Entry], copies: Sequence[Extent]) -> Iterator[_Entry]:
    """Yield ``entries`` from the last one on, each at its last copy in front of the entry behind it.

    ``copies`` are in the order of the target's log. Entries without such a copy are left out.
    """
    position, limit, missing = len(copies) - 1, INT64_MAX, 0
    for entry in reversed(entries):
        source_end, end = entry.source + entry.length, entry.end
        while source_end > entry.source and missing < _MOST_MISSING:
            at = _last_copy(copies, position, source_end - 1, limit)
            if at is None:
                missing += 1
                break
            position, extent = at, copies[at]
            start = max(entry.source, extent.source)
            limit = extent.target + start - extent.source
            yield _Entry(start, limit, source_end - start, end)
            source_end = end = start


def _last_copy(copies: Sequence[Extent], position: int, source: int, limit: int) -> int | None:
    """Return the last of ``copies``, up to ``position``, that has ``source`` in front of target offset ``limit``."""
    for at in range(position, -1, -1):
        extent = copies[at]
        if extent.source <= source < extent.source + extent.length and extent.target + source - extent.source < limit:
            return at
    return None
