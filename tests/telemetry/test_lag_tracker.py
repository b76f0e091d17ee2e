"""The lags of many partitions, and their totals."""

from __future__ import annotations

import math

from mirror.cluster.types import TopicPartition
from mirror.telemetry.lag.lags import Lag, LagState, LagTracker, totals, worst_first
from mirror.telemetry.lag.offset_history import PartitionOffsets
from tests.telemetry.lag_samples import T0, TP, lag_of

WEEK_MS = 7 * 86_400_000


def test_added_and_removed_partitions_do_not_change_others() -> None:
    other, third = TopicPartition("orders", 1), TopicPartition("clicks", 0)
    lags, alone = LagTracker(), LagTracker()
    for each in range(30):
        mine = PartitionOffsets(0, 1_000 * each + 50_000, 900 * each)
        seen = {TP: mine}
        if each % 7 < 4:
            seen = {other: PartitionOffsets(0, 10, 0), **seen}
        if each > 20:
            seen[third] = PartitionOffsets(0, 5 * each, 3 * each)
        lags.add_sample(T0 + each * 2_000, seen)
        alone.add_sample(T0 + each * 2_000, {TP: mine})
    now_ms = T0 + 60_000
    found = lags.estimates(now_ms, {"orders": WEEK_MS})
    assert found[TP] == alone.estimates(now_ms, {"orders": WEEK_MS})[TP]
    assert found.keys() == {TP, other, third}
    assert found[third][2:4] == (1.5, 2.5)
    lags.add_sample(now_ms, {third: PartitionOffsets(0, 150, 90)})
    assert lags.estimates(now_ms).keys() == {third}


def test_new_partition_is_not_stuck() -> None:
    lags = LagTracker()
    lags.add_sample(T0, {})
    lags.add_sample(T0 + 300_000, {TP: PartitionOffsets(0, 9, 1)})
    assert lags.estimates(T0 + 300_000)[TP].state is LagState.BEHIND


def test_retention_is_by_topic() -> None:
    clicks = TopicPartition("clicks", 0)
    lags = LagTracker()
    lags.add_sample(T0, {TP: PartitionOffsets(0, 5, 5), clicks: PartitionOffsets(0, 5, 5)})
    found = lags.estimates(T0, {"orders": 60_000, "clicks": None})
    assert (found[TP].loss_s, found[clicks].loss_s) == (60.0, None)


def test_clock_set_back_starts_a_new_history() -> None:
    lags = LagTracker()
    for at_s, end in [(0, 100), (10, 200), (20, 300), (5, 400)]:
        lags.add_sample(T0 + at_s * 1000, {TP: PartitionOffsets(0, end, 0)})
    found = lags.estimates(T0 + 5_000)[TP]
    assert (found.seconds, found.produced_per_s, found.state) == (None, None, LagState.BEHIND)


def test_two_samples_of_one_time_count_once() -> None:
    twice = [(0, 0, 100, 0), (10, 0, 200, 50), (10, 0, 300, 80), (20, 0, 400, 160)]
    assert lag_of(twice) == lag_of([twice[0], *twice[2:]])
    assert lag_of([(0, 0, 100, 0), (0, 0, 100, 50)])[:5] == (50, None, None, None, None)


def test_tracker_without_samples_has_no_estimates() -> None:
    lags = LagTracker()
    assert lags.estimates(T0) == {}
    lags.add_sample(T0, {})
    assert lags.estimates(T0) == {}


def test_totals_are_sums_and_worst_values() -> None:
    every = [
        Lag(100, 7.0, 10.0, 5.0, 20.0, 500.0, LagState.CATCHING_UP),
        Lag(50, None, None, 2.0, math.inf, None, LagState.FALLING_BEHIND),
        Lag(None, None, None, None, None, None, LagState.NO_LEADER),
        Lag(0, 0.0, 1.0, 1.0, 0.0, 90.0, LagState.CAUGHT_UP),
    ]
    found = totals(every)
    assert found[:7] == (150, 1, 7.0, 11.0, 8.0, math.inf, 90.0)
    assert found.states == dict.fromkeys(
        [LagState.CATCHING_UP, LagState.FALLING_BEHIND, LagState.NO_LEADER, LagState.CAUGHT_UP], 1
    )
    assert totals([])[:7] == (0, 0, None, None, None, None, None)


def test_worst_first_sorts_by_state_age_and_records() -> None:
    def one(state: LagState, seconds: float | None, records: int | None) -> Lag:
        return Lag(records, seconds, None, None, None, None, state)

    order = [
        one(LagState.LOSING, 1, 1),
        one(LagState.NO_LEADER, None, None),
        one(LagState.STUCK, 90, 5),
        one(LagState.STUCK, 80, 900),
        one(LagState.CATCHING_UP, None, 7),
        one(LagState.CATCHING_UP, None, 6),
        one(LagState.CAUGHT_UP, 0, 0),
    ]
    numbered = [(TopicPartition("t", number), lag) for number, lag in enumerate(order)]
    assert sorted(numbered[3:] + numbered[:3], key=lambda each: worst_first(*each)) == numbered
