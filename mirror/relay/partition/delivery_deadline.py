"""The age of a copy's first undelivered batch. ``delivery.timeout.ms`` counts from there, across epochs."""

from __future__ import annotations

from collections.abc import Callable

from mirror.relay.model.policy import CopyTimeouts


class DeliveryClock:
    """Measures ``delivery.timeout.ms`` across the epochs of a stream.

    Epochs end sooner than the timeout of a stuck batch: the undelivered batch is dropped, and the next epoch inherits
    its age.
    """

    def __init__(self, since_ms: int | None, timeouts: CopyTimeouts, unix_ms: Callable[[], int]) -> None:
        self.since_ms = since_ms
        """When the wait began (ms since 1970), if that was before this attempt; None otherwise."""
        self._timeouts = timeouts
        self._unix_ms = unix_ms

    def left_ms(self) -> int:
        """What is left of ``delivery.timeout.ms``; at least ``request.timeout.ms``, so that each epoch tries."""
        timeouts = self._timeouts
        if self.since_ms is None:
            return timeouts.delivery_timeout_ms
        shortest_ms = min(timeouts.request_timeout_ms, timeouts.delivery_timeout_ms)
        return max(shortest_ms, timeouts.delivery_timeout_ms - max(0, self._unix_ms() - self.since_ms))

    def created_ms(self) -> int | None:
        """The creation time (ms since 1970) with which a batch expires when the copy does; None for now."""
        if self.since_ms is None:
            return None
        return self._unix_ms() - (self._timeouts.delivery_timeout_ms - self.left_ms())

    def age_ms(self, attempt_ms: int) -> int:
        """How long the batch has waited, at least the ``attempt_ms`` of this attempt."""
        return attempt_ms if self.since_ms is None else max(attempt_ms, self._unix_ms() - self.since_ms)

    def stop(self) -> None:
        """The batch was delivered, or has expired."""
        self.since_ms = None

    def carry_over(self, waited_ms: int | None) -> None:
        """The epoch ends while a batch has waited for ``waited_ms`` in it (None: nothing was to be delivered)."""
        if self.since_ms is None and waited_ms is not None:
            self.since_ms = self._unix_ms() - waited_ms
