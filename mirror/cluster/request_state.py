"""When a request may be tried again after failures in a row (``RequestState``, KIP-580).

Everything that retries (metadata, coordinators, calls, fetches, offsets, producer ids) holds one of these per thing
that it asks for, or :class:`KeyStates` where one request asks for many.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from mirror.backoff import Backoff
from mirror.timing import FOREVER_MS

K = TypeVar("K", bound=Hashable)

Waits = dict[int, int]
"""Failures in a row -> ms to wait, for what failed with one answer: it goes in one request again, not in one each."""


def _wait(backoff: Backoff, failures: int, waits: Waits) -> int:
    if failures not in waits:
        waits[failures] = backoff.after(failures)
    return waits[failures]


class RequestState:
    """One request in flight at most, and the wait after failures in a row; a success forgets them."""

    __slots__ = ("_backoff", "failures", "in_flight", "not_before_ms")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.failures = 0
        self.not_before_ms = 0
        self.in_flight = False

    def can_send(self, now: int) -> bool:
        """Whether an attempt may be made now."""
        return not self.in_flight and self.not_before_ms <= now

    def wait_ms(self, now: int) -> int:
        """Milliseconds until :meth:`can_send` may become true; FOREVER_MS while an answer is awaited."""
        return FOREVER_MS if self.in_flight else max(0, self.not_before_ms - now)

    def sent(self) -> None:
        """An attempt is under way."""
        self.in_flight = True

    def succeeded(self) -> None:
        """It was answered as hoped."""
        self.in_flight = False
        self.failures = 0
        self.not_before_ms = 0

    def failed(self, now: int, waits: Waits | None = None) -> None:
        """It failed: wait longer each time. Those that fail with the same answer share ``waits``."""
        self.in_flight = False
        self.failures += 1
        self.not_before_ms = now + _wait(self._backoff, self.failures, {} if waits is None else waits)

    def pause(self, now: int, times: int) -> None:
        """Nothing failed, but the next attempt keeps the distance it would have after ``times`` failures."""
        self.not_before_ms = now + self._backoff.after(times)

    def skip_backoff(self) -> None:
        """What failed is not what will be asked next (a new leader, KAFKA-14253): no need to wait."""
        self.not_before_ms = 0


class KeyStates(Generic[K]):
    """The failures in a row of each of many keys, and how long each rests after them.

    Keys are asked for together, and some of them fail: neither does the success of one end the backoff of another, nor
    does the failure of one delay another (KIP-580). Keys with equally many failures that fail with the same answer rest
    equally long, so that they go in one request again. A key without failures costs nothing here.
    """

    __slots__ = ("_backoff", "_failures", "_next_ms", "_resting")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures: dict[K, int] = {}
        self._resting: dict[K, int] = {}
        self._next_ms = FOREVER_MS

    def failed(self, keys: Iterable[K], now: int) -> None:
        """The same answer, or its absence, failed all of ``keys``: each rests longer each time."""
        waits: Waits = {}
        for key in keys:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._resting[key] = now + _wait(self._backoff, failures, waits)
        self._next_ms = min([self._next_ms, *(now + wait for wait in waits.values())])

    def succeeded(self, keys: Collection[K]) -> None:
        """They were answered as hoped: their failures are forgotten."""
        if self._failures:
            for key in keys:
                self._failures.pop(key, None)
                self._resting.pop(key, None)

    @property
    def resting(self) -> Collection[K]:
        """The keys that may not be asked for yet, as of the last :meth:`rested`."""
        return self._resting.keys()

    def rested(self, now: int) -> Collection[K]:
        """The keys whose wait has ended by ``now``; each is returned once."""
        if now < self._next_ms:
            return ()
        keys = [key for key, until in self._resting.items() if until <= now]
        for key in keys:
            del self._resting[key]
        self._next_ms = min(self._resting.values(), default=FOREVER_MS)
        return keys

    def wait_ms(self, now: int) -> int:
        """Milliseconds until :meth:`rested` may return a key; FOREVER_MS where none rests."""
        return FOREVER_MS if self._next_ms == FOREVER_MS else max(0, self._next_ms - now)
