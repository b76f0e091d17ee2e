"""The next time to look at each of many things, in order of time, without looking at any before."""

from __future__ import annotations

import heapq
import itertools
from typing import Final, Generic, TypeVar

from mirror.timing import FOREVER_MS

T = TypeVar("T")

_SPARE: Final = 64
"""Outdated entries that the heap may hold beside as many as there are things: it is cleared out only then."""


class DeadlineHeap(Generic[T]):
    """One alarm per thing, in absolute ms; setting it anew replaces it. FOREVER_MS is none."""

    def __init__(self) -> None:
        self._at: dict[T, int] = {}
        # Changed and cleared alarms stay in the heap until they come up: ``_at`` says which entries are true.
        self._heap: list[tuple[int, int, T]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, thing: T, at_ms: int) -> None:
        """Wake for ``thing`` at ``at_ms``, and at no other time."""
        if at_ms >= FOREVER_MS:
            self._at.pop(thing, None)
        elif self._at.get(thing) != at_ms:
            self._at[thing] = at_ms
            heapq.heappush(self._heap, (at_ms, next(self._order), thing))
            if len(self._heap) > 2 * len(self._at) + _SPARE:
                self._heap = [(at, next(self._order), one) for one, at in self._at.items()]
                heapq.heapify(self._heap)

    def sooner(self, thing: T, at_ms: int) -> None:
        """Wake for ``thing`` at ``at_ms``, unless that is to happen before."""
        if at_ms < self._at.get(thing, FOREVER_MS):
            self.set(thing, at_ms)

    def clear(self, thing: T) -> None:
        """No alarm for ``thing``."""
        self._at.pop(thing, None)

    def next_ms(self) -> int:
        """The time of the earliest alarm; FOREVER_MS where there is none."""
        while self._heap:
            at, _, thing = self._heap[0]
            if self._at.get(thing) == at:
                return at
            heapq.heappop(self._heap)
        return FOREVER_MS

    def due(self, now: int) -> list[T]:
        """What has an alarm up to ``now``, in order of time; it has none any more."""
        found: list[T] = []
        if not self._heap or self._heap[0][0] > now:
            return found  # true or outdated, nothing in the heap is that early
        while self.next_ms() <= now:
            thing = heapq.heappop(self._heap)[2]
            del self._at[thing]
            found.append(thing)
        return found
