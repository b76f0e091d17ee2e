"""A network thread without a thread, for the real clients: the caller turns the loop until the call is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import pytest

from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.settings import ClusterSettings
from mirror.meters import NetworkSnapshot
from mirror.runtime.thread import NetworkThread, network_threads
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster

T = TypeVar("T")

_turning = WeakKeyDictionary[FakeCluster, threading.RLock]()
"""Held by who turns a loop of a cluster: its clients may be called from several threads."""


class InlineThread:
    """Time only passes while a call is not answered: then it jumps to what happens next."""

    dead = is_current = left_behind = False

    def __init__(self, cluster: FakeCluster, settings: ClusterSettings) -> None:
        self.settings = settings
        times = {
            "default.api.timeout.ms": settings.default_api_timeout_ms,
            "request.timeout.ms": settings.request_timeout_ms,
        }
        self._client = FakeClient(cluster, **times)
        self.loop, self.clock, self.users = self._client.loop, cluster.clock, 0
        self._lock = _turning.setdefault(cluster, threading.RLock())
        self._unanswered: list[Future[Any]] = []
        self._is_turning = False

    def start(self) -> None: ...

    def check_process(self) -> None: ...

    def check_may_wait(self) -> None: ...

    def timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._client.timer(self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    def submit(self, core: Any, event: Event) -> None:
        with self._lock:
            self._client.submit(core, event)
            if isinstance(event, CompletableEvent):
                self._unanswered.append(event.future)
            if not self._is_turning:  # else it is a callback that submits, within a turn
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

    def call(
        self,
        core: Any,
        event: CompletableEvent[T],
        stuck_ms: int | None = None,
        *,
        before: Event | None = None,
        may_sleep: Callable[[], bool] | None = None,
    ) -> T:
        del stuck_ms, may_sleep
        if before is not None:
            self.submit(None, before)
        self.submit(core, event)
        return event.future.result(0)

    def snapshot(self) -> NetworkSnapshot:
        return NetworkSnapshot({}, 0)

    def stop(self) -> None:
        self._client.network.close()


def use(monkeypatch: pytest.MonkeyPatch, cluster_of: Callable[[ClusterSettings], FakeCluster | None]) -> None:
    """Have the real clients reach clusters in memory, and by a real thread those of which ``cluster_of`` has none."""

    def new_thread(settings: ClusterSettings) -> NetworkThread:
        found = cluster_of(settings)
        return NetworkThread(settings) if found is None else cast("NetworkThread", InlineThread(found, settings))

    monkeypatch.setattr(network_threads, "threads", {})
    monkeypatch.setattr(network_threads, "new_thread", new_thread)
