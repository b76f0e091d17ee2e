"""What a task sees fail is a line when it happens, and once."""

from __future__ import annotations

from dataclasses import replace

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.reports import COPYING, FAILED, SETTLED, PartitionReport, TaskState
from mirror.spark.driver.output.failure_lines import FailureLines


def report(partition: int, state: str, error: str | None = None, run: str = "r") -> PartitionReport:
    range_ = Range(
        flow="f",
        topic="t",
        partition=partition,
        target_topic="a.t",
        start=0,
        end=10,
        source_cluster_id="c",
        topic_id="",
    )
    return PartitionReport(
        target=TopicPartition("a.t", partition),
        run=run,
        job=1,
        task=0,
        attempt=0,
        taken=0,
        state=state,
        sequence=1,
        version=0,
        result=RangeResult.initial(range_, 0, Outcome.COMPLETE if error is None else Outcome.FAILED, error),
    )


def failed(partition: int, error: str = "no leader", run: str = "r") -> PartitionReport:
    return report(partition, Outcome.FAILED.value, error, run)


def test_partitions_that_fail_for_one_reason_share_a_line_and_are_named_once() -> None:
    lines = FailureLines("r")
    assert lines.failed([failed(0), failed(1), failed(2, "disk full")]) == [
        "partitions t-0, t-1 not copied: no leader",
        "partition t-2 not copied: disk full",
    ]
    assert lines.failed([failed(0), failed(1, "no leader since 5 s")]) == []
    assert lines.recovered() == []
    assert lines.failed([report(0, COPYING), report(1, COPYING)]) == []
    assert lines.recovered() == ["partitions t-0, t-1 copied again"]
    assert lines.recovered() == []
    assert lines.failed([failed(0)]) == ["partition t-0 not copied: no leader"]


def test_a_new_copy_of_a_failing_partition_counts_once_it_has_copied_something() -> None:
    lines = FailureLines("r")
    assert lines.failed([failed(0)]) == ["partition t-0 not copied: no leader"]
    begun = replace(report(0, COPYING), taken=1)
    assert lines.failed([report(0, SETTLED), begun]) == []
    assert lines.failed([replace(failed(0), taken=1)]) == []
    assert lines.recovered() == []
    copied = replace(begun, taken=2, result=replace(begun.result, end=5))
    assert lines.failed([copied]) == []
    assert lines.recovered() == ["partition t-0 copied again"]


def test_reports_of_other_runs_are_left_out() -> None:
    lines = FailureLines("r")
    assert lines.failed([failed(0, run="before"), failed(1, run="before")]) == []


def test_a_task_that_fails_again_and_again_is_named_once_for_each_error() -> None:
    """Spark begins a task up to 100 times."""
    lines = FailureLines("r")
    state = TaskState(
        run="r", job=1, task=0, attempt=0, host="h", pid=1, since_ms=0, seen_ms=0, version=0, partitions=0
    )

    def failed(attempt: int, error: str, task: int = 0, run: str = "r") -> list[str]:
        return lines.failed_tasks([replace(state, run=run, task=task, attempt=attempt, stopping=f"{FAILED}{error}")])

    line = "task 0 on host h failed, and Spark begins it again: no login"
    assert failed(0, "no login") == [line]
    assert lines.failed_tasks([replace(state, attempt=1, since_ms=20_000, seen_ms=25_000)]) == []
    assert failed(1, "no login") == []
    assert failed(2, "no memory") == [line.replace("login", "memory")]
    assert failed(0, "no memory", task=1) == [line.replace("task 0", "task 1").replace("login", "memory")]
    assert failed(7, "another", run="other") == []
    assert lines.failed_tasks([replace(state, attempt=3, since_ms=50_000, seen_ms=110_000)]) == []
    assert failed(3, "no memory") == [line.replace("login", "memory")]
    assert lines.failed_tasks([replace(state, task=2, stopping="stopped")]) == []
