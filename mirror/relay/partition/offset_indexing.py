"""Makes the segments of the offset index of one copy: the offsets of what was appended and committed. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.relay.offsets.runs import AppendedRuns
from mirror.relay.offsets.segments import Segment, segment_of
from mirror.relay.partition.anchoring import anchor_at
from mirror.relay.partition.commits import Commits
from mirror.relay.partition.outbox import Outbox
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress


class OffsetIndexing:
    """Gathers the runs of a copy, over all its attempts, and says when to write them.

    A segment is written with an anchor, when it is full, and when the copy ends. It has only what is committed, or,
    without transactions, acknowledged.
    """

    def __init__(self, *, exactly_once: bool) -> None:
        self.runs: Final = AppendedRuns()
        self._exactly_once: Final = exactly_once
        self._atomic = True
        self._begun_at: Progress | None = None
        self._end: Anchor | None = None
        """An anchor of the last commit: it says to which logs the offsets belong."""

    def begin_at(self, progress: Progress, *, again: bool) -> list[Segment]:
        """An attempt begins at ``progress``; return what is left to be written of the one before.

        It continues the segment of that one if it begins where that one has ended, unless it is to send ``again`` what
        the target has lost.
        """
        rest = self.take_rest()
        begun, self._begun_at = self._begun_at, progress
        is_same = begun is not None and (begun.series, begun.topic_id) == (progress.series, progress.topic_id)
        if again or not is_same or self.runs.is_broken or self.runs.end != progress.offset:
            mark = progress.target
            # Exactly once, all that is copied from the flow's start on is behind where the log ended then.
            is_first = self._exactly_once and mark is not None and mark.producer_id < 0
            self.runs.restart(progress.offset, mark.end if mark is not None and is_first else None)
            self._end = None
        return rest

    def on_committed(self, commits: Commits, outbox: Outbox, now_ms: int, *, atomic: bool, due: bool) -> list[Segment]:
        """A commit has succeeded (ms since 1970); return the segments to write, if that is ``due`` or one is full."""
        self._atomic = atomic
        self.runs.commit()
        committed = commits.committed
        if committed.target is not None and committed.target.leader_epoch is not None:
            self._end = anchor_at(committed, committed.target, now_ms, exactly_once=self._exactly_once)
        segments = self._take() if due or self.runs.is_full or self.runs.is_broken else []
        if self.runs.is_broken:
            self.runs.restart(outbox.acked_offset, None)
        return segments

    def take_rest(self) -> list[Segment]:
        """Return what is left to be written when an attempt has ended."""
        if self._atomic:
            self.runs.roll_back()
        else:
            self.runs.commit()
        return self._take()

    def _take(self) -> list[Segment]:
        """Without an anchor nothing is taken: it would not be known whether the target still has it."""
        end = self._end
        return [] if end is None else [segment_of(span, end) for span in self.runs.take()]
