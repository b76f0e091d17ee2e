"""Shows, measures and reports the results of one run of one flow: a scheduled run, or a stream's periods."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mirror.spark.driver.output.progress_lines import period_line
from mirror.spark.ledger.results import join_results, period_json
from mirror.telemetry.run_telemetry import PeriodTaskResults
from mirror.telemetry.traces.ids import period_id
from mirror.telemetry.traces.spans import PeriodFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.driver.run_status import RunStatus
    from mirror.spark.ledger.attempt_results import AttemptResult
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.results import FlowReport
    from mirror.telemetry.run_telemetry import RunTelemetry
    from mirror.telemetry.task_report import TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period of a stream, or a whole scheduled run, that has ended. Times are ms since 1970."""

    plan: Plan
    attempts: list[AttemptResult]
    """What was copied in it."""
    reports: list[TaskReport]
    """What its tasks have measured, with the times of their spans."""
    began_ms: int
    ended_ms: int

    def by_task(self) -> list[PeriodTaskResults]:
        """Return the results of each task, with its report."""
        results: dict[tuple[int, int], list[RangeResult]] = defaultdict(list)
        for attempt in self.attempts:
            results[attempt.task, attempt.attempt].append(attempt.result)
        report_of = {(report.task, report.attempt): report for report in self.reports}
        return [PeriodTaskResults(*key, found, report_of.get(key)) for key, found in sorted(results.items())]


class FlowResults:
    """The results of one flow. ``report`` is that of its run."""

    def __init__(
        self,
        flow: FlowConfig,
        report: FlowReport,
        consoles: Consoles,
        telemetry: RunTelemetry,
        status: RunStatus,
        write_sync: Callable[[], None],
        *,
        debug: bool,
    ) -> None:
        """``write_sync`` keeps what the flow's report says about what is in step, which depends on the results."""
        self.report: Final = report
        self._flow: Final = flow
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._status: Final = status
        self._write_sync: Final = write_sync
        self._debug: Final = debug

    def record_plan(self, plan: Plan) -> None:
        """Measure how long a plan took."""
        if plan.took_ms is not None:
            self._telemetry.record_plan(self._flow.name, plan.took_ms)

    def record_counts(self, results: list[RangeResult]) -> None:
        """Measure what was copied since the last call."""
        self._telemetry.record_counts(self._flow.name, results)

    def record_measured(self, reports: list[TaskReport]) -> None:
        """Record what the tasks have measured since the last call."""
        for report in reports:
            self._telemetry.record_task(self._flow.name, report)

    def end_run(self, run: Period, results: list[RangeResult]) -> None:
        """Take the ``results`` of a scheduled run, whose counts and measurements were recorded before."""
        self._status.returned(run.plan, run.attempts)
        self.report.partitions = results
        self._write_sync()
        self._record(run, results, of_stream=False)

    def end_period(self, period: Period) -> None:
        """Take the results of a period, whose counts and measurements were recorded before."""
        self._status.copied(period.plan, period.attempts)
        number, results = period.plan.period, join_results(period.plan, period.attempts)
        self._write_sync()
        at = f"{datetime.now().astimezone():%H:%M:%S}"
        self._consoles.print_table(f"{at} flow {self._flow.name}: period {number}: {period_line(results)}")
        self._consoles.write_json(period_json(self._flow.name, number, results))
        self._record(period, results, of_stream=True)

    def _record(self, period: Period, results: list[RangeResult], *, of_stream: bool) -> None:
        flow, plan = self._flow, period.plan
        facts = PeriodFacts(
            id=period_id(flow.name, self.report.run, plan.period),
            flow=flow.name,
            run=self.report.run,
            period=plan.period,
            source=flow.source,
            target=flow.target,
            began_ms=period.began_ms,
            ended_ms=period.ended_ms,
            planned_ms=plan.took_ms,
            results=tuple(results),
        )
        self._telemetry.record_period(facts, period.by_task(), of_stream=of_stream)
        if self._debug:
            for trace in dict.fromkeys(attempt.traceback for attempt in period.attempts if attempt.traceback):
                self._consoles.traceback(trace)
