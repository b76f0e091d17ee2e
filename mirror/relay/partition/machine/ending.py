"""Ends one attempt: its last commit, its writer, and what follows. No I/O."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from mirror.relay.partition.across_attempts.commit_recorder import CommitRecorder
from mirror.relay.partition.across_attempts.copy_parts import CopyParts
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS, CONFIRM_MS, FAILURE_BACKOFF_MS
from mirror.relay.partition.states import CopyEvent

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter


class Ending:
    """The end of one attempt, until another one begins or the copy's result is final."""

    def __init__(
        self,
        parts: CopyParts,
        commits: CommitRecorder,
        writer: TargetWriter,
        attempt: CopyAttempt | None,
        now: int,
    ) -> None:
        """``attempt``: None if it does not read."""
        self.until_ms = now + ABORT_TIMEOUT_MS
        """Until when the present state lasts at most."""
        self._parts: Final = parts
        self._commits: Final = commits
        self._writer: Final = writer
        self._attempt: Final = attempt
        self._changes_way = False
        self._final_commit: Future[None] | None = None
        self.is_closed = False
        """Whether the writer was closed."""
        self._pause_ms = 0
        self._paused_until_ms = now

    # --- its last commit

    def begin(self, now: int, *, changes_way: bool) -> None:
        """Begin the last commit, and close the writer behind it.

        ``changes_way``: another attempt continues this one, the other way.
        """
        attempt, self._changes_way = self._attempt, changes_way
        self._final_commit = None if attempt is None else attempt.final_commit(now)
        self._release(now)
        if self._final_commit is not None and attempt is not None and attempt.commits_rest:
            self._parts.call.begin(self._final_commit)
        else:
            self._close()

    def _release(self, now: int) -> None:
        self._parts.context.stop_reading(self._parts.copy)
        if self._attempt is not None:
            self._attempt.end(now)

    def take_end(self, now: int) -> CopyEvent | None:
        """Return what follows, once what is awaited has ended, or was not answered in time."""
        parts = self._parts
        if parts.call.pop_done() is None and now < self.until_ms:
            return None
        if self._attempt is not None and self._final_commit is not None:
            counts, _ = self._attempt.commits.take_result(now) or (None, None)
            if counts is not None:
                self._commits.record(counts)
        if not self.is_closed:
            return CopyEvent.COMMITTED
        if self._changes_way and not parts.retry.winding_up:
            return CopyEvent.CONTINUES
        backoff_ms = parts.retry.next_backoff_ms()
        if backoff_ms is None:
            return CopyEvent.FINISHED
        self._pause_ms = backoff_ms
        return CopyEvent.BACKS_OFF if backoff_ms else CopyEvent.RETRIES

    def close(self, now: int) -> None:
        """Commit what was acknowledged behind the last commit, and close the writer."""
        self._final_commit = None
        if self._attempt is not None and now < self.until_ms:
            self._final_commit = self._attempt.final_commit(now)
        self._close()

    def _close(self) -> None:
        self.is_closed = True
        closed = self._writer.close(ABORT_TIMEOUT_MS)
        self._parts.call.begin(self._final_commit or closed)

    def abandon(self, now: int) -> None:
        """Free what the attempt holds, although its end has failed, and wait for the time of the backoff."""
        self._release(now)
        if not self.is_closed:
            self._close()
        # None: no attempt follows, as `take_backoff` finds. A retry that is due at once could fail in the same way.
        self._pause_ms = max(self._parts.retry.next_backoff_ms() or 0, CONFIRM_MS)
        self.wait(now)

    # --- the backoff

    def take_backoff(self, now: int) -> CopyEvent | None:
        """Return what follows, once the backoff is over, or no other attempt is to follow."""
        retry = self._parts.retry
        if now < self._paused_until_ms and not retry.winding_up:
            return None
        if not retry.keeps_backing_off:
            return CopyEvent.FINISHED
        if now < self.until_ms:
            return None
        if retry.may_begin:
            return CopyEvent.RETRIES
        self._pause_ms = CONFIRM_MS
        return CopyEvent.UNCONFIRMED

    def wait(self, now: int) -> None:
        """Wait for the pause that was decided."""
        self.until_ms = now + self._pause_ms

    def pause(self, now: int) -> None:
        """Wait before it is decided again what follows, which has failed: each step would try it."""
        self.until_ms = self._paused_until_ms = now + FAILURE_BACKOFF_MS
