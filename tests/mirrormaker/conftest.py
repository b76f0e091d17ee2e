"""A cluster in memory behind the real clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mirror.runtime import thread
from tests.fakes.cluster import FakeCluster
from tests.fakes.threaded import ThreadedNetwork


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Without topics. At the end every client must be closed."""
    made = FakeCluster()
    monkeypatch.setattr(thread, "SystemClock", lambda: made.clock)
    monkeypatch.setattr(thread, "SelectorNetwork", lambda settings, _, rng: ThreadedNetwork(made, settings, rng))
    yield made
    alive = [one.name for one in threading.enumerate() if one.name.startswith("mirror-network")]
    assert alive == [], "every client was closed"
