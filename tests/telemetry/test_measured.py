"""From what tasks tell to what backends get."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

from mirror.errors import FlowError
from mirror.meters import BOUNDS_MS, Histogram
from mirror.relay.model.ranges import Outcome
from mirror.telemetry.export.otlp import as_metrics
from mirror.telemetry.export.prometheus import Endpoint
from mirror.telemetry.metrics import instruments as on
from mirror.telemetry.metrics.instruments import ALL, Kind
from mirror.telemetry.metrics.metric_store import MAX_POINTS, OTHER, MetricStore
from mirror.telemetry.metrics.record_results import record_epoch, record_results, record_task
from mirror.telemetry.task_report import TaskReport
from tests.telemetry.results import AT_MS, a_task, expired, result

README = Path(__file__).parents[2] / "config" / "dashboards" / "README.md"


def an_epoch() -> MetricStore:
    measured = MetricStore()
    deep = result(0, deep={"offset gaps": 3}, skipped={"control": 2}, gaps={"retention": 7})
    record_results(measured, "f", [deep, expired(1), result(2, Outcome.FENCED, records=0, batches=0)])
    record_task(measured, "f", a_task())
    record_epoch(measured, "f", outcome="expired", ended_ms=AT_MS + 8_000, took_ms=8_000, planned_ms=40)
    return measured


def values(measured: MetricStore) -> dict[str, dict[tuple[str, ...], float | Histogram]]:
    return {
        what.name: {tuple(value for _, value in one.attributes): one.value for one in points}
        for what, points in measured.points()
    }


def test_an_epoch_s_sums() -> None:
    told = values(an_epoch())
    assert told["messaging.client.sent.messages"] == {("f", "orders"): 140}
    assert told["mirror.copied"] == {("f", "orders"): 15_000}
    assert told["mirror.batches"] == {("f", "shallow", ""): 17, ("f", "deep", "offset gaps"): 3}
    assert told["mirror.skipped"] == {("f", "control"): 2}
    assert told["mirror.gaps"] == {("f", "retention"): 7}
    assert told["mirror.expiries"] == {("f", "orders", "in flight", "not enough replicas"): 1}
    assert told["mirror.retries"] == {("f", "orders"): 1}
    assert told["mirror.fenced"] == {("f",): 1}
    assert told["mirror.outcomes"] == {("f", "complete"): 1, ("f", "expired"): 1, ("f", "fenced"): 1}
    assert told["mirror.phase.time"] == {("f", "fencing"): 0.1, ("f", "producing"): 6.9}
    assert told["mirror.network.busy"] == {("f", "source", "0"): 0.014, ("f", "target", "0"): 0.1}
    assert told["mirror.throttle.time"] == {("f", "target", "Produce"): 0.5}
    assert told["mirror.requests.lost"] == {("f", "target", "Produce"): 1}
    assert told["mirror.epoch.last"] == {("f",): (AT_MS + 8_000) / 1_000}


def test_a_second_epoch_adds_to_the_first() -> None:
    measured = an_epoch()
    record_results(measured, "f", [result(0)])
    record_task(measured, "f", a_task())
    told = values(measured)
    assert told["messaging.client.sent.messages"] == {("f", "orders"): 240}
    commits = told["mirror.commit.duration"][("f",)]
    assert isinstance(commits, Histogram)
    assert (commits.count, commits.sum_ms) == (2, 60)
    assert told["mirror.buffer.used"] == {("f", "0"): 1_000}, "a gauge is as it was last"


def test_what_a_task_tells_travels_as_plain_values() -> None:
    told = a_task(exported=True, dropped={"traces": 4})
    assert TaskReport.from_json(json.loads(json.dumps(told.to_json()))) == told


def test_topics_without_number_are_bounded_and_no_sum_is_wrong() -> None:
    measured = MetricStore()
    for number in range(MAX_POINTS + 10):
        measured.add(on.SENT, 1, flow="f", topic=f"t{number}")
    told = values(measured)["messaging.client.sent.messages"]
    assert len(told) == MAX_POINTS + 1
    assert told["f", OTHER] == 10
    assert sum(value for value in told.values() if not isinstance(value, Histogram)) == MAX_POINTS + 10


def test_a_gauge_that_is_not_known_any_more_is_gone() -> None:
    measured = MetricStore()
    measured.set(on.LAG, 5, flow="f", topic="t")
    measured.set(on.LAG, 7, flow="g", topic="t")
    measured.set(on.LAG, None, flow="f", topic="t")
    assert values(measured)["mirror.lag.records"] == {("g", "t"): 7}
    measured.remove(on.LAG, flow="g")
    assert "mirror.lag.records" not in values(measured)


def test_as_opentelemetry_has_it() -> None:
    data = as_metrics(an_epoch(), AT_MS, AT_MS + 9_000)
    metrics = {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = metrics["mirror.commit.duration"].data.data_points
    assert isinstance(point, HistogramDataPoint)
    assert (point.count, point.sum) == (1, 0.03)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 == len(BOUNDS_MS) + 1
    assert point.start_time_unix_nano == AT_MS * 1_000_000
    assert metrics["mirror.commit.duration"].unit == "s"


def test_as_prometheus_scrapes_it() -> None:
    endpoint = Endpoint(an_epoch(), "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        endpoint.close()
    lines = text.splitlines()
    assert 'messaging_client_sent_messages_total{flow="f",topic="orders"} 140.0' in lines
    assert 'mirror_copied_bytes_total{flow="f",topic="orders"} 15000.0' in lines
    assert 'mirror_network_busy_ratio{cluster="target",flow="f",task="0"} 0.1' in lines
    assert 'mirror_commit_duration_seconds_bucket{flow="f",le="0.05"} 1.0' in lines
    assert 'mirror_commit_duration_seconds_bucket{flow="f",le="0.02"} 0.0' in lines
    assert 'mirror_commit_duration_seconds_sum{flow="f"} 0.03' in lines


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    first = Endpoint(MetricStore(), "127.0.0.1", 0)
    try:
        with pytest.raises(FlowError, match=f"cannot listen on 127.0.0.1:{first.port}.*OTEL_EXPORTER_PROMETHEUS_PORT"):
            Endpoint(MetricStore(), "127.0.0.1", first.port)
    finally:
        first.close()


def test_names_are_unique_and_every_instrument_has_its_line_in_the_readme() -> None:
    assert len({one.name for one in ALL}) == len(ALL)
    assert len({one.prometheus for one in ALL}) == len(ALL)
    rows = [re.split(r" *\| *", line)[1:] for line in README.read_text().splitlines() if line.startswith("| `m")]
    told = {cells[0].strip("`"): cells for cells in rows}
    for one in ALL:
        assert one.name in told, f"{one.name} is missing in the table of metrics of config/dashboards/README.md"
        name, kind, unit, attributes, meaning = told[one.name][:5]
        assert (kind, unit.strip("`")) == (one.kind.value, one.unit), name
        assert attributes == ", ".join(one.attributes), name
        assert meaning == one.meaning, name
    assert {one.kind for one in ALL} == set(Kind)
