"""The jobs of one flow of a stream: one that follows its partitions until it is to stop, or several with ends."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mirror.backoff import Backoff
from mirror.config.flow_rules import target_options
from mirror.errors import KafkaError
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.assignments import target_of
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import NO_TASK
from mirror.relay.progress.control import newest_attempts
from mirror.relay.progress.open_transactions import StuckTransactions
from mirror.relay.progress.status_topic import StatusFollower
from mirror.runtime.clock import SystemClock, process_rng
from mirror.spark.datasource.task_spec import TaskSpec, tasks_of
from mirror.spark.discovery.job_additions import JobAdditions, gone, gone_line, lacking_sources
from mirror.spark.driver.assigner import Assigner
from mirror.spark.driver.flow_job import JobLabel, copy_job
from mirror.spark.driver.job_results import JobResults
from mirror.spark.driver.output.failure_lines import FailureLines
from mirror.spark.driver.task_watch import TaskWatch
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.ledger.result_files import write_copied
from mirror.telemetry.traces.ids import epoch_id
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping

    from pyspark import SparkContext

    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.datasource.task_spec import CopyTask
    from mirror.spark.driver.flow_job import FlowJob
    from mirror.spark.driver.flow_results import FlowResults
    from mirror.spark.driver.output.stream_progress import StreamProgress
    from mirror.spark.driver.run_status import RunStatus
    from mirror.spark.driver.stream_monitor import Work
    from mirror.spark.ledger.attempts import Attempt, CopiedTask
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.planning.flow_planner import FlowPlanner
    from mirror.spark.run_control import RunControlClient, RunRecord
    from mirror.spark.status.flow_status import FlowStatus

    Await = Callable[["FlowJob[CopyTask, CopiedTask] | None", Callable[[], None]], bool]
    """Waits for the end of a job, or once without one; returns whether the run goes on."""

_STATUS_INTERVAL_S: Final = 1.0
_STATUS_LATE_MS: Final = 30_000
"""The status of a flow with thousands of partitions is read this often."""
_IDLE_PAUSE_MS: Final = 5_000
_JOB_EVERY_MS: Final = 1_000
"""A job with little to copy takes half a second, most of it for Spark and the ledger."""
_MIN_BACKOFF_MS: Final = 1_000
_MAX_BACKOFF_MS: Final = 30_000
_JOB: Final = 1
"""The number of a job that follows: a run has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """What the jobs of one run work with."""

    context: SparkContext
    config: MirrorConfig
    flow: FlowConfig
    options: FlowOptions
    ledger: Ledger
    source: Admin
    target: Admin
    control: RunControlClient
    record: RunRecord
    planner: FlowPlanner
    results: FlowResults
    status: RunStatus
    progress: StreamProgress
    targets: Callable[[], TargetTopics]
    """Returns the last preparation of the target's topics."""
    warn: Callable[[str], None]
    """Prints a warning, each once."""
    warn_again: Callable[[str], None]
    """Prints a warning each time."""

    def plan(self, number: int) -> Plan:
        """Plan with what is prepared now. Raises MirrorError."""
        plan = self.planner.plan(self.source, self.target, self.targets(), number)
        self.status.planned(plan)
        return plan

    def job(self, plan: Plan, first_period: int | None) -> FlowJob[CopyTask, CopiedTask]:
        """Return the job that copies what ``plan`` has. Raises KafkaError."""
        flow, ledger = self.flow, self.ledger
        of_job = TaskSpec(
            run=self.control.run,
            job=plan.epoch,
            renew_ms=self.planner.renew_ms(self.target),
            generation=self.record.wanted.generation,
            refresh_ms=flow.refresh_ms,
            period_ms=FOREVER_MS if first_period is None else flow.period_ms,
            first_period=first_period,
            trace=str(epoch_id(flow.name, ledger.path.name, plan.epoch)),
        )
        label = JobLabel.of(
            flow.name, f"mirror {flow.name}: {flow.source} to {flow.target}", self.control.run, plan.epoch
        )
        return copy_job(self.context, self.options, tasks_of(plan, of_job), label)


class FollowedJob:
    """A job whose ranges have no end: its tasks live until they are to stop, and are given what is new."""

    def __init__(self, parts: JobParts) -> None:
        self._parts: Final = parts
        self._clock: Final = SystemClock()
        flow = parts.flow
        self.others: Final[Mapping[str, Work]] = {
            "what the tasks report": self._follow_status,
            "the plan of what is not copied": self._refresh,
        }
        self._settle_within_ms: Final = _settle_within_ms(parts.config, flow)
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
        parts.progress.on_plan(plan, follows=True)
        self._warn_of_failures(plan)
        self._assigner = Assigner(
            parts.flow.name,
            _JOB,
            rows,
            parts.control,
            parts.target,
            self._clock,
            settle_within_ms=self._settle_within_ms,
            warn=parts.warn,
        )
        self._additions = JobAdditions(
            parts.flow,
            self._assigner,
            self._planned_for.version,
            parts.planner.is_initial,
            parts.progress.on_news,
        )
        self._watch = TaskWatch(parts.control.run, _JOB, len(rows), self._clock.now())
        with contextlib.suppress(KafkaError):  # they only cost a little time
            self._assigner.delete_outdated()
        self._renew_ms = parts.planner.renew_ms(parts.target)
        self._job_results = JobResults(
            parts.results,
            parts.ledger,
            self._plan,
            parts.control.run,
            _JOB,
            period_ms=parts.flow.period_ms,
            unix_ms=self._clock.unix_ms(),
            on_period=parts.status.copied,
        )
        self._job = parts.job(self._plan, self._job_results.first_period)

    def assign(self, targets: TargetTopics, source: Admin, target: Admin) -> None:
        """Give to the tasks what they lack of ``targets``. Raises KafkaError."""
        self._additions.assign(targets, source, target)

    def begin_again(self, target_topics: Collection[str]) -> None:
        """Have copies into these topics begin again, which were created: a copy knows its log. Raises KafkaError.

        An idle copy would not notice. What is released here is taken again with the next plan.
        """
        owned = map(target_of, self._assigner.ranges())
        self._assigner.release([target for target in owned if target.topic in target_topics])

    def run(self, wait: Await) -> bool:
        """Run the job until it is to stop. Raises what Spark raises if it gives up; returns False."""
        self._job.start()
        try:
            wait(self._job, self._update)
        finally:
            self._job_results.finish(self._job.results)
        return False

    def _update(self) -> None:
        self._job_results.update(self._clock.unix_ms(), self._assigner.ranges)
        if self._job.results:
            # A task that has ended gets nothing any more: the others end, too, and another job begins.
            self._parts.record.want(job=_JOB + 1)

    @property
    def why(self) -> str:
        """Why its tasks have ended, if nothing had stopped them."""
        results = [attempt.result for task in self._job.results for attempt in task.attempts]
        errors = (one.error for one in results if one.outcome is Outcome.FAILED and one.error)
        return next(errors, "its tasks have ended")

    def on_status(self, status: FlowStatus) -> None:
        """Warn of transactions of the source that stay open; the results of the period have them, too."""
        found = {one.withheld.tp: one.withheld for one in status.partitions if one.withheld is not None}
        self._job_results.on_withheld(found)
        for line in self._stuck.lines(found, _STATUS_LATE_MS):
            self._parts.warn(line)

    # --- beside the copies

    def _follow_status(self, ended: threading.Event) -> None:
        parts = self._parts
        failures = FailureLines(parts.control.run)
        options = parts.config.clusters[parts.flow.target].client_options()
        with contextlib.closing(StatusFollower(options, parts.flow.name)) as follower:
            while not ended.wait(_STATUS_INTERVAL_S):
                news, now = follower.news(), self._clock.now()
                reports = [report for report in news.partitions if report.task != NO_TASK]
                self._job_results.take(reports)
                self._assigner.on_reports(reports)
                for line in failures.failed(reports):
                    parts.warn_again(line)
                for line in failures.recovered():
                    parts.progress.on_news(line)
                self._watch.see(news.tasks, now)
                own = (one for one in news.tasks if (one.run, one.job) == (parts.control.run, _JOB))
                parts.record.want(attempts=newest_attempts((one.task, one.attempt) for one in own))
                self._assigner.use(self._watch.all - self._watch.silent(now))

    def _refresh(self, ended: threading.Event) -> None:
        """Plan once each ``refresh-ms`` what has no task, and take away what is gone. Raises MirrorError."""
        parts = self._parts
        if ended.wait(parts.flow.refresh_ms / 1000):
            return
        self._assigner.renew(self._renew_ms)
        targets = parts.targets()
        if left := gone(targets, self._assigner):
            self._assigner.release({target_of(one) for one in left})
            parts.progress.on_news(gone_line(left))
        if targets != self._planned_for or lacking_sources(parts.flow, targets, self._assigner):
            plan = parts.plan(_JOB)
            self._assigner.take(plan.ranges)
            self._planned_for = targets
            self._job_results.on_planned(plan)
            self._warn_of_failures(plan)

    def _warn_of_failures(self, plan: Plan) -> None:
        failed = [result for result in plan.results_without_task if result.outcome is Outcome.FAILED]
        if failed:
            first = failed[0]
            self._parts.warn(
                f"{len(failed)} partitions cannot be copied, such as {first.topic}-{first.partition}: {first.error}"
            )


class BoundedJobs:
    """Jobs whose ranges have ends, one after the other: for a flow with limits or an end, or to copy what there is."""

    others: Final[Mapping[str, Work]] = MappingProxyType({})
    why: Final = "its jobs have ended"

    def __init__(self, parts: JobParts, *, drains: bool) -> None:
        """With ``drains`` they end once what there was at the first plan is copied."""
        self._parts: Final = parts
        self._drains: Final = drains
        self._clock: Final = SystemClock()
        self._backoff: Final = Backoff(_MIN_BACKOFF_MS, _MAX_BACKOFF_MS, process_rng())
        self._fruitless = 0
        self._stuck: Final = StuckTransactions()
        self._idle: list[RangeResult] = []
        self._plan: Plan | None = None

    def assign(self, targets: TargetTopics, source: Admin, target: Admin) -> None:
        """Do nothing: the next job has what was prepared."""

    def on_status(self, status: FlowStatus) -> None:
        """Warn of transactions of the source that stay open."""
        found = {one.withheld.tp: one.withheld for one in status.partitions if one.withheld is not None}
        for line in self._stuck.lines(found, _STATUS_LATE_MS):
            self._parts.warn(line)

    def prepare(self) -> None:
        """Make the first plan. Raises MirrorError."""
        self._plan = self._parts.plan(1)

    def run(self, wait: Await) -> bool:
        """Run one job after the other; return whether all that there was is copied. Raises MirrorError."""
        number, due_ms = 1, self._clock.now()
        while self._pause(wait, due_ms - self._clock.now()):
            due_ms = self._clock.now() + _JOB_EVERY_MS
            plan, self._plan = self._plan or self._parts.plan(number), None
            if not plan.tasks:
                self._add_idle(plan)
                if self._drains:
                    return True
                due_ms = self._clock.now() + _IDLE_PAUSE_MS
                continue
            attempts = self._run_job(plan, wait)
            if attempts is None:
                return False
            number += 1
            results = [attempt.result for attempt in attempts]
            fruitful = any(result.outcome is Outcome.COMPLETE or result.records for result in results)
            self._fruitless = 0 if fruitful or self._drains else self._fruitless + 1
            if self._fruitless:
                due_ms = self._clock.now() + self._backoff.after(self._fruitless)
        return False

    def _run_job(self, plan: Plan, wait: Await) -> list[Attempt] | None:
        """Run the job of ``plan``, and return its results; None if the run is to end."""
        parts = self._parts
        with self._ledger_errors():
            parts.ledger.write_plan(plan)
        parts.progress.on_plan(plan, follows=False)
        parts.record.want(job=plan.epoch)
        job = parts.job(plan, None)
        job.start()
        goes_on = False
        try:
            goes_on = wait(job, _nothing)
        finally:
            copied = job.results
            attempts = [attempt for task in copied for attempt in task.attempts]
            with self._ledger_errors():
                write_copied(parts.ledger.path, copied)
                parts.results.add(plan, attempts)
        parts.status.returned(plan, attempts)
        parts.planner.note(attempts)
        return attempts if goes_on else None

    def _add_idle(self, plan: Plan) -> None:
        if plan.results_without_task == self._idle:
            return
        self._idle = plan.results_without_task
        with self._ledger_errors():
            if self._drains and plan.results_without_task:
                self._parts.ledger.write_plan(plan)
                self._parts.ledger.write_attempts([], plan.epoch)
                self._parts.results.add(plan, [])
            else:
                self._parts.results.add_idle(plan)

    def _ledger_errors(self) -> contextlib.AbstractContextManager[None]:
        """Without its ledger a stream goes on; what copies only what there is fails, as a scheduled run does."""
        return contextlib.nullcontext() if self._drains else contextlib.suppress(OSError)

    def _pause(self, wait: Await, pause_ms: int) -> bool:
        """Wait for so long; return False if the run is to end."""
        until = self._clock.now() + pause_ms
        while self._clock.now() < until:
            if not wait(None, _nothing):
                return False
        return True


def _nothing() -> None:
    """Do nothing while a job runs."""


def _settle_within_ms(config: MirrorConfig, flow: FlowConfig) -> int:
    """Return within which time a task has settled a released partition, or has died."""
    settings = ProducerSettings.parse(target_options(config, flow))
    return settings.delivery_timeout_ms + settings.cluster.request_timeout_ms + flow.copy_policy().wind_up_ms
