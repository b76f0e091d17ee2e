"""Ends one attempt: its last commit, its writer, and what follows. No I/O."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.parts.copy_parts import CopyParts
from mirror.relay.partition.states import ABORT_TIMEOUT_MS, CopyState
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter

_CONFIRM_MS: Final = 1_000
"""How soon a fenced copy asks again whether another run has taken over."""


class Ending:
    """The end of one attempt, until another one begins or the copy's result is final."""

    def __init__(
        self, parts: CopyParts, writer: TargetWriter, attempt: CopyAttempt | None, now: int, *, changes_way: bool
    ) -> None:
        """``attempt``: None if it does not read; ``changes_way``: another one continues it, the other way."""
        self.state = CopyState.ABORTING
        """ABORTING, perhaps BACKING_OFF, then OPENING for another attempt, or DONE."""
        self.until_ms = now + ABORT_TIMEOUT_MS
        """Until when this state lasts at most."""
        self._parts: Final = parts
        self._writer: Final = writer
        self._attempt: Final = attempt
        self._changes_way: Final = changes_way
        self._final_commit: Future[None] | None = None
        self._is_closed = False

    def begin(self, now: int) -> None:
        """Begin the last commit, and close the writer."""
        parts, attempt = self._parts, self._attempt
        self._final_commit = None if attempt is None else attempt.final_commit(now)
        parts.context.stop_reading(parts.copy)
        if attempt is not None:
            attempt.end(now)
        if self._final_commit is not None and attempt is not None and attempt.commits_rest:
            parts.call.begin(self._final_commit)
        else:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        closed = self._writer.close(ABORT_TIMEOUT_MS)
        self._parts.call.begin(self._final_commit or closed)

    def step(self, now: int) -> None:
        """Change :attr:`state` once its condition is met. The copy's result is final when that is DONE."""
        if self.state is CopyState.BACKING_OFF:
            self._step_backing_off(now)
        else:
            self._step_aborting(now)

    def _step_aborting(self, now: int) -> None:
        parts = self._parts
        if parts.call.pop_done() is None and now < self.until_ms:
            return
        if self._attempt is not None and self._final_commit is not None:
            counts, _ = self._attempt.commits.take_result(now) or (None, None)
            if counts is not None:
                parts.copy.on_committed(counts)
        if not self._is_closed:
            self._final_commit = None
            if self._attempt is not None and now < self.until_ms:
                self._final_commit = self._attempt.final_commit(now)
            self._close()
            if now < self.until_ms:
                return
        if self._changes_way and not parts.retry.winding_up:
            self.state = CopyState.OPENING  # not a retry
            return
        backoff_ms = parts.retry.next_backoff_ms()
        if backoff_ms is None:
            self._finish(now)
        elif backoff_ms == 0:
            self._retry()
        else:
            self.state = CopyState.BACKING_OFF
            self.until_ms = now + backoff_ms

    def _step_backing_off(self, now: int) -> None:
        if not self._parts.retry.keeps_backing_off:
            self._finish(now)
        elif now >= self.until_ms and self._parts.retry.may_begin:
            self._retry()
        elif now >= self.until_ms:
            self.until_ms = now + _CONFIRM_MS

    def _retry(self) -> None:
        self.state = CopyState.OPENING
        self._parts.retry.on_attempt_begun()

    def _finish(self, now: int) -> None:
        parts = self._parts
        parts.context.keep_segments(parts.copy, parts.indexing.take_rest())
        parts.retry.close(now)
        self.state, self.until_ms = CopyState.DONE, FOREVER_MS
