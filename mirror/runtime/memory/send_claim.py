"""Hands batches with their memory from a Producer's threads to the network thread."""

from __future__ import annotations

import threading
from typing import Final

from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.events import ProducerActions, SendEvent
from mirror.runtime.memory.buffer_memory import MemoryShare
from mirror.timing import Clock, deadline, remaining


class SendClaim(SendEvent):
    """A batch that either the network thread takes or its sender takes back, never both, even after an interrupt."""

    def __init__(self, batch: ProducerBatch, memory: MemoryShare) -> None:
        super().__init__(batch)
        self._held = (batch.tp, batch.size)
        self._memory = memory
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return True for the first caller, in whichever thread (``list.pop`` is atomic)."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def apply(self, core: ProducerActions, now: int) -> None:
        """Append the batch to its queue."""
        if self.claim():
            super().apply(core, now)

    def fail(self, error: BaseException) -> None:
        """Fail the batch, which was never sent; its memory may be shared with producers that continue."""
        if self.claim():
            self._memory.give_back(*self._held)
            super().fail(error)


class UnansweredSends:
    """The batches that were handed over and have no outcome yet. Takes no lock.

    The network thread may be dying while it completes them, and a holder of a lock might wait for it.
    """

    def __init__(self) -> None:
        self._keys: Final[set[object]] = set()
        self._waiting: Final[set[threading.Event]] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: object) -> None:
        """Add a batch, and return its number."""
        self._keys.add(key)

    def answered(self, key: object) -> None:
        """Remove a batch."""
        self._keys.discard(key)
        for woken in list(self._waiting):
            woken.set()

    def now(self) -> list[object]:
        """Return the numbers of the batches without an outcome."""
        return list(self._keys)

    def wait(self, left: list[object], timeout_ms: int, clock: Clock) -> int:
        """Wait until all of ``left``, which is emptied, have their outcome.

        Return how many have not after ``timeout_ms``.
        """
        woken = threading.Event()
        self._waiting.add(woken)
        until_ms = deadline(clock.now(), timeout_ms)
        try:
            while True:
                woken.clear()
                while left and left[-1] not in self._keys:
                    left.pop()
                left_ms = remaining(until_ms, clock.now())
                if not left or not left_ms:
                    return sum(key in self._keys for key in left)
                woken.wait(min(left_ms / 1000, threading.TIMEOUT_MAX))
        finally:
            self._waiting.discard(woken)
