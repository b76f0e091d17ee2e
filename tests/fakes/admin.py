"""The face ``Admin`` over the fake network: its own code, and the loop turned by hand instead of by a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from mirror.client import Admin
from mirror.cluster.events import CompletableEvent
from mirror.meters import NetworkSnapshot
from mirror.runtime.pending_requests import PendingRequests
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster

T = TypeVar("T")


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


class FakeAdmin(Admin):
    """An Admin of ``cluster``; ``client`` has its clock."""

    def __init__(self, cluster: FakeCluster, **options: object) -> None:
        self.client = FakeClient(cluster, **options)
        self.network_thread: Any = _TurnedByHand(self.client)
        self._asked = PendingRequests("Admin")
        self._closed = False


class PromptAdmin(FakeAdmin):
    """An Admin whose futures are done as soon as they are returned, for code that waits for them by ``result()``."""

    def _later(self, make: Callable[[], CompletableEvent[T]]) -> Future[T]:
        future = super()._later(make)
        self.client.run_until(future.done)
        return future
