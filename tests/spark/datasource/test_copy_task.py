"""What a task of a job copies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.relay.model.ranges import OPEN_END, Range, RangeResult
from mirror.spark.datasource import copy_task as module
from mirror.spark.datasource.copy_task import copy_task
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.task_spec import CopyTask, TaskSpec


@pytest.mark.parametrize(("attempt", "known"), [(0, "[5]"), (1, None)])
def test_a_task_that_spark_repeats_reads_the_progress_again(
    attempt: int, known: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lost attempt may have changed it since it was planned."""
    found: list[str | None] = []

    def copy(_: FlowOptions, __: TaskSpec, ranges: list[Range], *___: Any) -> list[RangeResult]:
        found.extend(range_.progress for range_ in ranges)
        return []

    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr(module, "_copy", copy)
    monkeypatch.setattr(
        module, "TaskContext", SimpleNamespace(get=lambda: SimpleNamespace(attemptNumber=lambda: attempt))
    )
    spec = TaskSpec(run="run-1", job=2)
    copied = Range(
        flow="f",
        topic="orders",
        target_topic="a.orders",
        partition=0,
        start=5,
        end=OPEN_END,
        source_cluster_id="a",
        topic_id="t",
        progress="[5]",
    )
    copy_task(FlowOptions(tmp_path / "mirror.toml", "f", tmp_path), CopyTask(spec, [copied]))
    assert found == [known]
