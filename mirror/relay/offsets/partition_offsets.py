"""Translates the offsets of one partition: by its offset index, and by the logs where that has holes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.errors import BatchTooLarge, CorruptBatch, FlowError, KafkaError, LogTruncated, OffsetOutOfRange
from mirror.relay.batches.appended import Unproved
from mirror.relay.offsets.copy_count import CopyCount, Offsets, count_copies, count_missed
from mirror.relay.offsets.extents import span_of
from mirror.relay.offsets.index import Hole, OffsetIndex, Place, Translation
from mirror.relay.offsets.log_answers import LogStarts
from mirror.relay.offsets.segments import segment_of
from mirror.timing import Timer
from mirror.wire.integers import INT64_MAX

if TYPE_CHECKING:
    from mirror.relay.offsets.extents import Extent
    from mirror.relay.offsets.segments import Segment
    from mirror.relay.progress.anchors import Anchor

MOST_COUNTED: Final = 100_000
"""So many target offsets are read at most to count the records that the source does not have."""
_MOST_GAPS: Final = 20
"""So many gaps between copies are read one by one at most: each takes a request."""
_UNKNOWN: Final = (Unproved, OffsetOutOfRange, LogTruncated, CorruptBatch, BatchTooLarge, FlowError)
"""Errors of reading a hole; a FlowError is that of the flow's transform, which may have been edited."""

_Translate = Callable[[int], "Translation | Hole"]


def _is_behind(anchor: Anchor, hole: Hole) -> bool:
    return anchor.offset >= hole.end and hole.target_end is not None and anchor.target.end >= hole.target_end


class Unmatched(NamedTuple):
    """Records of the target around a position that are not known as copies. Beyond a limit, offsets are counted."""

    in_front: int
    """Between the last copy in front of the position and the position."""
    behind: int
    """From the position to the next copy, or to the end of the log."""


class PartitionOffsets:
    """The offset index of one partition; what it lacks is read when it is needed."""

    def __init__(
        self,
        index: OffsetIndex,
        fill: Callable[[Hole], list[Extent]],
        starts: LogStarts,
        segments: Sequence[Segment] = (),
        count: Callable[[int, int | None], int] = lambda _, __: 0,
    ) -> None:
        """``fill`` finds the extents of a hole in the logs; raises Unproved if they cannot be known.

        ``segments`` are those of the index. ``count`` counts the committed records of the target between two offsets,
        or to its end.
        """
        self.index: Final = index
        self._fill: Final = fill
        self.starts: Final = starts
        self._segments: Final = segments
        self._failure: KafkaError | None = None
        self._count: Final = count
        self.reason = ""
        """Why something is unknown; empty if nothing was looked for in vain."""
        self.is_of_copied_topic = True
        """Whether the source's topic is known as the one that was copied."""
        self.is_of_known_id = True
        """Whether it is by its id; without ids a topic that was made again looks like the former one."""

    def translate(self, offset: int, found: Translation | Hole | None = None) -> Translation:
        """Return the target offset of a source offset; ``found`` is what the index has of it. Raises KafkaError."""
        there, back = self.index.translate, self.index.translate_back
        known = found if isinstance(found, Translation) else self._resolved(there, offset)
        return self._present(known, self.starts.target, there, back)

    def translate_back(self, offset: int) -> Translation:
        """Return the source offset of a target offset. Raises KafkaError."""
        there, back = self.index.translate_back, self.index.translate
        return self._present(self._resolved(there, offset), self.starts.source, there, back)

    def passed(self, offset: int, found: Translation) -> int:
        """Count the records from a source offset on that are not behind its translation: the target has deleted them.

        At most so many, if the logs do not say it exactly. Raises KafkaError.
        """
        if found.offset is None or _is_present(self.index.translate(offset), self.starts.target):
            return 0
        return self.missed(offset, found.offset).records

    def passed_back(self, offset: int, found: Translation) -> int:
        """Return the same of a target offset that was translated back: what the source has deleted."""
        if found.offset is None or _is_present(self.index.translate_back(offset), self.starts.source):
            return 0
        return self.copies(Offsets(end=found.offset), Offsets(start=offset)).records

    @property
    def first_copy_at(self) -> int | None:
        """A target offset in front of which no record is a copy of one that the source has; None if none is known."""
        begin = self.index.begin
        return None if begin is None or begin > self.starts.source else self.index.target_begin

    def unmatched(self, target_offset: int) -> Unmatched:
        """Return what the source does not have around an offset that was translated back. Raises KafkaError."""
        start, end = self.index.gap_around(target_offset)
        in_front = self._count(max(start, self.starts.target), target_offset)
        return Unmatched(in_front, self._count(target_offset, end))

    def copies(self, sources: Offsets, targets: Offsets) -> CopyCount:
        """Count the copies at these offsets of both logs. Raises KafkaError.

        What the index lacks of them is read in the logs, unless it is very much: then it is counted by its offsets.
        """
        for part in list(self.index.parts(sources, targets)):
            if isinstance(part, Hole) and 0 < self._most_in(part, sources, targets) <= MOST_COUNTED:
                self._resolved(self.index.translate, part.start)
        return count_copies(self.index, sources, targets)

    def missed(self, source_offset: int, target_offset: int) -> CopyCount:
        """Count the records from a source offset on whose only copies are in front of a target offset.

        Raises KafkaError.
        """
        found = self.copies(Offsets(start=source_offset), Offsets(end=target_offset))
        return count_missed(self.index, source_offset, target_offset) if found.records and found.is_exact else found

    def records_between(self, target_start: int, target_end: int | None) -> int:
        """Count the committed records between two offsets of the target, or to its end. Raises KafkaError.

        Very many offsets count as so many records.
        """
        return self._count(max(target_start, self.starts.target), target_end)

    @staticmethod
    def _most_in(hole: Hole, sources: Offsets, targets: Offsets) -> int:
        """Return how many records of a hole may be at these offsets; 0 if none is."""
        target_end = INT64_MAX if hole.target_end is None else hole.target_end
        both = sources.common(hole.start, hole.end), targets.common(hole.target_start, target_end)
        return hole.end - hole.start if all(both) else 0

    def has_only_copies(self, target_start: int, target_end: int) -> bool:
        """Whether all committed records between two offsets of the target are known as copies. Raises KafkaError."""
        copies = count_copies(self.index, Offsets(), Offsets(target_start, target_end))
        return copies.is_exact and copies.records == self._count(target_start, target_end)

    def copies_end(self, start: int, end: int, most: int) -> int:
        """Return up to where all committed records of the target in [start, end) are known as copies.

        At most ``most`` offsets are read at once, and few gaps between copies, which markers leave. Raises KafkaError.
        """
        at = start = max(start, self.starts.target)
        copies = self.copies(Offsets(), Offsets(start, end))
        if end <= start or (copies.is_exact and copies.records == end - start):
            return max(at, end)
        if copies.is_exact and end - start <= most and copies.records == self._count(start, end):
            return end
        parts = list(self.index.parts(Offsets(), Offsets(start, end)))
        holes = [one for one in parts if isinstance(one, Hole) and self._most_in(one, Offsets(), Offsets(start, end))]
        end, left = min([end, *(one.target_start for one in holes)]), _MOST_GAPS
        extents = sorted((one.target, one.length) for one in parts if not isinstance(one, Hole))
        for target, length in (*extents, (end, 0)):
            if at < (gap_end := min(target, end)):
                left -= 1
                if left < 0 or gap_end - at > most or self._count(at, gap_end):
                    return at
            at = max(at, min(target + length, end))
        return max(at, start)

    def _present(self, found: Translation, start: int, there: _Translate, back: _Translate) -> Translation:
        """Return the first offset from ``start`` on for what the log, which begins there now, has deleted.

        A group that is to go on in front of the log's start would be reset, perhaps to the log's end.
        """
        if found.offset is None or found.offset >= start:
            return found
        if found.place in {Place.RECORD, Place.NEXT}:
            first = self._resolved(back, start)
            found = first if first.offset is None else self._resolved(there, first.offset)
            if found.place is Place.RECORD:
                found = found._replace(place=Place.NEXT)
        return found if found.offset is None else found._replace(offset=max(start, found.offset))

    def missing_segments(self, most_offsets: int, timer: Timer) -> list[Segment]:
        """Return what the index lacks between its segments, as far as both logs have it. Raises KafkaError.

        Holes of more than ``most_offsets`` source offsets are left out, and those that are left when ``timer`` expires.
        """
        found: list[Segment] = []
        for hole in self.index.holes():
            if hole.end - hole.start > most_offsets or timer.expired():
                continue
            try:
                spans = span_of(hole.start, hole.end, hole.target_start, self._extents_in(hole))
            except _UNKNOWN as error:
                self.reason = str(error)
            else:
                # The anchor of a segment behind it is of the same logs, and stands.
                behind = [one.end for one in self._segments if _is_behind(one.end, hole)]
                anchor = min(behind, key=lambda one: one.offset)
                found += [segment_of(span, anchor) for span in spans]
        return found

    def _extents_in(self, hole: Hole) -> list[Extent]:
        """Read a hole, once: if a log cannot be read now, others would wait for the same timeout. Raises KafkaError."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._fill(hole)
        except _UNKNOWN:
            raise
        except KafkaError as error:
            self._failure = error
            raise

    def _resolved(self, translate: _Translate, offset: int) -> Translation:
        while isinstance(found := translate(offset), Hole):
            try:
                self.index.fill(found, self._extents_in(found))
            except _UNKNOWN as error:
                self.reason = str(error)
                self.index.leave_unknown(found)
        return found


def _is_present(found: Translation | Hole, start: int) -> bool:
    """Whether a log that begins at ``start`` has what the index has found, or that is not known."""
    return isinstance(found, Hole) or found.offset is None or found.offset >= start
