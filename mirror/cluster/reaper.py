"""Ends what outlived its deadline (seed 001: ``CompletableEventReaper``)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Any, Final

from mirror.cluster.events import CompletableEvent, Event
from mirror.timing import FOREVER_MS

_FEW: Final = 64


class CompletableEventReaper:
    """Tracks events from the moment they were drained until they are done or their time is up.

    A turn costs nothing for those whose deadline is yet to come, however many they are.
    """

    def __init__(self) -> None:
        self._tracked: list[tuple[int, int, CompletableEvent[Any]]] = []
        self._overdue: list[CompletableEvent[Any]] = []
        self._order = itertools.count()
        self._many = _FEW

    def __len__(self) -> int:
        return len(self._tracked) + len(self._overdue)

    def add(self, event: CompletableEvent[Any]) -> None:
        """Watch over ``event``."""
        heapq.heappush(self._tracked, (event.deadline_ms, next(self._order), event))
        if len(self._tracked) > self._many:
            # Most are done long before their deadline: their answers must not be kept until then.
            self._tracked = [entry for entry in self._tracked if not entry[2].future.done()]
            heapq.heapify(self._tracked)
            self._many = max(_FEW, 2 * len(self._tracked))

    def reap_expired_and_completed(self, now: int) -> None:
        """Expire what is past its deadline, forget what is done.

        Called after at least one network poll: every operation is attempted once, also with a timeout of 0. An event
        between two successful steps is left alone until its next attempt has failed.
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
        """At the end: fail everything, tracked or still queued, with ``error``."""
        for event in (*self._overdue, *(entry[2] for entry in self._tracked), *queued):
            event.fail(error)
        self._tracked, self._overdue = [], []

    def wait_ms(self, now: int) -> int:
        """Milliseconds until the next deadline; 0 while one is past that is advancing, to look at it again."""
        self._forget_done()
        if self._overdue:
            return 0
        return max(0, self._tracked[0][0] - now) if self._tracked else FOREVER_MS
