"""The pending events of one client, which its close ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from mirror.cluster.events import CompletableEvent, FailEvents
from mirror.errors import ClientClosed, KafkaError
from mirror.runtime.thread import NetworkThread


class PendingRequests:
    """The pending events of one client. Thread-safe.

    Other clients share the network thread, which does not end with this one: otherwise events of a closed client would
    be retried until their timeout.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._events: dict[Future[Any], CompletableEvent[Any]] = {}

    def __len__(self) -> int:
        return len(self._events)

    @contextlib.contextmanager
    def waiting(self, event: CompletableEvent[Any]) -> Iterator[None]:
        """Track ``event`` within the context, which must be entered before the check whether the client is closed.

        :meth:`end` runs after the client is marked as closed, so that one of the two sees the other.
        """
        self._events[event.future] = event
        try:
            yield
        finally:
            self._forget(event.future)

    def add(self, event: CompletableEvent[Any]) -> None:
        """Track ``event`` until it is done; call it where :meth:`waiting` would be entered."""
        self._events[event.future] = event
        # A future keeps its callbacks. One that referred to the event would leave a cycle for the garbage collector.
        event.future.add_done_callback(self._forget)

    def _forget(self, future: Future[Any]) -> None:
        self._events.pop(future, None)

    def end(self, thread: NetworkThread) -> None:
        """Fail all waiting calls with ClientClosed, and end their events, as the client is closed."""
        if self._events:
            # A dead thread has completed all of them, and after a fork they belong to the other process.
            with contextlib.suppress(KafkaError):
                thread.submit(None, FailEvents((event, self._closed(event)) for event in list(self._events.values())))

    def _closed(self, event: CompletableEvent[Any]) -> KafkaError:
        return ClientClosed(f"{event.what}: this {self._client} was closed while it waited")
