"""``buffer.memory`` between threads: application threads wait for it, network threads return it."""

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
    """Bytes for unacknowledged batches, shared fairly by partition, for one Producer or many. Thread-safe.

    A Producer creates its own, of ``buffer.memory`` bytes. Several Producers of a process share one by
    ``Producer(options, memory=memory)``: together they hold at most ``size`` bytes, their own ``buffer.memory`` is not
    used, and a partition has one share for all its Producers. A Producer that closes returns what it holds: at once,
    except for requests in flight, whose memory follows when they end. A forked process must create its own.
    """

    def __init__(self, size: int) -> None:
        """Create it with ``size`` bytes, at least 1. Raises InvalidArgument."""
        if type(size) is not int or size < 1:
            msg = f"the size of a BufferMemory must be a number of bytes, at least 1, not {size!r}"
            raise InvalidArgument(msg)
        self.size: Final = size
        self._accounts = _Accounts(size)

    def __repr__(self) -> str:
        return f"BufferMemory({self.size}, free={self.free})"

    @property
    def free(self) -> int:
        """Bytes that are free now."""
        return self._accounts.pool.free

    @property
    def waiting(self) -> bool:
        """Whether a thread waits for memory now."""
        return self._accounts.pool.waiting

    def share(self, nudge: Callable[[], None] | None = None, may_wait: Callable[[], None] | None = None) -> MemoryShare:
        """Create the memory of one Producer."""
        return MemoryShare(self, self._accounts, nudge, may_wait)


class _Accounts:
    """The holders and waiters, all under ``lock``. ``lingering`` are the shares with batches that may linger."""

    def __init__(self, size: int) -> None:
        self.pool: Final = BufferPool(size)
        self.lock: Final = threading.Lock()
        self.woken: Final[dict[Grant, threading.Event]] = {}
        self.lingering: Final[dict[MemoryShare, None]] = {}

    def wake(self, granted: list[Grant]) -> None:
        """Wake the threads that waited for ``granted``, of whichever share."""
        for grant in granted:
            woken = self.woken.pop(grant, None)
            if woken is not None:
                woken.set()


class MemoryShare:
    """The part of one producer in a :class:`BufferMemory`.

    A thread that has to wait calls ``nudge`` at first and then once a second, so that lingering batches are sent.
    What it raises ends the wait, as no memory is returned after the network thread has died. It also calls those of
    other shares that :meth:`lingers`, which may hold the memory. ``may_wait`` is called before a wait, and raises
    where none is allowed.
    """

    def __init__(
        self,
        memory: BufferMemory,
        accounts: _Accounts,
        nudge: Callable[[], None] | None = None,
        may_wait: Callable[[], None] | None = None,
    ) -> None:
        self.memory: Final = memory
        self._accounts = accounts
        self.nudge = nudge
        self._may_wait = may_wait
        self._waiters: set[threading.Event] = set()
        self._closed = False

    def lingers(self) -> None:
        """Record that its producer may have lingering batches from now on."""
        if self not in self._accounts.lingering:
            with self._accounts.lock:
                if not self._closed:
                    self._accounts.lingering[self] = None

    def take(self, tp: TopicPartition, count: int, timer: Timer | None, limit: str = "max.block.ms") -> None:
        """Wait for ``count`` bytes (at least 1) for ``tp``, in the application's thread.

        Raises KafkaTimeout when ``timer`` ends first, or at once without one (``limit`` names the setting in the
        text), ClientClosed at the end, RecordTooLarge for more than the whole memory, and what ``nudge`` and
        ``may_wait`` raise. After an error it holds nothing.
        """
        accounts = self._accounts
        if count > accounts.pool.size:
            size = f"buffer.memory ({accounts.pool.size})"
            msg = f"{tp}: a batch of {count} bytes does not fit {size}: raise that to send it"
            raise RecordTooLarge(msg, MESSAGE_TOO_LARGE)
        with accounts.lock:
            self._check_open()
            grant = accounts.pool.ask(tp, count)
            if grant.granted:
                return
            woken = accounts.woken[grant] = threading.Event()
            self._waiters.add(woken)
        try:
            self._wait(grant, woken, timer, limit)
        except BaseException:
            # Also after Ctrl-C: the memory may have been granted in the meantime.
            with accounts.lock:
                accounts.woken.pop(grant, None)
                accounts.wake(accounts.pool.cancel(grant))
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
            with self._accounts.lock:
                self._check_open()
                if grant.granted:
                    return
                if left_ms == 0:
                    raise self._timeout(grant, limit)

    def _have_sent_what_lingers(self) -> None:
        if (nudge := self.nudge) is not None:
            nudge()
        for other in list(self._accounts.lingering):
            if other is not self and (nudge := other.nudge) is not None:
                with contextlib.suppress(KafkaError):  # the death of its thread does not end this wait
                    nudge()

    def _timeout(self, grant: Grant, limit: str) -> KafkaTimeout:
        pool = self._accounts.pool
        most = pool.largest_holder()
        by_whom = f"; {most[0]} holds most ({most[1]} bytes)" if most is not None else ""
        return KafkaTimeout(
            f"{grant.tp}: its share of buffer.memory ({pool.size}) had no {grant.count} bytes free within {limit}: "
            f"it holds {pool.held(grant.tp)} bytes, and {pool.free} are free{by_whom}"
        )

    def give_back(self, tp: TopicPartition, count: int) -> None:
        """Return ``count`` bytes of ``tp``, on the network thread: it takes the lock only for a moment."""
        with self._accounts.lock:
            self._accounts.wake(self._accounts.pool.give_back(tp, count))

    def close(self) -> None:
        """Fail the waiting and later calls of its producer with ClientClosed."""
        with self._accounts.lock:
            self._closed = True
            self._accounts.lingering.pop(self, None)
            for woken in self._waiters:
                woken.set()
        self.nudge = None  # it refers to the producer, which refers to this

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Producer is closed"
            raise ClientClosed(msg)
