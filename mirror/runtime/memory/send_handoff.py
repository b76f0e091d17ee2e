"""What a Producer's threads give the network thread: batches with their memory."""

from __future__ import annotations

import threading
from typing import Final

from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.events import ProducerActions, SendEvent
from mirror.runtime.memory.buffer_memory import MemoryShare
from mirror.timing import Clock, deadline, remaining


class SendHandoff(SendEvent):
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

    def apply(self, core: ProducerActions, now: int) -> None:
        """Into its queue."""
        if self.claim():
            super().apply(core, now)

    def fail(self, error: BaseException) -> None:
        """It was never sent; its memory may be others' as well, who go on."""
        if self.claim():
            self._memory.give_back(*self._held)
            super().fail(error)


class UnansweredSends:
    """What was handed over and not answered for, whoever waits for that. Takes no lock.

    The network thread may be dying while it answers, and whoever held a lock wait for it.
    """

    def __init__(self) -> None:
        self._keys: Final[set[object]] = set()
        self._waiting: Final[set[threading.Event]] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: object) -> None:
        """Another one, and what it is known by."""
        self._keys.add(key)

    def answered(self, key: object) -> None:
        """One less."""
        self._keys.discard(key)
        for woken in list(self._waiting):
            woken.set()

    def now(self) -> list[object]:
        """What is unanswered at this moment."""
        return list(self._keys)

    def wait(self, left: list[object], timeout_ms: int, clock: Clock) -> int:
        """Until ``left``, which is used up, is answered for; how many of it are not after ``timeout_ms``."""
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
