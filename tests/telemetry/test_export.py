"""Exports through the real exporters to a receiver that decodes the official messages, and into files without one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.meters import Histogram, NetworkSnapshot
from mirror.relay.model.observer import SlowRecord, TaskSnapshot
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.runtime.clock import SystemClock
from mirror.telemetry import task_telemetry as task_module
from mirror.telemetry.export import jsonl, process
from mirror.telemetry.export.process import Exports
from mirror.telemetry.metrics.instruments import OF_TASKS
from mirror.telemetry.run_telemetry import PeriodTaskResults, RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from mirror.telemetry.task_report import TaskReport
from mirror.telemetry.task_telemetry import TaskTelemetry
from mirror.telemetry.traces.ids import period_id
from mirror.telemetry.traces.spans import EXPIRED, PeriodFacts
from tests.polling import eventually
from tests.telemetry import receiver
from tests.telemetry.results import AT_MS, a_task, expired, result

pytestmark = pytest.mark.timeout(120)

PERIOD = period_id("f", "run-1", 0)
HTTP = {"OTEL_BSP_SCHEDULE_DELAY": "20"}
SLOW = SlowRecord(
    trace=str(period_id("producer", "its", 1)),
    offset=7,
    target_offset=8,
    appended_ms=AT_MS,
    received_ms=AT_MS + 1,
    sent_ms=AT_MS + 2,
    acknowledged_ms=AT_MS + 900,
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has exporters of its own, and leaves no thread behind."""
    made: list[process.Exports] = []

    def make(settings: TelemetrySettings) -> process.Exports:
        made.append(Exports(settings))
        return made[-1]

    monkeypatch.setattr(process, "Exports", make)
    process._exports_of.cache_clear()
    yield
    process._exports_of.cache_clear()
    for one in made:
        one.close(timeout_ms=0)


def settings(address: str, **more: str) -> TelemetrySettings:
    return TelemetrySettings.of({"OTEL_EXPORTER_OTLP_ENDPOINT": address, **HTTP, **more})


def a_range(partition: int) -> Range:
    return Range(
        flow="f",
        topic="orders",
        target_topic="a.orders",
        partition=partition,
        start=10,
        end=110,
        source_cluster_id="a",
        topic_id="t",
    )


def look() -> TaskSnapshot:
    networks = {"source": NetworkSnapshot({}, 0), "target": NetworkSnapshot({}, 0)}
    return TaskSnapshot(
        buffer=1, buffer_size=2, in_flight=3, held=4, networks=networks, commits=Histogram(), latency=Histogram()
    )


def a_task_of(asked: TelemetrySettings, *results: RangeResult) -> Any:
    telemetry = TaskTelemetry(asked, period=PERIOD, flow="f", task=0, attempt=0, clock=SystemClock())
    telemetry.task_started(look)
    for one in results:
        for span in one.timeline.spans if one.timeline else ():
            telemetry.span_ended(a_range(one.partition), span)
        telemetry.range_finished(a_range(one.partition), one)
    return telemetry


def facts(*results: RangeResult) -> PeriodFacts:
    return PeriodFacts(
        id=PERIOD,
        flow="f",
        run="run-1",
        period=0,
        source="a",
        target="b",
        began_ms=AT_MS,
        ended_ms=AT_MS + 8_000,
        planned_ms=40,
        results=results,
    )


def of_environment(address: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> TelemetrySettings:
    """The SDK's exporters read the environment themselves.

    A task's last metrics may be exported when the receiver has ended: retries of 10 s would survive their test.
    """
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_TIMEOUT": "2", **more}.items():
        monkeypatch.setenv(name, value)
    return settings(address, **more)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_driver_and_task_export_one_tree(protocol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver.http() if protocol != "grpc" else receiver.grpc_server() as (address, taken):
        asked = of_environment(address, monkeypatch, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        results = [result(0), expired(1)]
        report = a_task_of(asked, *results).finish()
        assert report.exported
        run = RunTelemetry(asked, tmp_path, SystemClock())
        run.record_counts("f", results)
        run.record_period(facts(*results), [PeriodTaskResults(0, 0, results, report)])
        run.close()
        names = sorted(span.name for span in taken.spans)
    assert names == sorted(
        ["mirror.period", "mirror.plan", "mirror.task", "mirror.partition", "mirror.partition", "mirror.attempt"]
    ), "each once: the driver does not repeat what the task has exported"
    ids = {span.id for span in taken.spans}
    assert {span.parent for span in taken.spans} - ids == {""}
    assert {span.trace for span in taken.spans} == {PERIOD.trace_hex}
    (event,) = [each for span in taken.named("mirror.partition") for each in span.events if each[0] == EXPIRED]
    assert event[1] == AT_MS + 6_100
    assert event[2]["mirror.expiry.cause"] == "not enough replicas"
    assert event[2]["mirror.expiry.may_have_been_written"] is True
    assert taken.spans[0].resource["service.name"] == "kafka-spark-mirror"
    assert taken.metrics["mirror.expiries"]["sum"]["dataPoints"][0]["asInt"] == "1"
    assert not list(tmp_path.iterdir()), "no files where there is a backend"


def test_a_task_of_many_periods_has_a_span_in_each_and_keeps_the_results_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = period_id("f", "run-1", 1), period_id("f", "run-1", 2)
    with receiver.http() as (address, taken):
        asked = of_environment(address, monkeypatch, **HTTP)
        telemetry = TaskTelemetry(
            asked,
            period=first,
            flow="f",
            task=0,
            attempt=0,
            clock=SystemClock(),
            period_at=lambda unix_ms: first if unix_ms < AT_MS + 60_000 else second,
        )
        telemetry.task_started(look)
        later = result(1)
        assert later.timeline is not None
        later.timeline.began_ms = AT_MS + 60_000
        for one in (result(0), later):
            telemetry.range_finished(a_range(one.partition), one)
        assert telemetry._results == [later]
        telemetry.finish()
        partitions = {span.attributes["mirror.partition"]: span for span in taken.named("mirror.partition")}
        tasks = {span.id: span for span in taken.named("mirror.task")}
    assert [partitions[number].trace for number in (0, 1)] == [first.trace_hex, second.trace_hex]
    assert {tasks[partitions[number].parent].trace for number in (0, 1)} == {first.trace_hex, second.trace_hex}


def test_the_span_of_a_task_in_a_period_covers_those_of_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end a moment after the period, when the task has seen that it is over."""
    now_ms, period_ms = AT_MS + 1_000, 60_000
    with receiver.http() as (address, taken):
        telemetry = TaskTelemetry(
            of_environment(address, monkeypatch, **HTTP),
            period=period_id("f", "run-1", 7),
            flow="f",
            task=0,
            attempt=0,
            clock=cast("SystemClock", SimpleNamespace(unix_ms=lambda: now_ms)),
            period_at=lambda unix_ms: period_id("f", "run-1", (unix_ms - AT_MS) // period_ms + 8),
        )
        for period in range(2):
            for partition in range(2):
                one = result(partition)
                assert one.timeline is not None
                one.timeline.began_ms = now_ms + partition
                one.timeline.ended_ms = AT_MS + (period + 1) * period_ms + 5
                if partition:
                    now_ms = one.timeline.ended_ms
                telemetry.range_finished(a_range(partition), one)
        now_ms += 30_000
        telemetry.finish()
        tasks = sorted((span.began_ms - AT_MS, span.ended_ms - AT_MS) for span in taken.named("mirror.task"))
    assert tasks == [(1_000, 60_005), (60_005, 120_005)], "and there is none of a period without results"


def test_partition_span_is_exported_while_others_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver.http() as (address, taken):
        telemetry = a_task_of(of_environment(address, monkeypatch, **HTTP), result(0))
        eventually(lambda: taken.named("mirror.partition"), what="the first partition's span")
        assert not taken.named("mirror.task")
        telemetry.finish()
        assert taken.named("mirror.task")


def test_slow_records_are_exported_at_once_if_a_backend_takes_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver.http() as (address, taken):
        asked = of_environment(address, monkeypatch, **HTTP, MIRROR_TRACE_SLOW_MS="500")
        telemetry = a_task_of(asked)
        assert telemetry.slow_ms == 500
        telemetry.record_was_slow(a_range(0), SLOW)
        eventually(lambda: len(taken.spans) == 4, what="the way of the record")
        telemetry.finish()
    (whole,) = taken.named("mirror.record")
    assert (whole.trace, whole.parent) == (period_id("producer", "its", 1).trace_hex, SLOW.trace[36:52])


def test_slow_records_are_exported_before_their_task_ends_although_its_period_is_not_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver.http() as (address, taken):
        sampler = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.000001"}
        more = {**sampler, "OTEL_METRICS_EXPORTER": "none", "MIRROR_TRACE_SLOW_MS": "500"}
        asked = replace(of_environment(address, monkeypatch, **more), delay_ms=60_000)
        telemetry = a_task_of(asked)
        telemetry.record_was_slow(a_range(0), SLOW)
        telemetry.finish()
        names = sorted(span.name for span in taken.spans)
    assert names == ["mirror.record", "mirror.record.append", "mirror.record.fetch", "mirror.record.hold"]


@pytest.mark.parametrize("more", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_SAMPLER": "always_off"}])
def test_slow_records_are_not_looked_for_where_nothing_would_be_exported(more: dict[str, str]) -> None:
    asked = TelemetrySettings.of({"MIRROR_TRACE_SLOW_MS": "5", "OTEL_METRICS_EXPORTER": "none", **more})
    telemetry = TaskTelemetry(asked, period=PERIOD, flow="f", task=0, attempt=0, clock=SystemClock())
    assert telemetry.slow_ms is None


def test_epoch_with_an_expiry_is_exported_without_being_sampled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with receiver.http() as (address, taken):
        asked = of_environment(address, monkeypatch, OTEL_TRACES_SAMPLER="always_off")
        healthy = a_task_of(asked, result(0)).finish()
        assert not healthy.exported
        assert taken.spans == []
        sick = a_task_of(asked, expired(1)).finish()
        assert sick.exported
        run = RunTelemetry(asked, tmp_path, SystemClock())
        tasks = [PeriodTaskResults(0, 0, [result(0)], healthy), PeriodTaskResults(1, 0, [expired(1)], sick)]
        run.record_period(facts(result(0), expired(1)), tasks)
        run.close()
    partitions = {span.attributes["mirror.partition"] for span in taken.named("mirror.partition")}
    assert partitions == {0, 1}, "the healthy ones', too: the driver has made up for them"
    assert len(taken.named("mirror.period")) == 1


def test_epoch_that_is_not_sampled_is_only_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver.http() as (address, taken):
        asked = of_environment(address, monkeypatch, OTEL_TRACES_SAMPLER="always_off")
        run = RunTelemetry(asked, tmp_path, SystemClock())
        run.record_counts("f", [result(0)])
        run.record_period(
            facts(result(0)), [PeriodTaskResults(0, 0, [result(0)], a_task_of(asked, result(0)).finish())]
        )
        run.close()
    assert taken.spans == []
    assert taken.metrics["mirror.copied.records"]["sum"]["dataPoints"][0]["asInt"] == "100"


def test_hanging_backend_delays_the_end_of_a_task_briefly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver.http(hangs=True) as (address, taken):
        asked = of_environment(address, monkeypatch, OTEL_EXPORTER_OTLP_TIMEOUT="5")
        # Each flushes the spans and the metrics: 0.6 s, and not the 5 s of the exporter.
        monkeypatch.setattr(task_module, "_FLUSH_MS", 300)
        monkeypatch.setattr("mirror.telemetry.run_telemetry.FLUSH_MS", 300)
        telemetry = a_task_of(asked, result(0), expired(1))
        began = time.monotonic()
        report = telemetry.finish()
        assert time.monotonic() - began < 4.5
        assert taken.asked.wait(10)
        assert not report.exported
        run = RunTelemetry(asked, tmp_path, SystemClock())
        run.record_period(facts(result(0)), [PeriodTaskResults(0, 0, [result(0)], report)])
        began = time.monotonic()
        run.close()
        assert time.monotonic() - began < 4.5


def test_idle_partition_has_no_span_and_failed_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver.http() as (address, taken):
        asked = of_environment(address, monkeypatch)
        idle = result(0, records=0, batches=0, bytes=0)
        a_task_of(asked, idle, result(1, Outcome.FAILED, records=0, error="no leader")).finish()
    assert [span.attributes["mirror.partition"] for span in taken.named("mirror.partition")] == [1]
    assert taken.named("mirror.task")[0].attributes["mirror.partitions"] == 2


def test_run_without_a_backend_writes_otlp_files(tmp_path: Path) -> None:
    asked = TelemetrySettings.of({})
    results = [result(0), expired(1)]
    run = RunTelemetry(asked, tmp_path, SystemClock())
    run.record_counts("f", results)
    run.record_task("f", a_task())
    run.record_period(facts(*results), [PeriodTaskResults(0, 0, results, a_task())])
    run.close()
    spans = [span for line in lines(tmp_path / jsonl.TRACES) for span in spans_of(line)]
    assert len(spans) == 6
    assert {span["traceId"] for span in spans} == {PERIOD.trace_hex}
    ids = {span["spanId"] for span in spans}
    assert {span["parentSpanId"] for span in spans if "parentSpanId" in span} <= ids
    metrics = lines(tmp_path / jsonl.METRICS)
    names = {one["name"] for one in metrics[-1]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert {"mirror.expiries", "messaging.client.operation.duration", "mirror.period.end.timestamp"} <= names


def test_a_period_of_a_stream_has_spans_of_what_was_not_idle_and_its_measurements_were_recorded(tmp_path: Path) -> None:
    idle = result(1, records=0, batches=0, bytes=0)
    tasks = [PeriodTaskResults(0, 0, [result(0), idle], a_task()), PeriodTaskResults(1, 0, [idle], a_task(1))]
    run = RunTelemetry(TelemetrySettings.of({}), tmp_path, SystemClock())
    run.record_period(facts(result(0), idle), tasks, of_stream=True)
    assert {one.name for one, _ in run.metrics.points()}.isdisjoint(one.name for one in OF_TASKS)
    run.close()
    spans = [span["name"] for line in lines(tmp_path / jsonl.TRACES) for span in spans_of(line)]
    assert sorted(spans) == ["mirror.partition", "mirror.period", "mirror.plan", "mirror.task"]


def test_the_tasks_of_a_stream_alone_export_their_spans_if_there_is_a_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with receiver.http() as (address, taken):
        run = RunTelemetry(of_environment(address, monkeypatch, **HTTP), tmp_path, SystemClock())
        run.record_period(facts(expired(1)), [PeriodTaskResults(0, 0, [expired(1)], None)], of_stream=True)
        run.close()
    assert sorted(span.name for span in taken.spans) == ["mirror.period", "mirror.plan"]


def test_a_task_of_a_stream_reports_what_it_measures_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "_SAMPLE_S", 0.001)
    monkeypatch.setattr(task_module, "_REPORT_MS", 1)
    buffers = iter([1, 9])
    telemetry = TaskTelemetry(
        TelemetrySettings.of({}), period=PERIOD, flow="f", task=3, attempt=1, clock=SystemClock(), run="run-1"
    )
    reports = list[TaskReport]()
    telemetry.report_to(reports.append)
    telemetry.range_finished(a_range(1), expired(1))
    telemetry.range_finished(a_range(1), expired(1))
    telemetry.task_started(lambda: replace(look(), buffer=next(buffers, 4)))
    eventually(lambda: len(reports) > 3, what="reports")
    last = telemetry.finish()
    assert (last.run, last.task, last.attempt, last.phases) == ("run-1", 3, 1, {"fencing": 200, "producing": 13_800})
    assert max(one.peaks["buffer"] for one in reports) == 9
    assert last.peaks["buffer"] == 4, "since the report before"


def test_large_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_FILE_BYTES", 10)
    path = tmp_path / "traces.jsonl"
    for number in range(3):
        jsonl.append(path, json.dumps({"line": "x" * 20, "number": number}))
    assert lines(path) == [{"line": "x" * 20, "number": 2}]
    assert lines(tmp_path / "traces.jsonl.1") == [{"line": "x" * 20, "number": 1}]


def test_unwritable_folder_is_reported_without_failing(tmp_path: Path) -> None:
    run = RunTelemetry(TelemetrySettings.of({}), tmp_path / "gone", SystemClock())
    run.record_period(facts(result(0)), [])
    run.close()
    assert run.file_error is not None
    assert "cannot be written: No such file or directory" in run.file_error


def test_disabled_telemetry_writes_nothing(tmp_path: Path) -> None:
    run = RunTelemetry(TelemetrySettings.of({"OTEL_SDK_DISABLED": "TRUE"}), tmp_path, SystemClock())
    run.record_period(facts(result(0)), [])
    run.close()
    assert list(tmp_path.iterdir()) == []


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def spans_of(line: Any) -> list[dict[str, Any]]:
    return [span for one in line["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


def test_a_sample_that_fails_does_not_end_the_samples(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_module, "_SAMPLE_S", 0.001)
    calls = list[int]()

    def broken_once() -> TaskSnapshot:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("dictionary changed size during iteration")
        return look()

    telemetry = TaskTelemetry(settings(""), period=PERIOD, flow="f", task=0, attempt=0, clock=SystemClock())
    telemetry.task_started(broken_once)
    eventually(lambda: len(calls) > 4, what="later samples")
    telemetry.finish()
    assert "dictionary changed size" in caplog.text


def test_no_line_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("precious")
    (tmp_path / "traces.jsonl").symlink_to(tmp_path / "keys")
    with pytest.raises(OSError, match="it is a symbolic link"):
        jsonl.append(tmp_path / "traces.jsonl", "{}")
    assert (tmp_path / "keys").read_text() == "precious"
