"""Runs one flow once: prepares its target topics, plans, has Spark copy, and collects the results."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.alignment.sync_state import TOPICS
from mirror.client import Admin
from mirror.errors import Fenced, KafkaError, MirrorError
from mirror.groups.positions import GroupsReport
from mirror.groups.summary import summary_of
from mirror.mirrormaker.heartbeats import HeartbeatWriter, not_written
from mirror.relay.model.ranges import SEVERITY, Outcome
from mirror.relay.progress.open_transactions import describe_oldest
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.task_spec import TaskSpec, tasks_of
from mirror.spark.driver.flow_job import JobLabel, copy_job
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.output.progress_bar import ProgressBar
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.spark.driver.rounds.periodic_rounds import problem_of
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.telemetry_bridge import record_epoch
from mirror.spark.flow_admins import open_admins
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.result_files import write_copied
from mirror.spark.ledger.results import FlowReport, join_results
from mirror.spark.planning.open_transactions import still_open
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry
from mirror.spark.run_control import RunControlClient, RunRecord, new_run_id
from mirror.spark.status.index_size import read_index_size
from mirror.spark.status.lag_monitor import record_lags, record_last_evidence
from mirror.spark.status.status_reader import WATCH_CALL_TIMEOUT_MS, StatusReader
from mirror.spark.status.target_progress import read_target_progress
from mirror.telemetry.metrics.record_results import record_sync
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark import SparkContext

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control import RunControl
    from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.takeover.watch import MirrorMakerWatch
    from mirror.telemetry.run import RunTelemetry


class FlowRunner:
    """Runs the flows of one configuration, one after the other, in one Spark context."""

    def __init__(
        self,
        context: Callable[[], SparkContext],
        config: MirrorConfig,
        consoles: Consoles,
        *,
        findings: Findings,
        telemetry: RunTelemetry,
        config_path: Path,
        secrets_dir: Path | None,
        report_dir: Path,
        debug: bool,
        began_ms: int | None = None,
    ) -> None:
        """``context`` returns Spark's context, and waits until it is there. ``findings`` come from the flows' checks.

        ``began_ms`` is when a scheduled run began (ms since 1970): its first flow records how long Spark took to start.
        """
        self._context: Final = context
        self._config: Final = config
        self._consoles: Final = consoles
        self._findings: Final = findings
        self._telemetry: Final = telemetry
        self._config_path: Final = config_path.absolute()
        self._secrets_dir: Final = secrets_dir.absolute() if secrets_dir else None
        self._report_dir: Final = report_dir
        self._debug: Final = debug
        self._began_ms = began_ms
        self._warned: set[tuple[str, str]] = set()
        self._withheld: dict[TopicPartition, OpenTransaction] | None = None
        self._fenced_by: RunControl | None = None

    def run(self, flow: FlowConfig, report: FlowReport) -> None:
        """Copy ``flow`` up to its current end offsets and fill ``report``, even if this raises.

        Raises MirrorError if the flow could not run, MirrorMakerResumed also if it was stopped while it ran. The error
        of a single partition is in its result instead.
        """
        preparation = FlowPreparation(self._config, flow, self._consoles, self._findings)
        with preparation.open_watch() as watch:
            watch.check()
            self._run(flow, report, watch, preparation)
            watch.check()

    def _run(self, flow: FlowConfig, report: FlowReport, watch: MirrorMakerWatch, preparation: FlowPreparation) -> None:
        targets = preparation.prepare()
        report.sync = report.sync.after(TOPICS, targets.not_in_step(), 0, SystemClock().unix_ms())
        preparation.align(report)
        preparation.align_acls(report)
        report.run = run = report.run or new_run_id()
        ledger = Ledger.open(self._report_dir, flow.name, run)
        self._withheld = self._fenced_by = None
        ledger.write_targets(targets)
        if flow.mirrormaker.heartbeats:
            self._write_heartbeat(flow)
        status = RunStatus(self._options_of(flow.target), flow, run, partial(self._say, flow))
        status.read(self._report_dir)
        status.report_state("running")
        status.prepared(targets)
        try:
            with (
                self._claimed(flow, run, watch) as claim,
                ProgressBar(flow.name, ledger, self._options_of(flow.target), self._consoles),
            ):
                self._say(flow, "planning")
                self._replicate(flow, ledger, claim, status)
                if flow.follows_groups and watch.resumed is None:
                    self._bring_groups(flow, ledger, report)
            self._warn_of_open_transactions(flow, ledger)
            self._measure(flow, report)
        except MirrorError:
            raise
        except Exception as error:
            if not ledger.attempts():
                ledger.check_writable()  # the disk may have had no room for the results
            if ledger.plan() is None:
                raise
            # There is a plan, and tasks ran: ranges without a result become `unfinished` below.
            self._consoles.error(f"flow {flow.name}: {'; '.join(error_lines(error))}")
            if self._debug:
                self._consoles.traceback(str(error))
        except BaseException:
            report.cut_short = True  # a signal ended it: progress that the tasks did not report is read from the target
            raise
        finally:
            self._collect(flow, ledger, report, status)
            self._report_takeover(flow, report)
            worst = max((result.outcome for result in report.partitions), key=SEVERITY.index, default=Outcome.FAILED)
            status.report_state("ended", report.fenced or worst.value)
            status.close()

    def _report_takeover(self, flow: FlowConfig, report: FlowReport) -> None:
        """Name the run that has ended this one. One that was complete before has nothing to report."""
        other = self._fenced_by
        if other is not None and any(result.outcome is not Outcome.COMPLETE for result in report.partitions):
            report.fenced = f"another run of this flow took over: {other.run} on {other.host}"
            self._consoles.error(f"flow {flow.name}: {report.fenced}")

    def _bring_groups(self, flow: FlowConfig, ledger: Ledger, report: FlowReport) -> None:
        """Bring the positions of consumer groups to the target. A failure does not fail the run."""
        act = "committing" if flow.groups.sync else "translating"
        self._consoles.progress(f"flow {flow.name}: {act} the positions of consumer groups")
        try:
            with CheckpointedRounds(self._config, flow) as rounds:
                try:
                    found = rounds.round()
                except Fenced as error:
                    found = rounds.fenced(error)
            report.groups = summary_of(found)
            ledger.write_groups(report.groups)
        except Exception as error:  # noqa: BLE001 - the copies are complete
            found = GroupsReport(problems=(problem_of(error),))
            report.groups = report.groups or summary_of(found)
        for line in found.problems:
            self._warn(flow, f"consumer groups: {line}")

    def _write_heartbeat(self, flow: FlowConfig) -> None:
        """Write a heartbeat to the source, which this run copies."""
        try:
            with HeartbeatWriter(self._options_of(flow.source), source=flow.source, target=flow.target) as writer:
                writer.write()
        except MirrorError as error:
            self._warn(flow, not_written(error))

    @contextlib.contextmanager
    def _claimed(self, flow: FlowConfig, run: str, watch: MirrorMakerWatch) -> Iterator[RunControl | None]:
        """Claim the flow, so that another run of it ends; yield the run's record, or None if that failed.

        The run is asked to end if ``watch`` sees that MirrorMaker 2 copies again.
        """
        record = RunRecord(run)

        def stop_if_resumed() -> None:
            if watch.read() is not None:
                record.want(stop=True)
                control.sync()

        with Admin(self._options_of(flow.target)) as target:
            control = RunControlClient(target, flow.name, record=record)
            claimed = control.claim_or_warn(partial(self._warn, flow))
            try:
                with Heartbeat(control, then=stop_if_resumed) if claimed else contextlib.nullcontext():
                    yield record.wanted if claimed else None
            finally:
                if claimed:
                    with contextlib.suppress(KafkaError):
                        self._fenced_by = control.end()

    def _say(self, flow: FlowConfig, line: str) -> None:
        self._consoles.progress(f"flow {flow.name}: {line}")

    def _warn(self, flow: FlowConfig, line: str) -> None:
        if (flow.name, line) not in self._warned:
            self._consoles.warning(f"flow {flow.name}: {line}")
        self._warned.add((flow.name, line))

    def _options_of(self, cluster: str) -> dict[str, object]:
        return dict(self._config.clusters[cluster].client_options())

    def _replicate(self, flow: FlowConfig, ledger: Ledger, control: RunControl | None, status: RunStatus) -> None:
        """Plan the job of a run, and run it; ``control`` is the run's record, or None if it could not claim the flow.

        Raises MirrorError if it cannot be planned.
        """
        context = self._context()
        options = FlowOptions(self._config_path, flow.name, ledger.path, self._secrets_dir, context.defaultParallelism)
        plan = self._plan(flow, ledger, options.parallelism, status)
        ledger.write_plan(plan)
        status.planned(plan)
        of_job = TaskSpec(
            run="" if control is None else control.run,
            job=plan.epoch,
            generation=0 if control is None else control.generation,
            refresh_ms=flow.refresh_ms,
            trace=str(epoch_id(flow.name, ledger.path.name, plan.epoch)),
        )
        label = JobLabel.of(flow.name, f"mirror {flow.name}: {flow.source} to {flow.target}", ledger.path.name)
        job = copy_job(context, options, tasks_of(plan, of_job), label)
        try:
            job.run()
        finally:  # what the other tasks have copied is kept, if Spark gives up one
            write_copied(ledger.path, job.results)

    def _plan(self, flow: FlowConfig, ledger: Ledger, parallelism: int, status: RunStatus) -> Plan:
        clock = SystemClock()
        began_ms = clock.now()
        with open_admins(self._config, flow) as (source, target):
            request = PlanRequest(
                flow=flow,
                now_ms=clock.unix_ms(),
                parallelism=parallelism,
                turns=status.table.turns,
                unhealthy=status.table.health,
                targets=ledger.targets(),
                registry=deciding_registry(self._config, flow),
            )
            plan = make_plan(request, source, target)
        return replace(plan, took_ms=clock.now() - began_ms)

    def _measure(self, flow: FlowConfig, report: FlowReport) -> None:
        """Record the remaining lag in the metrics, and the size of the offset index there and in the report.

        Errors are ignored: the run has reported a cluster that does not answer.
        """
        with contextlib.suppress(MirrorError):
            if self._telemetry.enabled:
                with StatusReader(self._config, flow, call_timeout_ms=WATCH_CALL_TIMEOUT_MS) as watch:
                    status = watch.read()
                record_lags(self._telemetry, status)
                record_last_evidence(self._telemetry, self._report_dir, flow.name)
                report.index_bytes = status.index_bytes
            else:
                with Admin(self._options_of(flow.target)) as target:
                    report.index_bytes = read_index_size(target, flow.name)

    def _warn_of_open_transactions(self, flow: FlowConfig, ledger: Ledger) -> None:
        """Warn of the transactions of the plan that are still open: the lag does not count their records."""
        plan = ledger.plan()
        if plan is None or not plan.withheld:
            return
        found: OpenTransactions = plan.withheld
        with contextlib.suppress(MirrorError), Admin(self._options_of(flow.source)) as source:
            found = still_open(source, plan.withheld, SystemClock().unix_ms())
        self._withheld = {tp: open_ for tp, open_ in found.items() if open_.is_noteworthy}
        for line in describe_oldest(self._withheld):
            self._warn(flow, line)

    def _collect(self, flow: FlowConfig, ledger: Ledger, report: FlowReport, status: RunStatus | None = None) -> None:
        plan = ledger.plan()
        if plan is None:
            return
        attempts = ledger.attempts()
        if self._withheld is not None:
            plan = replace(plan, withheld=self._withheld)
        if self._began_ms is not None and attempts:
            copying_s = max(attempt.result.seconds for attempt in attempts)
            ledger.write_overhead(max(0.0, (SystemClock().unix_ms() - self._began_ms) / 1000 - copying_s))
        self._began_ms = None  # Spark runs already for the flows that follow
        with_result = {(attempt.result.topic, attempt.result.partition) for attempt in attempts}
        without_result = [range_ for range_ in plan.ranges if (range_.topic, range_.partition) not in with_result]
        reached = read_target_progress(self._options_of(flow.target), flow.name, without_result)
        report.partitions = join_results(plan, attempts, reached, cut_short=report.cut_short)
        if status is not None:
            status.returned(plan, attempts)
        with self._telemetry.metrics.lock:
            record_sync(self._telemetry.metrics, flow.name, report.sync_state)
        with contextlib.suppress(OSError):
            ledger.write_sync(report.sync_state)
        record_epoch(self._telemetry, flow, ledger, plan, attempts, report.partitions)
        if self._debug:
            for trace in dict.fromkeys(attempt.traceback for attempt in attempts if attempt.traceback):
                self._consoles.traceback(trace)
