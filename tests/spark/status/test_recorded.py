"""What tasks of any host report in the status topic is in a status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.errors import AuthorizationFailed, KafkaTimeout
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusNews, StatusRecord
from mirror.relay.progress.status_values import RunState, StatusKind
from mirror.spark.clusters import Clusters
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger.status_table import LastError, StatusTable
from mirror.spark.status import lag_monitor, status_reader
from mirror.spark.status.flow_view import FlowView
from mirror.spark.status.lag_monitor import LagMonitor
from mirror.spark.status.partition_status import failures_of
from mirror.telemetry.lag.lags import LagState
from mirror.telemetry.lag.offset_history import PartitionOffsets
from tests.polling import eventually
from tests.relay.progress.test_status_values import REPORT, TASK
from tests.spark.ledger.test_status_table import VERIFIED
from tests.spark.planning.test_range_planner import flow
from tests.spark.status_harness import T0, StatusHarness

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.errors import MirrorError
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.telemetry.evidence import Evidence

ZERO = TopicPartition("t", 0)
RESULT = RangeResult(flow="f", topic="t", target_topic="a.t", partition=0, start=0, end=5)


def reported(result: RangeResult, time_ms: int = T0) -> StatusRecord:
    target = TopicPartition(result.target_topic, result.partition)
    report = replace(REPORT, target=target, result=result)
    return StatusRecord(status_values.partition_key(StatusKind.PARTITION, target), report, time_ms)


def news(*records: StatusRecord) -> StatusNews:
    return StatusNews(again=True, records=list(records))


@pytest.mark.parametrize(("outcome", "error"), [(Outcome.FAILED, "new"), (Outcome.UNFINISHED, None)])
def test_what_fails_and_why_is_what_was_reported_last(outcome: Outcome, error: str | None) -> None:
    result = replace(RESULT, outcome=outcome, error=error)
    table = StatusTable()
    table.apply(news(reported(result), reported(replace(result, topic="", partition=9))))
    seen = FlowView(
        time_ms=T0,
        run=None,
        offsets={ZERO: PartitionOffsets(0, 9, 5)},
        progress={},
        unanswered={},
        gaps={},
        high_watermarks={},
        withheld={},
        obstacles={},
    )
    found = failures_of(flow(), seen, table.results())
    assert found == ({} if error is None else {ZERO: LastError(error, T0)})


class Listener:
    interval_ms = 1

    def on_status(self, status: FlowStatus) -> None: ...

    def on_error(self, error: MirrorError) -> None: ...


def test_a_host_without_the_ledger_shows_what_tasks_report(site: StatusHarness) -> None:
    target = TopicPartition("a.orders", 0)
    result = replace(
        RESULT, topic="orders", target_topic="a.orders", outcome=Outcome.FAILED, error="refused: too large"
    )
    run = RunState(run="r1", since_ms=T0, state="running")
    tasks = [replace(TASK, run="r1", job=2, task=0), replace(TASK, run="r1", job=1, task=1), replace(TASK, run="r0")]
    site.report_value(status_values.RUN, run)
    for task in tasks:
        site.report_value(status_values.task_key(task.task), task)
    key = status_values.partition_key(StatusKind.PARTITION, target)
    site.report_value(key, replace(REPORT, target=target, result=result))
    site.a.add_topic("orders", [100])
    site.commit(50)
    site.run()
    with site.watch() as watch:
        found = watch.read()
        (one,) = found.partitions
        assert one.lag.state is LagState.FAILED
        assert one.trouble is not None
        assert one.trouble.line == "refused: too large"
        assert (found.state, found.tasks, found.unread) == (run, tasks[:1], "")
        assert found.tasks_seen_ms == TASK.seen_ms
        site.topic_error = AuthorizationFailed("the permission Read is missing", 29)
        again = watch.read()
        assert (again.state, again.unread) == (run, "the permission Read is missing")
    assert "permission Read is missing" in site.invoke("status").output


def test_the_state_of_an_earlier_run_is_not_shown_beside_a_run_that_reports_none(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    for name, is_shown in (("r0", False), ("r1", True), ("r2", True)):
        state = RunState(run=name, since_ms=T0, state="ended")
        site.report_value(status_values.RUN, state)
        site.run()
        with site.watch() as watch:
            assert watch.read().state == (state if is_shown else None), name
        site.run(ended=True)
        with site.watch() as watch:
            assert watch.read().state == state


def test_an_unreadable_topic_is_named_also_while_the_source_is_away(site: StatusHarness) -> None:
    site.topic_error = AuthorizationFailed("the permission Read is missing", 29)
    site.a.stop()
    with Clusters(load(site.config)) as clusters, site.watch() as watch:
        assert clusters.away("ab", None).keys() == {"a"}
        assert watch.read(clusters.of(watch.flow)).unread == "the permission Read is missing"


def test_a_reading_of_a_command_waits_shortly_for_the_topic(site: StatusHarness) -> None:
    site.topic_error = KafkaTimeout("its leader is away")
    site.a.add_topic("orders", [100], earliest=0)
    with site.watch() as watch:
        assert watch.read().unread == "its leader is away"
    assert site.limits_ms == [3_000]


def test_a_monitor_in_a_driver_reads_no_topic_and_measures_what_commands_have_left_there(
    site: StatusHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "StatusFollower", None)
    site.a.add_topic("orders", [100], earliest=0)
    config = load(site.config)
    found: list[Evidence] = []
    monkeypatch.setattr(lag_monitor, "record_last_evidence", lambda _, __, evidence: found.append(evidence))
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", "0")
    table = StatusTable(verify=VERIFIED)
    with (
        run_telemetry(tmp_path, Consoles()) as telemetry,
        LagMonitor(config, config.flows["f"], telemetry, Listener(), lambda: (table, "")),
    ):
        eventually(lambda: found)
    assert found[0].verification == VERIFIED
