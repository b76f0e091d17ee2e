"""``buffer.memory`` between threads: applications wait for it, network threads give it back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import ClientClosed, InvalidArgument, KafkaError, KafkaTimeout, RecordTooLarge
from mirror.producer.batch.memory import BufferPool, Grant
from mirror.timing import Timer
from mirror.wire.error_codes import MESSAGE_TOO_LARGE

_LOOK_S: Final = 1.0


class BufferMemory:
    """Bytes for batches that are not yet acknowledged, shared fairly by partition; for one Producer or many.

    A Producer makes its own, of ``buffer.memory`` bytes. Several of one process share one by
    ``Producer(options, memory=memory)``: together they hold at most ``size`` bytes, their options' ``buffer.memory`` is
    not used, and a partition has its share whoever writes to it. A Producer that closes leaves it open, and gives back
    what it holds: at once, but for what is in a request under way, which follows when that is answered or lost. Safe to
    use from several threads; a forked process must make its own.
    """

    def __init__(self, size: int) -> None:
        """``size`` in bytes, at least 1. Raises InvalidArgument."""
        if type(size) is not int or size < 1:
            msg = f"the size of a BufferMemory must be a number of bytes, at least 1, not {size!r}"
            raise InvalidArgument(msg)
        self.size: Final = size
        self._books = _Books(size)

    def __repr__(self) -> str:
        return f"BufferMemory({self.size}, free={self.free})"

    @property
    def free(self) -> int:
        """Bytes that nobody holds at this moment."""
        return self._books.pool.free

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for some at this moment."""
        return self._books.pool.waiting

    def share(self, look: Callable[[], None] | None = None, may_wait: Callable[[], None] | None = None) -> MemoryShare:
        """For a Producer of its own making."""
        return MemoryShare(self, self._books, look, may_wait)


class _Books:
    """Who holds how much, and who waits; all of it under ``lock``. ``lingering`` are the shares that may linger."""

    def __init__(self, size: int) -> None:
        self.pool: Final = BufferPool(size)
        self.lock: Final = threading.Lock()
        self.woken: Final[dict[Grant, threading.Event]] = {}
        self.lingering: Final[dict[MemoryShare, None]] = {}

    def wake(self, granted: list[Grant]) -> None:
        """Those who waited for ``granted``, whichever share they belong to."""
        for grant in granted:
            woken = self.woken.pop(grant, None)
            if woken is not None:
                woken.set()


class MemoryShare:
    """What one producer does with its :class:`BufferMemory`.

    ``look`` is called by those who have to wait, at first and then once a second, so that what lingers is sent; what it
    raises ends the wait: nobody gives memory back after the network thread has died. Those of the other shares that
    :meth:`lingers` are called, too: it may be them who hold it. ``may_wait`` is called before anybody waits, and raises
    where he must not.
    """

    def __init__(
        self,
        memory: BufferMemory,
        books: _Books,
        look: Callable[[], None] | None = None,
        may_wait: Callable[[], None] | None = None,
    ) -> None:
        self.memory: Final = memory
        self._books = books
        self.look: Final = look
        self._may_wait = may_wait
        self._waiters: set[threading.Event] = set()
        self._closed = False

    def lingers(self) -> None:
        """Its producer has batches that wait for more records, now and then from here on."""
        if self not in self._books.lingering:
            with self._books.lock:
                if not self._closed:
                    self._books.lingering[self] = None

    def take(self, tp: TopicPartition, count: int, timer: Timer | None, limit: str = "max.block.ms") -> None:
        """Wait for ``count`` bytes (at least 1) for ``tp``, in the application's thread.

        Raises KafkaTimeout when ``timer`` ends first, or at once where there is none (``limit`` is the setting that it
        comes from, for the text), ClientClosed at the end, RecordTooLarge for more than there is, and what ``look`` and
        ``may_wait`` raise. Whatever it raises, it has taken nothing.
        """
        books = self._books
        if count > books.pool.size:
            size = f"buffer.memory ({books.pool.size})"
            msg = f"{tp}: a batch of {count} bytes does not fit {size}: raise that to send it"
            raise RecordTooLarge(msg, MESSAGE_TOO_LARGE)
        with books.lock:
            self._check_open()
            grant = books.pool.ask(tp, count)
            if grant.granted:
                return
            woken = books.woken[grant] = threading.Event()
            self._waiters.add(woken)
        try:
            self._wait(grant, woken, timer, limit)
        except BaseException:
            # Also after Ctrl-C: it may have been granted in the meantime.
            with books.lock:
                books.woken.pop(grant, None)
                books.wake(books.pool.cancel(grant))
            raise
        finally:
            self._waiters.discard(woken)

    def _wait(self, grant: Grant, woken: threading.Event, timer: Timer | None, limit: str) -> None:
        if self._may_wait is not None and timer is not None and timer.remaining_ms() > 0:
            self._may_wait()
        while True:
            self._have_sent_what_lingers()
            left_ms = timer.remaining_ms() if timer is not None else 0
            woken.wait(min(left_ms / 1000, _LOOK_S))
            with self._books.lock:
                self._check_open()
                if grant.granted:
                    return
                if left_ms == 0:
                    raise self._timeout(grant, limit)

    def _have_sent_what_lingers(self) -> None:
        if self.look is not None:
            self.look()
        for other in list(self._books.lingering):
            if other is not self and other.look is not None:
                with contextlib.suppress(KafkaError):  # its thread's death is no end of this one's wait
                    other.look()

    def _timeout(self, grant: Grant, limit: str) -> KafkaTimeout:
        pool = self._books.pool
        most = pool.largest_holder()
        by_whom = f"; {most[0]} holds most ({most[1]} bytes)" if most is not None else ""
        return KafkaTimeout(
            f"{grant.tp}: its share of buffer.memory ({pool.size}) had no {grant.count} bytes free within {limit}: "
            f"it holds {pool.held(grant.tp)} bytes, and {pool.free} are free{by_whom}"
        )

    def give_back(self, tp: TopicPartition, count: int) -> None:
        """Free ``count`` bytes of ``tp``; for the network thread, so never waits for more than a moment."""
        with self._books.lock:
            self._books.wake(self._books.pool.give_back(tp, count))

    def close(self) -> None:
        """Wake those of its producer who wait: they get ClientClosed, as does who comes later."""
        with self._books.lock:
            self._closed = True
            self._books.lingering.pop(self, None)
            for woken in self._waiters:
                woken.set()

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Producer is closed"
            raise ClientClosed(msg)
