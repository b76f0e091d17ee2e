"""Ends one attempt: its last commit, its writer, and what follows. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS, CONFIRM_MS
from mirror.relay.partition.parts.commit_recorder import CommitRecorder
from mirror.relay.partition.parts.copy_parts import CopyParts
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
        *,
        changes_way: bool,
    ) -> None:
        """Begin the last commit, and close the writer behind it.

        ``attempt``: None if it does not read; ``changes_way``: another one continues it, the other way.
        """
        self.until_ms = now + ABORT_TIMEOUT_MS
        """Until when the present state lasts at most."""
        self._parts: Final = parts
        self._commits: Final = commits
        self._writer: Final = writer
        self._attempt: Final = attempt
        self._changes_way: Final = changes_way
        self._final_commit = None if attempt is None else attempt.final_commit(now)
        self._is_closed = False
        self._pause_ms = 0
        parts.context.stop_reading(parts.copy)
        if attempt is not None:
            attempt.end(now)
        if self._final_commit is not None and attempt is not None and attempt.commits_rest:
            parts.call.begin(self._final_commit)
        else:
            self._close()

    # --- its last commit

    def take_end(self, now: int) -> CopyEvent | None:
        """Return what follows, once what is awaited has ended, or was not answered in time."""
        parts = self._parts
        if parts.call.pop_done() is None and now < self.until_ms:
            return None
        if self._attempt is not None and self._final_commit is not None:
            counts, _ = self._attempt.commits.take_result(now) or (None, None)
            if counts is not None:
                self._commits.record(counts)
        if not self._is_closed:
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
        self._is_closed = True
        closed = self._writer.close(ABORT_TIMEOUT_MS)
        self._parts.call.begin(self._final_commit or closed)

    # --- the backoff

    def take_backoff(self, now: int) -> CopyEvent | None:
        """Return what follows, once the backoff is over, or no other attempt is to follow."""
        retry = self._parts.retry
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
