"""Time as the cores see it: whole milliseconds on a monotonic scale, handed in by the caller.

The cores never read a clock. The runtime owns a :class:`Clock`, the application thread a :class:`Timer`, and what
crosses a thread is a :class:`int` deadline, absolute and saturating at 2**63 - 1, as in Kafka's ``Timer`` (seed 001).
"""

from __future__ import annotations

from typing import Final, Protocol

FOREVER_MS: Final = 2**63 - 1
"""The largest time or duration (Java's ``Long.MAX_VALUE``): legal for every timeout, and never reached."""


class Clock(Protocol):
    """Where the runtime gets its time from; the tests' one jumps."""

    def now(self) -> int:
        """Monotonic milliseconds."""
        ...

    def unix_ms(self) -> int:
        """Milliseconds since the Unix epoch, for what people and brokers read."""
        ...


def deadline(now: int, timeout_ms: int) -> int:
    """The absolute time ``timeout_ms`` (>= 0) after ``now``, at most :data:`FOREVER_MS`."""
    return min(FOREVER_MS, now + timeout_ms)


def remaining(deadline_ms: int, now: int) -> int:
    """Milliseconds left until ``deadline_ms``, never negative."""
    return max(0, deadline_ms - now)


class Timer:
    """Elapsed and remaining time of one API call, for the thread that made it (not thread-safe, seed 001)."""

    __slots__ = ("_clock", "deadline_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.deadline_ms: Final = deadline(clock.now(), timeout_ms)

    def remaining_ms(self) -> int:
        """Milliseconds left, never negative."""
        return remaining(self.deadline_ms, self._clock.now())

    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining_ms() == 0
