"""A fake network for a real network thread."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from weakref import WeakKeyDictionary

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.meters import RequestMeters
from mirror.runtime.thread import NetworkThread, network_threads
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import FakeCluster
from tests.fakes.network import FakeNetwork

_SPEED = 10
_SHORTEST_MS, _LONGEST_MS = 1, 10
"""How long an idle network waits. Each turn costs CPU; what another client has caused is seen after a wait."""


class _Pace:
    """How fast clocks run ahead: not faster if more networks share one, or a busy machine would miss its deadlines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._advanced_ms = WeakKeyDictionary[FakeClock, float]()

    def advance(self, clock: FakeClock) -> None:
        """Advance ``clock`` by what has passed since a network did, but not by what the machine stood still."""
        with self._lock:
            now_ms = time.monotonic() * 1000
            passed_ms = min(now_ms - self._advanced_ms.get(clock, 0), _LONGEST_MS)
            if passed_ms >= _SHORTEST_MS:
                self._advanced_ms[clock] = now_ms
                clock.advance(int(passed_ms * _SPEED))


_pace = _Pace()


class ThreadedNetwork(FakeNetwork):
    """Fake brokers behind a real network thread: where nothing moves, the cluster's clock runs ahead of the wall's."""

    def __init__(self, cluster: FakeCluster, settings: ClusterSettings, _: object, rng: random.Random) -> None:
        super().__init__(cluster, settings, rng)
        self.meters = RequestMeters()
        self._woken = threading.Event()

    def wakeup(self) -> None:
        self._woken.set()

    def poll(self, timeout_ms: int) -> None:
        now = self._clock.now()
        if self._turn(now) or timeout_ms == 0 or self._woken.wait(self._idle_ms(now, timeout_ms) / 1000):
            self._woken.clear()
            return
        _pace.advance(self._clock)

    def _idle_ms(self, now: int, timeout_ms: int) -> float:
        """Return the time by the wall until something happens, within bounds."""
        due_ms = min(timeout_ms, self._next_ms(now) - now)
        return min(max(due_ms / _SPEED, _SHORTEST_MS), _LONGEST_MS)


def connect(monkeypatch: pytest.MonkeyPatch, cluster_of: Callable[[ClusterSettings], FakeCluster]) -> None:
    """Have the real clients reach clusters in memory."""

    def new_thread(settings: ClusterSettings) -> NetworkThread:
        found = cluster_of(settings)
        return NetworkThread(settings, cast("Any", found.clock), lambda *own: cast("Any", ThreadedNetwork(found, *own)))

    monkeypatch.setattr(network_threads, "new_thread", new_thread)


@contextlib.contextmanager
def threaded_cluster(monkeypatch: pytest.MonkeyPatch, brokers: int = 1) -> Iterator[FakeCluster]:
    """A cluster in memory behind the real clients, without topics. At the end every client must be closed.

    Its clients have a registry of network threads of their own: a client that another test has not closed is neither
    counted here nor shared, so that only the test that has opened it fails.
    """
    made, threads = FakeCluster(brokers), dict[tuple[int, ClusterSettings], NetworkThread]()
    monkeypatch.setattr(network_threads, "threads", threads)
    connect(monkeypatch, lambda _: made)
    yield made
    assert [settings.bootstrap for _, settings in threads] == [], "every client was closed"
