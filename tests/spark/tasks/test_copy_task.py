"""What a task of a job returns, and raises."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles

from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.progress import status_topic
from mirror.relay.progress.status_values import StatusKey
from mirror.spark.tasks import copy_task as module
from mirror.spark.tasks.copy_task import copy_task
from mirror.spark.tasks.options import FlowOptions
from mirror.spark.tasks.task_spec import CopyTask, TaskSpec
from mirror.telemetry import task_telemetry as task_module
from mirror.telemetry.task_report import TaskReport
from tests.polling import eventually
from tests.spark.flow_harness import configuration
from tests.telemetry.test_export import look

if TYPE_CHECKING:
    from mirror.telemetry.task_telemetry import TaskTelemetry


def range_of(**more: Any) -> Range:
    names: dict[str, Any] = {
        "flow": "f",
        "topic": "orders",
        "target_topic": "a.orders",
        "source_cluster_id": "a",
        "topic_id": "t",
    }
    return Range(**names, partition=0, end=OPEN_END, **more)


def test_what_fails_in_a_stream_is_spark_s_to_begin_again_and_in_a_run_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> list[RangeResult]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr(module, "_copy", fail)
    options, copied = FlowOptions(tmp_path / "mirror.toml", "f", tmp_path), range_of(start=5)
    (attempt,) = copy_task(options, CopyTask(TaskSpec(run="run-1", job=0), [copied])).attempts
    assert (attempt.result.outcome, attempt.result.error) == (Outcome.FAILED, "ZeroDivisionError: a bug")
    with pytest.raises(ZeroDivisionError):
        copy_task(options, CopyTask(TaskSpec(run="run-1", job=1, first_period=7), [copied]))


@pytest.mark.parametrize("spec", [TaskSpec(run="r", job=1, task=4, first_period=7), TaskSpec(run="r", job=0, task=4)])
def test_a_task_reports_what_it_measures_to_the_status_topic(
    spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[tuple[StatusKey, object]]()

    class Writer:
        """In place of that of the status topic."""

        def __init__(self, *_: object) -> None: ...

        def put(self, key: StatusKey, value: object) -> None:
            written.append((key, value))

        def close(self, _: int) -> None: ...

    def measure(*_: object, watcher: TaskTelemetry, **__: object) -> list[RangeResult]:
        watcher.task_started(look)
        eventually(lambda: written, what="a report")
        return []

    monkeypatch.setattr(task_module, "_SAMPLE_S", 0.001)
    monkeypatch.setattr(task_module, "_REPORT_MS", 1)
    monkeypatch.setattr(status_topic, "StatusWriter", Writer)
    monkeypatch.setattr("mirror.relay.task.copy_ranges.copy_ranges", measure)
    (tmp_path / "mirror.toml").write_text(configuration())
    copied = copy_task(FlowOptions(tmp_path / "mirror.toml", "f", tmp_path), CopyTask(spec, []))
    assert copied.report is not None
    assert {str(key) for key, _ in written} == {"measured/4"}
    assert all(isinstance(value, TaskReport) and (value.run, value.task) == ("r", 4) for _, value in written)


@pytest.mark.parametrize("ranges", [[], [range_of(start=5)]])
def test_a_task_of_a_stream_without_a_valid_configuration_returns_why(
    ranges: list[Range], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot report: if Spark repeated it, the reason would not be known before its last attempt."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(tmp_path / "nowhere" / name))
    options = FlowOptions(tmp_path / "mirror.toml", "f", tmp_path)
    copied = copy_task(options, CopyTask(TaskSpec(run="run-1", job=1, task=3, first_period=7), ranges))
    assert copied.invalid.startswith(f"task 3 on host {socket.gethostname()}: ")
    assert str(tmp_path) in copied.invalid
    assert [one.result.outcome for one in copied.attempts] == [Outcome.FAILED] * len(ranges)
