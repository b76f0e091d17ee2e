"""When a request may be retried after failures in a row (``RequestState``, KIP-580). No I/O.

Everything that retries (metadata, coordinators, calls, fetches, offsets, producer ids) has one RequestState for each
thing that it requests, or :class:`KeyStates` where one request covers many keys.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from mirror.backoff import Backoff
from mirror.timing import FOREVER_MS

K = TypeVar("K", bound=Hashable)

Waits = dict[int, int]
"""Failures in a row -> ms to wait, for keys that failed with the same response: they share their next request, too."""


def _wait(backoff: Backoff, failures: int, waits: Waits) -> int:
    if failures not in waits:
        waits[failures] = backoff.after(failures)
    return waits[failures]


class RequestState:
    """At most one request in flight, and the backoff after failures in a row, which a success resets."""

    __slots__ = ("_backoff", "failures", "in_flight", "not_before_ms")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.failures = 0
        self.not_before_ms = 0
        self.in_flight = False

    def can_send(self, now: int) -> bool:
        """Whether a request may be sent now."""
        return not self.in_flight and self.not_before_ms <= now

    def wait_ms(self, now: int) -> int:
        """Return ms until :meth:`can_send` may become true; FOREVER_MS while a request is in flight."""
        return FOREVER_MS if self.in_flight else max(0, self.not_before_ms - now)

    def sent(self) -> None:
        """Record that a request is in flight."""
        self.in_flight = True

    def succeeded(self) -> None:
        """Reset the backoff after a success."""
        self.in_flight = False
        self.failures = 0
        self.not_before_ms = 0

    def failed(self, now: int, waits: Waits | None = None) -> None:
        """Back off, longer each time. Requests that fail with the same response share ``waits``."""
        self.in_flight = False
        self.failures += 1
        self.not_before_ms = now + _wait(self._backoff, self.failures, {} if waits is None else waits)

    def pause(self, now: int, times: int) -> None:
        """Delay the next request as after ``times`` failures, though nothing failed."""
        self.not_before_ms = now + self._backoff.after(times)

    def skip_backoff(self) -> None:
        """Send the next request without delay: it goes to another broker than the one that failed (KAFKA-14253)."""
        self.not_before_ms = 0


class KeyStates(Generic[K]):
    """The failures in a row of many keys, and the backoff of each.

    Keys share requests, and some of them fail: the success of one key does not reset the backoff of another, and the
    failure of one does not delay another (KIP-580). Keys with the same number of failures that fail with the same
    response back off equally long, so that they share a request again. A key without failures uses no memory here.
    """

    __slots__ = ("_backoff", "_failures", "_next_ms", "_resting")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures: dict[K, int] = {}
        self._resting: dict[K, int] = {}
        self._next_ms = FOREVER_MS

    def failed(self, keys: Iterable[K], now: int) -> None:
        """Back off all of ``keys``, which failed with the same response, or without one."""
        waits: Waits = {}
        for key in keys:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._resting[key] = now + _wait(self._backoff, failures, waits)
        self._next_ms = min([self._next_ms, *(now + wait for wait in waits.values())])

    def succeeded(self, keys: Collection[K]) -> None:
        """Reset the backoff of ``keys`` after a success."""
        if self._failures:
            for key in keys:
                self._failures.pop(key, None)
                self._resting.pop(key, None)

    @property
    def failing(self) -> bool:
        """Whether some key has failed, and has not succeeded since."""
        return bool(self._failures)

    @property
    def resting(self) -> Collection[K]:
        """The keys that back off, as of the last :meth:`rested`."""
        return self._resting.keys()

    def rested(self, now: int) -> Collection[K]:
        """Return the keys whose backoff ended by ``now``, each once."""
        if now < self._next_ms:
            return ()
        keys = [key for key, until in self._resting.items() if until <= now]
        for key in keys:
            del self._resting[key]
        self._next_ms = min(self._resting.values(), default=FOREVER_MS)
        return keys

    def wait_ms(self, now: int) -> int:
        """Return ms until :meth:`rested` may return a key; FOREVER_MS if none backs off."""
        return FOREVER_MS if self._next_ms == FOREVER_MS else max(0, self._next_ms - now)
