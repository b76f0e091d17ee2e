"""Ends what outlived its deadline (seed 001: ``CompletableEventReaper``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mirror.cluster.events import CompletableEvent, Event
from mirror.timing import FOREVER_MS


class CompletableEventReaper:
    """Tracks events from the moment they were drained until they are done or their time is up."""

    def __init__(self) -> None:
        self._tracked: list[CompletableEvent[Any]] = []

    def __len__(self) -> int:
        return len(self._tracked)

    def add(self, event: CompletableEvent[Any]) -> None:
        """Watch over ``event``."""
        self._tracked.append(event)

    def reap_expired_and_completed(self, now: int) -> None:
        """Expire what is past its deadline, forget what is done.

        Called after at least one network poll: every operation is attempted once, also with a timeout of 0. An event
        between two successful steps is left alone until its next attempt has failed.
        """
        for event in self._tracked:
            if not event.future.done() and event.deadline_ms <= now and not event.advancing:
                event.expire()
        self._tracked = [event for event in self._tracked if not event.future.done()]

    def reap_incomplete(self, queued: Iterable[Event], error: BaseException) -> None:
        """At the end: fail everything, tracked or still queued, with ``error``."""
        for event in (*self._tracked, *queued):
            event.fail(error)
        self._tracked = []

    def wait_ms(self, now: int) -> int:
        """Milliseconds until the next deadline."""
        return min((max(0, event.deadline_ms - now) for event in self._tracked), default=FOREVER_MS)
