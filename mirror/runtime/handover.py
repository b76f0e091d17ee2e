"""What a Producer's threads give the network thread: batches with their memory, and the end of their waiting."""

from __future__ import annotations

from mirror.cluster.events import Event
from mirror.errors import ClientClosed
from mirror.producer.batches import ProducerBatch
from mirror.producer.core import ProducerCore
from mirror.producer.events import AwaitTopicEvent, SendEvent
from mirror.runtime.buffer import MemoryShare


class HandOver(SendEvent):
    """A batch that either the network thread takes, or its sender takes back; never both, whenever he is cut short."""

    def __init__(self, batch: ProducerBatch, memory: MemoryShare) -> None:
        super().__init__(batch)
        self._held = (batch.tp, batch.size)
        self._memory = memory
        self._unclaimed = [True]

    def claim(self) -> bool:
        """True for the first who asks, in whichever thread (``list.pop`` is atomic)."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def apply(self, core: ProducerCore, now: int) -> None:
        """Into its queue."""
        if self.claim():
            super().apply(core, now)

    def fail(self, error: BaseException) -> None:
        """It was never sent; its memory may be others' as well, who go on."""
        if self.claim():
            self._memory.give_back(*self._held)
            super().fail(error)


class StopWaiting(Event):
    """The producer closes: who waits for metadata is told at once, on the thread that may complete their events."""

    def __init__(self, awaiting: list[AwaitTopicEvent]) -> None:
        self._awaiting = awaiting

    def apply(self, core: ProducerCore, now: int) -> None:
        """The core forgets those that are done."""
        del core, now
        for event in self._awaiting:
            event.fail(ClientClosed("this Producer was closed while it waited for metadata"))
