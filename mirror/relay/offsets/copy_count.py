"""Counts the copies that an offset index has in a part of both logs. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from mirror.relay.offsets.index import Hole, OffsetIndex

_ANYWHERE: Final = 2**63 - 1


class CopyCount(NamedTuple):
    """How many copies there are."""

    records: int
    is_exact: bool = True
    """Otherwise there are at most so many: of some, the index does not say where they are."""


NO_COPIES: Final = CopyCount(0)


class Offsets(NamedTuple):
    """The offsets [start, end) of a log."""

    start: int = 0
    end: int = _ANYWHERE

    def common(self, start: int, end: int) -> int:
        """Return how many offsets of [start, end) are among them."""
        return max(0, min(self.end, end) - max(self.start, start))


def count_copies(index: OffsetIndex, sources: Offsets, targets: Offsets) -> CopyCount:
    """Count the copies in the target offsets ``targets`` of the records at the source offsets ``sources``."""
    records = at_most = 0
    for part in index.parts(sources, targets):
        if isinstance(part, Hole):
            target_end = _ANYWHERE if part.target_end is None else part.target_end
            at_most += min(sources.common(part.start, part.end), targets.common(part.target_start, target_end))
        else:
            start = max(0, sources.start - part.source, targets.start - part.target)
            end = min(part.length, sources.end - part.source, targets.end - part.target)
            records += max(0, end - start)
    return CopyCount(records + at_most, is_exact=not at_most)
