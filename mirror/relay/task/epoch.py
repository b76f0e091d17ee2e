"""Ends a task's epoch, at its planned time or on a control command: its copies wind up, or hand over their results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Final

from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import RangeResult
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.partition.states import FAILURE_BACKOFF_MS
from mirror.relay.progress.control import ControlPoller, RunControl
from mirror.timing import FOREVER_MS

_log: Final = logging.getLogger(__name__)

_HAND_OVER_MS: Final = 500
"""How long a hand-over waits for commits in flight, which its results would not include."""
_HAND_OVER_RECHECK_MS: Final = 10

HandOver = Callable[[list[RangeResult]], None]
"""Receives the results of an epoch whose copies continue."""


class EpochLifecycle:
    """Ends the epoch of one task. In a batch job an epoch has no planned end: the task ends with its copies.

    An epoch ends in one of two ways. In a wind-up, the copies commit what is acknowledged; what is not committed in
    time is aborted. In a hand-over, the copies report their results and continue for the lease, until the next epoch's
    attempts take over; then they wind up.
    """

    def __init__(
        self,
        policy: CopyPolicy,
        timeouts: CopyTimeouts,
        unix_ms: Callable[[], int],
        read_control: Callable[[], Future[RunControl | None]],
        now: int,
    ) -> None:
        """``read_control`` reads the control record of the flow's runs."""
        self._policy: Final = policy
        self._unix_ms: Final = unix_ms
        self._wind_up_ms: Final = min(timeouts.request_timeout_ms, policy.wind_up_ms)
        self._control = ControlPoller(read_control, policy.run, policy.epoch, now) if policy.run else None
        self._hand_over: HandOver | None = None
        self._ends_at = FOREVER_MS if policy.until_ms is None else policy.until_ms
        self._winding_up = self._ended_by_control = self._handed_over = False
        self._opens_until = now
        self._hand_over_delayed = False
        self._hand_over_since: int | None = None

    def begin(self, hand_over: HandOver | None, now: int) -> None:
        """The copies begin. Hand their results over at the epoch's end, if the policy grants a lease."""
        self._hand_over = hand_over if self._policy.lease_ms else None
        self._opens_until = now + self._wind_up_ms

    @property
    def lasts(self) -> bool:
        """Whether the epoch has not ended: copies may begin."""
        return not (self._winding_up or self._handed_over or self._hand_over_delayed)

    @property
    def may_be_last(self) -> bool:
        """Whether this epoch may be the last for a long time: then the progress topic receives its progress now."""
        return self._policy.until_ms is None or self._ended_by_control or self._policy.epoch <= 1

    def may_retry(self, active: Collection[PartitionCopy]) -> bool:
        """Whether to retry expired copies: while the epoch lasts, or in a batch job while other copies continue."""
        if self._policy.until_ms is not None:
            return not (self._winding_up or self._handed_over) and self._unix_ms() < self._policy.until_ms
        return any(not copy.expired for copy in active)

    def is_confirmed(self, now: int) -> bool:
        """Whether the control record, as read less than ``FAILURE_BACKOFF_MS`` ago, says that the epoch may continue.

        So what has fenced a copy that waits for so long is no other run.
        """
        return self._control is not None and now - self._control.confirmed_ms < FAILURE_BACKOFF_MS

    def update(
        self, now: int, copies: Sequence[PartitionCopy], active: Collection[PartitionCopy]
    ) -> Collection[PartitionCopy]:
        """End the epoch if it is time; return the copies to step. ``active`` are the ``copies`` that are not done."""
        if self._control is not None and not self._winding_up and (reason := self._control.poll(now)) is not None:
            _log.info("epoch %d of run %s ends early: %s", self._policy.epoch, self._policy.run, reason)
            self._ends_at, self._ended_by_control = self._unix_ms(), True
        if self._unix_ms() < self._ends_at:
            return ()
        if self._hand_over is not None and not self._ended_by_control:
            return self._try_hand_over(now, self._hand_over, copies, active)
        # The second time, the time of the wind-up is over: abort what is not committed.
        immediately, self._winding_up = self._winding_up, True
        self._ends_at = FOREVER_MS if immediately else self._unix_ms() + self._wind_up_ms
        ended = list(active)
        for copy in ended:
            copy.wind_up(now, immediately=immediately)
        return ended

    def _try_hand_over(
        self, now: int, hand_over: HandOver, copies: Sequence[PartitionCopy], active: Collection[PartitionCopy]
    ) -> Collection[PartitionCopy]:
        """Hand over as soon as no commit is in flight.

        A task may begin after the planned end of its epoch, if processes take long to start. Its copies open first: one
        that had no time to begin would be reported as unfinished, and nothing would be copied for the lease.
        """
        self._hand_over_delayed = True
        if now < self._opens_until and any(copy.opening for copy in active):
            return ()
        self._hand_over_since = now if self._hand_over_since is None else self._hand_over_since
        in_flight = [copy.hold_commits() for copy in active]  # a list: it must hold the commits of all copies
        if any(in_flight) and now - self._hand_over_since < _HAND_OVER_MS:
            return ()  # the end of a commit wakes the task
        self._hand_over, self._handed_over = None, True
        hand_over([copy.hand_over(now) for copy in copies])
        self._ends_at = self._unix_ms() + self._policy.lease_ms
        return list(active)

    def due_ms(self, now: int) -> int:
        """Return when :meth:`update` has to be called next if nothing wakes the task before."""
        delayed = self._hand_over_delayed and not (self._handed_over or self._winding_up)
        due_ms = now + (_HAND_OVER_RECHECK_MS if delayed else max(0, self._ends_at - self._unix_ms()))
        if self._control is not None and not self._winding_up:
            due_ms = min(due_ms, self._control.due_ms())
        return due_ms
