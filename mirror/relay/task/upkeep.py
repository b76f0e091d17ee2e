"""What copies need now and then that live for months: their progress renewed, rules read again, periods ended."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.task.topic_rules import TopicRules
from mirror.timing import FOREVER_MS

_log: Final = logging.getLogger(__name__)

_MAX_IN_TURN: Final = 200
"""So many copies have their period ended, or are asked whether their progress is old, in one turn of the task."""
_RENEW_CHECK_MS: Final = 60_000
_RENEW_CHECKS: Final = 4
"""How often a copy is asked at least within ``renew_ms``."""
_MOST_RENEWED: Final = 4
"""So many copies of a task are renewed at a time: each reads nothing meanwhile, and 1,000 together took 25 s."""
_RENEWED_WITHIN_MS: Final = 3_000
"""How long a copy that is being renewed holds up others."""
_MS_PER_TOPIC: Final = 20
"""Rules are read less often for more topics: brokers have 40 values of each, and those of 10,000 take 0.5 s of CPU."""
_MIN_REFRESH_MS: Final = 10_000
"""How soon after the last time rules are read again because an attempt has failed."""


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


class RulesRefresh:
    """Reads the rules of a task's topics again. Used on the task's thread."""

    def __init__(
        self,
        read: Callable[[Sequence[Range]], TopicRules],
        submit: Callable[..., Future[Any]],
        wake: Callable[[], None],
        refresh_ms: int,
        now: int,
    ) -> None:
        """``submit`` runs a call in a thread that may wait."""
        self._read: Final = read
        self._submit: Final = submit
        self._wake: Final = wake
        self._refresh_ms: Final = refresh_ms
        self._read_at = now
        self._due_at = now + refresh_ms
        self._reading: Future[TopicRules] | None = None

    def on_failed(self) -> None:
        """An attempt has failed: the target may have refused what its topic's configuration forbids by now."""
        self._due_at = min(self._due_at, self._read_at + _MIN_REFRESH_MS)

    def update(self, copies: Mapping[Any, PartitionCopy], now: int) -> TopicRules | None:
        """Return rules that were read, once; begin to read them if that is due."""
        if self._reading is not None:
            return self._take()
        if now < self._due_at or not copies:
            return None
        topics = {copy.range.target_topic: copy.range for copy in copies.values()}
        self._read_at, self._due_at = now, now + max(self._refresh_ms, _MS_PER_TOPIC * len(topics))
        self._reading = self._submit(self._read, list(topics.values()))
        self._reading.add_done_callback(lambda _: self._wake())
        return None

    def _take(self) -> TopicRules | None:
        reading = self._reading
        if reading is None or not reading.done():
            return None
        self._reading = None
        if (error := reading.exception()) is not None:
            _log.info("the rules of the topics could not be read again; those that are known apply: %s", error)
            return None
        return reading.result()
