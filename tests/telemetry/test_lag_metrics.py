"""The lags of a flow as metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.telemetry.lag.lag_metrics import MAX_PARTITIONS, PartitionLag, record_lags
from mirror.telemetry.lag.lags import Lag, LagState
from mirror.telemetry.metrics import metric_store
from mirror.telemetry.metrics.metric_store import MetricStore
from tests.telemetry.test_metrics import values


def lag(records: int, state: LagState = LagState.CATCHING_UP, **more: float) -> Lag:
    recorded = {"seconds": 1.0, "copied_per_s": 10.0, "produced_per_s": 1.0, "drain_s": 2.0, "loss_s": 100.0, **more}
    return Lag(records=records, state=state, **recorded)


def test_lags_are_recorded_by_topic_and_for_partitions_behind() -> None:
    metrics = MetricStore()
    stuck = lag(9, LagState.STUCK, drain_s=math.inf, seconds=70.0, loss_s=-5.0)
    record_lags(
        metrics,
        "f",
        [PartitionLag("t", 0, lag(0, LagState.CAUGHT_UP)), PartitionLag("t", 1, stuck), PartitionLag("u", 0, lag(5))],
    )
    recorded = values(metrics)
    assert recorded["mirror.lag.records"] == {("f", "t"): 9, ("f", "u"): 5}
    assert recorded["mirror.lag.time"] == {("f", "t"): 70.0, ("f", "u"): 1.0}
    assert recorded["mirror.drain.time"] == {("f", "t"): math.inf, ("f", "u"): 2.0}
    assert recorded["mirror.loss.time"] == {("f", "t"): -5.0, ("f", "u"): 100.0}
    assert recorded["mirror.copy.rate"] == {("f", "t"): 20.0, ("f", "u"): 10.0}
    assert recorded["mirror.partition.lag.records"] == {("f", "t", "1"): 9, ("f", "u", "0"): 5}
    states = recorded["mirror.partitions"]
    assert (states["f", "stuck"], states["f", "caught up"], states["f", "no leader"]) == (1, 1, 0)


def test_withheld_records_are_counted_beside_the_lag() -> None:
    metrics = MetricStore()
    one = OpenTransaction(topic="t", partition=0, offset=3, records=5, seen_ms=70_000, since_ms=60_000)
    partitions = [
        PartitionLag("t", 0, lag(0, LagState.CAUGHT_UP), one),
        PartitionLag("t", 1, lag(0, LagState.CAUGHT_UP), replace(one, records=2, start_ms=0)),
        PartitionLag("u", 0, lag(5)),
    ]
    record_lags(metrics, "f", partitions)
    measures = values(metrics)
    assert measures["mirror.withheld.records"] == {("f", "t"): 7, ("f", "u"): 0}
    assert measures["mirror.withheld.time"] == {("f", "t"): 70.0, ("f", "u"): 0.0}


def test_topics_beyond_the_bound_are_one_and_the_worst_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_store, "MAX_POINTS", 4)
    metrics = MetricStore()
    stuck = lag(9, LagState.STUCK, seconds=70.0, loss_s=-5.0)
    fine = [PartitionLag(topic, 0, lag(1, loss_s=50.0)) for topic in ("a", "b", "c")]
    open_ = OpenTransaction(topic="d", partition=0, offset=3, records=5, seen_ms=70_000, since_ms=60_000)
    withheld = PartitionLag("d", 0, lag(0, LagState.CAUGHT_UP), open_)
    for _ in range(2):  # it replaces, and does not add to what was recorded before
        record_lags(metrics, "f", [*fine, withheld, PartitionLag("y", 0, stuck), PartitionLag("z", 0, stuck)])
        record_lags(metrics, "g", [*fine, PartitionLag("z", 0, stuck)])
    recorded = values(metrics)
    assert recorded["mirror.lag.records"] == {
        ("f", "y"): 9,
        ("f", "z"): 9,
        ("f", "a"): 1,
        ("f", "other"): 2,
        ("g", "other"): 12,
    }
    assert (recorded["mirror.loss.time"]["f", "z"], recorded["mirror.loss.time"]["g", "other"]) == (-5.0, -5.0)
    assert recorded["mirror.lag.time"]["g", "other"] == 70.0
    assert (recorded["mirror.withheld.records"]["f", "other"], recorded["mirror.withheld.time"]["f", "other"]) == (
        5,
        10,
    )
    assert max(key for key in recorded["mirror.partition.lag.records"] if key[0] == "f") == ("f", "z", "0")
    assert len(recorded["mirror.partition.lag.records"]) == 4


def test_record_lags_replaces_the_previous_lags() -> None:
    metrics = MetricStore()
    record_lags(metrics, "f", [PartitionLag("t", 0, lag(9)), PartitionLag("gone", 0, lag(1))])
    record_lags(metrics, "g", [PartitionLag("t", 0, lag(3))])
    record_lags(metrics, "f", [PartitionLag("t", 0, lag(0, LagState.CAUGHT_UP))])
    recorded = values(metrics)
    assert recorded["mirror.lag.records"] == {("g", "t"): 3, ("f", "t"): 0}
    assert recorded["mirror.partition.lag.records"] == {("g", "t", "0"): 3}


def test_only_the_worst_partitions_have_their_own_points() -> None:
    metrics = MetricStore()
    partitions = [PartitionLag("t", number, lag(number)) for number in range(1, 10_000)]
    record_lags(metrics, "f", [*partitions, PartitionLag("t", 0, lag(0, LagState.LOSING))])
    recorded = values(metrics)
    worst = {int(key[2]) for key in recorded["mirror.partition.lag.records"]}
    assert len(worst) == MAX_PARTITIONS
    assert worst == {0, *range(9_999, 9_999 - MAX_PARTITIONS + 1, -1)}
    assert recorded["mirror.lag.records"] == {("f", "t"): sum(range(10_000))}
