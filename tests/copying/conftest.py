"""The pair of clusters that the copies run between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.copying.pair import TwoClusters
from tests.copying.site import SOURCE_PROPERTIES, name


@pytest.fixture(scope="session")
def uneasy_cluster() -> Iterator[Cluster]:
    """Two brokers that compact, delete and give up a dead one quickly; a test that kills one restarts it."""
    with Cluster(2, properties=SOURCE_PROPERTIES, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pair(uneasy_cluster: Cluster, target_cluster: Cluster) -> TwoClusters:
    return TwoClusters(uneasy_cluster, target_cluster, name)
