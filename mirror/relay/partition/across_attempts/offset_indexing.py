"""Makes the segments of the offset index of one copy: the offsets of what was appended and committed. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.offsets.segments import Segment, segment_of
from mirror.relay.partition.across_attempts.anchoring import anchor_at
from mirror.relay.partition.attempts.commits import Commits
from mirror.relay.partition.attempts.outbox import Outbox
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import Gap, GapKind
from mirror.relay.progress.target_log import TargetMark


class OffsetIndexing:
    """Gathers the extents of a copy, over all its attempts, and says when to write them.

    A segment is written with an anchor, after ``interval_ms``, when it is full, and when the copy ends. It has only
    what is committed, or, without transactions, acknowledged.
    """

    def __init__(self, *, exactly_once: bool, interval_ms: int = 0) -> None:
        """``interval_ms`` 0: not after some time."""
        self.extents: Final = AppendedExtents()
        self._interval_ms: Final = interval_ms
        self._taken_ms = 0
        self._exactly_once: Final = exactly_once
        self._atomic = True
        self._begun_at: Progress | None = None
        self._mark: TargetMark | None = None
        """The target's log as this copy has begun with it, or stored it last."""
        self._end: Anchor | None = None
        """An anchor of the last commit: it says to which logs the offsets belong."""

    def begin_at(self, progress: Progress, *, again: bool, atomic: bool) -> list[Segment]:
        """An attempt begins at ``progress``; return what is left to be written of the one before.

        It continues the segment of that one if it begins where that one has ended, unless it is to send ``again`` what
        the target has lost. If it is ``atomic``, only what it commits counts.
        """
        rest = self.take_rest()
        self._atomic = atomic
        begun, self._begun_at = self._begun_at, progress
        goes_on = not again and begun is not None and self._goes_on(begun, progress)
        self._mark = progress.target
        if not goes_on:
            mark = progress.target
            # Exactly once, all that is copied from the flow's start on is behind where the log ended then.
            is_first = self._exactly_once and mark is not None and mark.producer_id < 0
            self.extents.restart(progress.offset, mark.end if mark is not None and is_first else None)
            self._end = None
        return rest

    # Invariant: An attempt continues the segment of the one before only if no other producer has appended in between.
    # Test: tests/relay/partition/
    #   test_offset_indexing.py::test_segment_does_not_go_on_behind_what_another_process_has_sent_again
    def _goes_on(self, begun: Progress, progress: Progress) -> bool:
        """Whether ``progress`` is where the attempt that has ``begun`` there has ended, and only it has appended since.

        Another process may have copied in between, and it may have sent again what the target had lost.
        """
        is_same = (begun.series, begun.topic_id) == (progress.series, progress.topic_id)
        if not is_same or self.extents.is_broken or self.extents.end != progress.offset:
            return False
        mark, known_end = progress.target, max(self.extents.target_end, 0 if begun.target is None else begun.target.end)
        # Of a mark that this copy has not stored itself, the end may be a lower bound, which proves nothing.
        return mark is None or mark == self._mark or (mark.is_exact and mark.end == known_end)

    def skip_gap(self, gap: Gap) -> None:
        """The source has deleted what is next; the attempt, which has committed all before that, does not copy it.

        At least once an earlier attempt may have: the target may have records of it.
        """
        if self._exactly_once and gap.kind is GapKind.RETENTION and self.extents.end == gap.offset:
            self.extents.skip_to(gap.resume)
            self.extents.commit()

    def on_committed(self, commits: Commits, outbox: Outbox, now_ms: int, *, due: bool) -> list[Segment]:
        """A commit has succeeded (ms since 1970); return the segments to write, if that is ``due`` or one is full."""
        self.extents.commit()
        committed = commits.committed
        self._mark = committed.target
        if committed.target is not None and committed.target.leader_epoch is not None:
            self._end = anchor_at(committed, committed.target, now_ms, exactly_once=self._exactly_once)
        # The commits that come once in an interval come a little early or late.
        waited = self._interval_ms > 0 and not 0 <= now_ms - self._taken_ms < self._interval_ms * 3 // 4
        segments = self._take() if due or waited or self.extents.is_full or self.extents.is_broken else []
        self._taken_ms = now_ms if due or waited else self._taken_ms
        if self.extents.is_broken or self.extents.is_full:  # full: they cannot be written
            self.extents.restart(outbox.acked_offset, None)
        return segments

    def take_rest(self) -> list[Segment]:
        """Return what is left to be written when an attempt has ended."""
        if self._atomic:
            self.extents.roll_back()
        else:
            self.extents.commit()
        return self._take()

    def _take(self) -> list[Segment]:
        """Without an anchor nothing is taken: it would not be known whether the target still has it."""
        end = self._end
        return [] if end is None else [segment_of(span, end) for span in self.extents.take()]
