"""What one client has asked the network thread for and has no answer to yet: its close ends that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mirror.cluster.events import CompletableEvent, Event
from mirror.errors import ClientClosed, KafkaError
from mirror.runtime.thread import NetworkThread


class PendingRequests:
    """The events of one client that are under way. Safe to use from several threads.

    Other clients share the network thread, which does not end with this one: without this, what is under way would be
    tried until its time-out after the client has been closed.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._events: set[CompletableEvent[Any]] = set()

    def __len__(self) -> int:
        return len(self._events)

    @contextlib.contextmanager
    def waiting(self, event: CompletableEvent[Any]) -> Iterator[None]:
        """``event`` is under way within the context. To be entered before it is asked whether the client is closed.

        :meth:`end` runs after the client was marked as closed: one of the two sees the other.
        """
        self._events.add(event)
        try:
            yield
        finally:
            self._events.discard(event)

    def add(self, event: CompletableEvent[Any]) -> None:
        """``event`` is under way until it is answered; to be called when :meth:`waiting` is to be entered."""
        self._events.add(event)
        event.future.add_done_callback(lambda _: self._events.discard(event))

    def end(self, thread: NetworkThread) -> None:
        """The client is closed: those who wait get ClientClosed at once, and nothing is asked for any more."""
        if self._events:
            # A thread that is dead has answered all of them, and after a fork they are the other process's.
            with contextlib.suppress(KafkaError):
                thread.submit(None, EndEvents(self._client, list(self._events)))


class EndEvents(Event):
    """Ends events of a client that is closed, on the thread that may complete them."""

    def __init__(self, client: str, events: list[CompletableEvent[Any]]) -> None:
        self._client = client
        self._events = events

    def apply(self, core: object, now: int) -> None:
        """Whatever holds them forgets those that are done."""
        del core, now
        for event in self._events:
            event.fail(ClientClosed(f"{event.what}: this {self._client} was closed while it waited"))
