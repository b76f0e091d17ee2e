"""One fault under load, on real brokers. ``make campaign`` has all of them, and transactions."""

from __future__ import annotations

import pytest

from tests.campaign.soak.cluster import FAULTS, SoakCluster
from tests.campaign.soak.run import run

# It takes 40 s of CPU. Expiries on time at a real broker are in the suite, too: tests/copying/test_isolation.py.
pytestmark = [pytest.mark.brokers, pytest.mark.cluster]

SECONDS, REST_S, PER_SECOND = 15.0, 3.0, 6.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_acknowledged_once_in_order_and_expiries_on_time(cluster: SoakCluster) -> None:
    """What healthy partitions notice needs a run without faults, too: ``make campaign`` measures it."""
    result = run(cluster, FAULTS["stop the leader"], seconds=SECONDS, rest_s=REST_S, per_second=PER_SECOND)
    assert result.wrong == []
    assert result.figures["expired"] > 0, "the fault had an effect"
