"""Fixtures for all tests. Real brokers start when the first test asks for them, and are stopped in any case."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import hypothesis
import pytest

from mirror.sandbox.cluster import Cluster

# How long an example takes says something about this machine's load, not about the code.
hypothesis.settings.register_profile("mirror", deadline=None)
hypothesis.settings.load_profile("mirror")


_CLUSTERS = {"source_cluster", "target_cluster", "new_cluster"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a cluster, so that nobody can forget it and `make check` stays quick."""
    for item in items:
        if _CLUSTERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.brokers)


class NewCluster(Protocol):
    """Starts a cluster for one test."""

    def __call__(
        self,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> Cluster: ...


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[Cluster]:
    """One broker to copy from, shared by all tests: use topics with ``unique`` names, and do it no harm."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def target_cluster() -> Iterator[Cluster]:
    """One broker to copy to, shared in the same way."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def new_cluster() -> Iterator[NewCluster]:
    """``new_cluster(brokers=1, properties=None, listeners=None)``: a cluster that the test may harm."""
    with contextlib.ExitStack() as running:

        def start(
            brokers: int = 1,
            properties: Mapping[str, str] | None = None,
            listeners: Mapping[str, str] | None = None,
        ) -> Cluster:
            return running.enter_context(Cluster(brokers, properties=properties, listeners=listeners))

        yield start


@pytest.fixture
def unique() -> Callable[[str], str]:
    """``unique("orders")`` -> ``"orders-3f9c..."``: a name for a topic, group or id that no other test uses."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"
