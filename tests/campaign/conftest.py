"""One cluster of three brokers for each module and level of transactions, with a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaign.soak.cluster import SoakCluster, soak_cluster


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[SoakCluster]:
    """Its parameter is the level of ``transaction.version``."""
    with soak_cluster({"transaction.version": request.param}) as started:
        yield started
