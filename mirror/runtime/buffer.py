"""``buffer.memory`` between threads: applications wait for it, the network thread gives it back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from mirror.cluster.topics import TopicPartition
from mirror.errors import ClientClosed, KafkaTimeout, RecordTooLarge
from mirror.producer.memory import BufferPool, Grant
from mirror.timing import Timer
from mirror.wire.verdicts import MESSAGE_TOO_LARGE

_LOOK_S: Final = 1.0


class BufferMemory:
    """``size`` bytes of batches that are not yet acknowledged, shared fairly (:class:`BufferPool`).

    ``look`` is called by those who have to wait, at first and then once a second, so that what lingers is sent; what it
    raises ends the wait: nobody gives memory back after the network thread has died. ``may_wait`` is called before
    anybody waits, and raises where he must not.
    """

    def __init__(
        self, size: int, look: Callable[[], None] | None = None, may_wait: Callable[[], None] | None = None
    ) -> None:
        self.size: Final = size
        self._pool = BufferPool(size)
        self._look = look
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._woken: dict[Grant, threading.Event] = {}
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Whether anybody waits; then nothing should linger. Needs no lock."""
        return self._pool.waiting

    def take(self, tp: TopicPartition, count: int, timer: Timer, limit: str = "max.block.ms") -> None:
        """Wait for ``count`` bytes (at least 1) for ``tp``, in the application's thread.

        Raises KafkaTimeout when ``timer`` ends first (``limit`` is the setting that it comes from, for the text),
        ClientClosed at the end, RecordTooLarge for more than there is, and what ``look`` and ``may_wait`` raise.
        Whatever it raises, it has taken nothing.
        """
        if count > self.size:
            msg = f"{tp}: a batch of {count} bytes does not fit buffer.memory ({self.size}): raise that to send it"
            raise RecordTooLarge(msg, MESSAGE_TOO_LARGE)
        with self._lock:
            self._check_open()
            grant = self._pool.ask(tp, count)
            if grant.granted:
                return
            woken = self._woken[grant] = threading.Event()
        try:
            self._wait(grant, woken, timer, limit)
        except BaseException:
            # Also after Ctrl-C: it may have been granted in the meantime.
            with self._lock:
                self._woken.pop(grant, None)
                self._wake(self._pool.cancel(grant))
            raise

    def _wait(self, grant: Grant, woken: threading.Event, timer: Timer, limit: str) -> None:
        if self._may_wait is not None and timer.remaining_ms() > 0:
            self._may_wait()
        while True:
            if self._look is not None:
                self._look()
            left_ms = timer.remaining_ms()
            woken.wait(min(left_ms / 1000, _LOOK_S))
            with self._lock:
                self._check_open()
                if grant.granted:
                    return
                if left_ms == 0:
                    raise self._timeout(grant, limit)

    def _timeout(self, grant: Grant, limit: str) -> KafkaTimeout:
        most = self._pool.largest_holder()
        by_whom = f"; {most[0]} holds most ({most[1]} bytes)" if most is not None else ""
        return KafkaTimeout(
            f"{grant.tp}: its share of buffer.memory ({self.size}) had no {grant.count} bytes free within {limit}: "
            f"it holds {self._pool.held(grant.tp)} bytes, and {self._pool.free} are free{by_whom}"
        )

    def give_back(self, tp: TopicPartition, count: int) -> None:
        """Free ``count`` bytes of ``tp``; for the network thread, so never waits for more than a moment."""
        with self._lock:
            self._wake(self._pool.give_back(tp, count))

    def close(self) -> None:
        """Wake all who wait: they get ClientClosed, as does who comes later."""
        with self._lock:
            self._closed = True
            for woken in self._woken.values():
                woken.set()

    def _wake(self, granted: list[Grant]) -> None:
        for grant in granted:
            woken = self._woken.pop(grant, None)
            if woken is not None:
                woken.set()

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Producer is closed"
            raise ClientClosed(msg)
