"""Sick target partitions among healthy ones, and a target that throttles: what it costs whom, in short.

The long forms, which measure, are in tests/campaign/isolation.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mirror.errors import DeliveryTimeout
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.partition.expiries import expiry_record
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.crowd import HEALTHY, LEADERLESS, SICK, SILENT, STOPPED_BROKER, UNCOORDINATED, Crowd, crowd
from tests.campaign.plain import Pair
from tests.campaign.quotas import limit_producer
from tests.polling import eventually
from tests.stalls import Stalls, now_ms

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

DELIVERY_MS = 4_000
SHORT: dict[str, Any] = {"delivery_timeout_ms": DELIVERY_MS, "request_timeout_ms": 1_500}
LATE_MS = 1_000
"""By so much an expiry may be late, apart from what this process was stalled."""
SESSION_S = 30
HEALTHY_BYTES = 20_000_000
SLOWLY_S = 16
QUOTA = 500_000
TRICKLE_S = 10


@pytest.fixture(scope="module")
def filled() -> Iterator[Crowd]:
    with crowd(SESSION_S, jvm.BROKER) as started:
        started.fill(HEALTHY_BYTES, 40)
        yield started


def _expected(result: RangeResult, phase: str, cause: str, stalls: Stalls) -> None:
    """It expired in time, and says where, when and why."""
    assert result.expiries, result
    for expiry in result.expiries:
        assert (expiry["phase"], expiry["cause"]) == (phase, cause)
        told_ms = expiry["time_ms"] - time.time() * 1000 + now_ms()
        late_ms = expiry["age_ms"] - DELIVERY_MS
        assert 0 <= late_ms < LATE_MS + stalls.between(told_ms - late_ms, told_ms), expiry
        assert expiry["time_ms"] > 0
        assert expiry["last_error"]


def _named(result: RangeResult, phase: str, cause: str, stalls: Stalls) -> None:
    _expected(result, phase, cause, stalls)
    assert result.outcome is Outcome.EXPIRED, result
    for part in (f"{result.target_topic}-{result.partition}", "after ", phase, cause):
        assert part in (result.error or "")


@pytest.mark.timeout(480)
def test_one_sick_partition_costs_the_others_nothing(
    filled: Crowd, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    """Both deliveries at once; the exactly-once one is slow enough to see the stopped broker come back."""
    expired = set[tuple[str | None, int | None]]()

    def noting(error: DeliveryTimeout, output: OutputBatch | None, unix_ms: int) -> dict[str, Any]:
        expired.add((error.topic, error.partition))
        return expiry_record(error, output, unix_ms)

    monkeypatch.setattr("mirror.relay.partition.attempt_outcome.expiry_record", noting)
    flows = {exactly_once: filled.target() for exactly_once in (True, False)}
    slow = CopyPolicy(max_bytes_per_second=HEALTHY_BYTES // SLOWLY_S)
    filled.harm()
    try:
        with ThreadPoolExecutor(1) as aside:
            copying = aside.submit(filled.copy, flows[True], slow, **SHORT)
            quick = filled.copy(flows[False], CopyPolicy(exactly_once=False), **SHORT)
            sick = {(flows[True][number].target_topic, number) for number in (SILENT, UNCOORDINATED)}
            eventually(lambda: sick <= expired, within_s=30, what="the expiry of both that are to come back")
            filled.cluster.resume(STOPPED_BROKER)
            slowly = copying.result()
    finally:
        filled.heal()
    for results in (quick, slowly):
        healthy = results[:HEALTHY]
        assert [one.outcome for one in healthy] == [Outcome.COMPLETE] * HEALTHY
        assert [one.expiries for one in healthy] == [[]] * HEALTHY
        _named(results[LEADERLESS], "metadata", "no leader", stalls)
    _named(quick[SILENT], "metadata", "no answer", stalls)
    assert quick[UNCOORDINATED].outcome is Outcome.COMPLETE
    _expected(slowly[SILENT], "metadata", "no answer", stalls)
    _expected(slowly[UNCOORDINATED], "fencing", "coordinator", stalls)
    for tried_again in (slowly[SILENT], slowly[UNCOORDINATED]):
        assert tried_again.outcome is Outcome.COMPLETE, tried_again
        assert tried_again.retries == len(tried_again.expiries)
    for exactly_once, ranges in flows.items():
        healed = filled.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        assert [one.outcome for one in healed] == [Outcome.COMPLETE] * len(ranges), healed
        assert sum(one.records for one in healed[:HEALTHY]) == 0
        for partition in (0, *SICK):
            assert filled.missing(ranges[partition], exactly_once=exactly_once) == []


@pytest.mark.timeout(480)
def test_a_healthy_target_that_throttles_expires_nothing(target_cluster: Cluster) -> None:
    """KIP-91: in a catch-up a record spends its time waiting, which is no reason to give it up."""
    pair = Pair(target_cluster.bootstrap_servers)
    sources = pair.source(8)
    pair.fill(sources, 3 * QUOTA)
    # The broker's first transaction makes it load all its coordinators, which may take as long as the rest.
    first = pair.source(1)
    pair.fill(first, 1)
    assert [one.outcome for one in pair.copy(pair.ranges(first), CopyPolicy())] == [Outcome.COMPLETE]
    ranges = pair.ranges(sources)
    limit_producer(pair.side.address, "trickle", QUOTA)
    results = pair.copy(
        ranges,
        CopyPolicy(until_ms=int(time.time() * 1000) + TRICKLE_S * 1000),
        client_id="trickle",
        request_timeout_ms=2_900,
        delivery_timeout_ms=3_000,  # little beside the run, and enough for a busy broker to answer
        linger_ms=0,
    )
    # Some may have got through by then, but it was throttled to the end.
    outcomes = {one.outcome for one in results}
    assert Outcome.UNFINISHED in outcomes, results
    assert outcomes <= {Outcome.UNFINISHED, Outcome.COMPLETE}, results
    assert [one.expiries for one in results] == [[]] * 8
    # Who came after the first burst may be waiting still, for as long as the broker does not listen.
    assert sum(one.bytes for one in results) >= QUOTA * TRICKLE_S // 4
