"""Time as the cores see it: whole milliseconds on a monotonic scale, passed in by the caller.

The cores never read a clock. The runtime owns a :class:`Clock` and the application thread a :class:`Timer`. Deadlines
cross threads as integers: absolute, and saturating at 2**63 - 1, as in Kafka's ``Timer``.
"""

from __future__ import annotations

from typing import Final, Protocol

FOREVER_MS: Final = 2**63 - 1
"""The largest time or duration (Java's ``Long.MAX_VALUE``): legal for every timeout, never reached."""


class Clock(Protocol):
    """The runtime's source of time. Tests use one that jumps."""

    def now(self) -> int:
        """Return monotonic milliseconds."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds since the Unix epoch, for values that people and brokers read."""
        ...


def deadline(now: int, timeout_ms: int) -> int:
    """Return the absolute time ``timeout_ms`` (>= 0) after ``now``, at most :data:`FOREVER_MS`."""
    return min(FOREVER_MS, now + timeout_ms)


def remaining(deadline_ms: int, now: int) -> int:
    """Return the milliseconds left until ``deadline_ms``, never negative."""
    return max(0, deadline_ms - now)


class Timer:
    """The remaining time of one API call, for the calling thread (Kafka's ``Timer``; not thread-safe)."""

    __slots__ = ("_clock", "deadline_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.deadline_ms = deadline(clock.now(), timeout_ms)

    def remaining_ms(self) -> int:
        """Return the milliseconds left, never negative."""
        return remaining(self.deadline_ms, self._clock.now())

    def expired(self) -> bool:
        """Return whether the deadline has passed."""
        return self.remaining_ms() == 0


class StallTimer(Timer):
    """The time after which something that advances step by step counts as stalled."""

    __slots__ = ("_timeout_ms",)

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        super().__init__(clock, timeout_ms)
        self._timeout_ms: Final = timeout_ms

    def advance(self) -> None:
        """Record a step: the time begins again."""
        self.deadline_ms = deadline(self._clock.now(), self._timeout_ms)

    def begin_again_at(self, at_ms: int) -> None:
        """Have the time begin again at ``at_ms``, unless it has begun later."""
        self.deadline_ms = max(self.deadline_ms, deadline(at_ms, self._timeout_ms))
