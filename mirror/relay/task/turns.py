"""Limits how many partitions of a task are acquired at a time. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Final

from mirror.relay.partition.context import CopyHandle
from mirror.timing import FOREVER_MS

MAX_ACQUISITIONS: Final = 100
"""Each takes four requests to coordinators, of which a pool has 8 connections for each broker: more would only wait
there, and their timeouts with them."""
MAX_CONTINUATIONS: Final = 8
"""Fewer if an earlier attempt on this host is to yield: it stops before the next one begins, and each partition of a
larger number would stand still until all of them have changed hands."""
CONTINUATION_MS: Final = 80
"""How long a continuation counts at least, so that a task begins at most a hundred in a second: as fast as they can,
the two tasks of an epoch's edge take all of two processors, and everything that is copied meanwhile is late."""
ALL_CONTINUED_MS: Final = 10_000
"""All partitions of a larger task are continued in this time: the leases must not end before."""
TURN_MS: Final = 3_000
"""How long an acquisition counts. Coordinators or leaders that are away, and long searches, must not hold up others."""


class AcquisitionTurns:
    """Copies begin in the order in which they ask; the timeouts of a copy that waits have not begun."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._lock: Final = threading.Lock()
        self._turns: Final[dict[Future[Any], int]] = {}
        """When the turn of each call ends at the latest, in the order of these times."""
        self._not_before: Final[dict[Future[Any], int]] = {}
        """When the turn of a continuation ends at the earliest, in the order of these times."""
        self._longest_queue = 0
        self._waiting: dict[CopyHandle, int] = {}
        """With how many turns each may begin."""

    def may_begin(self, copy: CopyHandle, *, continues: bool = False) -> bool:
        """Whether ``copy`` may begin now, with :meth:`begun`; otherwise it is stepped when it may.

        ``continues``: it is to continue an earlier attempt on this host.
        """
        most = MAX_CONTINUATIONS if continues else MAX_ACQUISITIONS
        if len(self._turns) < most:
            self._waiting.pop(copy, None)
            return True
        self._waiting[copy] = most
        return False

    def begun(self, call: Future[Any], now: int, *, continues: bool = False) -> None:
        """An acquisition has begun, and has its turn until ``call`` is done, at most for ``TURN_MS``.

        One that ``continues`` an earlier attempt has it for at least :func:`continuation_ms`.
        """
        with self._lock:
            self._turns[call] = now + TURN_MS
            if continues:
                self._longest_queue = max(self._longest_queue, len(self._waiting))
                self._not_before[call] = now + continuation_ms(self._longest_queue)
        call.add_done_callback(self._on_ended)

    def _on_ended(self, call: Future[Any]) -> None:
        with self._lock:
            was_full = len(self._turns) >= MAX_ACQUISITIONS
            if call in self._not_before:
                return  # take_ready ends its turn, if that is not over
            self._turns.pop(call, None)
        if was_full or self._waiting:
            self._wake()

    def take_ready(self, active: Collection[CopyHandle], now: int) -> list[CopyHandle]:
        """Return the copies to step, which waited and may begin now; those that are not ``active`` are forgotten."""
        if not self._waiting:
            return []
        with self._lock:
            while self._not_before and (first := next(iter(self._not_before.items())))[1] <= now:
                del self._not_before[first[0]]
                if first[0].done():
                    self._turns.pop(first[0], None)
            while self._turns and (first := next(iter(self._turns.items())))[1] <= now:
                del self._turns[first[0]]
            taken = len(self._turns)
        ready: list[CopyHandle] = []
        while self._waiting:
            copy, most = next(iter(self._waiting.items()))
            if taken + len(ready) >= most:
                break
            del self._waiting[copy]
            if copy in active:
                ready.append(copy)
        return ready

    def due_ms(self) -> int:
        """Return when :meth:`take_ready` is wanted next if nothing wakes the task before."""
        if not self._waiting:
            return FOREVER_MS
        with self._lock:
            due_ms = next(iter(self._turns.values()), 0)
            return min(due_ms, next(iter(self._not_before.values()), due_ms))


def continuation_ms(waiting: int) -> int:
    """Return for how long a continuation has its turn at least if so many other copies have waited for theirs."""
    return min(CONTINUATION_MS, ALL_CONTINUED_MS * MAX_CONTINUATIONS // max(1, waiting))
