"""The limit on bytes per second, measured by another client: how much the target appended, and when."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirror.client import TopicPartition
from mirror.relay.byte_limits import RateLimiter
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.sandbox.cluster import Cluster
from tests.campaign.measurements.healthy_copy import Pair
from tests.copying.pair import End

RATE = 2_000_000
SECONDS = 10
PARTITIONS = 6
TOLERANCE = 0.1
CREDIT_MS = 500
"""A fetch that is late by up to this time makes up for it."""
BURST_MS = 1_000
"""One burst of what was fetched ahead is what the limit allows in this time."""


def _appended(target: End, topic: str) -> list[tuple[int, int]]:
    """Return (LogAppendTime, bytes of the value) of each record in the target's log."""
    logs = target.logs(topic, PARTITIONS)
    return sorted((record.time_ms, len(record.value or b"")) for log in logs for _, record in log)


def _per_second(appended: Sequence[tuple[int, int]], all_bytes: int) -> float:
    """Return the rate: the slope of the appended bytes over time (least squares).

    Neither the first burst nor the time of the last record changes it much. ``all_bytes`` is the size of the values on
    the wire, with their overhead.
    """
    totals = list(itertools.accumulate(size for _, size in appended))
    times, lost_ms = [0], 0
    for (before, _), (after, _) in itertools.pairwise(appended):
        # The limit causes no silence as long as this: the machine was stalled.
        lost_ms += max(0, after - before - BURST_MS - CREDIT_MS)
        times.append(after - appended[0][0] - lost_ms)
    slope, _ = statistics.linear_regression(times, totals)
    return slope * 1000 * all_bytes / totals[-1]


@pytest.mark.brokers
@pytest.mark.timed
@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.cluster), 3])
def test_rate_limit_holds_within_a_tenth(target_cluster: Cluster, tasks: int) -> None:
    """Concurrent tasks share the limit, as in ``FlowConfig.copy_policy``. It expires nothing."""
    pair, target = Pair(target_cluster.bootstrap_servers), End(target_cluster.bootstrap_servers)
    sources: list[TopicPartition] = pair.source(PARTITIONS)
    pair.fill(sources, RATE * SECONDS // PARTITIONS, batch_size=64_000)
    ranges = pair.ranges(sources, message_timestamp_type="LogAppendTime")
    policy = CopyPolicy(max_bytes_per_second=RATE // tasks)

    def copy(number: int) -> list[RangeResult]:
        short = {"request_timeout_ms": 4_000, "delivery_timeout_ms": 5_000, "linger_ms": 0}
        return pair.copy(ranges[number::tasks], policy, **short)

    began_ms = time.time() * 1000
    with ThreadPoolExecutor(tasks) as threads:
        results = [result for of_task in threads.map(copy, range(tasks)) for result in of_task]
    assert [(result.outcome, result.expiries) for result in results] == [(Outcome.COMPLETE, [])] * PARTITIONS, results
    copied = sum(result.bytes for result in results)
    appended = _appended(target, ranges[0].target_topic)
    rate = _per_second(appended, copied)
    assert (1 - TOLERANCE) * RATE < rate < (1 + TOLERANCE) * RATE
    assert copied <= RATE * (appended[-1][0] - began_ms + BURST_MS) / 1000


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, CREDIT_MS)), min_size=1, max_size=30),
)
@example(3, [(8, 0), (422474, 0), (1088, 0), (0, 0)])  # with floats, it passed 1 ms early
def test_late_fetch_makes_up_for_its_delay(rate: int, takes: list[tuple[int, int]]) -> None:
    """Each fetch is late by at most the credit; together they are neither slower nor faster than the rate."""
    limiter, now, taken = RateLimiter(rate, 0), 0, 0
    limiter.on_received(0, 0)
    for size, late_ms in takes:
        now += limiter.wait_ms(now)
        assert now >= taken * 1000 // rate, "never before the bytes so far are paid for"
        now = max(now, taken * 1000 // rate + late_ms)
        limiter.on_received(size, now)
        taken += size
        assert now + limiter.wait_ms(now) <= max(now, taken * 1000 // rate)


def test_idle_time_accumulates_no_credit() -> None:
    """After an hour without fetches, a copy does not fetch an hour's worth in one burst."""
    limiter = RateLimiter(1_000, 0)
    limiter.on_received(0, 0)
    limiter.on_received(1_000 + CREDIT_MS, 3_600_000)
    assert limiter.wait_ms(3_600_000) == 1_000
