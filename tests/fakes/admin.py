"""The face ``Admin`` over the fake network: its own code, and the loop turned by hand instead of by a thread."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from mirror.client import Admin
from mirror.cluster.events import CompletableEvent
from mirror.meters import NetworkSnapshot
from mirror.runtime.pending_requests import PendingRequests
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster

T = TypeVar("T")

_turning = WeakKeyDictionary[FakeCluster, threading.RLock]()
"""Held by who turns a loop of a cluster: its Admins may be called from several threads."""


class _TurnedByHand:
    """What an Admin asks of its network thread."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self.settings, self.loop = client.settings, client.loop
        self.users = 1

    def timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._client.timer(self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    def submit(self, core: Any, event: CompletableEvent[Any]) -> None:
        self._client.submit(core, event)

    def call(self, core: Any, event: CompletableEvent[T]) -> T:
        return self._client.call(event, core)

    def snapshot(self) -> NetworkSnapshot:
        return NetworkSnapshot({}, 0)

    def stop(self) -> None:
        self._client.network.close()


class _TurnedAtOnce(_TurnedByHand):
    """Whoever submits a call turns the loop until it is answered; a callback that submits is within such a turn."""

    def __init__(self, client: FakeClient) -> None:
        super().__init__(client)
        self._lock = _turning.setdefault(client.cluster, threading.RLock())
        self._unanswered: list[Future[Any]] = []
        self._is_turning = False

    def submit(self, core: Any, event: CompletableEvent[Any]) -> None:
        with self._lock:
            super().submit(core, event)
            self._unanswered.append(event.future)
            if not self._is_turning:
                self._turn()

    def _turn(self) -> None:
        self._is_turning = True
        try:
            while self._unanswered:
                self._client.run_until(self._unanswered[0].done)
                self._unanswered.pop(0)
        finally:
            self._is_turning = False
            self._unanswered.clear()

    def call(self, core: Any, event: CompletableEvent[T]) -> T:
        self.submit(core, event)
        return event.future.result(0)


class FakeAdmin(Admin):
    """An Admin of ``cluster``; ``client`` has its clock. ``at_once``: what it returns as a future is answered."""

    def __init__(self, cluster: FakeCluster, *, at_once: bool = False, **options: object) -> None:
        self.client = FakeClient(cluster, **options)
        self.network_thread: Any = (_TurnedAtOnce if at_once else _TurnedByHand)(self.client)
        self._asked = PendingRequests("Admin")
        self._closed = False
