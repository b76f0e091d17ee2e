"""What copies need now and then that live for months: their progress renewed, and their periods ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.timing import FOREVER_MS

_MAX_IN_TURN: Final = 200
"""So many copies have their period ended, or are asked whether their progress is old, in one turn of the task."""
_RENEW_CHECK_MS: Final = 60_000
_RENEW_CHECKS: Final = 4
"""How often a copy is asked at least within ``renew_ms``."""
_MOST_RENEWED: Final = 4
"""So many copies of a task are renewed at a time: each reads nothing meanwhile, and 1,000 together took 25 s."""
_RENEWED_WITHIN_MS: Final = 3_000
"""How long a copy that is being renewed holds up others."""


class Upkeep:
    """Visits all copies of a task from time to time, a few in each turn. Used on the task's thread."""

    def __init__(
        self,
        policy: CopyPolicy,
        end_period: Callable[[PartitionCopy, int], object],
        unix_ms: Callable[[], int],
        now: int,
    ) -> None:
        """``end_period`` ends that of a copy at a time."""
        self._end_period: Final = end_period
        self._period_ms: Final = policy.period_ms
        self._renew_check_ms: Final = min(_RENEW_CHECK_MS, max(1, policy.renew_ms // _RENEW_CHECKS))
        self._renew_at = now + self._renew_check_ms if policy.renew_ms else FOREVER_MS
        self._unix_ms: Final = unix_ms
        self._period_ends_at = self._next_period_end(now)
        self._to_renew: Final = deque[PartitionCopy]()
        self._renewing: dict[PartitionCopy, int] = {}
        """The copies that are being renewed, and until when each holds up others at most."""
        self._to_end_period: Final = deque[PartitionCopy]()

    def _next_period_end(self, now: int) -> int:
        """Return the next multiple of the period since 1970, as driver and tasks have it; not one that is just over."""
        left_ms: int = self._period_ms - self._unix_ms() % self._period_ms
        return now + left_ms + (self._period_ms if left_ms < self._period_ms // _RENEW_CHECKS else 0)

    def update(self, copies: Collection[PartitionCopy], now: int) -> list[PartitionCopy]:
        """Visit those of the ``copies`` whose turn it is; return those to step."""
        if now >= self._renew_at:
            self._renew_at = now + self._renew_check_ms
            _replace(self._to_renew, copies)
        if now >= self._period_ends_at:
            self._period_ends_at = self._next_period_end(now)
            _replace(self._to_end_period, copies)
        for copy in _take(self._to_end_period):
            self._end_period(copy, now)
            copy.forget_refusals()
        return self._renew_some(now)

    def _renew_some(self, now: int) -> list[PartitionCopy]:
        self._renewing = {
            copy: until_ms
            for copy, until_ms in self._renewing.items()
            if now < until_ms and not copy.done and copy.renewal_due
        }
        begun = list[PartitionCopy]()
        for copy in _take(self._to_renew, lambda: len(self._renewing) < _MOST_RENEWED):
            if copy not in self._renewing and copy.renew():
                self._renewing[copy] = now + _RENEWED_WITHIN_MS
                begun.append(copy)
        return begun

    @property
    def due_ms(self) -> int:
        """When :meth:`update` is wanted next if nothing happens before."""
        full = len(self._renewing) >= _MOST_RENEWED
        if self._to_end_period or (self._to_renew and not full):
            return 0
        room_at = min(self._renewing.values()) if self._to_renew else FOREVER_MS
        return min(self._renew_at, self._period_ends_at, room_at)


def _replace(queue: deque[PartitionCopy], copies: Collection[PartitionCopy]) -> None:
    queue.clear()
    queue.extend(copies)


def _take(queue: deque[PartitionCopy], may_go_on: Callable[[], bool] = lambda: True) -> Iterator[PartitionCopy]:
    for _ in range(min(_MAX_IN_TURN, len(queue))):
        if not may_go_on():
            return
        copy = queue.popleft()
        if not copy.done:
            yield copy
