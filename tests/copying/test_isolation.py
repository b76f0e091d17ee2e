"""Sick target partitions among healthy ones, and a target that throttles, briefly.

tests/campaign/measurements/isolation.py measures the same cases for longer.
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
from tests.campaign.measurements.healthy_copy import Pair
from tests.campaign.measurements.quotas import limit_producer
from tests.campaign.measurements.sick_partitions import (
    HEALTHY,
    LEADERLESS,
    SICK,
    SILENT,
    STOPPED_BROKER,
    UNCOORDINATED,
    SickPartitions,
    sick_partitions,
)
from tests.polling import eventually
from tests.relay.stopping import RUN, stopped_after
from tests.stalls import Stalls, now_ms

pytestmark = [pytest.mark.brokers, pytest.mark.timed]

DELIVERY_MS = 4_000
SHORT: dict[str, Any] = {"delivery_timeout_ms": DELIVERY_MS, "request_timeout_ms": 1_500}
LATE_MS = 1_000
"""An expiry may be late by this much, and by the time that this process was stalled."""
SESSION_S = 30
HEALTHY_BYTES = 20_000_000
SLOWLY_S = 16
QUOTA = 500_000
TRICKLE_S = 14


@pytest.fixture(scope="module")
def filled() -> Iterator[SickPartitions]:
    with sick_partitions(SESSION_S, jvm.BROKER) as started:
        started.fill(HEALTHY_BYTES, 40)
        yield started


def _assert_expired(result: RangeResult, phase: str, cause: str, stalls: Stalls) -> None:
    """It expired in time, and reports the phase, the cause, the time and the error."""
    assert result.expiries, result
    for expiry in result.expiries:
        assert (expiry["phase"], expiry["cause"]) == (phase, cause)
        expired_ms = expiry["time_ms"] - time.time() * 1000 + now_ms()
        late_ms = expiry["age_ms"] - DELIVERY_MS
        assert 0 <= late_ms < LATE_MS + stalls.between(expired_ms - late_ms, expired_ms), expiry
        assert expiry["time_ms"] > 0
        assert expiry["last_error"]


def _assert_named(result: RangeResult, phase: str, cause: str, stalls: Stalls) -> None:
    _assert_expired(result, phase, cause, stalls)
    assert result.outcome is Outcome.EXPIRED, result
    for part in (f"{result.target_topic}-{result.partition}", "after ", phase, cause):
        assert part in (result.error or "")


@pytest.mark.timeout(480)
def test_one_sick_partition_costs_the_others_nothing(
    filled: SickPartitions, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    """Both deliveries run; the exactly-once flow is slow enough for the stopped broker to resume during it."""
    expired = set[tuple[str | None, int | None]]()

    def record(error: DeliveryTimeout, output: OutputBatch | None, unix_ms: int) -> dict[str, Any]:
        expired.add((error.topic, error.partition))
        return expiry_record(error, output, unix_ms)

    monkeypatch.setattr("mirror.relay.partition.across_attempts.attempt_outcome.expiry_record", record)
    flows = {exactly_once: filled.target() for exactly_once in (True, False)}
    slow = CopyPolicy(max_bytes_per_second=HEALTHY_BYTES // SLOWLY_S)
    filled.inject()
    try:
        with ThreadPoolExecutor(1) as aside:
            copying = aside.submit(filled.copy, flows[True], slow, **SHORT)
            quick = filled.copy(flows[False], CopyPolicy(exactly_once=False), **SHORT)
            sick = {(flows[True][number].target_topic, number) for number in (SILENT, UNCOORDINATED)}
            eventually(lambda: sick <= expired, within_s=30, what="the expiry of both that will recover")
            filled.cluster.resume(STOPPED_BROKER)
            slowly = copying.result()
    finally:
        filled.heal()
    for results in (quick, slowly):
        healthy = results[:HEALTHY]
        assert [result.outcome for result in healthy] == [Outcome.COMPLETE] * HEALTHY
        assert [result.expiries for result in healthy] == [[]] * HEALTHY
        _assert_named(results[LEADERLESS], "metadata", "no leader", stalls)
    _assert_named(quick[SILENT], "metadata", "no answer", stalls)
    assert quick[UNCOORDINATED].outcome is Outcome.COMPLETE
    _assert_expired(slowly[SILENT], "metadata", "no answer", stalls)
    _assert_expired(slowly[UNCOORDINATED], "fencing", "coordinator", stalls)
    for retried in (slowly[SILENT], slowly[UNCOORDINATED]):
        assert retried.outcome is Outcome.COMPLETE, retried
        assert retried.retries == len(retried.expiries)
    for exactly_once, ranges in flows.items():
        healed = filled.copy(ranges, CopyPolicy(exactly_once=exactly_once))
        assert [result.outcome for result in healed] == [Outcome.COMPLETE] * len(ranges), healed
        assert sum(result.records for result in healed[:HEALTHY]) == 0
        for partition in (0, *SICK):
            assert filled.missing(ranges[partition], exactly_once=exactly_once) == []


@pytest.mark.timeout(480)
def test_throttling_target_expires_nothing(target_cluster: Cluster) -> None:
    """KIP-91: in a catch-up, a record waits for most of its time, which must not expire it."""
    pair = Pair(target_cluster.bootstrap_servers)
    sources = pair.source(8)
    pair.fill(sources, 4 * QUOTA)
    # The first transaction makes the broker load all its coordinators, which may take as long as the rest.
    first = pair.source(1)
    pair.fill(first, 1)
    assert [result.outcome for result in pair.copy(pair.ranges(first), CopyPolicy())] == [Outcome.COMPLETE]
    ranges = pair.ranges(sources)
    limit_producer(pair.side.address, "trickle", QUOTA)
    with stopped_after(TRICKLE_S, pair.side.address, ranges[0].flow):
        results = pair.copy(
            ranges,
            CopyPolicy(run=RUN),
            client_id="trickle",
            request_timeout_ms=4_900,
            # Short compared with the time that the quota needs for all records, and longer than a busy broker stalls.
            delivery_timeout_ms=7_000,
            linger_ms=0,
        )
    # Some partitions may be complete by then, but the flow was throttled to the end.
    outcomes = {result.outcome for result in results}
    assert Outcome.UNFINISHED in outcomes, results
    assert outcomes <= {Outcome.UNFINISHED, Outcome.COMPLETE}, results
    assert [result.expiries for result in results] == [[]] * 8
    # A partition behind the first burst may still wait while the broker mutes the connection.
    assert sum(result.bytes for result in results) >= QUOTA * TRICKLE_S // 4
