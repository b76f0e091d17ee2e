"""The commits of one attempt: when progress is committed, and which counts belong to a commit.

The writer (:mod:`.writers.target_writer`) sends the commit to the target.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.relay.model.policy import MAX_TRANSACTION_BYTES, MAX_UNCONFIRMED_BYTES
from mirror.relay.model.way import Way
from mirror.relay.partition.attempts.outbox import CommitCounts, Outbox
from mirror.relay.progress.committed import Progress
from mirror.timing import deadline, remaining

if TYPE_CHECKING:
    from mirror.relay.model.policy import CopyTimeouts
    from mirror.relay.partition.writers.target_writer import TargetWriter
    from mirror.relay.progress.target_log import TargetMark

_AFTER_BATCHES_MS: Final = 500
"""A commit times out this long after its oldest batch: the batch's own error says more, and should come first."""

ProgressAt = Callable[[int, int | None], Progress]
"""Makes the progress of a source offset and the leader epoch before it."""


@dataclass(slots=True, eq=False)
class CommitInFlight:
    """A commit that has no answer yet."""

    progress: Progress
    future: Future[None]
    counts: CommitCounts | None
    """What it commits; None for all that the outbox has counted when it ends (its transaction takes everything)."""
    sent_bytes: int
    """How many of the bytes that the attempt has sent it includes."""
    end: int | None
    """The target offset behind the last record that was acknowledged when it began; None if it was not known."""
    began_ms: int


class Commits:
    """Commits the progress of one attempt, one commit at a time."""

    def __init__(
        self,
        writer: TargetWriter,
        outbox: Outbox,
        timeouts: CopyTimeouts,
        committed: Progress,
        now: int,
        *,
        required: bool = False,
    ) -> None:
        """``committed`` is the progress at which the attempt begins; see :attr:`required`."""
        self.committed = committed
        """The last committed progress, or that with which the attempt began."""
        self.required = required
        """Commit before sending anything, even if progress is unchanged."""
        self.unsearched = False
        """Whether the committed progress does not say yet how far the target's log was searched."""
        self.repeat_ms = 0
        """When to repeat a commit that has failed: not as fast as brokers refuse it. The pause does not grow: the
        partitions of a group share requests, and the client retries these with backoff."""
        self.committed_bytes = 0
        """How many of the bytes that the attempt has sent are committed."""
        self.committed_end: int | None = None
        """The exact target offset behind the last record that is committed; None if it is not known."""
        self.last_duration_ms = 0
        self.in_flight: CommitInFlight | None = None
        self._writer = writer
        self._outbox = outbox
        self._timeouts = timeouts
        self._bytes = 0
        self._mark_is_short = False
        self.uncommitted_since_ms = self._committed_ms = now
        """When the first batch that is not committed was sent."""

    @property
    def blocks_sending(self) -> bool:
        """Whether nothing more should be sent before the next commit ends."""
        if self._writer.way is Way.SEQUENCES:
            return self._is_far_behind  # otherwise not: the fence has written the claim already
        if not self._writer.atomic:
            return self.required
        return self.required or self._bytes >= MAX_TRANSACTION_BYTES or self.in_flight is not None

    @property
    def _is_far_behind(self) -> bool:
        return self._outbox.sent_bytes - self.committed_bytes >= MAX_UNCONFIRMED_BYTES

    def on_send(self, size: int, now: int) -> None:
        """Count ``size`` bytes that are being sent."""
        if not self.pending:
            self.uncommitted_since_ms = now
        self._bytes += size

    @property
    def pending(self) -> bool:
        """Whether there is something to commit."""
        ready = self._outbox.sent_offset if self._writer.atomic else self._outbox.acked_offset
        return self.required or self.unsearched or self._mark_is_short or ready > self.committed.offset

    def on_searched(self, now: int) -> None:
        """The exact position is that of the progress: commit soon how far the target's log was searched."""
        if not self.pending:
            self.uncommitted_since_ms = now
        self.unsearched = True

    def _is_short_of(self, mark: TargetMark | None) -> bool:
        """Whether the target's log reaches beyond ``mark``, which was stored before the data had offsets.

        Markers, and aborted records of earlier attempts, take offsets, too. Another commit stores the true end: below
        it the loss of the last records would not be noticed.
        """
        end = self._outbox.target_end
        return mark is not None and end is not None and mark.end < end

    def due_ms(self, *, caught_up: bool, ended: bool) -> int:
        """When to commit what is pending. ``caught_up``: the source has nothing more now; ``ended``: nor will it.

        A catch-up has few large transactions, the steady state quick small ones. At least once, a commit is useful only
        when the data is acknowledged, and comes at its interval.
        """
        latest_ms = self._writer.commit_due_ms(
            self.uncommitted_since_ms, self._timeouts.commit_interval_ms, self._bytes
        )
        if not self._writer.atomic:
            if index_ms := self._timeouts.index_interval_ms:  # groups wait for it, however few bytes are pending
                index_due_ms = self._writer.commit_due_ms(self.uncommitted_since_ms, index_ms, MAX_TRANSACTION_BYTES)
                latest_ms = min(latest_ms, index_due_ms)
            full = self._writer.way is not None and self._bytes >= MAX_TRANSACTION_BYTES
            return 0 if self.required or full or (ended and self._outbox.empty) else latest_ms
        if self.required or ended or self._bytes >= MAX_TRANSACTION_BYTES:
            return 0
        return min(latest_ms, self._committed_ms + self._timeouts.commit_min_interval_ms) if caught_up else latest_ms

    def begin(self, progress_at: ProgressAt, now: int, *, ended: bool = False) -> Future[None]:
        """Commit all that is pending, within the time that is left of the oldest batch's delivery.timeout.ms.

        ``ended``: the attempt has sent nothing that is not acknowledged, and will send nothing more.
        """
        outbox, atomic = self._outbox, self._writer.atomic
        oldest_ms = outbox.oldest_ms
        until_ms = now if oldest_ms is None else deadline(oldest_ms, _AFTER_BATCHES_MS)
        until_ms = deadline(until_ms, self._timeouts.delivery_timeout_ms)
        if atomic:
            progress = progress_at(outbox.sent_offset, outbox.sent_epoch)
        else:
            progress = replace(progress_at(outbox.acked_offset, outbox.acked_epoch), ended=ended)
        future = self._writer.commit(progress, max(1, remaining(until_ms, now)))
        counts = None if atomic else outbox.take_counts()
        # A transaction takes all that was sent, its batches in flight, too.
        sent_bytes = outbox.sent_bytes if atomic else outbox.acked_bytes
        self.in_flight = CommitInFlight(progress, future, counts, sent_bytes, outbox.exact_end, now)
        self._bytes, self.uncommitted_since_ms = outbox.sent_bytes - sent_bytes, now
        return future

    def take_result(self, now: int) -> tuple[CommitCounts | None, BaseException | None] | None:
        """Return what the commit in flight has committed, or its error; None before it ends, and afterwards.

        The counts of a failed commit go back to the outbox.
        """
        ended = self.in_flight
        if ended is None or not ended.future.done():
            return None
        self.in_flight, self._committed_ms, self.last_duration_ms = None, now, now - ended.began_ms
        error = ended.future.exception()
        if error is None:
            self.repeat_ms = 0
            self._outbox.process_answers(now)
            self.committed, self.committed_bytes = ended.progress, ended.sent_bytes
            self.required = self.unsearched = False
            # A transaction commits everything that was sent: all of it is acknowledged by now.
            self.committed_end = self._outbox.exact_end if self._writer.atomic else ended.end
            if self._writer.atomic:
                self._outbox.on_transaction_committed()
                self._mark_is_short = self._is_short_of(ended.progress.target)
            return ended.counts or self._outbox.take_counts(), None
        self.repeat_ms = deadline(now, self._timeouts.commit_interval_ms)
        if ended.counts is not None:
            self._outbox.counts.add_all(ended.counts)
        return None, error
