"""Who waits for a transaction's step: the calls under way, and an outcome that came when nobody waited any more."""

from __future__ import annotations

from mirror.errors import KafkaError, MirrorError
from mirror.producer.events import TransactionEvent


class PendingTransactionCalls:
    """The calls that wait for what is under way; the same one may have been made more than once."""

    def __init__(self) -> None:
        self._events: list[TransactionEvent] = []
        self._unclaimed: type[TransactionEvent] | None = None

    def join(self, event: TransactionEvent) -> None:
        """``event`` waits, too."""
        self._events.append(event)

    def claim(self, event: TransactionEvent) -> bool:
        """Whether what ``event`` asks for was done after all earlier such calls had run out of time; answers it then.

        Once: another one would ask for something new.
        """
        if self._unclaimed is not type(event):
            return False
        self._unclaimed = None
        event.complete(None)
        return True

    def go_on(self) -> None:
        """Something new begins: what was not claimed by now is not waited for."""
        self._unclaimed = None

    def note(self, error: KafkaError) -> None:
        """The last failure on the way, for who runs out of time."""
        for event in self._events:
            event.last_error = error

    def succeed(self) -> None:
        """It is done. Where nobody waits any more, the next to ask is told."""
        waiting, self._events = self._events, []
        if waiting and all(event.future.done() for event in waiting):
            self._unclaimed = type(waiting[-1])
        for event in waiting:
            event.complete(None)

    def fail(self, error: MirrorError) -> None:
        """It will not be."""
        waiting, self._events = self._events, []
        for event in waiting:
            event.fail(error)
