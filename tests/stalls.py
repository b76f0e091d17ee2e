"""When this process did not get to run, because others kept the machine busy: time that no upper bound may count.

A bound of a time in a test is "what is allowed, a fixed tolerance, and what this process was stalled meanwhile"::

    with stalls.timing() as took:
        call()
    assert 300 <= took.ms  # a lower bound needs no mercy
    assert took.running_ms < 500

What is measured must be this process's doing: a broker's slowness is not seen here, and to be left out otherwise.
Only the thread that measures is forgiven what it waited for a CPU: one that works in the background without an end
waits for a CPU all the time, and would hide what it costs. Where what is measured goes through other threads, one
after the other, as a request does through a client's network thread and a proxy, ``Stalls(all_threads=True)`` forgives
what any of them waited.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

_BEAT_MS: Final = 10


def now_ms() -> float:
    """Monotonic."""
    return time.monotonic() * 1000


@dataclass(slots=True, eq=False)
class Timed:
    """How long something took: ``ms`` by the clock, ``running_ms`` without what this process was stalled."""

    ms: float = -1
    running_ms: float = -1


class Stalls:
    """Looks every 10 ms for how long this process was kept from running. A context manager.

    Two signs: a thread that only sleeps woke too late, and not since others of this process worked (the whole machine,
    or the process, stood still), and the thread
    that entered the context, or that measures in it, waited for a CPU (Linux's count of it; with ``all_threads``, any
    thread of this process). A beat's stall is the larger one, at most the beat itself.
    """

    def __init__(self, *, all_threads: bool = False) -> None:
        self._all_threads = all_threads
        self._lock = threading.Lock()
        self.until: list[float] = []  # the end of each beat, and what was lost up to there
        self.lost: list[float] = []
        self.thread_id = threading.get_native_id()
        self.waited: dict[int, float] = {}  # ms of each thread, ever
        self.worked = 0.0
        self._longest_ms = 0.0
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def __enter__(self) -> Self:
        self.thread_id = threading.get_native_id()
        self._waited_ms()
        self.worked = _worked_ms()
        self.until, self.lost = [now_ms()], [0.0]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self.over.wait(_BEAT_MS / 1000):
            self.look()
        self.look()

    def look(self) -> None:
        with self._lock:
            last, now = self.until[-1], now_ms()
            late = now - last - _BEAT_MS
            self._longest_ms = max(self._longest_ms, late)
            # Late because another thread of this process worked, and held the interpreter: that is its own doing.
            worked, self.worked = self.worked, _worked_ms()
            late -= self.worked - worked
            stalled = min(now - last, max(late if late > _BEAT_MS else 0.0, self._waited_ms()))
            self.until.append(now)
            self.lost.append(self.lost[-1] + stalled)

    def _waited_ms(self) -> float:
        """What the watched thread, or all, waited for a CPU since the last time."""
        threads = [one.native_id or -1 for one in threading.enumerate()] if self._all_threads else [self.thread_id]
        before, self.waited = self.waited, {thread: _run_delay_ms(thread) for thread in threads}
        return sum(max(0.0, ms - before.get(thread, 0.0)) for thread, ms in self.waited.items())

    def between(self, begin_ms: float, end_ms: float) -> float:
        """Milliseconds of that time (monotonic ms), in whole beats."""
        if end_ms > self.until[-1] and not self.over.is_set():
            self.look()  # a stall that goes on is one, too
        with self._lock:
            first = max(0, bisect.bisect_left(self.until, begin_ms) - 1)
            last = min(bisect.bisect_left(self.until, end_ms), len(self.until) - 1)
            return max(0.0, min(end_ms - begin_ms, self.lost[last] - self.lost[first]))

    @contextlib.contextmanager
    def timing(self) -> Iterator[Timed]:
        """Time the block, for the thread that runs it; the answer is there when it has ended."""
        me = threading.get_native_id()
        took, began, waited = Timed(), now_ms(), _run_delay_ms(me)
        yield took
        ended = now_ms()
        took.ms = ended - began
        took.running_ms = took.ms - max(self.between(began, ended), _run_delay_ms(me) - waited)

    @property
    def longest_ms(self) -> float:
        """By how much a sleep was too long at most."""
        return self._longest_ms


def _worked_ms() -> float:
    """The CPU time of this process, ever."""
    return time.process_time() * 1000


def _run_delay_ms(thread_id: int) -> float:
    """How long a thread of this process has waited for a CPU, ever; 0 where the system does not report it."""
    try:
        file = os.open(f"/proc/self/task/{thread_id}/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return int(os.read(file, 100).split()[1]) / 1_000_000
    finally:
        os.close(file)
