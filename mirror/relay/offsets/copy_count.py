"""Counts the copies that an offset index has in a part of both logs. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from mirror.relay.offsets.index import Hole, OffsetIndex
from mirror.wire.integers import INT64_MAX


class CopyCount(NamedTuple):
    """How many copies there are."""

    records: int
    is_exact: bool = True
    """Otherwise there are at most so many: of some, the index does not say where they are."""

    def or_more(self, records: int) -> CopyCount:
        """Return the count if there may be so many records more."""
        return CopyCount(self.records + records, is_exact=False) if records else self


NO_COPIES: Final = CopyCount(0)


class Move(NamedTuple):
    """What happens to a group that leaves one log at an offset, and continues in the other log at another offset."""

    read_again: CopyCount
    skipped: CopyCount


class Offsets(NamedTuple):
    """The offsets [start, end) of a log."""

    start: int = 0
    end: int = INT64_MAX

    def common(self, start: int, end: int) -> int:
        """Return how many offsets of [start, end) are among them."""
        return max(0, min(self.end, end) - max(self.start, start))


def count_copies(index: OffsetIndex, sources: Offsets, targets: Offsets) -> CopyCount:
    """Count the copies in the target offsets ``targets`` of the records at the source offsets ``sources``."""
    records = at_most = 0
    for part in index.parts(sources, targets):
        if isinstance(part, Hole):
            target_end = INT64_MAX if part.target_end is None else part.target_end
            at_most += min(sources.common(part.start, part.end), targets.common(part.target_start, target_end))
        else:
            start = max(0, sources.start - part.source, targets.start - part.target)
            end = min(part.length, sources.end - part.source, targets.end - part.target)
            records += max(0, end - start)
    return CopyCount(records + at_most, is_exact=not at_most)


# Invariant: What a switch is said to read again and to skip is never less than the logs have, and is what happens.
# Test: tests/groups/test_moves.py::test_what_is_said_is_what_the_logs_have
# Test: tests/groups/test_moves.py::test_what_is_said_where_both_sides_feed_a_topic_is_no_less_than_the_logs_have
# Test: tests/copying/test_rehearse.py::test_what_is_said_is_what_happens
def count_missed(index: OffsetIndex, source_offset: int, target_offset: int) -> CopyCount:
    """Count the records from a source offset on whose only copies are in front of a target offset.

    At least once, a record may have a copy behind it, too, and is not missed then.
    """
    in_front, behind = list[tuple[int, int]](), list[tuple[int, int]]()
    for part in index.parts(Offsets(start=source_offset), Offsets()):
        if isinstance(part, Hole):
            continue
        cut = min(max(part.source, part.source + target_offset - part.target), part.source + part.length)
        in_front.append((max(part.source, source_offset), cut))
        behind.append((max(cut, source_offset), part.source + part.length))
    return CopyCount(_covered(in_front + behind) - _covered(behind))


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return how many offsets are in any of the spans [start, end)."""
    covered, to = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, to))
        to = max(to, end)
    return covered
