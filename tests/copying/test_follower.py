"""A stopped follower of some target partitions, in short: tests/campaign/follower.py measures."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.follower import DELIVERY_MS, SHORT
from tests.campaign.follower_stage import HEALTHY, SICK, STOPPED, Coordinators, FollowerStage, follower_stage
from tests.stalls import Stalls, now_ms

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

LAG_S = 60
"""The follower stays in sync for longer than a test takes."""
LATE_MS = 2_000
"""By so much an expiry may be late, and by what this process was stalled."""


@pytest.fixture(scope="module")
def filled(source_cluster: Cluster) -> Iterator[FollowerStage]:
    with follower_stage(LAG_S, 2 * LAG_S, source_cluster.bootstrap_servers, jvm.BROKER) as stage:
        stage.fill(HEALTHY * 1_000_000, SICK * 500_000)
        yield stage


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_stopped_follower_costs_only_those_that_it_follows(filled: FollowerStage, stalls: Stalls) -> None:
    """Healthy and sick partitions have the same leaders; only the sick ones wait for the follower."""
    flows = {exactly_once: filled.target(Coordinators.APART, min_in_sync=3) for exactly_once in (True, False)}

    def copy(exactly_once: bool) -> list[RangeResult]:
        # With commits rarer than expiries a batch's own expiry is told, not that of the commit that waits for it.
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
    for exactly_once, told in results.items():
        assert [one.outcome for one in told[:HEALTHY]] == [Outcome.COMPLETE] * HEALTHY, told
        assert [one.expiries for one in told[:HEALTHY]] == [[]] * HEALTHY
        for one in told[HEALTHY:]:
            _expired(one, latest_ms, exactly_once=exactly_once)
    for exactly_once, ranges in flows.items():
        caught_up = filled.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        assert [one.outcome for one in caught_up] == [Outcome.COMPLETE] * len(ranges), caught_up
        assert sum(one.records for one in caught_up[:HEALTHY]) == 0
        assert [text for one in ranges for text in filled.missing(one, exactly_once=exactly_once)] == []


def _expired(one: RangeResult, latest_ms: float, *, exactly_once: bool) -> None:
    """On time, again and again, and for no other reason than the replicas."""
    assert (one.outcome, one.records) == (Outcome.EXPIRED, 0), one
    for number, expiry in enumerate(one.expiries):
        # The transaction's abort, too, wants all replicas: until then nobody can have the transactional id.
        open_transaction = exactly_once and number > 0
        assert expiry["cause"] == ("coordinator" if open_transaction else "not enough replicas"), expiry
        # Each time that it is sent it waits for ack.timeout.ms, and then in the queue to be sent again.
        assert expiry["phase"] in ({"fencing"} if open_transaction else {"in flight", "queue"}), expiry
        assert DELIVERY_MS <= expiry["age_ms"] < latest_ms
    assert one.expiries
