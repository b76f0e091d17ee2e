"""The results of a job without an end: each record is counted once, in the period in which it was reported."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.relay.model.assignments import target_of
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport
from mirror.spark.driver.flow_results import FlowResults
from mirror.spark.driver.job_results import JobResults
from mirror.spark.ledger.attempt_results import AttemptResult, CopiedTask
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, exit_status
from tests.telemetry.results import a_task

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.telemetry.run_telemetry import PeriodTaskResults
    from mirror.telemetry.task_report import TaskReport
    from mirror.telemetry.traces.spans import PeriodFacts

RUN, PERIOD_MS, BEGAN_MS = "run-1", 10_000, 1_000_003_000


def range_of(topic: str, start: int = 0) -> Range:
    return Range(
        flow="f",
        topic=topic,
        target_topic=f"a.{topic}",
        partition=0,
        start=start,
        end=OPEN_END,
        source_cluster_id="id-a",
        topic_id="",
    )


def result_of(range_: Range, records: int, outcome: Outcome = Outcome.COMPLETE) -> RangeResult:
    result = RangeResult.initial(range_, range_.start, outcome)
    result.records, result.end = records, range_.start + records
    return result


class Job:
    """Two partitions, and one that cannot be copied."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger.open(folder, "f", RUN)
        self.report = FlowReport("f", datetime.now(UTC))
        self.ranges = [range_of("x", 5), range_of("y")]
        self.counted: list[tuple[str, int]] = []

        def record_counts(flow: str, results: list[RangeResult]) -> None:
            assert flow == "f"
            self.counted += [(one.topic, one.records) for one in results if one.records]

        def record_period(facts: PeriodFacts, tasks: list[PeriodTaskResults], *, of_stream: bool) -> None:
            assert of_stream
            self.recorded.append((facts.period, facts.began_ms, facts.ended_ms))
            self.task_reports += [(one.task, one.attempt, one.report) for one in tasks]

        self.recorded: list[tuple[int, int, int]] = []
        self.task_reports: list[tuple[int, int, TaskReport | None]] = []
        self.measured: list[int] = []
        telemetry = cast(
            "Any",
            SimpleNamespace(
                record_counts=record_counts,
                record_period=record_period,
                record_task=lambda _, report: self.measured.append(report.commits.count),
            ),
        )
        flow = cast("FlowConfig", SimpleNamespace(name="f", source="a", target="b"))
        self.lines: list[str] = []
        self.json: list[dict[str, Any]] = []
        consoles = cast("Any", SimpleNamespace(print_table=self.lines.append, write_json=self.json.append))
        self.periods: list[tuple[int, list[Outcome]]] = []
        self.status = cast("Any", SimpleNamespace(copied=self._copied))
        flow_results = FlowResults(flow, self.report, consoles, telemetry, self.status, lambda: None, debug=False)
        failed = RangeResult.initial(range_of("bad"), 0, Outcome.FAILED, "no")
        plan = Plan(flow="f", tasks=[[one] for one in self.ranges], results_without_task=[failed], period=1, took_ms=20)
        self.results = JobResults(
            flow_results,
            self.ledger,
            plan,
            RUN,
            period_ms=PERIOD_MS,
            unix_ms=BEGAN_MS,
        )
        self.sequences = 0

    def _copied(self, plan: Plan, attempts: list[AttemptResult]) -> None:
        self.periods.append((plan.period, [attempt.result.outcome for attempt in attempts]))

    def send(self, range_: Range, records: int, **more: Any) -> PartitionReport:
        report = self.report_of(range_, records, **more)
        self.results.take([report])
        return report

    def report_of(
        self, range_: Range, records: int, *, attempt: int = 0, taken: int = 0, **more: Any
    ) -> PartitionReport:
        self.sequences += 1
        return PartitionReport(
            target=target_of(range_),
            run=RUN,
            job=1,
            task=self.ranges.index(range_),
            attempt=attempt,
            taken=taken,
            state=COPYING,
            sequence=more.pop("sequence", self.sequences),
            version=0,
            result=result_of(range_, records, **more),
        )

    def update(self, passed_ms: int) -> bool:
        return self.results.update(BEGAN_MS + passed_ms, lambda: self.ranges)

    def finish(self, *copied: CopiedTask) -> None:
        self.results.finish([*copied], self.ranges, BEGAN_MS + 7_000)

    def totals(self) -> dict[str, tuple[int, Outcome]]:
        return {one.topic: (one.records, one.outcome) for one in self.report.partitions}

    def period(self, number: int) -> dict[str, int]:
        return {one.result.topic: one.result.records for one in self.ledger.attempts(number)}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_reports_are_counted_once_and_reach_the_flows_report(job: Job) -> None:
    x, _ = job.ranges
    job.send(x, 10)
    again = job.send(x, 25)
    job.results.take([again])
    job.send(x, 10, sequence=1)
    assert job.update(6_000)
    assert job.totals() == {
        "x": (25, Outcome.COMPLETE),
        "y": (0, Outcome.COMPLETE),
        "bad": (0, Outcome.FAILED),
    }
    assert not job.update(6_100), "nothing is new"
    assert job.counted == [("x", 10), ("x", 15)], "the metrics have each record once"


def test_periods_end_with_those_of_the_wall_clock_and_share_the_records_among_them(job: Job) -> None:
    x, y = job.ranges
    job.send(x, 10)
    assert job.update(7_000)
    assert (job.ledger.last_planned_period(), job.ledger.last_completed_period()) == (2, 1)
    job.send(x, 12)
    job.send(y, 3)
    job.update(17_000)
    assert [job.period(number) for number in (1, 2)] == [{"x": 10, "y": 0}, {"x": 2, "y": 3}]
    job.update(37_000)
    assert job.ledger.last_planned_period() == 5, "no report came in one, and none is made up"
    assert {topic: records for topic, (records, _) in job.totals().items()} == {"x": 12, "y": 3, "bad": 0}


def test_a_partition_that_has_failed_keeps_its_state_without_a_report(job: Job) -> None:
    x, _ = job.ranges
    job.send(x, 4, outcome=Outcome.EXPIRED)
    job.update(7_000)
    job.update(17_000)
    (kept,) = [one.result for one in job.ledger.attempts(2) if one.result.topic == "x"]
    assert (kept.records, kept.outcome) == (0, Outcome.EXPIRED)
    assert job.totals()["x"] == (4, Outcome.EXPIRED)
    assert job.periods == [(1, [Outcome.EXPIRED, Outcome.COMPLETE]), (2, [Outcome.EXPIRED, Outcome.COMPLETE])]


def test_what_the_tasks_return_is_counted_behind_their_reports(job: Job) -> None:
    x, y = job.ranges
    job.send(x, 4, taken=3)
    job.finish(
        CopiedTask([AttemptResult(0, 0, result_of(x, 9))], 1, None, [job.report_of(x, 9, taken=3)]),
        CopiedTask([AttemptResult(1, 2, result_of(y, 6))], 1, None, [job.report_of(y, 6, attempt=2)]),
    )
    assert job.period(1) == {"x": 9, "y": 6}
    assert {topic: records for topic, (records, _) in job.totals().items()} == {"x": 9, "y": 6, "bad": 0}


def test_a_lost_task_is_counted_beside_the_attempt_that_follows_it(job: Job) -> None:
    x, _ = job.ranges
    job.send(x, 4)
    job.send(x, 3, attempt=1)
    job.finish(CopiedTask([AttemptResult(0, 1, result_of(x, 5))], 1, None, [job.report_of(x, 5, attempt=1)]))
    assert job.totals()["x"] == (9, Outcome.COMPLETE)


def test_a_copy_whose_first_reports_were_lost_is_counted_once(job: Job) -> None:
    """The task has taken the partition again: what it has reported is of its earlier copy."""
    x, _ = job.ranges
    job.send(x, 4, taken=3)
    job.finish(CopiedTask([AttemptResult(0, 0, result_of(x, 7))], 1, None, [job.report_of(x, 7, taken=9)]))
    assert job.totals()["x"] == (11, Outcome.COMPLETE)


def test_a_partition_that_is_gone_is_counted_once_though_its_reports_come_again(job: Job) -> None:
    """Its task returns its last report, and the topic may be read again from its beginning."""
    x, y = job.ranges
    settled = replace(job.report_of(x, 1_000), state=SETTLED)
    job.results.take([settled])
    for passed_ms in (7_000, 17_000):
        job.results.update(BEGAN_MS + passed_ms, lambda: [y])
    job.results.take([settled])
    job.finish(CopiedTask([], 1, None, [settled]))
    assert job.totals()["x"] == (1_000, Outcome.COMPLETE)
    assert job.counted == [("x", 1_000)]


def test_the_totals_keep_the_last_of_many_partitions_that_are_gone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics may come and go every day, for years."""
    monkeypatch.setattr("mirror.spark.ledger.results.MAX_GONE", 2)
    x, y = job.ranges
    job.ranges = [x, *(range_of(f"daily-{number}") for number in range(4)), y]
    for range_ in job.ranges:
        job.send(range_, 7)
    for passed_ms in (7_000, 17_000):
        job.results.update(BEGAN_MS + passed_ms, lambda: [x, y])
    assert set(job.totals()) == {"x", "y", "daily-2", "daily-3", "bad"}


def test_a_partition_that_has_come_back_is_counted_again(job: Job) -> None:
    x, y = job.ranges
    job.send(x, 10)
    for passed_ms in (7_000, 17_000):
        job.results.update(BEGAN_MS + passed_ms, lambda: [y])
    job.send(x, 3, taken=2)
    job.finish()
    assert job.totals()["x"] == (13, Outcome.COMPLETE)


def test_a_task_that_has_not_begun_says_why(job: Job) -> None:
    x, y = job.ranges
    job.send(y, 3)
    failed = [result_of(one, 0, Outcome.UNFINISHED) for one in (x, y)]
    job.finish(CopiedTask([AttemptResult(0, 0, one) for one in failed], 1, None))
    assert job.totals()["x"] == (0, Outcome.UNFINISHED)
    assert job.totals()["y"] == (3, Outcome.COMPLETE), "another task has it"


def test_a_report_has_one_period_and_one_that_comes_while_it_ends_is_in_the_next(job: Job) -> None:
    x, y = job.ranges
    job.send(x, 10)
    job.status.copied = lambda *_: job.send(y, 3)
    job.update(7_000)
    job.status.copied = lambda *_: None
    job.update(17_000)
    assert [job.period(number) for number in (1, 2)] == [{"x": 10, "y": 0}, {"x": 0, "y": 3}]


def test_a_partition_that_its_task_has_not_begun_counts_although_the_task_has_reported_others(job: Job) -> None:
    x, y = job.ranges
    report = job.send(x, 10)
    unbegun = RangeResult.initial(y, y.start, Outcome.UNFINISHED, "the run was asked to stop")
    job.finish(CopiedTask([AttemptResult(0, 0, report.result), AttemptResult(0, 0, unbegun)], 1, None, [report]))
    assert job.totals()["y"] == (0, Outcome.UNFINISHED)
    assert exit_status([job.report]) == 3


def test_a_partition_that_was_taken_in_the_last_period_is_in_it(job: Job) -> None:
    job.ranges.append(new := range_of("new"))
    job.send(new, 50)
    job.finish()
    assert job.period(1) == {"x": 0, "y": 0, "new": 50}


def test_a_period_is_shown_and_measured_although_the_report_folder_is_full(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    job.send(job.ranges[0], 10)
    job.update(7_000)
    report = a_task(run=RUN)
    job.finish(CopiedTask([], 1, report, [job.report_of(job.ranges[0], 12)]))
    assert job.ledger.attempts(1) == []
    assert [line.partition("flow f: ")[2].partition(",")[0] for line in job.lines] == [
        "period 1: 10 records",
        "period 2: 2 records",
    ]
    assert [line["records"] for line in job.json] == [10, 2]
    ended_ms = BEGAN_MS + 7_000
    assert job.recorded == [(1, BEGAN_MS - 20, ended_ms), (2, ended_ms, ended_ms)]
    *_, (task, attempt, reported) = [one for one in job.task_reports if one[2] is not None]
    assert (task, attempt, reported) == (
        0,
        0,
        replace(report, began_ms=max(report.began_ms, ended_ms), ended_ms=ended_ms),
    )
    assert job.measured == [1]


def test_a_partition_that_was_taken_within_a_period_is_in_it(job: Job) -> None:
    job.ranges.append(new := range_of("new"))
    job.send(new, 2)
    job.update(7_000)
    assert job.period(1) == {"x": 0, "y": 0, "new": 2}


def test_what_has_no_task_any_more_is_forgotten_unless_it_was_copied(job: Job) -> None:
    x, _ = job.ranges
    job.send(x, 10)
    job.ranges = []
    job.update(7_000)
    assert job.period(1) == {"x": 10, "y": 0}
    job.update(17_000)
    assert job.period(2) == {}
    assert set(job.totals()) == {"x", "bad"}
