"""A stopped follower of some target partitions, briefly; tests/campaign/measurements/follower.py measures it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.measurements.follower import DELIVERY_MS, SHORT
from tests.campaign.measurements.follower_cluster import (
    HEALTHY,
    SICK,
    STOPPED,
    Coordinators,
    FollowerCluster,
    follower_cluster,
)
from tests.stalls import Stalls, now_ms

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

LAG_S = 60
"""The stopped follower counts as in sync for longer than the test takes."""
LATE_MS = 2_000
"""An expiry may be late by this much, and by the time that this process was stalled."""


@pytest.fixture(scope="module")
def filled(source_cluster: Cluster) -> Iterator[FollowerCluster]:
    with follower_cluster(LAG_S, 2 * LAG_S, source_cluster.bootstrap_servers, jvm.BROKER) as cluster:
        cluster.fill(HEALTHY * 1_000_000, SICK * 500_000)
        yield cluster


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_stopped_follower_affects_only_the_partitions_it_replicates(filled: FollowerCluster, stalls: Stalls) -> None:
    """Healthy and sick partitions have the same leaders; only the sick ones wait for the follower."""
    flows = {exactly_once: filled.target(Coordinators.APART, min_in_sync=3) for exactly_once in (True, False)}

    def copy(exactly_once: bool) -> list[RangeResult]:
        # Commits are rarer than expiries, so that the batch's own expiry is reported, not that of a commit behind it.
        policy = CopyPolicy(exactly_once=exactly_once, commit_interval_ms=2 * DELIVERY_MS)
        return filled.copy(flows[exactly_once], policy, **SHORT)

    filled.stop_follower()
    began_ms = now_ms()
    try:
        with ThreadPoolExecutor(len(flows)) as aside:
            results = dict(zip(flows, aside.map(copy, flows), strict=True))
        ended_ms = now_ms()
        assert all(STOPPED in filled.in_sync(ranges[0].target_topic) for ranges in flows.values())
    finally:
        filled.heal(*(ranges[0].target_topic for ranges in flows.values()))
    latest_ms = DELIVERY_MS + LATE_MS + stalls.between(began_ms, ended_ms)
    for exactly_once, of_flow in results.items():
        assert [result.outcome for result in of_flow[:HEALTHY]] == [Outcome.COMPLETE] * HEALTHY, of_flow
        assert [result.expiries for result in of_flow[:HEALTHY]] == [[]] * HEALTHY
        for result in of_flow[HEALTHY:]:
            _assert_expired(result, latest_ms, exactly_once=exactly_once)
    for exactly_once, ranges in flows.items():
        caught_up = filled.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        assert [result.outcome for result in caught_up] == [Outcome.COMPLETE] * len(ranges), caught_up
        assert sum(result.records for result in caught_up[:HEALTHY]) == 0
        assert [text for copied in ranges for text in filled.missing(copied, exactly_once=exactly_once)] == []


def _assert_expired(result: RangeResult, latest_ms: float, *, exactly_once: bool) -> None:
    """Every attempt expired on time, because of the replicas only."""
    assert (result.outcome, result.records) == (Outcome.EXPIRED, 0), result
    for number, expiry in enumerate(result.expiries):
        # The abort of the transaction needs all replicas, too: until then nothing can use the transactional id.
        open_transaction = exactly_once and number > 0
        assert expiry["cause"] == ("coordinator" if open_transaction else "not enough replicas"), expiry
        # Each time it is sent, it waits for ack.timeout.ms, and then in the queue for its retry.
        assert expiry["phase"] in ({"fencing"} if open_transaction else {"in flight", "queue"}), expiry
        assert DELIVERY_MS <= expiry["age_ms"] < latest_ms
    assert result.expiries
