"""The job of one run of one flow: its ranges have ends, or it follows its partitions until it is to stop."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.config.flow_rules import target_options
from mirror.errors import KafkaError, MirrorError
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.assignments import EARLIER_ENDS_MS, target_of
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import NO_TASK, ReportedCounts
from mirror.relay.progress.control_record import newest_attempts
from mirror.relay.progress.open_transactions import StuckTransactions, describe_oldest
from mirror.runtime.clock import SystemClock
from mirror.spark.discovery.additions import JobAdditions, gone, gone_line, lacks_some
from mirror.spark.discovery.assigner import Assigner
from mirror.spark.driver.flow_job import JobLabel, copy_job
from mirror.spark.driver.flow_results import Period
from mirror.spark.driver.job_results import JobResults
from mirror.spark.driver.output.failure_lines import FailureLines
from mirror.spark.driver.output.run_progress import RunProgress
from mirror.spark.ledger.results import join_results
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.broker_retention import recommit_after_ms
from mirror.spark.planning.open_transactions import still_open
from mirror.spark.status.target_progress import read_target_progress
from mirror.spark.tasks.task_spec import TaskSpec, tasks_of
from mirror.telemetry.task_report import MeasuredTasks
from mirror.telemetry.traces.ids import period_id
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.relay.model.ranges import Range
    from mirror.relay.model.reports import PartitionReport
    from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions
    from mirror.relay.progress.status_topic import StatusNews
    from mirror.spark.driver.flow_job import FlowJob
    from mirror.spark.driver.flow_results import FlowResults
    from mirror.spark.driver.output.flow_lines import FlowLines
    from mirror.spark.driver.output.stream_progress import StreamProgress
    from mirror.spark.driver.run_status import RunStatus
    from mirror.spark.ledger.attempt_results import AttemptResult, CopiedTask
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.planning.flow_planner import FlowPlanner
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.spark.supervision.control_record_thread import ClaimedRun
    from mirror.spark.tasks.options import FlowOptions
    from mirror.spark.tasks.task_spec import CopyTask
    from mirror.telemetry.task_report import TaskReport

    Await = Callable[["FlowJob[CopyTask, CopiedTask]", Callable[[], None]], None]
    """Waits for the end of a job, and calls the function often meanwhile. Raises what the job raises."""

_STATUS_LATE_MS: Final = 30_000
"""The status of a flow with thousands of partitions is read this often."""
_RUN: Final = 0
"""The number of the job of a scheduled run, and of its plan in the ledger."""
_JOB: Final = 1
"""The number of the job of a stream. In the ledger it has a plan for each period, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """What the job of a run works with."""

    context: SparkContext
    config: MirrorConfig
    flow: FlowConfig
    options: FlowOptions
    ledger: Ledger
    observe: Callable[[], Sides]
    """Returns a new observation of both clusters."""
    run: ClaimedRun
    planner: FlowPlanner
    results: FlowResults
    status: RunStatus
    progress: StreamProgress
    lines: FlowLines
    targets: Callable[[], TargetTopics]
    """Returns the last preparation of the target's topics."""

    def plan(self, number: int, copied: Iterable[Range] = ()) -> Plan:
        """Plan with what is prepared now, and report what has no task. Raises MirrorError.

        ``copied`` are the ranges that have a task, which reports what becomes of them.
        """
        plan = self.planner.plan(self.observe(), self.targets(), number)
        owned = {(one.topic, one.partition) for one in copied}
        without_task = [one for one in plan.results_without_task if (one.topic, one.partition) not in owned]
        plan = replace(plan, results_without_task=without_task)
        self.status.planned(plan)
        self.results.record_plan(plan)
        return plan

    def job(self, plan: Plan, first_period: int | None) -> FlowJob[CopyTask, CopiedTask]:
        """Return the job that copies what ``plan`` has. Raises KafkaError."""
        self.run.begin_job(plan.period)
        flow, ledger = self.flow, self.ledger
        of_job = TaskSpec(
            run=self.run.run,
            job=plan.period,
            renew_ms=0 if first_period is None else recommit_after_ms(self.observe().target),
            generation=self.run.generation,
            refresh_ms=flow.refresh_ms,
            period_ms=FOREVER_MS if first_period is None else flow.period_ms,
            first_period=first_period,
            trace=str(period_id(flow.name, ledger.path.name, plan.period)),
        )
        label = JobLabel.of(flow.name, f"mirror {flow.name}: {flow.source} to {flow.target}", self.run.run)
        return copy_job(self.context, self.options, tasks_of(plan, of_job), label)


class FollowedJob:
    """A job whose ranges have no end: its tasks live until they are to stop, and are given what is new."""

    def __init__(self, parts: JobParts) -> None:
        self._parts: Final = parts
        self._clock: Final = SystemClock()
        flow = parts.flow
        self._settle_within_ms: Final = settle_within_ms(parts.config, flow)
        self._stuck: Final = StuckTransactions()
        self._planned_for = TargetTopics()
        """The preparation with which the last plan was made."""

    def prepare(self) -> None:
        """Plan the job. Raises MirrorError."""
        parts = self._parts
        self._planned_for = parts.targets()
        plan = parts.plan(_JOB)
        rows = plan.tasks + [[] for _ in range(parts.options.parallelism - len(plan.tasks))]
        self._plan = replace(plan, tasks=rows)
        parts.progress.on_plan(plan)
        self._warn_of_failures(plan)
        self._assigner = Assigner(
            parts.flow.name,
            _JOB,
            rows,
            parts.run,
            parts.observe().target.admin,
            self._clock,
            settle_within_ms=self._settle_within_ms,
            warn=parts.lines.warn,
            report=parts.progress.on_news,
        )
        self._additions = JobAdditions(
            parts.flow,
            self._assigner,
            self._planned_for.version,
            parts.planner.is_initial,
            parts.progress.on_news,
        )
        self._failures = FailureLines(parts.run.run)
        with contextlib.suppress(KafkaError):  # they only cost a little time
            self._assigner.delete_outdated()
        self._renew_ms = recommit_after_ms(parts.observe().target)
        self._job_results = JobResults(
            parts.results,
            parts.ledger,
            self._plan,
            parts.run.run,
            period_ms=parts.flow.period_ms,
            unix_ms=self._clock.unix_ms(),
        )
        self._job = parts.job(self._plan, self._job_results.first_period)

    def assign(self, targets: TargetTopics, sides: Sides) -> None:
        """Give to the tasks what they lack of ``targets``. Raises KafkaError."""
        self._additions.assign(targets, sides)

    def begin_again(self, target_topics: Collection[str]) -> None:
        """Have copies into these topics begin again, which were created: a copy knows its log. Raises KafkaError.

        An idle copy would not notice.
        """
        owned = map(target_of, self._assigner.ranges())
        self._additions.on_released()
        self._assigner.release([target for target in owned if target.topic in target_topics])

    def run(self, wait: Await) -> None:
        """Run the job until it is to stop. Raises what Spark raises if it gives up."""
        self._parts.status.on_news = self._on_news
        self._job.start()
        wait(self._job, self._update)

    def finish(self) -> None:
        """Count what the tasks have returned."""
        self._job_results.finish(self._job.results, self._assigner.ranges(), self._clock.unix_ms())

    def _update(self) -> None:
        self._job_results.update(self._clock.unix_ms(), self._assigner.ranges)
        if self._job.results:
            # A task that has ended gets nothing any more: the others end, too, and another job begins.
            self._parts.run.end_job()

    @property
    def why(self) -> str:
        """Why its tasks have ended, if nothing had stopped them."""
        tasks = self._job.results
        results = (attempt.result for task in tasks for attempt in task.attempts)
        failed = (one.error or "" for one in results if one.outcome is Outcome.FAILED)
        return next(filter(None, (*(task.invalid for task in tasks), *failed)), "its tasks have ended")

    # --- for the lag monitor

    @property
    def interval_ms(self) -> int:
        """How often the status is to be read."""
        return self._parts.progress.interval_ms

    def on_error(self, error: MirrorError) -> None:
        """Report that the status could not be read."""
        self._parts.progress.on_error(error)

    def on_status(self, status: FlowStatus) -> None:
        """Warn of transactions of the source that stay open; the results of the period have them, too."""
        self._parts.progress.on_status(status)
        found = {one.withheld.tp: one.withheld for one in status.partitions if one.withheld is not None}
        self._job_results.on_withheld(found)
        for line in self._stuck.lines(found, _STATUS_LATE_MS):
            self._parts.lines.warn_once(line)

    # --- beside the copies

    def _on_news(self, news: StatusNews) -> None:
        """Take what the tasks report, or that nothing is new: in the thread that follows the status topic."""
        parts = self._parts
        reports = [report for report in news.partitions if report.task != NO_TASK]
        self._job_results.take(reports)
        self._job_results.measure(parts.status.measured_in(news))
        self._assigner.on_status(news.tasks, reports)
        for line in (*self._failures.failed(reports), *self._failures.failed_tasks(news.tasks)):
            parts.lines.warn(line)
        for line in self._failures.recovered():
            parts.progress.on_news(line)
        own = (one for one in news.tasks if (one.run, one.job) == (parts.run.run, _JOB))
        parts.run.want(attempts=newest_attempts((one.task, one.attempt) for one in own))

    def update(self) -> None:
        """Do what follows from the reports of the tasks. Raises KafkaError."""
        self._assigner.update()
        self._assigner.renew(self._renew_ms)

    def refresh(self, targets: TargetTopics) -> None:
        """Take away what is gone of ``targets``, and plan what has no task. Raises MirrorError."""
        parts = self._parts
        if left := gone(targets, self._assigner):
            self._assigner.release({target_of(one) for one in left})
            self._additions.on_gone(left)
            parts.progress.on_news(gone_line(left))
        if targets != self._planned_for or lacks_some(parts.flow, targets, self._assigner):
            plan = parts.plan(_JOB, self._assigner.ranges())
            self._assigner.take(plan.ranges)
            self._planned_for = targets
            self._job_results.on_planned(plan)
            self._warn_of_failures(plan)
        with contextlib.suppress(KafkaError):
            self._assigner.delete_outdated()

    def _warn_of_failures(self, plan: Plan) -> None:
        failed = [result for result in plan.results_without_task if result.outcome is Outcome.FAILED]
        if failed:
            first = failed[0]
            self._parts.lines.warn_once(
                f"{len(failed)} partitions cannot be copied, such as {first.topic}-{first.partition}: {first.error}"
            )


class BoundedJob:
    """The job of a scheduled run: its ranges have ends, and it ends with the last of them."""

    def __init__(self, parts: JobParts) -> None:
        self._parts: Final = parts
        self._job: FlowJob[CopyTask, CopiedTask] | None = None
        self._counts: Final = ReportedCounts(parts.run.run)
        self._measured: Final = MeasuredTasks(parts.run.run)
        self._lock: Final = threading.Lock()

    def prepare(self) -> None:
        """Plan the job. Raises MirrorError, OSError."""
        parts = self._parts
        self._plan = plan = parts.plan(_RUN)
        self._began_ms = SystemClock().unix_ms() - (plan.took_ms or 0)
        parts.ledger.write_plan(plan)
        self._progress = RunProgress(parts.flow.name, plan, parts.lines.consoles)
        if plan.tasks:
            self._job = parts.job(plan, None)

    def run(self, wait: Await) -> None:
        """Run the job until its end. Raises what Spark raises if it gives up, OSError."""
        if self._job is None:
            return
        self._parts.status.on_news = self._on_news
        self._job.start()
        try:
            wait(self._job, lambda: None)
        finally:  # what the other tasks have copied is kept, if Spark gives up one
            self._progress.end()
            if attempts := self._attempts():
                self._parts.ledger.write_attempts(attempts, _RUN)

    def finish(self) -> None:
        """Record what was copied. Of ranges whose tasks did not answer, the progress on the target shows it."""
        parts, plan, attempts = self._parts, self._plan, self._attempts()
        cut_short = parts.results.report.cut_short
        ended_ms = SystemClock().unix_ms()
        answered = {(one.result.topic, one.result.partition) for one in attempts}
        lost = [one for one in plan.ranges if (one.topic, one.partition) not in answered]
        options = parts.config.clusters[parts.flow.target].client_options()
        reached = read_target_progress(options, parts.flow.name, lost)
        if plan.withheld and not cut_short:
            plan = replace(plan, withheld=self._still_open(plan.withheld))
        copied = [] if self._job is None else self._job.results
        reports = [task.report for task in copied if task.report is not None]
        self._record((report for task in copied for report in task.last_reports), reports)
        run = Period(plan=plan, attempts=attempts, reports=reports, began_ms=self._began_ms, ended_ms=ended_ms)
        results = join_results(plan, attempts, reached, cut_short=cut_short)
        targets = [(TopicPartition(one.target_topic, one.partition), one) for one in results]
        parts.results.record_counts([one for target, one in targets if self._counts.latest(target) is None])
        parts.results.end_run(run, results)

    def _attempts(self) -> list[AttemptResult]:
        return [] if self._job is None else [one for task in self._job.results for one in task.attempts]

    def _still_open(self, withheld: OpenTransactions) -> dict[TopicPartition, OpenTransaction]:
        """Return which of the open transactions of the plan are to be reported, and warn of them.

        The lag does not count their records.
        """
        found: OpenTransactions = withheld
        with contextlib.suppress(MirrorError):
            found = still_open(self._parts.observe().source.admin, withheld, SystemClock().unix_ms())
        noteworthy = {tp: one for tp, one in found.items() if one.is_noteworthy}
        for line in describe_oldest(noteworthy):
            self._parts.lines.warn_once(line)
        return noteworthy

    def _on_news(self, news: StatusNews) -> None:
        reports = [one for one in news.partitions if one.run == self._parts.run.run and one.task != NO_TASK]
        self._progress.on_reports(reports)
        self._record(reports, self._parts.status.measured_in(news))

    def _record(self, reports: Iterable[PartitionReport], measured: Iterable[TaskReport]) -> None:
        """Record what tasks report in the metrics, each count once. The last reports may overtake the news."""
        with self._lock:
            added = [one for report in reports if (one := self._counts.take(report)) is not None]
            news = [new for report in measured if (new := self._measured.take(report)) is not None]
        self._parts.results.record_counts(added)
        self._parts.results.record_measured(news)


def settle_within_ms(config: MirrorConfig, flow: FlowConfig) -> int:
    """Return within which time a task has settled a released partition, or has died.

    At least once a task that Spark has begun again waits for the end of its earlier attempt before it does.
    """
    settings = ProducerSettings.parse(target_options(config, flow))
    within = settings.delivery_timeout_ms + settings.cluster.request_timeout_ms + flow.copy_policy().wind_up_ms
    return within if flow.exactly_once else within + EARLIER_ENDS_MS
