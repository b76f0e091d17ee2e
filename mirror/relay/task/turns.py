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
TURN_MS: Final = 3_000
"""How long an acquisition counts. Coordinators or leaders that are away, and long searches, must not hold up others."""
QUIET_SHARE: Final = 10
"""One of so many turns goes to a copy without records, however many others wait."""


# Invariant: Copies that have records to send acquire their partitions before those that only have to commit, of which a
#   task of thousands of quiet partitions begins with one each.
# Test: tests/relay/task/test_turns.py::test_copies_with_records_go_before_quiet_ones
# Test: tests/relay/task/test_turns.py::test_no_copy_takes_the_place_of_one_that_has_waited
# Test: tests/relay/task/test_turns.py::test_copies_whose_turn_has_come_are_stepped_in_the_same_turn
# Test: tests/relay/task/test_turns.py::test_quiet_copies_have_a_share_of_the_turns
class AcquisitionTurns:
    """Copies with records begin in the order in which they ask, then the others; no timeout begins before the turn."""

    def __init__(self, wake: Callable[[], None], now: Callable[[], int]) -> None:
        self._wake: Final = wake
        self._now: Final = now
        self._lock: Final = threading.Lock()
        self._turns: Final[dict[Future[Any], int]] = {}
        """When the turn of each call ends at the latest, in the order of these times."""
        self._waiting: Final[dict[CopyHandle, None]] = {}
        self._quiet: Final[dict[CopyHandle, None]] = {}
        """The copies without records that wait."""
        self._since_quiet = 0
        self._ready: Final[dict[CopyHandle, None]] = {}
        """The copies whose turn has come, and that have not begun: no other copy may take their places."""

    def _any_waits(self) -> bool:
        return bool(self._waiting or self._quiet)

    def may_begin(self, copy: CopyHandle, *, quiet: bool = False) -> bool:
        """Whether ``copy`` may begin now, with :meth:`begun`; otherwise it is stepped when it may.

        ``quiet``: it has no records to send.
        """
        if copy in self._ready:
            del self._ready[copy]
            return True
        if not self._any_waits() and len(self._turns) + len(self._ready) < MAX_ACQUISITIONS:
            return True
        if not quiet:
            self._quiet.pop(copy, None)
            self._waiting[copy] = None
        elif copy not in self._waiting:
            self._quiet[copy] = None
        return False

    def begun(self, call: Future[Any]) -> None:
        """An acquisition has begun, and has its turn until ``call`` is done, at most for ``TURN_MS``."""
        with self._lock:
            self._turns[call] = self._now() + TURN_MS
        call.add_done_callback(self._on_ended)

    def _on_ended(self, call: Future[Any]) -> None:
        with self._lock:
            was_full = len(self._turns) >= MAX_ACQUISITIONS
            self._turns.pop(call, None)
        if was_full or self._any_waits():
            self._wake()

    def take_ready(self, active: Collection[CopyHandle], now: int) -> list[CopyHandle]:
        """Return the copies that waited and may begin now; those that are not ``active`` are forgotten.

        The caller steps each before it calls this again: what has not begun by then has no use for its turn any more,
        and frees its place.
        """
        self._ready.clear()
        if not self._any_waits():
            return []
        with self._lock:
            while self._turns and (first := next(iter(self._turns.items())))[1] <= now:
                del self._turns[first[0]]
            taken = len(self._turns)
        while self._any_waits() and taken + len(self._ready) < MAX_ACQUISITIONS:
            copy = self._take_first()
            if copy in active:
                self._ready[copy] = None
        return list(self._ready)

    def _take_first(self) -> CopyHandle:
        quiet_next = self._since_quiet + 1 >= QUIET_SHARE or not self._waiting
        queue = self._quiet if self._quiet and quiet_next else self._waiting
        self._since_quiet = 0 if queue is self._quiet else self._since_quiet + 1
        copy = next(iter(queue))
        del queue[copy]
        return copy

    def due_ms(self) -> int:
        """Return when :meth:`take_ready` is wanted next if nothing wakes the task before."""
        if not self._any_waits():
            return FOREVER_MS
        with self._lock:
            return next(iter(self._turns.values())) if len(self._turns) >= MAX_ACQUISITIONS else 0
