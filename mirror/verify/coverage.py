"""Lists what was not compared, so that each source offset of a range is compared, named or listed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mirror.verify.cursors import SourceCursor, TargetCursor
from mirror.verify.items import Item
from mirror.verify.values import Bounds, Uncompared, Verdict

_FAULT: Final = "by a fault of this program: please report it"
_LEFT: Final = f"the comparison ended in front of them, {_FAULT}"


# Invariant: Each record of the source that was read is equal, named, or listed as not compared, before a result counts
#   as equal.
# Test: tests/verify/test_coverage.py::test_each_record_of_the_source_is_compared_or_named_or_listed
# Test: tests/verify/test_damaged_logs.py::test_logs_that_are_out_of_step_are_compared_no_further
class Coverage:
    """What ``verdict`` says of the parts that were not compared."""

    def __init__(self, verdict: Verdict, bounds: Bounds) -> None:
        self._verdict: Final = verdict
        self._bounds: Final = bounds

    def add(self, side: str, start: int, end: int, reason: str) -> None:
        """Add offsets of ``side`` that should have been compared."""
        self._verdict.complete = False
        self._verdict.uncompared.append(Uncompared(side, start, end, reason))

    def add_head(self, side: str, items: Sequence[Item]) -> None:
        """Add records, in order, that have nothing to be compared with: the other side's log begins behind them."""
        if side == "source":
            self._verdict.skipped += len(items)
        reason = f"the {'target' if side == 'source' else 'source'}'s log begins behind them"
        start, end = items[0].offset, items[-1].offset + 1
        uncompared = self._verdict.uncompared
        if uncompared and (uncompared[-1].side, uncompared[-1].reason) == (side, reason):
            start = uncompared.pop().start
        uncompared.append(Uncompared(side, start, end, reason))

    def add_rest(self, source: SourceCursor, target: TargetCursor) -> None:
        """Add what the comparison has left of both sides; a comparison that has reached its end has left nothing."""
        one, other = source.peek(), target.peek()
        if one is not None and one.offset < self._bounds.source_end:
            self.add("source", one.offset, self._bounds.source_end, _LEFT)
        if other is not None:
            self.add("target", other.offset, self._bounds.target_end, _LEFT)

    def check(self) -> None:
        """Add the whole range if both sides are equal, and yet a record of the source has no place in the verdict."""
        if self._verdict.equal and (count := self._verdict.unaccounted):
            start, end = self._verdict.source_start, self._bounds.source_end
            self.add("source", start, end, f"{count:,} of its records are not accounted for, {_FAULT}")
