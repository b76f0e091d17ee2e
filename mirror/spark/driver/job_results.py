"""The results of a job without an end: counted as its tasks report them, and cut into periods.

Periods are those of the wall clock, so that the tasks know them without the driver: number 1 is the one in which the
run began.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.assignments import target_of
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.reports import COPYING, PartitionReport, ReportedCounts, difference
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.result_files import write_task_reports
from mirror.spark.ledger.results import StreamTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror.relay.model.ranges import Range
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.driver.flow_results import FlowResults
    from mirror.spark.ledger.attempts import CopiedTask
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan

_SHOWN_EVERY_MS: Final = 5_000
"""The report of a flow is made again this often while reports come: it has all of its partitions."""


class JobResults:
    """The results of one job of one run. :meth:`take` may be called from another thread than the others."""

    def __init__(
        self,
        results: FlowResults,
        ledger: Ledger,
        plan: Plan,
        run: str,
        job: int,
        *,
        period_ms: int,
        unix_ms: int,
        on_period: Callable[[Plan, list[Attempt]], object],
    ) -> None:
        """``plan`` is that of the job; it is written as that of the first period.

        ``on_period`` is called with the plan and the results of each period that has ended.
        """
        self.first_period: Final = unix_ms // period_ms
        self._results: Final = results
        self._on_period: Final = on_period
        self._ledger: Final = ledger
        self._run: Final = run
        self._job: Final = job
        self._period_ms: Final = period_ms
        self._counts: Final = ReportedCounts(run)
        self._lock: Final = threading.RLock()
        self._period = StreamTotals()
        self._news = True
        self._shown_ms = 0
        self._plan = plan
        self._results.count(RangeResult.initial(one, one.start, Outcome.COMPLETE) for one in plan.ranges)
        self._results.count(plan.results_without_task)
        self._write_plan()

    def take(self, reports: Iterable[PartitionReport]) -> None:
        """Count what tasks have reported."""
        with self._lock:
            counted = list[RangeResult]()
            for report in reports:
                if (added := self._counts.take(report)) is None:
                    continue
                self._period.count(added)
                counted.append(added)
            self._results.count(counted)
            self._news = self._news or bool(counted)

    def on_planned(self, plan: Plan) -> None:
        """Take another plan for what has no task: its results without a task are those of the next period, too."""
        with self._lock:
            self._plan = replace(
                self._plan,
                results_without_task=plan.results_without_task,
                withheld=plan.withheld,
                targets_version=plan.targets_version,
                ends=plan.ends,
                lags=plan.lags,
            )
            self._results.count(plan.results_without_task)
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
        if number > self._plan.epoch:
            self._end_period()
            self._begin_period(number, ranges())
        elif not self._news or unix_ms - self._shown_ms < _SHOWN_EVERY_MS:
            return False
        self._shown_ms = unix_ms
        with self._lock:
            self._news = False
            self._results.update_report()
        return True

    def finish(self, copied: Sequence[CopiedTask]) -> None:
        """Count what the tasks have returned, and end the last period."""
        self.take(self._final_report(attempt) for task in copied for attempt in task.attempts)
        with contextlib.suppress(OSError):
            write_task_reports(self._ledger.path, [task.report for task in copied if task.report], self._plan.epoch)
        self._end_period()

    def attempts(self) -> list[Attempt]:
        """Return the results of this period by partition, of those that have a task."""
        with self._lock:
            counted = {(one.topic, one.partition): one for one in self._period.results()}
            return [
                self._attempt(range_, counted.get((range_.topic, range_.partition))) for range_ in self._plan.ranges
            ]

    def _attempt(self, range_: Range, counted: RangeResult | None) -> Attempt:
        last = self._counts.latest(target_of(range_))
        task, attempt = (0, 0) if last is None else (last.task, last.attempt)
        return Attempt(task, attempt, counted or self._state(range_))

    def _state(self, range_: Range) -> RangeResult:
        """Return the last known state of a partition, without counts."""
        last = self._counts.latest(target_of(range_))
        if last is None:
            return RangeResult.initial(range_, range_.start, Outcome.COMPLETE)
        return difference(last.result, last.result)

    def _final_report(self, attempt: Attempt) -> PartitionReport:
        """Return a result as the last report of its copy."""
        result = attempt.result
        target = TopicPartition(result.target_topic, result.partition)
        last = self._counts.latest(target)
        same = last is not None and (last.task, last.attempt) == (attempt.task, attempt.attempt)
        return PartitionReport(
            target=target,
            run=self._run,
            job=self._job,
            task=attempt.task,
            attempt=attempt.attempt,
            taken=last.taken if same and last is not None else 0,
            state=COPYING,
            sequence=sys.maxsize,
            version=0,
            result=replace(result, timeline=None),
        )

    def _begin_period(self, number: int, ranges: list[Range]) -> None:
        self._plan = replace(self._plan, epoch=number, tasks=[ranges], took_ms=None)
        self._period = StreamTotals()
        self._write_plan()

    def _write_plan(self) -> None:
        with contextlib.suppress(OSError):  # a stream goes on without its ledger
            self._ledger.write_plan(self._plan)

    def _end_period(self) -> None:
        attempts = self.attempts()
        self._on_period(self._plan, attempts)
        with contextlib.suppress(OSError):
            self._ledger.write_attempts(attempts, self._plan.epoch)
        with self._lock, contextlib.suppress(OSError):
            states = [self._state(range_) for range_ in self._plan.ranges]
            self._results.end_counted(self._plan, attempts, [*states, *self._plan.results_without_task])
