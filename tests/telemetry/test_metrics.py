"""Metrics: from results and task reports to the values that backends receive."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

from mirror.alignment.sync_state import SyncState
from mirror.errors import FlowError
from mirror.groups.summary import GroupsSummary
from mirror.meters import BOUNDS_MS, Histogram
from mirror.relay.model.ranges import Outcome
from mirror.telemetry.export.otlp import as_metrics
from mirror.telemetry.export.prometheus import HUNG_AFTER_MS, Endpoint
from mirror.telemetry.lag.lag_metrics import PartitionLag, record_lags
from mirror.telemetry.lag.lags import Lag, LagState
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.instruments import ALL, Instrument, Kind
from mirror.telemetry.metrics.metric_store import MAX_POINTS, OTHER, MetricStore
from mirror.telemetry.metrics.record_results import (
    record_counts,
    record_flow_info,
    record_groups,
    record_outcomes,
    record_period,
    record_state,
    record_sync,
    record_task,
)
from mirror.version import VERSION
from tests.telemetry.instrument_table import DOCUMENT, with_table
from tests.telemetry.results import AT_MS, a_task, expired, result


def recorded_epoch() -> MetricStore:
    metrics = MetricStore()
    deep = result(
        0,
        deep={"offset gaps": 3},
        skipped={"control": 2},
        gaps={"retention": 7},
        target_losses=[{"kind": "truncated"}],
    )
    fenced = result(2, Outcome.FENCED, records=0, batches=0, failures={"fenced": 1})
    record_flow_info(
        metrics,
        "f",
        source="paris",
        target="berlin",
        delivery="exactly-once",
        exactly_once_by="auto",
        naming="prefix",
    )
    results = [deep, expired(1), fenced]
    record_counts(metrics, "f", results)
    record_outcomes(metrics, "f", results)
    record_task(metrics, "f", a_task())
    record_period(metrics, "f", outcome="expired", ended_ms=AT_MS + 8_000, took_ms=8_000)
    return metrics


def values(metrics: MetricStore) -> dict[str, dict[tuple[str, ...], float | Histogram]]:
    clusters = {"source", "target"}
    return {
        instrument.name: {
            tuple(value for name, value in point.attributes if name not in clusters): point.value for point in points
        }
        for instrument, points in metrics.points()
    }


def test_record_results_sums_recorded_epoch() -> None:
    recorded = values(recorded_epoch())
    assert recorded["mirror.copied.records"] == {("f", "orders"): 140}
    assert recorded["mirror.copied.bytes"] == {("f", "orders"): 15_000}
    assert recorded["mirror.copied.batches"] == {("f", "shallow", ""): 17, ("f", "deep", "offset gaps"): 3}
    assert recorded["mirror.skipped"] == {("f", "control"): 2}
    assert recorded["mirror.gap.offsets"] == {("f", "retention"): 7}
    assert recorded["mirror.target_losses"] == {("f", "orders", "truncated"): 1}
    assert recorded["mirror.expiries"] == {("f", "orders", "in flight", "not enough replicas"): 1}
    assert recorded["mirror.retries"] == {("f", "orders"): 1}
    assert recorded["mirror.failures"] == {("f", "orders", "expired"): 1, ("f", "orders", "fenced"): 1}
    assert recorded["mirror.outcomes"] == {("f", "complete"): 1, ("f", "expired"): 1, ("f", "fenced"): 1}
    assert recorded["mirror.phase.time"] == {("f", "fencing"): 0.1, ("f", "producing"): 6.9}
    assert recorded["mirror.network.utilization"] == {("f", "source", "0"): 0.014, ("f", "target", "0"): 0.1}
    assert recorded["mirror.throttle.time"] == {("f", "target", "kafka", "Produce"): 0.5}
    assert recorded["mirror.requests.lost"] == {("f", "target", "kafka", "Produce"): 1}
    assert recorded["mirror.period.end.timestamp"] == {("f",): (AT_MS + 8_000) / 1_000}


def test_second_epoch_adds_to_the_first() -> None:
    metrics = recorded_epoch()
    record_counts(metrics, "f", [result(0)])
    record_task(metrics, "f", a_task())
    recorded = values(metrics)
    assert recorded["mirror.copied.records"] == {("f", "orders"): 240}
    commits = recorded["mirror.commit.duration"][("f",)]
    assert isinstance(commits, Histogram)
    assert (commits.count, commits.sum_ms) == (2, 60)
    assert recorded["mirror.buffer.usage"] == {("f", "0"): 1_000}, "a gauge keeps its last value"


def test_points_are_bounded_and_sums_stay_correct() -> None:
    metrics = MetricStore()
    for number in range(MAX_POINTS + 10):
        metrics.add(instruments.RECORDS, 1, flow="f", topic=f"t{number}")
    recorded = values(metrics)["mirror.copied.records"]
    assert len(recorded) == MAX_POINTS + 1
    assert recorded["f", OTHER] == 10
    assert sum(value for value in recorded.values() if not isinstance(value, Histogram)) == MAX_POINTS + 10


def test_unknown_or_removed_gauge_has_no_point() -> None:
    metrics = MetricStore()
    metrics.set(instruments.LAG, 5, flow="f", topic="t")
    metrics.set(instruments.LAG, 7, flow="g", topic="t")
    metrics.set(instruments.LAG, None, flow="f", topic="t")
    assert values(metrics)["mirror.lag.records"] == {("g", "t"): 7}
    metrics.remove(instruments.LAG, flow="g")
    assert "mirror.lag.records" not in values(metrics)


def test_metrics_convert_to_opentelemetry() -> None:
    data = as_metrics(recorded_epoch(), AT_MS, AT_MS + 9_000)
    converted = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = converted["mirror.commit.duration"].data.data_points
    assert isinstance(point, HistogramDataPoint)
    assert (point.count, point.sum) == (1, 0.03)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 == len(BOUNDS_MS) + 1
    assert point.start_time_unix_nano == AT_MS * 1_000_000
    assert converted["mirror.commit.duration"].unit == "s"


def test_groups_have_their_states_while_they_are_brought_to_the_target() -> None:
    metrics = MetricStore()
    record_groups(metrics, "f", GroupsSummary(total=5, in_step=1, by_reason={"refused": 4}))
    record_groups(metrics, "f", GroupsSummary(total=5, in_step=3, by_reason={"taken-over": 2}, oldest_ms=1_500))
    expected = {
        "mirror.groups": {("f", "in-step"): 3, ("f", "taken-over"): 2},
        "mirror.group.behind.time": {("f",): 1.5},
    }
    assert values(metrics) == expected
    record_groups(metrics, "g", GroupsSummary(total=5, sync=False, oldest_ms=1_500))
    assert values(metrics) == expected, "of groups that are only read nothing is late"
    record_groups(metrics, "f", GroupsSummary(total=5, sync=False, oldest_ms=1_500))
    assert values(metrics) == {}, "nor of those that were brought before"


def test_drift_has_the_counts_of_the_last_rounds() -> None:
    metrics = MetricStore()
    state = SyncState().after("configs", {"refused": 4}, 0, 1_000).after("acls", {"unauthorized": 1}, 0, 2_000)
    record_sync(metrics, "f", state)
    record_sync(metrics, "f", state.after("configs", {}, 0, 3_000).after("acls", {"unauthorized": 2}, 1, 4_000))
    assert values(metrics) == {
        "mirror.drift": {
            ("f", "configs", "none"): 0,
            ("f", "acls", "unauthorized"): 2,
            ("f", "acls", "not-compared"): 1,
        },
        "mirror.sync.timestamp": {("f", "configs"): 3.0, ("f", "acls"): 2.0},
    }
    record_sync(metrics, "f", SyncState().after("configs", {}, 0, 4_000))
    assert values(metrics)["mirror.sync.timestamp"] == {("f", "configs"): 4.0}, "ACLs are not compared any more"
    record_sync(metrics, "f", None)
    assert values(metrics) == {}


def served(metrics: MetricStore) -> str:
    """Return what the endpoint answers."""
    endpoint = Endpoint(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as response:
            text: str = response.read().decode()
            return text
    finally:
        endpoint.close()


def test_endpoint_serves_metrics_to_prometheus() -> None:
    lines = served(recorded_epoch()).splitlines()
    its = 'flow="f",source="paris",target="berlin"'
    flow = 'flow="f",naming="prefix",source="paris",target="berlin"'
    assert f'mirror_flow_info{{delivery="exactly-once",exactly_once_by="auto",{flow},version="{VERSION}"}} 1.0' in lines
    assert f'mirror_copied_records_total{{{its},topic="orders"}} 140.0' in lines
    assert f'mirror_copied_bytes_total{{{its},topic="orders"}} 15000.0' in lines
    assert (
        'mirror_network_utilization_ratio{flow="f",side="target",source="paris",target="berlin",task="0"} 0.1' in lines
    )
    assert 'mirror_commit_duration_seconds_bucket{flow="f",le="0.05",source="paris",target="berlin"} 1.0' in lines
    assert 'mirror_commit_duration_seconds_bucket{flow="f",le="0.02",source="paris",target="berlin"} 0.0' in lines
    assert f"mirror_commit_duration_seconds_sum{{{its}}} 0.03" in lines


def test_clusters_of_a_flow_are_named_whenever_they_become_known() -> None:
    metrics = MetricStore()
    metrics.set(instruments.LAG, 5, flow="f", topic="t")
    metrics.set(instruments.LAG, 5, flow="g", topic="t")
    metrics.add(instruments.DROPPED, 1, signal="traces")
    metrics.describe_flow("f", "paris", "berlin")
    assert {point.attributes for _, points in metrics.points() for point in points} == {
        (("flow", "f"), ("source", "paris"), ("target", "berlin"), ("topic", "t")),
        (("flow", "g"), ("topic", "t")),
        (("signal", "traces"),),
    }
    metrics.describe_flow("f", "paris", "oslo")
    names = {dict(point.attributes).get("target") for _, points in metrics.points() for point in points}
    assert names == {"oslo", None}, "one series, with the present alias"


def test_a_flow_that_has_ended_has_its_counters_and_no_gauges() -> None:
    """Else the alerts about what it no longer does would fire."""
    metrics = recorded_epoch()
    record_lags(metrics, "f", [PartitionLag("t", 0, Lag(9, 1.0, 1.0, 1.0, 1.0, -5.0, LagState.LOSING))])
    counters = {instrument.name for instrument, _ in metrics.points() if instrument.kind is not Kind.GAUGE}
    for flow in ("f", "g"):
        record_state(metrics, flow, "running")
    record_state(metrics, "f", None)
    assert values(metrics).keys() == counters | {"mirror.flow.state"}
    assert values(metrics)["mirror.flow.state"] == {("g", "running"): 1}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_names_follow_prometheus_conventions(one: Instrument) -> None:
    name = one.prometheus
    assert name.endswith("_total") == (one.kind is Kind.COUNTER)
    is_time = "in seconds since 1970" in one.meaning
    assert name.endswith("_timestamp_seconds") == is_time, "points in time are named so"
    assert (name.removesuffix("_total").endswith("_seconds")) == (one.unit == "s")
    assert (name.removesuffix("_total").endswith("_bytes")) == (one.unit == "By")
    assert not [other.name for other in ALL if other.name.startswith(f"{one.name}.")], "a name is no namespace"
    assert ("flow" in one.attributes) == ({"source", "target"} <= set(one.attributes))


@pytest.mark.prometheus
def test_promtool_accepts_the_names() -> None:
    metrics = recorded_epoch()
    for one in ALL:
        labels = {name: "x" for name in one.attributes if name not in {"source", "target"}}
        if one.kind is Kind.GAUGE:
            metrics.set(one, 1, **labels)
        elif one.kind is Kind.COUNTER:
            metrics.add(one, 1, **labels)
        else:
            metrics.merge(one, Histogram([1, *[0] * len(BOUNDS_MS)], 1), **labels)
    asked = subprocess.run(
        ["promtool", "check", "metrics"], input=served(metrics), capture_output=True, text=True, check=False
    )
    assert (asked.returncode, asked.stdout + asked.stderr) == (0, "")


def test_endpoint_says_whether_the_process_hangs() -> None:
    silent_ms = HUNG_AFTER_MS - 1
    endpoint = Endpoint(MetricStore(), "127.0.0.1", 0, lambda: silent_ms)
    url = f"http://127.0.0.1:{endpoint.port}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.status == 200
        silent_ms += 1
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url, timeout=10)
    finally:
        endpoint.close()


def test_endpoint_on_a_used_port_raises_one_line() -> None:
    first = Endpoint(MetricStore(), "127.0.0.1", 0)
    try:
        with pytest.raises(FlowError, match=f"cannot listen on 127.0.0.1:{first.port}.*OTEL_EXPORTER_PROMETHEUS_PORT"):
            Endpoint(MetricStore(), "127.0.0.1", first.port)
    finally:
        first.close()


def test_instrument_names_are_unique_and_documented() -> None:
    assert len({instrument.name for instrument in ALL}) == len(ALL)
    assert len({instrument.prometheus for instrument in ALL}) == len(ALL)
    text = DOCUMENT.read_text("utf-8")
    assert with_table(text) == text, "run python -m tests.telemetry.instrument_table"
    assert {instrument.kind for instrument in ALL} == set(Kind)
