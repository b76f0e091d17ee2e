"""Limits how many partitions of a task are acquired at a time. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Final

from mirror.relay.partition.context import CopyHandle

MAX_ACQUISITIONS: Final = 100
"""Each takes four requests to coordinators, of which a pool has 8 connections for each broker: more would only wait
there, and their timeouts with them."""


class AcquisitionTurns:
    """Copies begin in the order in which they ask; the timeouts of a copy that waits have not begun."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._lock: Final = threading.Lock()
        self._in_progress = 0
        self._waiting: dict[CopyHandle, None] = {}

    def may_begin(self, copy: CopyHandle) -> bool:
        """Whether ``copy`` may begin now, with :meth:`begun`; otherwise it is stepped when it may."""
        if self._in_progress < MAX_ACQUISITIONS:
            self._waiting.pop(copy, None)
            return True
        self._waiting[copy] = None
        return False

    def begun(self, call: Future[Any]) -> None:
        """An acquisition has begun, and is in progress until ``call`` is done."""
        with self._lock:
            self._in_progress += 1
        call.add_done_callback(self._on_ended)

    def _on_ended(self, _: Future[Any]) -> None:
        with self._lock:
            was_full = self._in_progress >= MAX_ACQUISITIONS
            self._in_progress -= 1
        if was_full or self._waiting:
            self._wake()

    def take_ready(self, active: Collection[CopyHandle]) -> list[CopyHandle]:
        """Return the copies to step, which waited and may begin now; those that are not ``active`` are forgotten."""
        ready: list[CopyHandle] = []
        room = MAX_ACQUISITIONS - self._in_progress
        while self._waiting and len(ready) < room:
            copy = next(iter(self._waiting))
            del self._waiting[copy]
            if copy in active:
                ready.append(copy)
        return ready
