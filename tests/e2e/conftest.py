"""Fixtures of the end-to-end tests: both sides of a copy, a site to run from, and a cluster that takes harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.site import Site

_GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Compaction within a test's time, not every 15 s.
    "log.cleaner.backoff.ms": "200",
}


@pytest.fixture
def source(source_cluster: Cluster) -> Side:
    return Side(source_cluster.bootstrap_servers)


@pytest.fixture
def target(target_cluster: Cluster) -> Side:
    return Side(target_cluster.bootstrap_servers)


@pytest.fixture(scope="session")
def guarded_cluster() -> Iterator[Cluster]:
    """A broker that obeys ACLs, compacts quickly, and whose files a test may damage in topics of its own."""
    with Cluster(properties=_GUARDED, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture
def guarded(guarded_cluster: Cluster) -> Side:
    return Side(guarded_cluster.bootstrap_servers)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Where a test runs from; nothing that it started outlives it."""
    made = Site(tmp_path)
    yield made
    made.kill()
