"""The results of a job without an end: what its tasks report is added up, and cut into periods.

::

    reports ──ReportedCounts──► totals of the run ──► the flow's report
                                     │
                  totals now - totals when the period began = results of the period

Periods are those of the wall clock, so that the tasks know them without the driver: number 1 is the one in which the
run began.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.assignments import target_of
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.reports import ReportedCounts, difference
from mirror.spark.driver.flow_results import Period
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.results import Totals
from mirror.telemetry.task_report import MeasuredTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.relay.model.ranges import Range
    from mirror.relay.model.reports import PartitionReport
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.driver.flow_results import FlowResults
    from mirror.spark.ledger.attempt_results import CopiedTask
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.telemetry.task_report import TaskReport

_SHOWN_EVERY_MS: Final = 5_000
"""The report of a flow is made again this often while reports come: it has all of its partitions."""


# Invariant: What tasks report is counted once, and in one period; what lost tasks of a scheduled run have copied is
#   read from the progress on the target.
# Test: tests/spark/driver/
#   test_job_results.py::test_a_report_has_one_period_and_one_that_comes_while_it_ends_is_in_the_next
# Test: tests/spark/driver/test_job_results.py::test_a_copy_whose_first_reports_were_lost_is_counted_once
# Test: tests/spark/driver/test_flow_run.py::test_what_lost_tasks_have_copied_is_read_from_the_target
class JobResults:
    """The results of one job of one run. Thread-safe; :meth:`update` and :meth:`finish` are for one thread."""

    def __init__(
        self,
        results: FlowResults,
        ledger: Ledger,
        plan: Plan,
        run: str,
        *,
        period_ms: int,
        unix_ms: int,
    ) -> None:
        """``plan`` is that of the job; it is written as that of the first period."""
        self.first_period: Final = unix_ms // period_ms
        self._results: Final = results
        self._ledger: Final = ledger
        self._period_ms: Final = period_ms
        self._counts: Final = ReportedCounts(run)
        self._measured: Final = MeasuredTasks(run)
        self._totals: Final = Totals()
        self._before: Mapping[tuple[str, int], RangeResult] = {}
        """The totals when the period began."""
        self._began_ms = unix_ms - (plan.took_ms or 0)
        self._lock: Final = threading.Lock()
        self._news = True
        self._shown_ms = 0
        self._plan = plan
        for range_ in plan.ranges:
            self._totals.count(_nothing_of(range_))
        for result in plan.results_without_task:
            self._totals.count(result)
        self._write_plan(plan)

    def take(self, reports: Iterable[PartitionReport]) -> None:
        """Count what tasks have reported."""
        with self._lock:
            counted = [added for report in reports if (added := self._counts.take(report)) is not None]
            for added in counted:
                self._totals.count(added)
            self._news = self._news or bool(counted)
        self._results.record_counts(counted)

    def measure(self, reports: Iterable[TaskReport]) -> None:
        """Record what tasks have measured."""
        with self._lock:
            added = [one for report in reports if (one := self._measured.take(report)) is not None]
        self._results.record_measured(added)

    def on_planned(self, plan: Plan) -> None:
        """Take another plan for what has no task: its results without a task are those of the next period, too."""
        with self._lock:
            self._plan = replace(
                self._plan,
                results_without_task=plan.results_without_task,
                withheld=plan.withheld,
                ends=plan.ends,
                lags=plan.lags,
            )
            for result in plan.results_without_task:
                self._totals.count(result)
            self._news = True

    def on_withheld(self, withheld: OpenTransactions) -> None:
        """Take the open transactions of the source as they are now."""
        with self._lock:
            self._plan = replace(self._plan, withheld=dict(withheld))

    def update(self, unix_ms: int, ranges: Callable[[], list[Range]]) -> bool:
        """End the period if it is over; return whether the flow's report has changed.

        ``ranges`` returns those that have a task now.
        """
        number = unix_ms // self._period_ms - self.first_period + 1
        if number > self._plan.period:
            self._end_period(ranges(), number, unix_ms)
        elif not self._news or unix_ms - self._shown_ms < _SHOWN_EVERY_MS:
            return False
        self._shown_ms = unix_ms
        self._show()
        return True

    def finish(self, copied: list[CopiedTask], ranges: list[Range], unix_ms: int) -> None:
        """Count the last reports of the tasks, which may not have arrived, and end the last period.

        ``ranges`` are those that the tasks had.
        """
        self.take(report for task in copied for report in task.last_reports)
        self.measure(task.report for task in copied if task.report is not None)
        with self._lock:
            for attempt in (one for task in copied for one in task.attempts):
                target = TopicPartition(attempt.result.target_topic, attempt.result.partition)
                if self._counts.latest(target) is None:  # its task has not begun it: the result says why
                    self._totals.count(attempt.result)
        self._end_period(ranges, None, unix_ms)
        self._show()

    def _show(self) -> None:
        with self._lock:
            self._news = False
            partitions = self._totals.results()
        self._results.report.partitions = partitions

    def _end_period(self, ranges: list[Range], number: int | None, unix_ms: int) -> None:
        """Record the period, and begin the one with that ``number`` and these ``ranges``, unless it is None."""
        with self._lock:  # a report is in the period before this or in the one after it
            ended, attempts = self._plan, self._attempts([*self._plan.ranges, *ranges])
            if number is not None:
                self._plan = replace(ended, period=number, tasks=[ranges], took_ms=None)
                without_task = ((one.topic, one.partition) for one in ended.results_without_task)
                self._totals.keep({(one.topic, one.partition) for one in ranges} | set(without_task))
            self._before = self._totals.by_partition()
            began_ms, self._began_ms = self._began_ms, unix_ms
            reports = self._measured.between(began_ms, unix_ms)
        with contextlib.suppress(OSError):  # a stream goes on without its ledger
            self._ledger.write_attempts(attempts, ended.period)
        self._results.end_period(
            Period(plan=ended, attempts=attempts, reports=reports, began_ms=began_ms, ended_ms=unix_ms)
        )
        if number is not None:
            self._write_plan(self._plan)

    def _attempts(self, ranges: Iterable[Range]) -> list[AttemptResult]:
        """Return the results of this period by partition, of those that have had a task."""
        now, found = self._totals.by_partition(), dict[tuple[str, int], AttemptResult]()
        for range_ in ranges:
            key, last = (range_.topic, range_.partition), self._counts.latest(target_of(range_))
            result, before = now.get(key) or _nothing_of(range_), self._before.get(key)
            task, attempt = (0, 0) if last is None else (last.task, last.attempt)
            found[key] = AttemptResult(task, attempt, result if before is None else difference(before, result))
        return [*found.values()]

    def _write_plan(self, plan: Plan) -> None:
        with contextlib.suppress(OSError):  # a stream goes on without its ledger
            self._ledger.write_plan(plan)


def _nothing_of(range_: Range) -> RangeResult:
    """Return the result of a range of which nothing is reported yet."""
    return RangeResult.initial(range_, range_.start, Outcome.COMPLETE)
