"""Since when a copy's first undelivered batch waits: ``delivery.timeout.ms`` counts from there, over epochs."""

from __future__ import annotations

from collections.abc import Callable

from mirror.relay.model.policy import CopyTimeouts


class DeliveryClock:
    """``since_ms`` (ms since 1970) is since when, where that was before this attempt; None: it has not begun to wait.

    A stream's epochs end sooner than a stuck batch's time: what is undelivered then is dropped, and its age is handed
    on to the next epoch.
    """

    def __init__(self, since_ms: int | None, times: CopyTimeouts, wall: Callable[[], int]) -> None:
        self.since_ms = since_ms
        self._times = times
        self._wall = wall

    def left_ms(self) -> int:
        """What is left of ``delivery.timeout.ms``; each epoch tries for one request's time at least."""
        whole = self._times.delivery_ms
        if self.since_ms is None:
            return whole
        return max(min(self._times.request_ms, whole), whole - max(0, self._wall() - self.since_ms))

    def created_ms(self) -> int | None:
        """When the first batch came to be (ms since 1970), so that its time is up when it should be; None: now."""
        return None if self.since_ms is None else self._wall() - (self._times.delivery_ms - self.left_ms())

    def age_ms(self, attempt_ms: int) -> int:
        """How long it has waited, where this attempt took ``attempt_ms`` of it."""
        return attempt_ms if self.since_ms is None else max(attempt_ms, self._wall() - self.since_ms)

    def stop(self) -> None:
        """It is delivered, or has expired: the next one's time begins anew."""
        self.since_ms = None

    def hand_on(self, waited_ms: int | None) -> None:
        """The epoch ends, and it has waited for ``waited_ms`` in it (None: there was nothing to deliver)."""
        if self.since_ms is None and waited_ms is not None:
            self.since_ms = self._wall() - waited_ms
