"""A clock that stands still until somebody moves it (as trio's mock clock does)."""

from __future__ import annotations

from mirror.timing import FOREVER_MS

_WALL_AT_ZERO = 1_700_000_000_000


class FakeClock:
    """Monotonic and wall milliseconds; ``advance`` is the only thing that makes time pass."""

    def __init__(self, now: int = 1_000) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def unix_ms(self) -> int:
        return _WALL_AT_ZERO + self._now

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time does not go back"
        self._now += ms

    def jump_to(self, now: int) -> None:
        assert self._now <= now < FOREVER_MS, f"from {self._now} to {now}: time goes on, and never to the end of time"
        self._now = now
