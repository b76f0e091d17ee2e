"""One flow of a stream: its streaming query, the results of its epochs, and its orderly end."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.client import Admin
from mirror.errors import FlowError, KafkaError, KafkaTimeout, MirrorError, MirrorMakerResumed
from mirror.relay.task.neighbours import remove_folder
from mirror.spark.datasource.options import SINK_FORMAT, SOURCE_FORMAT, FlowOptions
from mirror.spark.discovery.topic_watch import EpochAdditions
from mirror.spark.driver.checkpoint import checkpoint_folder
from mirror.spark.driver.flow_results import FlowResults
from mirror.spark.driver.flow_rounds import FlowRounds
from mirror.spark.driver.output.stream_progress import StreamProgress
from mirror.spark.driver.rounds.outages import Outages
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.flow_admins import open_admins
from mirror.spark.ledger.ledger import AWAITS_CLUSTER, PLANNED_AGAIN, REREAD, Ledger
from mirror.spark.ledger.live_config_store import remove_socket
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.run_control import RunControlClient, RunRecord
from mirror.spark.status.lag_monitor import LagMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.discovery.topic_watch import NewPartitions
    from mirror.spark.driver.batch_flow import FlowRunner
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.results import FlowReport
    from mirror.takeover.watch import MirrorMakerWatch
    from mirror.telemetry.run import RunTelemetry

_TRIGGER: Final = "1 second"
"""The interval at which Spark requests a plan while there is nothing to copy."""
_STOP_RECEIVED_S: Final = 2.5
"""The time after which every task has received the stop command and committed its progress."""
_MAX_STARTS: Final = 12
"""Two minutes, since each start takes at least the time that Spark waits."""
_PLANNING: Final = "the plan of the next epoch"
_WORKER_TIMEOUT: Final = "Python worker failed to connect back"
"""Spark waits 10 s for the process that plans (PythonWorkerFactory; not configurable), which a busy machine exceeds."""


class StreamFlow:
    """One flow's query from its start to its end. For the driver's main thread; :meth:`poll` does not block."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        options: FlowOptions,
        report: FlowReport,
        *,
        consoles: Consoles,
        telemetry: RunTelemetry,
    ) -> None:
        self.report: Final = report
        self._flow: Final = flow
        self._config: Final = config
        self._options: Final = options
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self.ledger: Final = Ledger(options.ledger)
        self._collected = self._messages = self._planned = 0
        clusters = {
            name: str(config.clusters[name].client_options()["bootstrap.servers"])
            for name in (flow.source, flow.target)
        }
        self._outages: Final = Outages(clusters, self._warn, self._tell, time.monotonic)
        self._progress: Final = StreamProgress(
            flow.name, consoles, self._outages, commit_interval_ms=flow.commit_interval_ms
        )
        self._idle_ns: int | None = None
        self._deadline_s = self._stop_received_s = float("inf")
        self._query: StreamingQuery | None = None
        self._start: Callable[[], StreamingQuery] | None = None
        self._starts = 0
        self._unrecorded = False
        self._monitor: StreamMonitor | None = None
        self._watch: MirrorMakerWatch | None = None
        self._record: Final = RunRecord(self._options.run)
        self._rounds: Final = FlowRounds(
            config,
            flow,
            report,
            self.ledger,
            telemetry,
            load_live=options.load_live,
            warn=self._warn,
            outages=self._outages,
        )
        self._results: Final = FlowResults(flow, report, self.ledger, consoles, telemetry, self._rounds.write_sync)
        self._resources: Final = contextlib.ExitStack()

    def start(self, spark: SparkSession, runner: FlowRunner, *, available_now: bool) -> None:
        """Prepare the target, claim the flow, and start the query. Raises MirrorError."""
        self._watch = self._resources.enter_context(runner.open_watch(self._flow))
        self._watch.check()
        targets = runner.prepare(self._flow)
        self.ledger.write_targets(targets)
        runner.align(self._flow, self.report)
        runner.align_acls(self._flow, self.report)
        self._rounds.on_prepared(targets)
        self._learn_addresses()
        self._claim()
        self._consoles.progress(self._prefixed("planning"))
        options = self._options.to_spark()
        ranges = spark.readStream.format(SOURCE_FORMAT).options(**options).load()
        # The checkpoint is of this run only: the progress is on the target.
        checkpoint = self._resources.enter_context(checkpoint_folder())
        sink = ranges.writeStream.format(SINK_FORMAT).options(**options, checkpointLocation=checkpoint.as_uri())
        sink = sink.queryName(f"mirror {self._flow.name}: {self._flow.source} to {self._flow.target}")
        sink = sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime=_TRIGGER)
        self._start = sink.start
        self._start_query()

        def prepare(
            config: MirrorConfig, flow: FlowConfig, topics: Mapping[str, TopicDescription], gone: Collection[str]
        ) -> TargetTopics:
            before = targets = self.ledger.targets() or TargetTopics()
            if topics:
                targets = runner.prepare_again(config, flow, before, topics)
            if (targets := targets.without(gone)) != before:
                self.ledger.write_targets(targets)
            self._rounds.on_prepared(targets)
            return targets

        def assigns(
            flow: FlowConfig, source: Admin, target: Admin, control: RunControlClient, new: NewPartitions
        ) -> Callable[[], None]:
            return EpochAdditions(flow, source, target, self.ledger, control, new, self._progress.on_news).update_epoch

        monitor = StreamMonitor(
            self._flow.name,
            self._options.load_live,
            targets,
            prepare,
            runner.compare,
            self._warn,
            self._progress.on_news,
            record=self._record,
            assigns=None if available_now else assigns,
            outages=self._outages,
            watch=self._watch,
        )
        self._monitor = self._resources.enter_context(monitor)
        reports = self._options.ledger.parents[2]
        self._resources.enter_context(LagMonitor(self._config, self._flow, self._telemetry, self._progress, reports))
        for rounds in self._rounds.opened(runner.created):
            self._resources.enter_context(rounds)

    def _start_query(self) -> None:
        assert self._start is not None  # noqa: S101 - of start()
        self._starts += 1
        self._query = self._start()

    def _learn_addresses(self) -> None:
        """Have a later outage name its cluster. That is for messages only: an error is no reason not to start."""
        with contextlib.suppress(KafkaError), open_admins(self._config, self._flow) as admins:
            for name, admin in zip((self._flow.source, self._flow.target), admins, strict=True):
                brokers = admin.describe_cluster().brokers
                self._outages.learn(name, [f"{broker.host}:{broker.port}" for broker in brokers])

    def _claim(self) -> None:
        """Claim the flow before the query starts, because its planner would do so only seconds later."""
        with Admin(self._config.clusters[self._flow.target].client_options()) as target:
            RunControlClient(target, self._flow.name, record=self._record).claim_or_warn(self._warn)

    def _warn(self, line: str) -> None:
        self._consoles.warning(self._prefixed(line))

    def _tell(self, line: str) -> None:
        self._consoles.progress(self._prefixed(line))

    def _prefixed(self, line: str) -> str:
        return f"flow {self._flow.name}: {line}"

    @property
    def running(self) -> bool:
        """Whether the query is running."""
        try:
            return self._query is not None and bool(self._query.isActive)
        except (Py4JError, OSError):
            return False

    def ended(self) -> bool:
        """Return whether the query has ended for good. A query whose planning process timed out is restarted first."""
        if self.running:
            return False
        if self._stop_requested or self.report.fenced or self._starts >= _MAX_STARTS or not self._worker_timed_out():
            return True
        self._warn(f"Spark did not wait for its Python process, because the machine is busy: start {self._starts + 1}")
        with contextlib.suppress(Exception):  # the failed query's name may still be in use: the next poll retries
            self._start_query()
        return False

    def _worker_timed_out(self) -> bool:
        """Return whether the planning process timed out before the first plan; only then can the query be restarted."""
        try:
            error = None if self._query is None else self._query.exception()
        except (Py4JError, OSError):
            return False
        return _WORKER_TIMEOUT in str(error) and self.ledger.last_planned_epoch() is None

    def poll(self) -> bool:
        """Collect the results of completed epochs, and return whether there were any."""
        for line in self.ledger.messages(self._messages):
            self._messages += 1
            self._on_message(line)
        self._show_plan()
        last, before = self.ledger.last_completed_epoch() or 0, self._collected
        while self._collected < last:
            self._collected += 1
            self._collect(self._collected)
        idle_ns = self.ledger.idle_plan_ns()
        is_new = self._collected != before or idle_ns != self._idle_ns
        if idle_ns != self._idle_ns and (idle := self.ledger.idle_plan()) is not None:
            # A plan without tasks has no epoch that would report its results.
            self._results.add_idle(idle)
        self._idle_ns = idle_ns
        if self._monitor is not None and (other := self._monitor.fenced_by) is not None and self.running:
            self._fence(f"another run of this flow took over: {other.run} on {other.host}; this run ends")
        return is_new

    def _on_message(self, line: str) -> None:
        """Show a line of the process that plans: that a cluster is away with what else waits for that."""
        _, waits, error = line.partition(AWAITS_CLUSTER)
        if line.startswith(REREAD):
            self._tell(line)
        elif waits:
            self._outages.failed(_PLANNING, KafkaTimeout(error))
        elif not (line.endswith(PLANNED_AGAIN) and self._outages.recovered(_PLANNING)):
            self._warn(line)

    def _show_plan(self) -> None:
        epoch = self.ledger.last_planned_epoch() or 0
        if epoch > self._planned and (plan := self.ledger.plan(epoch)) is not None:
            self._planned = epoch
            self._progress.on_plan(plan, follows=any(range_.open_ended for range_ in plan.ranges))

    def _collect(self, epoch: int) -> None:
        plan = self.ledger.plan(epoch)
        attempts = self.ledger.attempts(epoch)
        if plan is None or not self.ledger.has_results(epoch):
            return  # there was no room for it
        self._results.add(plan, attempts)

    def _fence(self, line: str) -> None:
        self._consoles.error(self._prefixed(line))
        self.report.fenced = line
        self.kill()

    def stop(self) -> None:
        """Request that the epoch ends in order."""
        if self._monitor is not None:
            self._monitor.stop()

    @property
    def _stop_requested(self) -> bool:
        return self._monitor is not None and self._monitor.stop_requested

    @property
    def ended_in_order(self) -> bool:
        """Whether it was stopped, and ended in time."""
        failed = self.report.cut_short or self.report.fenced or self.report.error or self._resumed
        return self._stop_requested and not failed

    @property
    def _resumed(self) -> str | None:
        """The line about a MirrorMaker 2 that copies again, once it does."""
        return None if self._watch is None else self._watch.resumed

    def wind_up(self, now_s: float, *, recorded: bool = True) -> None:
        """After a stop, end the query once its epoch has ended in order, or when the time for that is over.

        Spark says whether it has, or the ledger: but the plan of a running epoch may be missing there once it could not
        be written (not ``recorded``), and the results of one that has ended.
        """
        self._unrecorded = self._unrecorded or not recorded
        if not (self.running and self._stop_requested):
            return
        self.report.asked = self.report.asked or datetime.now(UTC)
        self._deadline_s = min(self._deadline_s, now_s + self._flow.shutdown_timeout_ms / 1000)
        self._stop_received_s = min(self._stop_received_s, now_s + _STOP_RECEIVED_S)
        # If all planned epochs have results, nothing is lost; but tasks that still run first receive the stop command.
        has_ended = self._is_idle() or (not self._unrecorded and self._has_results())
        if now_s >= self._stop_received_s and has_ended:
            self.kill()
        elif now_s >= self._deadline_s:
            self.report.cut_short = True
            self.kill()

    def _has_results(self) -> bool:
        return (self.ledger.last_completed_epoch() or 0) >= (self.ledger.last_planned_epoch() or 0)

    def _is_idle(self) -> bool:
        """Return whether Spark runs no epoch of the query."""
        try:
            return self._query is None or not self._query.status["isDataAvailable"]
        except (Py4JError, OSError):
            return False

    def kill(self) -> None:
        """End the query now, whatever it does. If the JVM has died, the query has ended already."""
        with contextlib.suppress(Py4JError, OSError):
            if self.running and self._query is not None:
                self._query.stop()

    def end(self) -> Exception | None:
        """End the query, release everything and mark the run as ended; return the error if the query failed."""
        if self.report.ended is not None:
            return None
        self._progress.end()
        self.report.index_bytes = self._progress.index_bytes
        self.kill()
        self._resources.close()
        with contextlib.suppress(OSError, ValueError):
            self.poll()
        failure = self._failure()
        if self.ended_in_order and (why := self._progress.why_behind()) is not None:
            self.report.behind = why
            self._consoles.error(self._prefixed(f"it ends behind: {why}"))
        if self._start is not None:  # otherwise it has claimed nothing, and the target may be away
            target_options = self._config.clusters[self._flow.target].client_options()
            with contextlib.suppress(MirrorError), Admin(target_options) as target:
                RunControlClient(target, self._flow.name, record=self._record).end()
        remove_socket(self.ledger.path)  # Spark may have killed the planner
        remove_folder(self._options.run)  # and the tasks' processes
        self.report.ended = datetime.now(UTC)
        return failure

    def _failure(self) -> Exception | None:
        if self._resumed is not None and self.report.error is None:
            return MirrorMakerResumed(self._resumed)
        try:
            error = None if self._query is None else self._query.exception()
        except (Py4JError, OSError):
            return FlowError(
                "Spark ended before its stream: Spark's log has the reason; without one there it was killed, usually"
                " because memory has run out"
            )
        if error is not None and (planning := self.ledger.error()) is not None:
            return FlowError(planning.line)
        if self._worker_timed_out():
            return FlowError(
                f"Spark waits 10 s for a Python process to start, which was too short {self._starts} times: this"
                " machine is too busy; give the driver more cores, or start fewer programs at a time"
            )
        return error
