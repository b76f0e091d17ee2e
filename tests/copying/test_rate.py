"""The limit on bytes per second, as another client sees it in the target's log: how much was appended, and when."""

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
from mirror.relay.flow_control import RateLimiter
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.sandbox.cluster import Cluster
from tests.campaign.plain import Pair
from tests.copying.pair import End

RATE = 2_000_000
SECONDS = 10
PARTITIONS = 6
TOLERANCE = 0.1
CREDIT_MS = 500
"""Who comes late by that much makes up for it."""
AT_ONCE_MS = 1_000
"""What is fetched ahead, and comes at once, is what the limit allows in that time."""


def _appended(target: End, topic: str) -> list[tuple[int, int]]:
    """(ms, bytes of its value) of each record in the target's log, as its broker took them in (LogAppendTime)."""
    logs = target.logs(topic, PARTITIONS)
    return sorted((one.time_ms, len(one.value or b"")) for log in logs for _, one in log)


def _per_second(appended: Sequence[tuple[int, int]], all_bytes: int) -> float:
    """How fast they came: the slope of the line through what was there at each moment (least squares).

    Neither how much came at once at the beginning nor when the last came bends it much. ``all_bytes`` is what the
    values were on the wire, with what is around them.
    """
    there = list(itertools.accumulate(size for _, size in appended))
    times, lost_ms = [0], 0
    for (before, _), (at, _) in itertools.pairwise(appended):
        # So long a silence is not the limit's: the machine stood still.
        lost_ms += max(0, at - before - AT_ONCE_MS - CREDIT_MS)
        times.append(at - appended[0][0] - lost_ms)
    slope, _ = statistics.linear_regression(times, there)
    return slope * 1000 * all_bytes / there[-1]


@pytest.mark.brokers
@pytest.mark.timed
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_rate_is_kept_within_a_tenth(target_cluster: Cluster, tasks: int) -> None:
    """Tasks at once share it, as ``FlowConfig.copy_policy`` has them do. Nothing expires for it."""
    pair, target = Pair(target_cluster.bootstrap_servers), End(target_cluster.bootstrap_servers)
    sources: list[TopicPartition] = pair.source(PARTITIONS)
    pair.fill(sources, RATE * SECONDS // PARTITIONS, batch_size=64_000)
    ranges = pair.ranges(sources, message_timestamp_type="LogAppendTime")
    policy = CopyPolicy(max_bytes_per_second=RATE // tasks)

    def copy(number: int) -> list[RangeResult]:
        short = {"request_timeout_ms": 4_000, "delivery_timeout_ms": 5_000, "linger_ms": 0}
        return pair.copy(ranges[number::tasks], policy, **short)

    began_ms = time.time() * 1000
    with ThreadPoolExecutor(tasks) as at_once:
        results = [one for some in at_once.map(copy, range(tasks)) for one in some]
    assert [(one.outcome, one.expiries) for one in results] == [(Outcome.COMPLETE, [])] * PARTITIONS, results
    copied = sum(one.bytes for one in results)
    appended = _appended(target, ranges[0].target_topic)
    rate = _per_second(appended, copied)
    assert (1 - TOLERANCE) * RATE < rate < (1 + TOLERANCE) * RATE
    assert copied <= RATE * (appended[-1][0] - began_ms + AT_ONCE_MS) / 1000


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, CREDIT_MS)), min_size=1, max_size=30),
)
@example(3, [(8, 0), (422474, 0), (1088, 0), (0, 0)])  # with floats: let pass 1 ms early
def test_who_comes_late_makes_up_for_it(rate: int, takes: list[tuple[int, int]]) -> None:
    """Each is late by at most the credit; in all they are not slower than the rate, nor faster."""
    meter, now, taken = RateLimiter(rate, 0), 0, 0
    meter.took(0, 0)
    for size, late_ms in takes:
        now += meter.wait_ms(now)
        assert now >= taken * 1000 // rate, "never before what came is paid for"
        now = max(now, taken * 1000 // rate + late_ms)
        meter.took(size, now)
        taken += size
        assert now + meter.wait_ms(now) <= max(now, taken * 1000 // rate)


def test_what_was_not_asked_for_is_not_saved_up() -> None:
    """After an hour of nothing a copy does not take an hour's worth at once."""
    meter = RateLimiter(1_000, 0)
    meter.took(0, 0)
    meter.took(1_000 + CREDIT_MS, 3_600_000)
    assert meter.wait_ms(3_600_000) == 1_000
