"""The calls that wait for a step of a transaction, and an outcome that came after they had timed out. No I/O."""

from __future__ import annotations

from mirror.errors import KafkaError, MirrorError
from mirror.producer.events import TransactionEvent


class PendingTransactionCalls:
    """The calls that wait for the current step; the same call may have been made more than once."""

    def __init__(self) -> None:
        self._events: list[TransactionEvent] = []
        self._unclaimed: type[TransactionEvent] | None = None

    def join(self, event: TransactionEvent) -> None:
        """Let ``event`` wait, too."""
        self._events.append(event)

    def claim(self, event: TransactionEvent) -> bool:
        """Complete ``event`` if its step succeeded after all earlier such calls had timed out; return whether it did.

        Only the first call claims the outcome: the next one begins a new step.
        """
        if self._unclaimed is not type(event):
            return False
        self._unclaimed = None
        event.complete(None)
        return True

    def begin_next(self) -> None:
        """Drop an unclaimed outcome, as a new step begins."""
        self._unclaimed = None

    def note(self, error: KafkaError) -> None:
        """Keep the last error for calls that time out."""
        for event in self._events:
            event.last_error = error

    def succeed(self) -> None:
        """Complete the waiting calls. If all of them have timed out, the next such call claims the outcome."""
        waiting, self._events = self._events, []
        if waiting and all(event.future.done() for event in waiting):
            self._unclaimed = type(waiting[-1])
        for event in waiting:
            event.complete(None)

    def fail(self, error: MirrorError) -> None:
        """Fail the waiting calls."""
        waiting, self._events = self._events, []
        for event in waiting:
            event.fail(error)
