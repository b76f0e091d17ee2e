"""Decides what follows an attempt: another one, immediately or after a backoff, or the result. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mirror.backoff import Backoff
from mirror.relay.model.ranges import TROUBLE, Outcome, Range, RangeResult
from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome, FailureClassifier
from mirror.relay.partition.across_attempts.result_recorder import ResultRecorder
from mirror.relay.partition.limits import FAILURE_BACKOFF_MAX_MS, FAILURE_BACKOFF_MS
from mirror.relay.partition.waiting import unfinished

if TYPE_CHECKING:
    from mirror.relay.partition.attempts.attempt import CopyAttempt

_STUCK_AFTER_INTERVALS: Final = 2
"""A batch that has waited for so many commit intervals is stuck."""


class RetryController:
    """Holds the outcome of a copy's last attempt, and decides what follows; the copy carries it out."""

    def __init__(
        self,
        copied: Range,
        recorder: ResultRecorder,
        failures: FailureClassifier,
        backoff: Backoff,
        unix_ms: Callable[[], int],
        may_retry: Callable[[], bool],
        may_fence_again: Callable[[], bool],
        awaited: Callable[[], str],
    ) -> None:
        """``may_retry``: whether a delayed retry may be waited for.

        ``may_fence_again``: whether the retry of a fenced one may begin.
        ``awaited``: what the copy waits for now, or "".
        """
        self.last_failure: AttemptOutcome | None = None
        """The failure of a followed partition; None once its source has answered again."""
        self.trouble: AttemptOutcome | None = None
        """How the last attempt has failed; None once another one has committed, or has caught up."""
        self.winding_up = False
        """Whether the copy is to end: no further attempt begins."""
        self._outcome: AttemptOutcome | None = None
        self._reason = ""
        self._undelivered_since_ms: int | None = None
        self._attempts = 0
        self._range: Final = copied
        self._recorder: Final = recorder
        self._unix_ms: Final = unix_ms
        self._failures: Final = failures
        self._backoff: Final = backoff
        self._failure_backoff: Final = backoff.with_bounds(FAILURE_BACKOFF_MS, FAILURE_BACKOFF_MAX_MS)
        self._may_retry: Final = may_retry
        self._may_fence_again: Final = may_fence_again
        self._awaited: Final = awaited

    # --- attempts

    def on_attempt_begun(self) -> None:
        """Count an attempt."""
        self._attempts += 1
        self._recorder.result.retries = self._attempts - 1
        self._recorder.timeline.attempt_started()

    def on_attempt_ended(self, outcome: AttemptOutcome | None, reason: str, waited_ms: int | None) -> None:
        """Record the end of an attempt.

        An ``outcome`` of None retries immediately. ``reason`` is the error that ended the attempt early, ``waited_ms``
        how long its first undelivered batch has waited in it (None: nothing was to be delivered).
        """
        self._outcome, self._reason = outcome, reason
        self._recorder.on_attempt_ended(outcome, self._attempts, reason)
        if outcome is not None and outcome.outcome in TROUBLE:
            self.trouble = outcome
        ended_early = outcome is not None and outcome.outcome is Outcome.UNFINISHED and waited_ms is not None
        self._undelivered_since_ms = self._unix_ms() - (waited_ms or 0) if ended_early else None

    # Invariant: A failing partition is retried with growing backoff, in a scheduled run only as long as a healthy one
    #   is copied: failing ones do not keep each other alive.
    # Test: tests/relay/partition/test_target_failures.py::test_backoff_ends_when_no_healthy_copy_is_left
    # Test: tests/relay/partition/
    #   test_source_failures.py::test_followed_partition_that_keeps_failing_waits_up_to_a_minute_until_it_commits
    def next_backoff_ms(self) -> int | None:
        """Return how long to wait before the next attempt; None if there is none."""
        retry = self._outcome is None and not self.winding_up
        if retry and not self._failures.aborts:
            return self._retry_after(0)
        if retry or (self._is_retriable and self._may_retry()):
            failures = self._failures
            failed = self._outcome is not None and self._outcome.outcome is Outcome.FAILED
            self.last_failure = self._outcome if failed else None
            if failed:
                return self._retry_after(self._failure_backoff.after(failures.failed_attempts))
            if self._is_fenced:
                return self._retry_after(FAILURE_BACKOFF_MS)
            return self._retry_after(self._backoff.after(max(failures.expiries, failures.aborts)))
        return None

    def _retry_after(self, backoff_ms: int) -> int:
        error = self._reason if self._outcome is None else self._outcome.error
        self._recorder.on_retry(self._attempts + 1, error, backoff_ms)
        return backoff_ms

    @property
    def _is_retriable(self) -> bool:
        """Whether the outcome may change: of an expiry; of any failure or fence, if the partition is followed."""
        outcome = None if self._outcome is None else self._outcome.outcome
        followed = self._range.open_ended and outcome in {Outcome.FAILED, Outcome.FENCED}
        return outcome is Outcome.EXPIRED or followed

    @property
    def _is_fenced(self) -> bool:
        return self._outcome is not None and self._outcome.outcome is Outcome.FENCED

    @property
    def keeps_backing_off(self) -> bool:
        """Whether a copy that backs off is still to be retried."""
        return not self.winding_up and (self._outcome is None or (self._is_retriable and self._may_retry()))

    @property
    def may_begin(self) -> bool:
        """Whether the retry, whose backoff is over, may begin: not while another run may have the partition."""
        return not self._is_fenced or self._may_fence_again()

    # --- results

    @property
    def _final_outcome(self) -> AttemptOutcome:
        return self._outcome or AttemptOutcome(Outcome.UNFINISHED, unfinished(self._reason or self._awaited()))

    def outcome_now(self, *, complete: bool) -> AttemptOutcome:
        """Return the outcome of a copy that is to end now, while it copies; ``complete``: nothing is left."""
        if self.last_failure is not None or complete:
            return self.last_failure or AttemptOutcome(Outcome.COMPLETE)
        return AttemptOutcome(Outcome.UNFINISHED, unfinished(self._awaited()))

    def result_at(self, now: int, attempt: CopyAttempt | None, commit_interval_ms: int) -> RangeResult:
        """Return what has come of the copy by ``now``, while it continues.

        ``attempt`` is what copies now; None: none does. If nothing is wrong, a range without an end is complete. If a
        batch has waited for too long, the error says what the copy waits for.
        """
        if self.trouble is not None:
            return self._recorder.result_at(now, self.trouble, None)
        since_ms = None if attempt is None else self._stuck_since_ms(now, attempt, commit_interval_ms)
        complete = self._range.open_ended and since_ms is None
        awaited = "" if since_ms is None else self._awaited()
        outcome = AttemptOutcome(Outcome.COMPLETE if complete else Outcome.UNFINISHED, awaited)
        return self._recorder.result_at(now, outcome, since_ms)

    def _stuck_since_ms(self, now: int, attempt: CopyAttempt, commit_interval_ms: int) -> int | None:
        """Return since when (ms since 1970) a batch has waited for too long; None if none has."""
        since_ms = attempt.undelivered_since_ms
        if since_ms is None:
            return None
        waited_ms = now - since_ms
        # After an expiry, a new attempt that has just begun has not improved anything.
        stuck = waited_ms > _STUCK_AFTER_INTERVALS * commit_interval_ms or self._failures.expiries > 0
        return self._unix_ms() - waited_ms if stuck else None

    def close(self, now: int) -> None:
        """Make the result final."""
        self._recorder.close(now, self._final_outcome, self._undelivered_since_ms)
