"""Deadlines of many things, in order of time: none is visited before its deadline. Pure."""

from __future__ import annotations

import heapq
import itertools
from typing import Final, Generic, TypeVar

from mirror.timing import FOREVER_MS

T = TypeVar("T")

_SPARE: Final = 64
"""Outdated entries that the heap may hold, in addition to one for each thing, before they are removed."""


class DeadlineHeap(Generic[T]):
    """One deadline for each thing, in absolute ms; FOREVER_MS is none. Setting it replaces the former one."""

    def __init__(self) -> None:
        self._at: dict[T, int] = {}
        # Changed and cleared deadlines stay in the heap until they are due: ``_at`` has the valid ones.
        self._heap: list[tuple[int, int, T]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, thing: T, at_ms: int) -> None:
        """Set the deadline of ``thing``."""
        if at_ms >= FOREVER_MS:
            self._at.pop(thing, None)
        elif self._at.get(thing) != at_ms:
            self._at[thing] = at_ms
            heapq.heappush(self._heap, (at_ms, next(self._order), thing))
            if len(self._heap) > 2 * len(self._at) + _SPARE:
                self._heap = [(at, next(self._order), valid) for valid, at in self._at.items()]
                heapq.heapify(self._heap)

    def sooner(self, thing: T, at_ms: int) -> None:
        """Set the deadline of ``thing``, unless it has an earlier one."""
        if at_ms < self._at.get(thing, FOREVER_MS):
            self.set(thing, at_ms)

    def clear(self, thing: T) -> None:
        """Remove the deadline of ``thing``."""
        self._at.pop(thing, None)

    def next_ms(self) -> int:
        """Return the earliest deadline; FOREVER_MS if there is none."""
        while self._heap:
            at, _, thing = self._heap[0]
            if self._at.get(thing) == at:
                return at
            heapq.heappop(self._heap)
        return FOREVER_MS

    def due(self, now: int) -> list[T]:
        """Remove and return the things with a deadline up to ``now``, in order of time."""
        found: list[T] = []
        if not self._heap or self._heap[0][0] > now:
            return found  # no entry is that early, valid or outdated
        while self.next_ms() <= now:
            thing = heapq.heappop(self._heap)[2]
            del self._at[thing]
            found.append(thing)
        return found
