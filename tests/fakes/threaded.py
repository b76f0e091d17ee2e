"""A fake network for a real network thread."""

from __future__ import annotations

import threading
from typing import Any

from tests.fakes.cluster import FakeCluster
from tests.fakes.network import FakeNetwork

_IDLE_S, _IDLE_MS = 0.001, 20


class ThreadedNetwork(FakeNetwork):
    """Fake brokers behind a real network thread: where nothing moves, the cluster's clock runs ahead of the wall's."""

    def __init__(self, cluster: FakeCluster, *own: Any) -> None:
        super().__init__(cluster, *own)
        self._woken = threading.Event()

    def wakeup(self) -> None:
        self._woken.set()

    def poll(self, timeout_ms: int) -> None:
        if self._turn(self._clock.now()) or timeout_ms == 0 or self._woken.wait(_IDLE_S):
            self._woken.clear()
            return
        self._clock.advance(min(timeout_ms, _IDLE_MS))
