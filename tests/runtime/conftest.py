"""A cluster in memory behind the real clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.threaded import threaded_cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Without topics; its clock runs ahead while nothing moves. At the end every client must be closed."""
    with threaded_cluster(monkeypatch) as made:
        yield made
