"""When a request may be tried again: the one place where backoff and deadline meet (``RequestState``, KIP-580).

Everything that retries (metadata, coordinators, calls, fetches, offsets, producer ids) holds one of these per thing
that it asks for.
"""

from __future__ import annotations

from mirror.backoff import Backoff
from mirror.timing import FOREVER_MS, remaining


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

    def failed(self, now: int) -> None:
        """It failed: wait longer each time."""
        self.in_flight = False
        self.failures += 1
        self.not_before_ms = now + self._backoff.after(self.failures)

    def pause(self, now: int, times: int) -> None:
        """Nothing failed, but the next attempt keeps the distance it would have after ``times`` failures."""
        self.not_before_ms = now + self._backoff.after(times)

    def skip_backoff(self) -> None:
        """What failed is not what will be asked next (a new leader, KAFKA-14253): no need to wait."""
        self.not_before_ms = 0


class TimedRequestState(RequestState):
    """With the deadline of the call behind it (seed 001: ``TimedRequestState``).

    The deadline is only looked at after a failed attempt: the first is always made, and success after success is never
    cut short.
    """

    __slots__ = ("deadline_ms",)

    def __init__(self, backoff: Backoff, deadline_ms: int) -> None:
        super().__init__(backoff)
        self.deadline_ms = deadline_ms

    def timeout_ms(self, now: int, request_timeout_ms: int) -> int:
        """Of one request: ``min(remaining API time, request.timeout.ms)``."""
        return min(remaining(self.deadline_ms, now), request_timeout_ms)

    def expired(self, now: int) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_ms <= now
