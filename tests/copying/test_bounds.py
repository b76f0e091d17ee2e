"""What a copy may take: bytes per second, and memory."""

from __future__ import annotations

import pytest

from mirror.relay.policy import CopyPolicy
from mirror.relay.ranges import Outcome
from mirror.sandbox.cluster import Cluster
from tests.campaign.memory import Backlog, run_case
from tests.campaign.plain import Pair
from tests.stalls import Stalls

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

RATE = 4_000_000
SECONDS = 5
MEGABYTE = 1 << 20


def test_the_limit_of_bytes_per_second_is_kept_and_expires_nothing(target_cluster: Cluster, stalls: Stalls) -> None:
    pair = Pair(target_cluster.bootstrap_servers)
    sources = pair.source(4)
    pair.fill(sources, RATE * SECONDS // 4)
    took, copied = [], 0
    for policy in (CopyPolicy(), CopyPolicy(max_bytes_per_second=RATE)):
        ranges = pair.ranges(sources)
        with stalls.timing() as timed:
            # Little beside the run, and enough for a busy broker to answer.
            results = pair.copy(ranges, policy, request_timeout_ms=2_400, delivery_timeout_ms=2_500, linger_ms=0)
        assert {one.outcome for one in results} == {Outcome.COMPLETE}, results
        assert [one.expiries for one in results] == [[]] * 4
        took.append(timed)
        copied = sum(one.bytes for one in results)
    free, limited = took
    # What comes at once at the beginning, a second's worth, is paid for afterwards.
    assert copied / limited.ms * 1000 <= 1.1 * RATE
    # How fast this machine is at all shows in the run that nothing limited.
    assert limited.running_ms < SECONDS * 1000 / 0.75 + 2 * free.ms


_BACKLOGS: dict[str, list[Backlog]] = {
    "mixed": [
        Backlog(6, 30 * MEGABYTE, 10_000, {"batch_size": 64_000}),
        Backlog(2, 24 * MEGABYTE, 4 * MEGABYTE),
    ],
    "of 20 MB": [Backlog(2, 80 * MEGABYTE, 20 * MEGABYTE - 1_000)],
    "of 170 bytes": [Backlog(4, 600_000, 100, {"batch_num_messages": 1, "linger_ms": 0})],
}
_BOUNDS = {"of 170 bytes": {"fetch": 3 * MEGABYTE, "buffer": 4 * MEGABYTE}}
"""As objects these batches take several times their bytes: of few of them, that shows only beside small bounds."""


@pytest.mark.parametrize("batches", _BACKLOGS)
def test_memory_is_bounded_whatever_the_backlog(target_cluster: Cluster, batches: str) -> None:
    pair = Pair(target_cluster.bootstrap_servers)
    told, outcomes = run_case(pair, _BACKLOGS[batches], **_BOUNDS.get(batches, {}))
    assert told.outcomes == outcomes, told
    assert told.used <= told.allowed, told
