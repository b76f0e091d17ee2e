"""The network thread, one per cluster and process, shared by all clients of the cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from mirror.cluster.events import CompletableEvent, Event, FailEvents
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.settings import ClusterSettings
from mirror.errors import ClientClosed, KafkaError, NetworkThreadDied, WrongState
from mirror.meters import NetworkSnapshot
from mirror.runtime.clock import SystemClock, process_rng
from mirror.runtime.network.selector_network import SelectorNetwork
from mirror.timing import FOREVER_MS, Timer

T = TypeVar("T")

_log = logging.getLogger(__name__)

_JOIN_S: Final = 5.0
_LOOK_S: Final = 1.0
_NOWHERE: Final = -1
_LOOK_EVERY: Final = 16
"""Turns between two samples of the thread's CPU time, which are system calls."""
STUCK_MS: Final = 30_000
"""A turn of the loop takes milliseconds. Only the timeout of a name server comes near this (``getaddrinfo`` blocks)."""


class NetworkThread:
    """Runs a :class:`ClusterLoop` until the last client leaves, or until a bug ends it, which fails every caller."""

    def __init__(
        self,
        settings: ClusterSettings,
        clock: SystemClock | None = None,
        new_network: Callable[[ClusterSettings, SystemClock, random.Random], SelectorNetwork] = SelectorNetwork,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        rng = process_rng()
        self.network = new_network(settings, self.clock, rng)
        self.loop = ClusterLoop(settings, self.network, self.clock, rng)
        self.users = 0
        self._stopping = False
        self._turns = 0
        self._busy_ns = 0
        self._stuck_at = self._given_up_at = _NOWHERE
        self._forks = network_threads.forks
        self._cause: BaseException | None = None
        # Guards the moment between "the thread is alive" and "the event is queued": without it an event could be queued
        # behind the last sweep, and its sender would wait for ever. A signal handler may interrupt its holder, and take
        # it again to wake a consumer.
        self._gate = threading.RLock()
        first = settings.bootstrap[0]
        self._thread = threading.Thread(target=self._run, name=f"mirror-network-{first[0]}:{first[1]}", daemon=True)

    def start(self) -> None:
        """Start. Raises NetworkThreadDied if the system has no thread left."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self.network.close()
            msg = f"the network thread could not start: {error}"
            raise NetworkThreadDied(msg) from error

    # Invariant: No caller hangs: whatever ends the network thread fails every tracked, queued and later call with the
    #   cause.
    # Test: tests/runtime/test_thread.py::test_network_thread_death_fails_every_caller
    def _run(self) -> None:
        cause: BaseException
        try:
            while not self._stopping:
                self._turns += 1
                self.loop.run_once()
                if self._turns % _LOOK_EVERY == 0:
                    self._busy_ns = time.thread_time_ns()
            cause = ClientClosed("the client is closed")
        except BaseException as error:  # noqa: BLE001 - any error must fail the waiting callers
            cause = NetworkThreadDied(f"the network thread died: {type(error).__name__}: {error}")
            cause.__cause__ = error
        with self._gate:
            self._cause = cause
        # Nothing is queued from here on. Not under the gate: callbacks of futures may call methods of this class.
        queued = [event for _, event in self.loop.events]
        for fail in (self.loop.fail, *(event.fail for event in queued)):
            _fail_all(partial(fail, cause))
        self.network.close()

    def snapshot(self) -> NetworkSnapshot:
        """Return its counts so far. May be called from any thread."""
        return NetworkSnapshot(self.network.meters.snapshot(), self._busy_ns // 1_000_000)

    @property
    def is_alive(self) -> bool:
        """Whether it runs; it also ends with its last client."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether this is the network thread, where callbacks of futures run."""
        return self._thread is threading.current_thread()

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one in which the thread runs."""
        return self._forks != network_threads.forks  # asked for each event: getpid is a system call

    def check_process(self) -> None:
        """Raise NetworkThreadDied after a fork.

        Must be called before any lock is taken: a thread that does not exist in this process may hold it for ever.
        """
        if self.left_behind:
            msg = "this client was made before a fork, and its network thread stayed behind: make one in each process"
            raise NetworkThreadDied(msg)

    def check_may_wait(self) -> None:
        """Raise WrongState on the network thread, where a wait would block the thread that is to end it."""
        if self.is_current:
            msg = "cannot wait on the network thread, where callbacks run: use the _async call, or another thread"
            raise WrongState(msg)

    @property
    def dead(self) -> bool:
        """Whether it accepts no more events."""
        return self._cause is not None

    # Invariant: No event is queued behind the last sweep of a thread that dies; a signal handler may submit while its
    #   own thread holds the gate.
    # Test: tests/runtime/test_thread.py::test_an_event_that_comes_while_the_thread_dies_is_answered
    # Test: tests/runtime/test_wake.py::test_a_signal_handler_may_wake_the_thread_that_it_interrupts
    def submit(self, core: Any, event: Event) -> None:
        """Queue ``event`` for ``core`` (None: the loop itself). Raises NetworkThreadDied or ClientClosed at once."""
        self._queue(core, event)
        self.network.wakeup()

    def _queue(self, core: Any, event: Event) -> None:
        self.check_process()
        with self._gate:
            if self._cause is not None:
                # A new exception for each caller: one raised repeatedly collects all their tracebacks.
                raise type(self._cause)(str(self._cause)) from self._cause.__cause__
            self.loop.events.append((core, event))

    def call(
        self,
        core: Any,
        event: CompletableEvent[T],
        stuck_ms: int | None = None,
        *,
        before: Event | None = None,
        may_sleep: Callable[[], bool] | None = None,
    ) -> T:
        """Queue ``event`` and wait for its result; only the network thread checks the timeout (timeout design).

        ``before`` is an event about ``event`` for the loop, which is queued before it, and never without its end.
        ``may_sleep`` is asked once ``event`` is queued: if it returns True, the thread is not woken before ``event``
        expires, as something else wakes it before ``event`` can be completed.
        Raises what :meth:`submit` and :meth:`wait` do, and WrongState before it has queued anything. If the caller is
        interrupted (Ctrl-C), the event fails: its retries would come behind later calls, or after the client's close.
        """
        self.check_may_wait()
        try:
            if before is not None:
                self.submit(None, before)
            look_s = _LOOK_S
            if may_sleep is None:
                self.submit(core, event)
            else:
                self._queue(core, event)
                if may_sleep():
                    look_s = min(_LOOK_S, event.timeout_ms / 1000)
                else:
                    self.network.wakeup()
            return self.wait(event.future, STUCK_MS if stuck_ms is None else stuck_ms, look_s)
        except BaseException:
            if not event.future.done():
                with contextlib.suppress(KafkaError):  # a dead thread has failed all events
                    self.submit(None, FailEvents([(event, KafkaError(f"{event.what}: its caller was interrupted"))]))
            raise

    # Invariant: An interrupted call ends with its caller, so that it is not retried behind what a later call has done;
    #   an interrupted poll loses no record.
    # Test: tests/runtime/test_interrupted.py::test_an_interrupted_call_ends
    # Test: tests/runtime/test_cut_short_poll.py::test_what_came_for_it_comes_with_the_next
    def wait(self, future: Future[T], stuck_ms: int, look_s: float = _LOOK_S) -> T:
        """Return the result of the future, without a timeout here; only a stuck thread ends the wait.

        After ``look_s`` the thread is woken, and then each second.
        Raises NetworkThreadDied if the loop has been in one turn for ``stuck_ms``, a bug whose place is in the cause of
        the error, and after a fork. Raises WrongState on the network thread itself.
        """
        self.check_process()
        self.check_may_wait()
        if self._stuck_at == self._turns and not future.done():
            raise self._stuck()  # another caller has found the thread stuck
        turns, woken_ms = self._turns, FOREVER_MS
        while True:
            try:
                return future.result(look_s)
            except TimeoutError:
                look_s = _LOOK_S
                # Either the timeout of the event itself, or of this check of the thread.
                if future.done():
                    return future.result()
            now = self.clock.now()
            if self._turns != turns or woken_ms == FOREVER_MS:
                # It may sleep for a reason: only a thread that was woken and makes no turn is stuck.
                turns, woken_ms = self._turns, now
            elif now - woken_ms >= stuck_ms:
                if stuck_ms >= STUCK_MS:
                    self._stuck_at = turns  # so that the other callers need not find out
                self._given_up_at = turns
                raise self._stuck()
            self.network.wakeup()

    def _stuck(self) -> NetworkThreadDied:
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - the only way to see the stack of another thread
        where = "".join(traceback.format_stack(frame)) if frame is not None else "an unknown place"
        error = NetworkThreadDied("the network thread is stuck in a turn that does not end")
        error.__cause__ = RuntimeError(f"it is at:\n{where}")
        return error

    def timer(self, timeout_ms: int | None) -> tuple[int, int]:
        """Return (deadline, timeout) in ms of a call with ``timeout_ms``, or the default."""
        timeout = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return Timer(self.clock, timeout).deadline_ms, min(timeout, FOREVER_MS)

    def stop(self) -> None:
        """End the loop, and wait for it, but not for ever."""
        self._stopping = True
        if self._given_up_at != self._turns and self._thread.is_alive() and not self.is_current:
            self.network.wakeup()
            self._thread.join(_JOIN_S)


def _fail_all(fail: Callable[[], None]) -> None:
    """Fail all callers, whatever their callbacks raise: each raises once, and the next round skips it.

    Futures only let through what is no Exception (``sys.exit`` in a callback); an Exception is a bug here.
    """
    while True:
        try:
            fail()
        except Exception:  # noqa: BLE001 - as above
            _log.exception("a client could not be notified that the network thread has ended")
            return
        except BaseException as error:  # noqa: BLE001 - the thread ends anyway, and other callers are still to be failed
            _log.warning("a callback ended in %s while the network thread was ending", type(error).__name__)
        else:
            return


class NetworkThreads:
    """The threads of this process, and of those that it was forked from, which are not usable here."""

    def __init__(self) -> None:
        self.threads: dict[tuple[int, ClusterSettings], NetworkThread] = {}
        self.new_thread: Callable[[ClusterSettings], NetworkThread] = NetworkThread
        self.lock = threading.Lock()
        self.forks = 0
        """How many forks are between this process and the one that imported this module."""

    def on_forked(self) -> None:
        """Replace the lock in the child: its holder may not exist there."""
        self.lock = threading.Lock()
        self.forks += 1


network_threads: Final = NetworkThreads()
os.register_at_fork(after_in_child=network_threads.on_forked)


def acquire(settings: ClusterSettings) -> NetworkThread:
    """Return the thread of this process for the cluster; a forked child creates its own."""
    key = (os.getpid(), settings)
    with network_threads.lock:
        thread = network_threads.threads.get(key)
        if thread is None or thread.dead:
            for warning in settings.warnings:
                _log.warning("%s", warning)
            thread = network_threads.new_thread(settings)
            thread.start()
            network_threads.threads[key] = thread
        thread.users += 1
        return thread


def release(thread: NetworkThread) -> None:
    """Release the thread for a closed client; the last one ends it."""
    with network_threads.lock:
        thread.users -= 1
        if thread.users > 0:
            return
        key = (os.getpid(), thread.settings)
        if network_threads.threads.get(key) is thread:
            del network_threads.threads[key]
    thread.stop()


def leave_and_release(thread: NetworkThread, leave: LeaveEvent, timeout_ms: int | None) -> None:
    """Remove the core of a closing client from the loop, and release the thread.

    Never raises for a dead thread: nothing of the client is left there, and its next call raises. Waits for a stuck
    thread no longer than about ``timeout_ms``, the timeout of ``close`` (None: the default); in a callback on the
    network thread, and after a fork, it does not wait at all.
    """
    given_ms = thread.timer(timeout_ms)[1]
    try:
        if thread.is_current:
            thread.submit(None, leave)
        else:
            thread.call(None, leave, max(1_000, min(given_ms, STUCK_MS)))
    except (ClientClosed, NetworkThreadDied):
        pass
    finally:
        release(thread)
