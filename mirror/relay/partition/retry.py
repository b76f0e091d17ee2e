"""What comes after an attempt: another one, at once or after a rest, or none; and what is told of it. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mirror.backoff import Backoff
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.attempt_outcome import AttemptOutcome, FailureClassifier
from mirror.relay.partition.delivery_deadline import DeliveryClock
from mirror.relay.partition.result_recorder import ResultRecorder
from mirror.relay.partition.states import REST_MS, unfinished

if TYPE_CHECKING:
    from mirror.relay.partition.attempt import CopyAttempt

_LATE: Final = 2
"""What waits for so many commit intervals at an epoch's end is stuck: its age goes on in the next."""


class RetryController:
    """Knows how a copy's last attempt ended, and decides what comes then; the copy itself does it.

    ``trouble`` is what befell who follows, as long as nothing was heard since. ``winding_up``: the epoch ends, and no
    other attempt begins. ``may_retry`` tells whether one that is not to begin at once may be waited for, and
    ``waited_for`` what the copy waits for now ("": nothing).
    """

    def __init__(
        self,
        one: Range,
        account: ResultRecorder,
        clock: DeliveryClock,
        rulings: FailureClassifier,
        backoff: Backoff,
        may_retry: Callable[[], bool],
        waited_for: Callable[[], str],
    ) -> None:
        self.trouble: AttemptOutcome | None = None
        self.winding_up = False
        self._after: AttemptOutcome | None = None
        self._why = ""
        self._attempts = 0
        self._range: Final = one
        self._account: Final = account
        self._clock: Final = clock
        self._rulings: Final = rulings
        self._backoff: Final = backoff
        self._may_retry: Final = may_retry
        self._waited_for: Final = waited_for

    # --- attempts

    def begins(self) -> None:
        """Another attempt."""
        self._attempts += 1
        self._account.result.retries = self._attempts - 1
        self._account.chronicle.attempts()

    def ends(self, after: AttemptOutcome | None, why: str, waited_ms: int | None) -> None:
        """This attempt ends as ``after`` says, None where the copy is to be begun anew at once.

        ``why`` is what ended it before its time, ``waited_ms`` how long its first undelivered batch has waited in it
        (None: there was nothing to deliver).
        """
        self._after, self._why = after, why
        self._account.ends(after, self._attempts, why)
        if after is not None and after.expiry is not None:
            self._clock.stop()
        if after is not None and after.outcome is Outcome.UNFINISHED:
            self._clock.hand_on(waited_ms)

    def rest_ms(self) -> int | None:
        """How long to rest before the next attempt; None where none is to come."""
        again = self._after is None and not self.winding_up and self._account.handed is None
        if again and not self._rulings.aborts:
            return self._told_to_rest(0)
        if again or (self._may_mend and self._may_retry()):
            failed = self._after is not None and self._after.outcome is Outcome.FAILED
            self.trouble = self._after if failed else None
            backoff_ms = self._backoff.after(max(self._rulings.expiries, self._rulings.aborts))
            return self._told_to_rest(REST_MS if failed else backoff_ms)
        return None

    def _told_to_rest(self, rest_ms: int) -> int:
        error = self._why if self._after is None else self._after.error
        self._account.begins_anew(self._attempts + 1, error, rest_ms)
        return rest_ms

    @property
    def _may_mend(self) -> bool:
        """Whether it can be tried again: what expired; and who follows, whatever befell it, has the time to wait."""
        outcome = None if self._after is None else self._after.outcome
        return outcome is Outcome.EXPIRED or (outcome is Outcome.FAILED and self._range.follows)

    @property
    def rests_on(self) -> bool:
        """Whether the next attempt is still to come, of a copy that rests."""
        return not self.winding_up and (self._after is None or self._may_retry())

    # --- what is told

    @property
    def _told(self) -> AttemptOutcome:
        return self._after or AttemptOutcome(Outcome.UNFINISHED, unfinished(self._why or self._waited_for()))

    def of_epoch(self, *, kept: bool) -> AttemptOutcome:
        """What becomes, as the epoch ends, of a copy that was copying; ``kept``: all that it was to keep is."""
        if self.trouble is not None or kept:
            return self.trouble or AttemptOutcome(Outcome.COMPLETE)
        return AttemptOutcome(Outcome.UNFINISHED, unfinished(self._waited_for()))

    def close(self, now: int) -> None:
        """The result stands."""
        self._account.close(now, self._told, self._clock.since_ms)

    def so_far(self, now: int) -> RangeResult:
        """What is told, as the epoch ends, of a copy that does not copy."""
        return self._account.so_far(now, self._told, self._clock.since_ms)

    def hand_over(self, now: int, copying: CopyAttempt, *, wall: int, commit_ms: int) -> RangeResult:
        """What is told, as the epoch ends, of a copy that goes on; ``wall`` is ``now`` in ms since 1970.

        What it commits from now on is told with the progress.
        """
        self._account.handed, copying.commits.hold = copying.commits.kept, False
        waits_ms = None if copying.waits_since_ms is None else now - copying.waits_since_ms
        # Who expired is no better for an attempt that has just begun.
        late = waits_ms is not None and (waits_ms > _LATE * commit_ms or self._rulings.expiries > 0)
        since_ms = (self._clock.since_ms or wall - (waits_ms or 0)) if late else None
        return self._account.so_far(now, self.of_epoch(kept=not late), since_ms)
