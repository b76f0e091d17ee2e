"""Expires events after their deadlines (``CompletableEventReaper``). No I/O."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Any, Final

from mirror.cluster.events import CompletableEvent, Event
from mirror.timing import FOREVER_MS

_MIN_TRACKED: Final = 64


# Invariant: A call expires only between two requests: one that advances continues behind its deadline, and one that
#   failed is not sent again.
# Test: tests/cluster/test_reaper.py::test_a_chain_that_keeps_succeeding_is_not_cut
# Test: tests/cluster/test_admin_each_call.py::test_nothing_is_retried_after_the_deadline
class CompletableEventReaper:
    """Tracks events from when they are drained until they are done or expire.

    Events before their deadline cost a turn nothing, however many they are.
    """

    def __init__(self) -> None:
        self._tracked: list[tuple[int, int, CompletableEvent[Any]]] = []
        self._overdue: list[CompletableEvent[Any]] = []
        self._order = itertools.count()
        self._prune_above = _MIN_TRACKED

    def __len__(self) -> int:
        return len(self._tracked) + len(self._overdue)

    def add(self, event: CompletableEvent[Any]) -> None:
        """Track ``event``."""
        heapq.heappush(self._tracked, (event.deadline_ms, next(self._order), event))
        if len(self._tracked) > self._prune_above:
            # Most are done long before their deadline: their results must not be kept until then.
            self._tracked = [entry for entry in self._tracked if not entry[2].future.done()]
            heapq.heapify(self._tracked)
            self._prune_above = max(_MIN_TRACKED, 2 * len(self._tracked))

    def reap_expired_and_completed(self, now: int) -> None:
        """Expire events after their deadline, and drop those that are done.

        Called after at least one network poll, so that every operation is attempted once, even with a timeout of 0. An
        event between two successful steps does not expire before its next attempt has failed.
        """
        self._forget_done()
        while self._tracked and self._tracked[0][0] <= now:
            self._overdue.append(heapq.heappop(self._tracked)[2])
        if self._overdue:
            for event in self._overdue:
                if not event.future.done() and not event.advancing:
                    event.expire()
            self._overdue = [event for event in self._overdue if not event.future.done()]

    def _forget_done(self) -> None:
        while self._tracked and self._tracked[0][2].future.done():
            heapq.heappop(self._tracked)

    def reap_incomplete(self, queued: Iterable[Event], error: BaseException) -> None:
        """Fail all tracked and all queued events with ``error``."""
        for event in (*self._overdue, *(entry[2] for entry in self._tracked), *queued):
            event.fail(error)
        self._tracked, self._overdue = [], []

    def wait_ms(self, now: int) -> int:
        """Return ms until the next deadline; 0 while an overdue event advances, which is checked in every turn."""
        self._forget_done()
        if self._overdue:
            return 0
        return max(0, self._tracked[0][0] - now) if self._tracked else FOREVER_MS
