"""Which tasks of a job run, by what they report of themselves."""

from __future__ import annotations

from mirror.relay.model.reports import TaskState
from mirror.spark.driver.task_watch import SILENT_AFTER_MS, TaskWatch


def state(task: int, seen_ms: int, *, attempt: int = 0, run: str = "run-1", job: int = 1) -> TaskState:
    return TaskState(
        run=run,
        job=job,
        task=task,
        attempt=attempt,
        host="h",
        pid=1,
        since_ms=0,
        seen_ms=seen_ms,
        version=0,
        partitions=1,
        stopping="",
    )


def test_a_task_that_stops_to_report_beside_another_one_does_not_run() -> None:
    watch = TaskWatch("run-1", 1, 2, 0)
    watch.see([state(0, 10), state(1, 10)], 1_000)
    now = 1_000 + SILENT_AFTER_MS
    watch.see([state(0, 20), state(1, 10)], now - 1)
    assert watch.silent(now - 1) == set()
    assert watch.silent(now) == {1}, "its last report was only read again"
    watch.see([state(1, 30, attempt=1)], now)
    assert watch.silent(now) == set()


def test_one_that_never_reports_waits_for_a_slot() -> None:
    watch = TaskWatch("run-1", 1, 2, 0)
    watch.see([state(0, 10)], SILENT_AFTER_MS)
    assert watch.silent(SILENT_AFTER_MS) == {1}


def test_without_any_report_nothing_is_known() -> None:
    watch = TaskWatch("run-1", 1, 2, 0)
    assert watch.silent(10 * SILENT_AFTER_MS) == set()
    watch.see([state(0, 10), state(1, 10)], 0)
    watch.see([state(0, 20, run="run-0"), state(1, 20, job=2)], 10 * SILENT_AFTER_MS)
    assert watch.silent(10 * SILENT_AFTER_MS) == set(), "those of other jobs say nothing"
