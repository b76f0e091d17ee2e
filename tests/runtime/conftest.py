"""A cluster in memory behind the real clients, and a server that never responds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import Admin
from tests.fakes.cluster import FakeCluster
from tests.fakes.threaded import threaded_cluster
from tests.runtime.listener import Listener


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Without topics; its clock runs ahead while nothing moves. At the end every client must be closed."""
    with threaded_cluster(monkeypatch) as made:
        yield made


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and sends nothing."""
    listener = Listener()
    yield listener.address
    listener.close()


@pytest.fixture
def other(silent: str) -> Iterator[Admin]:
    """Keeps the network thread in use."""
    with Admin({"bootstrap.servers": silent}) as admin:
        yield admin
