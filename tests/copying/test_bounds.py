"""The memory that a copy takes (tests/campaign/measurements/memory.py has more cases)."""

from __future__ import annotations

import pytest

from mirror.sandbox.cluster import Cluster
from tests.campaign.measurements.healthy_copy import Pair
from tests.campaign.measurements.memory import Backlog, run_case

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

MEGABYTE = 1 << 20


_BACKLOGS: dict[str, list[Backlog]] = {
    "mixed": [
        Backlog(6, 30 * MEGABYTE, 10_000, {"batch_size": 64_000}),
        Backlog(2, 24 * MEGABYTE, 4 * MEGABYTE),
    ],
    "of 20 MB": [Backlog(2, 80 * MEGABYTE, 20 * MEGABYTE - 1_000)],
    "of 170 bytes": [Backlog(4, 600_000, 100, {"batch_num_messages": 1, "linger_ms": 0})],
}
_BOUNDS = {"of 170 bytes": {"fetch": 3 * MEGABYTE, "buffer": 4 * MEGABYTE}}
"""As objects, these batches take several times their bytes; with few of them, only small bounds show it."""


# The suite has the kind with the most objects for its bytes; `make cluster` has the others (50 s).
@pytest.mark.parametrize(
    "batches",
    [pytest.param(kind, marks=() if kind == "of 170 bytes" else pytest.mark.cluster) for kind in _BACKLOGS],
)
def test_memory_stays_within_its_bound_for_every_backlog(target_cluster: Cluster, batches: str) -> None:
    pair = Pair(target_cluster.bootstrap_servers)
    measured, outcomes = run_case(pair, _BACKLOGS[batches], **_BOUNDS.get(batches, {}))
    assert measured.outcomes == outcomes, measured
    assert measured.used <= measured.allowed, measured
