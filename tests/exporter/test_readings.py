"""What stays known of flows and clusters while one side, or both, are away; and the series that say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror.exporter.readings import FlowReading, Readings
from mirror.exporter.recording import record_cluster, record_flow
from mirror.spark.status.condition import FlowCondition
from mirror.telemetry.lag.lags import totals
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.metric_store import MetricStore
from tests.exporter.sample_readings import BETWEEN_RUNS, GROUPS, IN_TROUBLE, NOW, VERIFIED

NAME = IN_TROUBLE.flow
LATER = NOW + 60_000
NOTHING_READ: dict[str, Any] = {"partitions": [], "totals": totals([])}


def readings() -> Readings:
    return Readings({NAME: FlowReading(flow=NAME, source="paris", target="berlin")})


def values(metrics: MetricStore) -> dict[str, dict[tuple[str, ...], object]]:
    return {
        instrument.name: {tuple(value for _, value in one.attributes): one.value for one in points}
        for instrument, points in metrics.points()
    }


def test_without_its_source_a_flow_keeps_its_lag_and_shows_its_state() -> None:
    found = readings()
    found.read(IN_TROUBLE)
    assert IN_TROUBLE.state is not None
    held = replace(IN_TROUBLE.state, state="held", since_ms=LATER)
    away = replace(IN_TROUBLE, **NOTHING_READ, run=None, state=held, time_ms=LATER, away={"paris": "refused"})
    reading = found.read(away)
    assert (reading.lags_ms, reading.state_ms, reading.error) == (NOW, LATER, "refused")
    assert reading.status is not None
    assert reading.status.partitions == IN_TROUBLE.partitions
    assert reading.condition is not None
    assert reading.condition.name is FlowCondition.HELD


def test_without_its_target_nothing_newer_is_known_of_a_flow() -> None:
    found = readings()
    found.read(IN_TROUBLE)
    away = replace(IN_TROUBLE, **NOTHING_READ, run=None, time_ms=LATER, away={"berlin": "refused"})
    reading = found.read(away)
    assert (reading.lags_ms, reading.state_ms) == (NOW, NOW)
    assert reading.status is not None
    assert (reading.status.partitions, reading.status.groups) == (IN_TROUBLE.partitions, GROUPS)
    assert reading.condition is not None
    assert (reading.condition.name, reading.condition.success_ms) == (FlowCondition.UNKNOWN, NOW - 3_000)
    failed = found.failed(NAME, "refused", {"berlin": "refused", "paris": "refused"}, LATER)
    assert (failed.status, failed.lags_ms) == (replace(reading.status, away=failed.status.away), NOW)  # type: ignore[union-attr]
    whole = found.read(replace(IN_TROUBLE, time_ms=LATER))
    assert (whole.lags_ms, whole.error, whole.status) == (LATER, "", replace(IN_TROUBLE, time_ms=LATER))


def test_the_series_of_a_flow_stay_while_its_source_is_away_but_for_its_state() -> None:
    found, metrics = readings(), MetricStore()
    record_flow(metrics, found.read(replace(IN_TROUBLE, evidence=VERIFIED)))
    before = values(metrics)
    assert before["mirror.lag.records"][NAME, "payments"] == 17
    assert before["mirror.flow.state"] == {(NAME, "running"): 1}
    assert before["mirror.flow.read.timestamp"] == {(NAME,): NOW / 1000}
    assert before["mirror.flow.success.timestamp"] == {(NAME,): NOW / 1000 - 3}
    assert before["mirror.verify.equal.timestamp"]
    away = replace(IN_TROUBLE, **NOTHING_READ, run=None, time_ms=LATER, away={"berlin": "refused"})
    record_flow(metrics, found.read(away))
    after = values(metrics)
    assert after.pop("mirror.flow.state") == {(NAME, "unknown"): 1}
    assert before.pop("mirror.flow.state")
    assert after == before


def test_a_scheduled_flow_has_its_last_complete_run_between_runs() -> None:
    metrics, name = MetricStore(), BETWEEN_RUNS.flow
    found = Readings({name: FlowReading(flow=name, source="paris", target="berlin")})
    record_flow(metrics, found.read(BETWEEN_RUNS))
    recorded = values(metrics)
    assert recorded["mirror.flow.state"] == {(name, "ended"): 1}
    assert recorded["mirror.flow.success.timestamp"] == {(name,): NOW / 1000 - 1_200}


def test_of_a_flow_that_was_never_read_only_its_unknown_state_is_said() -> None:
    metrics, found = MetricStore(), readings()
    record_flow(metrics, found.flows[0])
    assert values(metrics) == {}
    record_flow(metrics, found.failed(NAME, "refused", {}, NOW))
    assert values(metrics) == {"mirror.flow.state": {(NAME, "unknown"): 1}}
    away = replace(IN_TROUBLE, **NOTHING_READ, run=None, state=None, away={"berlin": "refused"})
    record_flow(metrics, found.read(away))
    assert not values(metrics).keys() & {"mirror.flow.success.timestamp", "mirror.flow.read.timestamp"}


def test_a_flow_that_cannot_be_read_any_more_has_not_died() -> None:
    """Its stream may go on: its last heartbeat is as old as the last reading."""
    found, metrics = readings(), MetricStore()
    found.read(IN_TROUBLE)
    for later_ms, state in ((59_999, "running"), (60_000, "unknown"), (600_000, "unknown")):
        reading = found.failed(NAME, "GROUP_AUTHORIZATION_FAILED", {}, NOW + later_ms)
        record_flow(metrics, reading)
        assert values(metrics)["mirror.flow.state"] == {(NAME, state): 1}
        assert values(metrics)["mirror.flow.success.timestamp"] == {(NAME,): NOW / 1000 - 3}


def test_a_success_that_a_reading_does_not_show_stays() -> None:
    found, metrics = readings(), MetricStore()
    record_flow(metrics, found.read(IN_TROUBLE))
    assert IN_TROUBLE.state is not None
    record_flow(metrics, found.read(replace(IN_TROUBLE, state=replace(IN_TROUBLE.state, state="preparing"))))
    assert values(metrics)["mirror.flow.state"] == {(NAME, "preparing"): 1}
    assert values(metrics)["mirror.flow.success.timestamp"] == {(NAME,): NOW / 1000 - 3}


def test_a_cluster_is_up_or_not_and_keeps_the_time_of_its_last_answer() -> None:
    found, metrics = readings(), MetricStore()
    assert [one.answers for one in found.clusters] == [None, None]
    record_cluster(metrics, found.asked("paris", "", NOW))
    record_cluster(metrics, found.asked("berlin", "refused", NOW))
    record_cluster(metrics, found.asked("paris", "refused", LATER))
    recorded = values(metrics)
    assert recorded[instruments.CLUSTER_UP.name] == {("paris",): 0, ("berlin",): 0}
    assert recorded[instruments.CLUSTER_ANSWER.name] == {("paris",): NOW / 1000}
    record_cluster(metrics, found.asked("paris", "", LATER))
    assert values(metrics)[instruments.CLUSTER_UP.name]["paris",] == 1


def test_a_flow_whose_rounds_do_not_end_is_late() -> None:
    found = Readings({one: FlowReading(flow=one, source="a", target="b") for one in ("f", "g", "h")})
    found.ended("f", 1_000)
    found.ended("g", 2_000)
    assert found.late(1_500) == ["f", "h"]
