"""One run of one flow, from the preparation of its target to the end of its job.

A scheduled run copies what there is when it plans. A stream follows its partitions until it is to stop.

::

    prepare ──► claim ──► plan ──► job ──► its end: an event for who runs the flow
                                    │
                beside it: control, what tasks report; in a stream new topics, lag, rounds
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.errors import AuthorizationFailed, FlowError, FlowHeld, KafkaError, MirrorError
from mirror.relay.model.ranges import SEVERITY, Outcome
from mirror.relay.progress.latch import LatchCheck
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import open_sides
from mirror.spark.driver.copy_jobs import BoundedJob, FollowedJob, JobParts
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.flow_results import FlowResults
from mirror.spark.driver.flow_rounds import FlowRounds
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.output.flow_lines import FlowLines
from mirror.spark.driver.output.stream_progress import StreamProgress
from mirror.spark.driver.rounds.monitoring import monitoring
from mirror.spark.driver.rounds.outages import ClusterOutages, Outages
from mirror.spark.driver.run_ending import RunEnding
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.telemetry_bridge import lineage_job
from mirror.spark.driver.topic_upkeep import TopicUpkeep
from mirror.spark.ledger.initial_partitions import InitialPartitions
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.flow_planner import FlowPlanner
from mirror.spark.planning.limits import why_not_followed
from mirror.spark.status.lag_monitor import LagMonitor, measure_once
from mirror.spark.supervision.flow_states import Began, JobEnded, Lost
from mirror.telemetry.lineage.facts import JobKind, end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark import SparkContext

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.results import FlowReport
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.spark.supervision.control_record_thread import ClaimedRun, ControlRecordThread
    from mirror.spark.supervision.flow_states import Event
    from mirror.spark.tasks.options import FlowOptions
    from mirror.takeover.watch import MirrorMakerWatch
    from mirror.telemetry.run_telemetry import RunTelemetry


class FlowRun:
    """One run of one flow. :meth:`run` blocks its thread; :meth:`stop` and :meth:`cancel` may be called from any."""

    def __init__(
        self,
        context: Callable[[], SparkContext],
        config: MirrorConfig,
        flow: FlowConfig,
        options: FlowOptions,
        report: FlowReport,
        *,
        consoles: Consoles,
        telemetry: RunTelemetry,
        findings: Findings,
        control: ControlRecordThread,
        follows: bool,
        initial: InitialPartitions | None = None,
        outages: ClusterOutages | None = None,
        debug: bool = False,
    ) -> None:
        """``config`` and ``flow`` do not change: another configuration needs another run.

        ``findings`` are those of the flow's check. With ``control`` the run claims the flow; who has opened it stops
        the run on a command or once another run has taken over, and records its end. With ``follows`` it copies until
        it is to stop, otherwise what there is when it plans. ``initial`` is what earlier starts of the flow have found;
        ``outages`` are those of all flows of the process. Tasks without a number (``options.parallelism`` 0) are as
        many as Spark runs at once.
        """
        self.report: Final = report
        self._context: Final = context
        self._config: Final = config
        self._flow: Final = flow
        self._options: Final = options
        self._lines: Final = FlowLines(flow.name, consoles)
        self._telemetry: Final = telemetry
        self._follows: Final = follows
        self._initial: Final = initial or InitialPartitions()
        self._debug: Final = debug
        self._reports: Final = options.ledger.parents[2]
        self._check_latch: Final = LatchCheck(self._target_options, flow.name)
        self._preparation: Final = FlowPreparation(config, flow, self._lines, findings, self._check_latch)
        self.ledger: Final = Ledger(options.ledger)
        clusters = {
            name: str(config.clusters[name].client_options()["bootstrap.servers"])
            for name in (flow.source, flow.target)
        }
        shared = outages or ClusterOutages(consoles.warning, consoles.progress, time.monotonic)
        self._outages: Final = Outages(shared, flow.name, clusters)
        self._progress: Final = StreamProgress(
            flow.name, consoles, self._outages, commit_interval_ms=flow.commit_interval_ms
        )
        self._rounds: Final = FlowRounds(
            config,
            flow,
            report,
            telemetry,
            lines=self._lines,
            outages=self._outages,
        )
        self._control: Final = control
        self._claimed: ClaimedRun | None = None
        self._ending: Final = RunEnding(report, flow.shutdown_timeout_ms)
        self._watch: MirrorMakerWatch | None = None
        self._job: FollowedJob | BoundedJob | None = None
        self._status: RunStatus | None = None
        self._targets = TargetTopics()

    # --- for other threads

    def stop(self) -> None:
        """Have the run end in order: what the target has acknowledged is committed."""
        self._ending.ask()
        if (claimed := self._claimed) is not None:
            claimed.end_job()

    def cancel(self) -> None:
        """Have the run end at once."""
        self._ending.cancel()
        self.stop()

    # --- the run

    def run(self, announce: Callable[[Event], None]) -> Event:
        """Run the flow until its end, and return what has ended it; ``announce`` is called once its job has begun.

        Raises MirrorError, FlowHeld also if that has ended it, and what Spark raises if it gives up.
        """
        kind = JobKind.STREAM if self._follows else JobKind.RUN
        self._telemetry.lineage.begin(lineage_job(self._config, self._flow, kind, self.report.run))
        end: Event | BaseException | None = None
        try:
            with contextlib.ExitStack() as resources:
                end = self._run(announce, resources)
                return end
        except BaseException as error:
            end = error
            if isinstance(error, FlowHeld):
                self.report.failed(error, str(error))
            raise
        finally:
            self._end()
            self._end_lineage(end)

    def _run(self, announce: Callable[[Event], None], resources: contextlib.ExitStack) -> Event:
        flow = self._flow
        if self._follows and (reason := why_not_followed(flow)) is not None:
            raise FlowError(reason)
        self._watch = resources.enter_context(self._preparation.open_watch())
        self._check_may_copy()
        if not self._ending.is_asked():  # the control may be that of a later start
            self._control.wait(claims=True)
        lines = self._lines
        status = self._status = RunStatus(
            self._target_options, flow, self._options.run, lines.tell, self._outages, lines.has_warned_of
        )
        resources.callback(status.close)
        targets = self._prepare()
        if not self._follows and flow.mirrormaker.heartbeats:
            self._check_latch()
            self._rounds.write_heartbeat()
        # A partition that an earlier run has not found is copied from its first record: without what it has stored, the
        # records of such a partition would be lost.
        status.read(needed=self._follows and flow.begins_at_end)
        status.prepared(targets)
        status.began(self._initial, targets)
        self._rounds.report_to(status.report_groups, status.report_sync)
        observe = resources.enter_context(open_sides(self._config, flow)).again
        self._learn_addresses(observe())
        context = self._context()
        if self._ending.is_asked():
            return self._ended()
        claimed = self._claimed = self._claim()  # this ends another run, so nothing slow or doubtful comes after it
        self._check_latch()  # after the claim: who holds the flow stops all that has claimed it before
        if not self._follows:
            status.report_state("running")
            resources.push(partial(self._report_end, status, claimed))
        self._lines.tell("planning")
        options = replace(self._options, parallelism=self._options.parallelism or context.defaultParallelism)
        parts = JobParts(
            context=context,
            config=self._config,
            flow=flow,
            options=options,
            ledger=self.ledger,
            observe=observe,
            run=claimed,
            planner=FlowPlanner(
                self._config,
                flow,
                self._initial,
                SystemClock(),
                parallelism=options.parallelism,
                follows=self._follows,
                status=status.table,
            ),
            status=status,
            results=FlowResults(
                flow,
                self.report,
                self._lines.consoles,
                self._telemetry,
                status,
                self._rounds.write_sync,
                debug=self._debug,
            ),
            progress=self._progress,
            lines=self._lines,
            targets=lambda: self._targets,
        )
        self._job = job = FollowedJob(parts) if self._follows else BoundedJob(parts)
        job.prepare()
        if self._ending.is_asked():  # from here on, the number of its job ends the tasks
            return self._ended()
        self._open_monitors(resources, job)
        announce(Began())
        has_ended = self._has_ended(job)
        if not self._ending.is_asked():
            with contextlib.suppress(KafkaError):
                claimed.sync()  # its tasks may have ended by a command that they have read first
        if has_ended and not (self._follows or self._ending.is_asked()):
            self._check_latch()  # it may have been held and released since: its tasks have ended, too
            self._complete()
        if self._ending.is_asked() or not isinstance(job, FollowedJob):
            return self._ended()
        self._check_latch()  # its tasks may have been stopped before it was
        return Lost(job.why)

    def _has_ended(self, job: FollowedJob | BoundedJob) -> bool:
        """Run the job to its end, and record what it has copied; return False if Spark gave up that of a scheduled run.

        It is reported here then: there are results of the other tasks. Raises what the job of a stream does.
        """
        try:
            job.run(self._ending.await_job)
        except MirrorError:
            raise
        except Exception as error:
            if self._follows:
                raise
            self.ledger.check_writable()  # the disk may have had no room for the results
            self._lines.error("; ".join(error_lines(error)))
            if self._debug:
                self._lines.consoles.traceback(str(error))
            return False
        except BaseException:
            self.report.cut_short = True  # progress that the tasks did not report is read from the target
            raise
        finally:
            job.finish()
        return True

    def _claim(self) -> ClaimedRun:
        """Have other runs of the flow end. A scheduled run goes on if it may not. Raises KafkaError.

        If that fails for another reason, it does not go on: ``mirror hold`` would not know of it.
        """
        try:
            return self._control.claim(self._options.run, self._stop_if_resumed)
        except AuthorizationFailed as error:
            if self._follows:
                raise
            self._lines.warn(f"another run of it could not be asked to end: {error}")
            return self._control.unclaimed()

    def _prepare(self) -> TargetTopics:
        self._targets = targets = self._preparation.prepare()
        open_ledger = Ledger.of_stream if self._follows else Ledger.open
        open_ledger(self._reports, self._flow.name, self._options.run)
        self._rounds.align(self._preparation.created)
        self._rounds.on_prepared(targets)
        return targets

    def _complete(self) -> None:
        """Do what a scheduled run does once its copies have ended: bring the groups, and measure what is left."""
        if self._watch is not None and self._watch.resumed is None:
            self._rounds.bring_groups()
        with contextlib.suppress(MirrorError):  # the run has reported a cluster that does not answer
            self.report.index_bytes = measure_once(self._config, self._flow, self._telemetry, self._reported)

    def _report_end(
        self, status: RunStatus, claimed: ClaimedRun, error: type[BaseException] | None, *_: object
    ) -> None:
        """Report how a scheduled run has ended, unless the state of the flow is that of another run now."""
        if claimed.fenced_by is None:
            outcomes = [one.outcome for one in self.report.partitions]
            # In both directions one flow may have no topic yet: that run is complete.
            without_any = Outcome.COMPLETE if error is None else Outcome.FAILED
            without_any = Outcome.UNFINISHED if self.report.cut_short else without_any
            status.report_state("ended", max(outcomes, key=SEVERITY.index, default=without_any).value)

    def _learn_addresses(self, sides: Sides) -> None:
        """Have a later outage name its cluster. That is for messages only: an error is no reason not to start."""
        with contextlib.suppress(KafkaError, FlowError):
            for side in sides:
                self._outages.learn(side.name, [f"{broker.host}:{broker.port}" for broker in side.cluster.brokers])

    def _open_monitors(self, resources: contextlib.ExitStack, job: FollowedJob | BoundedJob) -> None:
        """Begin what is done beside the copies."""
        if not isinstance(job, FollowedJob):
            return
        upkeep = TopicUpkeep(
            self._config,
            self._flow,
            self._targets,
            self._prepare_again,
            self._preparation.prepare_own,
            job,
            self._lines.warn,
            self._outages,
        )
        on_read = (lambda _, __: None) if self._status is None else self._status.report_read
        lags = LagMonitor(self._config, self._flow, self._telemetry, job, self._reported, on_read)
        resources.enter_context(monitoring([upkeep, lags, *self._rounds.opened(self._preparation.created)]))

    def _prepare_again(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """Prepare ``topics``, and drop those that are ``gone``."""
        before = targets = self._targets
        if topics:
            targets = self._preparation.prepare_again(before, topics, self._on_created)
        if (targets := targets.without(gone)) != before:
            self._targets = targets
            if self._status is not None:
                self._status.prepared(targets)
        self._rounds.on_prepared(targets)
        return targets

    def _on_created(self, topics: Collection[str]) -> None:
        """Have copies begin again whose target topics were deleted, and were created again."""
        if isinstance(self._job, FollowedJob):
            self._job.begin_again(topics)

    def _ended(self) -> Event:
        """Return what a run that was asked to end is, and name one that has taken over. Raises FlowHeld, LatchMoved."""
        other = None if self._claimed is None else self._claimed.fenced_by
        if other is not None and self._is_incomplete:
            self.report.fenced = f"another run of this flow took over: {other.run} on {other.host}"
            if not self._follows:  # a stream says it with the flow's state
                self._lines.error(self.report.fenced)
        else:
            self._check_may_copy()
        if self._ending.is_asked() and not (self._follows or self.report.partitions):
            self.report.cut_short = True  # it was stopped before its job began
        return JobEnded("cut short" if self.report.cut_short else "in order")

    def _check_may_copy(self) -> None:
        """Raise FlowHeld if a person has to decide first; LatchMoved if one has since the run began."""
        self._check_latch()
        if self._watch is not None:
            self._watch.check()

    def _stop_if_resumed(self, _: ClaimedRun) -> None:
        if self._watch is not None and not self._ending.is_asked() and self._watch.read() is not None:
            self._lines.tell("MirrorMaker 2 copies again: this flow ends")
            self.stop()

    @property
    def _is_incomplete(self) -> bool:
        """Whether another run has taken anything over: a run that was complete before has nothing to report."""
        outcomes = [one.outcome for one in self.report.partitions]
        return self._follows or not outcomes or any(one is not Outcome.COMPLETE for one in outcomes)

    def _end(self) -> None:
        """Complete the report."""
        self._progress.end()
        self._outages.leave()
        self._reported()
        if self._follows:
            self.report.index_bytes = self._progress.index_bytes
        if self._ending.is_asked() and not (self.report.cut_short or self.report.fenced or self.report.error):
            self.report.behind = self._progress.why_behind()
            if self.report.behind is not None:
                self._lines.error(f"it ends behind: {self.report.behind}")
        self.report.ended = datetime.now(UTC)

    def _end_lineage(self, end: Event | BaseException | None) -> None:
        """Say in the lineage how the run has ended."""
        report = self.report
        outcome, error = report.outcome, report.error or report.fenced or report.behind or ""
        if isinstance(end, Exception):
            outcome, error = Outcome.FAILED, "; ".join(error_lines(end))
        elif isinstance(end, Lost):
            outcome, error = Outcome.FAILED, end.error
        elif self._follows and not (error or report.cut_short):
            outcome = Outcome.COMPLETE  # a stream that ends in order always leaves something
        self._telemetry.lineage.end(self._flow.name, end_of(outcome), error)

    def _reported(self) -> tuple[StatusTable, str]:
        """Return what the status topic has, for the report, too."""
        table, unread = (StatusTable(), "") if self._status is None else self._status.snapshot()
        self.report.evidence = table.evidence
        return table, unread

    @property
    def _target_options(self) -> dict[str, object]:
        return dict(self._config.clusters[self._flow.target].client_options())
