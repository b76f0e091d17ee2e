"""One flow of a stream, from its preparation to the end of its last job.

::

    prepare ──► claim ──► plan ──► job ──► its end: an event for who runs the flow
                                    │
                beside it: control, new topics, what tasks report, lag, rounds
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import ConfigError, FlowError, KafkaError, MirrorError, MirrorMakerResumed
from mirror.runtime.clock import SystemClock
from mirror.spark.contact import is_away
from mirror.spark.driver.copy_jobs import BoundedJobs, FollowedJob, JobParts
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.flow_results import FlowResults
from mirror.spark.driver.flow_rounds import FlowRounds
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.output.stream_progress import StreamProgress
from mirror.spark.driver.rounds.outages import Outages
from mirror.spark.driver.run_status import RunStatus
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.flow_admins import open_admins
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.planning.flow_planner import FlowPlanner
from mirror.spark.run_control import RunControlClient, takeover_message
from mirror.spark.status.lag_monitor import LagMonitor
from mirror.spark.supervision.states import Began, Held, JobEnded, Lost, Refused, TakenOver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark import SparkContext

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.datasource.task_spec import CopyTask
    from mirror.spark.driver.flow_job import FlowJob
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.attempts import CopiedTask
    from mirror.spark.ledger.results import FlowReport
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.spark.run_control import RunRecord
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.spark.supervision.states import Event
    from mirror.takeover.watch import MirrorMakerWatch
    from mirror.telemetry.run import RunTelemetry

_POLL_S: Final = 0.2
_CANCELLED_WITHIN_S: Final = 5.0
"""Spark ends a cancelled job within half a second, and its Python workers within 3.3 s."""


class FlowRun:
    """Runs one flow once. :meth:`run` blocks its thread; :meth:`stop` and :meth:`cancel` may be called from any."""

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
        record: RunRecord,
        available_now: bool = False,
    ) -> None:
        """``config`` and ``flow`` do not change: another configuration needs another run.

        ``findings`` are those of the flow's check. ``record`` is that of this run, which may have claimed the flow
        already. With ``available_now`` it ends once what there is now is copied.
        """
        self.report: Final = report
        self._context: Final = context
        self._config: Final = config
        self._flow: Final = flow
        self._options: Final = options
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._available_now: Final = available_now
        self._reports: Final = options.ledger.parents[2]
        self._preparation: Final = FlowPreparation(config, flow, consoles, findings)
        self.ledger: Final = Ledger(options.ledger)
        clusters = {
            name: str(config.clusters[name].client_options()["bootstrap.servers"])
            for name in (flow.source, flow.target)
        }
        self._outages: Final = Outages(clusters, self._warn, self._tell, time.monotonic)
        self._progress: Final = StreamProgress(
            flow.name, consoles, self._outages, commit_interval_ms=flow.commit_interval_ms
        )
        self._rounds: Final = FlowRounds(
            config,
            flow,
            report,
            self.ledger,
            telemetry,
            warn=self._warn,
            outages=self._outages,
        )
        self._results: Final = FlowResults(flow, report, self.ledger, consoles, telemetry, self._rounds.write_sync)
        self._record: Final = record
        self._asked: Final = threading.Event()
        self._cancelled: Final = threading.Event()
        self._monitor: StreamMonitor | None = None
        self._watch: MirrorMakerWatch | None = None
        self._jobs: FollowedJob | BoundedJobs | None = None
        self._status: RunStatus | None = None
        self._targets = TargetTopics()
        self._warned: Final = set[str]()

    # --- for other threads

    def stop(self) -> None:
        """Have the run end in order: what the target has acknowledged is committed."""
        self._asked.set()
        if (monitor := self._monitor) is not None:
            monitor.stop()

    def cancel(self) -> None:
        """Have the run end at once."""
        self._cancelled.set()
        self.stop()

    # --- the run

    def run(self, announce: Callable[[Event], None]) -> Event:
        """Run the flow until its end, and return what has ended it; ``announce`` is called once its job has begun."""
        try:
            with contextlib.ExitStack() as resources:
                return self._run(announce, resources)
        except MirrorMakerResumed as error:
            self.report.failed(error, str(error))
            return Refused(str(error), self._flow.refresh_ms)
        except (FlowError, ConfigError) as error:
            if is_away(error):
                return Lost(str(error), outage=True)
            return Refused(str(error), self._flow.refresh_ms)
        except Exception as error:  # noqa: BLE001 - who runs the flow begins again
            return Lost("; ".join(error_lines(error)), outage=is_away(error))
        finally:
            self._end()

    def _run(self, announce: Callable[[Event], None], resources: contextlib.ExitStack) -> Event:
        self._watch = resources.enter_context(self._preparation.open_watch())
        self._watch.check()
        options = self._config.clusters[self._flow.target].client_options()
        status = self._status = RunStatus(options, self._flow, self._options.run, self._tell)
        resources.callback(status.close)
        targets = self._prepare()
        status.read(self._reports)
        status.prepared(targets)
        source, target = resources.enter_context(open_admins(self._config, self._flow))
        self._learn_addresses(source, target)
        control = RunControlClient(target, self._flow.name, record=self._record)
        if (previous := control.claim()) is not None:
            self._warn(takeover_message(previous))
        self._tell("planning")
        parts = JobParts(
            context=self._context(),
            config=self._config,
            flow=self._flow,
            options=self._options,
            ledger=self.ledger,
            source=source,
            target=target,
            control=control,
            planner=FlowPlanner(
                self._config,
                self._flow,
                targets,
                SystemClock(),
                parallelism=self._options.parallelism,
                drains=self._available_now,
                status=status.table,
            ),
            status=status,
            results=self._results,
            progress=self._progress,
            record=self._record,
            targets=lambda: self._targets,
            warn=self._warn_once,
            warn_again=self._warn,
        )
        self._jobs = jobs = (
            FollowedJob(parts) if parts.planner.follows else BoundedJobs(parts, drains=self._available_now)
        )
        if (event := self._ended()) is not None:
            return event
        jobs.prepare()
        monitor = self._open_monitors(resources, jobs)
        announce(Began())
        is_drained = jobs.run(self._await)
        if not (is_drained or self._ends):
            monitor.follow(control)  # its tasks may have ended by a command that they have read first
        return self._ended() or (JobEnded("drained") if is_drained else Lost(jobs.why))

    def _prepare(self) -> TargetTopics:
        self._targets = targets = self._preparation.prepare()
        self.ledger.write_targets(targets)
        self._preparation.align(self.report)
        self._preparation.align_acls(self.report)
        self._rounds.on_prepared(targets)
        return targets

    def _learn_addresses(self, *admins: Admin) -> None:
        """Have a later outage name its cluster. That is for messages only: an error is no reason not to start."""
        with contextlib.suppress(KafkaError):
            for name, admin in zip((self._flow.source, self._flow.target), admins, strict=True):
                brokers = admin.describe_cluster().brokers
                self._outages.learn(name, [f"{broker.host}:{broker.port}" for broker in brokers])

    def _open_monitors(self, resources: contextlib.ExitStack, jobs: FollowedJob | BoundedJobs) -> StreamMonitor:
        """Begin what is done beside the copies."""
        self._monitor = monitor = StreamMonitor(
            self._config,
            self._flow,
            self._targets,
            self._prepare_again,
            self._preparation.compare,
            self._warn,
            self._progress.on_news,
            record=self._record,
            assign=None if self._available_now else jobs.assign,
            others=jobs.others,
            outages=self._outages,
            watch=self._watch,
        )
        if self._asked.is_set():
            monitor.stop()
        resources.enter_context(monitor)
        listener = _Listener(self._progress, jobs.on_status)
        resources.enter_context(LagMonitor(self._config, self._flow, self._telemetry, listener, self._reports))
        for rounds in self._rounds.opened(self._preparation.created):
            resources.enter_context(rounds)
        return monitor

    def _prepare_again(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """Prepare ``topics``, and drop those that are ``gone``."""
        before = targets = self._targets
        if topics:
            targets = self._preparation.prepare_again(before, topics, self._on_created)
        if (targets := targets.without(gone)) != before:
            self._targets = targets
            if self._status is not None:
                self._status.prepared(targets)
            with contextlib.suppress(OSError):  # a stream goes on without its ledger
                self.ledger.write_targets(targets)
        self._rounds.on_prepared(targets)
        return targets

    def _on_created(self, topics: Collection[str]) -> None:
        """Have copies begin again whose target topics were deleted, and were created again."""
        if isinstance(self._jobs, FollowedJob):
            self._jobs.begin_again(topics)

    def _await(self, job: FlowJob[CopyTask, CopiedTask] | None, update: Callable[[], None]) -> bool:
        """Wait for the end of ``job``, or for a moment if there is none; return whether the run goes on.

        If the run is to end, its tasks are stopped, and cancelled if they take too long. While it waits, ``update`` is
        called often. Raises what the job raises.
        """
        end_s = float("inf")
        while job is not None and not job.done.done():
            update()
            if self._ends:
                self.report.asked = self.report.asked or datetime.now(UTC)
                end_s = min(end_s, time.monotonic() + self._flow.shutdown_timeout_ms / 1000)
                if self._monitor is not None:
                    self._monitor.stop()
            if self._cancelled.is_set() or time.monotonic() >= end_s:
                self.report.cut_short = True
                job.cancel()
                with contextlib.suppress(Exception):
                    job.done.result(_CANCELLED_WITHIN_S)
                return False
            with contextlib.suppress(TimeoutError):
                job.done.exception(_POLL_S)
        if job is None:
            self._asked.wait(_POLL_S)
            update()
        else:
            job.done.result()
        return not self._ends

    @property
    def _ends(self) -> bool:
        monitor = self._monitor
        return self._asked.is_set() or (
            monitor is not None and (monitor.stop_requested or monitor.fenced_by is not None)
        )

    def _ended(self) -> Event | None:
        """Return why the run is to end; None if it is not. Raises MirrorMakerResumed."""
        monitor = self._monitor
        if monitor is not None and (other := monitor.fenced_by) is not None:
            self.report.fenced = f"another run of this flow took over: {other.run} on {other.host}; this run ends"
            self._consoles.error(self._prefixed(self.report.fenced))
            return TakenOver(other.run, other.host)
        if self._watch is not None:
            self._watch.check()
        if self._asked.is_set():
            return JobEnded("cut short" if self.report.cut_short else "in order")
        return Held() if monitor is not None and monitor.stop_requested else None

    def _end(self) -> None:
        """Record that the run has ended."""
        self._progress.end()
        self.report.index_bytes = self._progress.index_bytes
        self._results.update_report()
        if self._ends and not (self.report.cut_short or self.report.fenced or self.report.error):
            self.report.behind = self._progress.why_behind()
            if self.report.behind is not None:
                self._consoles.error(self._prefixed(f"it ends behind: {self.report.behind}"))
        if self._record.claimed:
            options = self._config.clusters[self._flow.target].client_options()
            with contextlib.suppress(MirrorError), Admin(options) as target:
                RunControlClient(target, self._flow.name, record=self._record).end()
        self.report.ended = datetime.now(UTC)

    # --- lines

    def _warn(self, line: str) -> None:
        self._consoles.warning(self._prefixed(line))

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            self._warn(line)

    def _tell(self, line: str) -> None:
        self._consoles.progress(self._prefixed(line))

    def _prefixed(self, line: str) -> str:
        return f"flow {self._flow.name}: {line}"


class _Listener:
    """Gets each status of the flow, for its progress line and for its jobs."""

    def __init__(self, progress: StreamProgress, also: Callable[[FlowStatus], None]) -> None:
        self._progress: Final = progress
        self._also: Final = also

    @property
    def interval_ms(self) -> int:
        return self._progress.interval_ms

    def on_status(self, status: FlowStatus) -> None:
        self._progress.on_status(status)
        self._also(status)

    def on_error(self, error: MirrorError) -> None:
        self._progress.on_error(error)
