"""Makes the anchors of one copy: where what was copied ends in both logs. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.relay.partition.attempts.commits import Commits
from mirror.relay.progress.anchors import NO_ANCHOR, Anchor, AnchorCount, is_due
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark


class AnchorMaker:
    """Decides after which commits of a copy an anchor is made, over all its attempts."""

    def __init__(self, *, exactly_once: bool) -> None:
        self._count = NO_ANCHOR
        """The last anchor that was made."""
        self._series: int | None = None
        self._begins_series = False
        """Whether there is no anchor of the series yet: it needs one at its beginning."""
        self._exactly_once: Final = exactly_once
        self._bytes = 0

    def begin_at(self, progress: Progress) -> None:
        """An attempt begins at ``progress``."""
        self._count = max(self._count, progress.anchor)
        self._begins_series = self._begins_series or self._series not in {None, progress.series}
        self._series = progress.series

    def count_of_commit(self, now_ms: int, pending_bytes: int) -> AnchorCount:
        """Return what the progress of a commit that begins now (ms since 1970) stores, with so many bytes.

        It includes the anchor that is made when the commit has succeeded: otherwise the next attempt would use its
        number again, and replace it.
        """
        due = self._begins_series or is_due(self._count, now_ms, self._bytes + pending_bytes)
        return self._count.next(now_ms) if due else self._count

    def on_committed(self, commits: Commits, copied_bytes: int, now_ms: int) -> Anchor | None:
        """A commit has succeeded, with so many bytes (ms since 1970); return the anchor to write, if one is due."""
        self._bytes += copied_bytes
        committed = commits.committed
        if committed.anchor.number <= self._count.number or (target := _exact_mark(commits)) is None:
            return None
        self._count, self._bytes, self._begins_series = committed.anchor, 0, False
        return anchor_at(committed, target, now_ms, exactly_once=self._exactly_once)


def anchor_at(committed: Progress, target: TargetMark, now_ms: int, *, exactly_once: bool) -> Anchor:
    """Return the anchor at this progress and this mark of the target's log (now: ms since 1970)."""
    return Anchor(
        number=max(0, committed.anchor.number),
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        source_cluster_id=committed.source_cluster_id,
        topic_id=committed.topic_id,
        target=target,
        exactly_once=exactly_once,
        time_ms=now_ms,
        series=committed.series,
    )


def _exact_mark(commits: Commits) -> TargetMark | None:
    """Return the mark of the last commit with the exact end; None if that, or the leader epoch, is not known."""
    mark = commits.committed.target
    if mark is None or (mark.leader_epoch is None and mark.end > 0):
        return None
    if commits.committed_end is not None:
        return mark.ending_at(commits.committed_end)
    # Nothing was ever appended: the copy is about to begin at the log's end.
    return mark if mark.producer_id < 0 else None
