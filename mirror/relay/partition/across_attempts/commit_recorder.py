"""Makes the progress that a copy's commits store, and records the commits, over all its attempts. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.partition.across_attempts.copy_parts import CopyParts
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.attempts.outbox import CommitCounts
from mirror.relay.progress.committed import Progress

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter
    from mirror.relay.progress.target_loss import TargetLoss


class CommitRecorder:
    """The commits of one copy."""

    def __init__(self, parts: CopyParts) -> None:
        self.mended: tuple[TargetLoss, int] | None = None
        """A loss of the target, and the source offset at which the copy resumed; None once a commit has recorded it."""
        self._parts: Final = parts
        self._attempt: CopyAttempt | None = None
        self._writer: TargetWriter

    @property
    def winding_up(self) -> bool:
        """Whether the copy is to end: nothing more is sent, and what is acknowledged is committed."""
        return self._parts.retry.winding_up

    @property
    def appends(self) -> AppendedExtents:
        """Gathers the offsets of what is acknowledged, over all attempts."""
        return self._parts.indexing.extents

    def begin(self, attempt: CopyAttempt | None, writer: TargetWriter) -> None:
        """The commits from now on are those of ``attempt``; None: it does not read yet."""
        self._attempt, self._writer = attempt, writer

    def progress_at(self, offset: int, leader_epoch: int | None) -> Progress:
        """Make the progress to commit at ``offset``, with the mark of the target's log."""
        parts, attempt = self._parts, self._attempt
        if attempt is None:
            return parts.recorder.progress_at(offset, leader_epoch)
        progress = parts.recorder.progress_at(offset, leader_epoch)
        mark = parts.target_check.mark(attempt, self._writer)
        count = parts.anchors.count_of_commit(parts.context.unix_ms(), attempt.outbox.counts.bytes)
        return replace(progress, target=mark, anchor=count)

    def on_acquired(self, progress: Progress) -> None:
        """The present attempt has acquired the partition, and its progress is exact."""
        self._parts.target_check.tracker.on_committed(progress.target)
        self._parts.recorder.on_acquired(progress)

    def on_committed(self, counts: CommitCounts) -> None:
        """Record a commit of the present attempt, which goes on: what has failed before it does not count any more."""
        self.record(counts)
        self._parts.failures.on_committed()
        self._parts.retry.trouble = None

    def record(self, counts: CommitCounts) -> None:
        """Record a commit of the present attempt, which may be its last one."""
        parts, attempt = self._parts, self._attempt
        assert attempt is not None  # noqa: S101 - it has committed
        context, recorder = parts.context, parts.recorder
        leader = context.target_leader(parts.copy.target)
        parts.target_check.tracker.on_committed(attempt.commits.committed.target)
        if parts.choice is not None:
            recorder.set_way(parts.choice.way, parts.choice.reason)
        recorder.on_committed(counts, attempt, parts.reader, atomic=self._writer.atomic, leader=leader)
        context.commit_durations.add(attempt.commits.last_duration_ms)
        if self.mended is not None:
            (loss, resumed), self.mended = self.mended, None
            recorder.on_target_loss(loss, resumed)
        anchor = parts.anchors.on_committed(attempt.commits, counts.bytes, context.unix_ms())
        if anchor is not None:
            context.keep_anchor(parts.copy, anchor)
        segments = parts.indexing.on_committed(
            attempt.commits, attempt.outbox, context.unix_ms(), due=anchor is not None
        )
        context.keep_segments(parts.copy, segments)
