"""One flow, followed: a streaming query, what its epochs report, and its end in order."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from rich.filesize import decimal

from mirror.client import Admin
from mirror.errors import FlowError, MirrorError
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.spark.datasource.options import SINK_FORMAT, SOURCE_FORMAT, FlowOptions
from mirror.spark.driver.stream_monitor import StreamMonitor
from mirror.spark.driver.stream_progress import StreamProgress
from mirror.spark.driver.telemetry_bridge import show_epoch
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.live_config_store import remove_socket
from mirror.spark.ledger.results import StreamTotals, epoch_json, join_results
from mirror.spark.run_control import RunControlClient
from mirror.spark.status.lag_monitor import LagMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.batch_flow import FlowRun
    from mirror.spark.driver.console import Consoles
    from mirror.spark.ledger.results import FlowReport
    from mirror.telemetry.run import RunTelemetry

_TRIGGER: Final = "1 second"
"""Between two looks while there is nothing to follow; an epoch that was longer is followed by the next at once."""
_NAMED: Final = 3
_HEARD_S: Final = 2.5
"""After so long every task has asked for orders, and committed what it had."""
_STARTS: Final = 3
_CAME_TOO_LATE: Final = "Python worker failed to connect back"
"""Spark waits 10 s for the process that plans (PythonWorkerFactory), whatever is set: too short on a busy machine."""


class StreamRun:
    """One flow's query from its start to its end. For the driver's main thread; :meth:`poll` never waits."""

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
        self._ledger: Final = Ledger(options.ledger)
        self._totals: Final = StreamTotals()
        self._told = self._said = self._planned = 0
        self._progress: Final = StreamProgress(flow.name, consoles)
        self._idle_ns: int | None = None
        self._deadline_s = self._heard_s = float("inf")
        self._query: StreamingQuery | None = None
        self._begin: Callable[[], StreamingQuery] | None = None
        self._starts = 0
        self._watch: StreamMonitor | None = None
        self._open: Final = contextlib.ExitStack()

    def start(self, spark: SparkSession, runner: FlowRun, *, available_now: bool) -> None:
        """Make the target ready, claim the flow, and begin the query. Raises MirrorError."""
        self._ledger.write_targets(runner.prepare(self._flow))
        claimed = self._claim()
        self._consoles.doing(self._named("planning"))
        options = self._options.to_spark()
        ranges = spark.readStream.format(SOURCE_FORMAT).options(**options).load()
        # A checkpoint is of no use after the run: what counts is on the target.
        sink = ranges.writeStream.format(SINK_FORMAT).options(
            **options, checkpointLocation=(self._ledger.path / "checkpoint").as_uri()
        )
        sink = sink.queryName(f"mirror {self._flow.name}: {self._flow.source} to {self._flow.target}")
        sink = sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime=_TRIGGER)
        self._begin = sink.start
        self._start_query()

        def prepare(config: MirrorConfig, flow: FlowConfig) -> None:
            before = self._ledger.targets()
            if (targets := runner.prepare_again(config, flow, before)) != before:
                self._ledger.write_targets(targets)

        watch = StreamMonitor(self._options, self._ledger, prepare, self._warn, claimed=claimed)
        self._watch = self._open.enter_context(watch)
        self._open.enter_context(LagMonitor(self._config, self._flow, self._telemetry, self._progress))

    def _start_query(self) -> None:
        assert self._begin is not None  # noqa: S101 - of start()
        self._starts += 1
        self._query = self._begin()

    def _claim(self) -> bool:
        """Before the query: its planner claims the flow only seconds later, and until then others' orders stand."""
        with Admin(self._config.clusters[self._flow.target].client_options()) as target:
            return RunControlClient(target, self._flow.name, self._options.run).claim_or_warn(self._warn)

    def _warn(self, line: str) -> None:
        self._consoles.warning(self._named(line))

    def _named(self, line: str) -> str:
        return f"flow {self._flow.name}: {line}"

    @property
    def running(self) -> bool:
        """Whether the query goes on."""
        try:
            return self._query is not None and bool(self._query.isActive)
        except (Py4JError, OSError):
            return False

    def over(self) -> bool:
        """Whether it has ended for good. A query whose planning process came too late is begun anew, some times."""
        if self.running:
            return False
        if self._told_to_stop or self.report.fenced or self._starts >= _STARTS or not self._came_too_late():
            return True
        self._warn(f"Spark did not wait for its Python process, the machine is busy: start {self._starts + 1}")
        with contextlib.suppress(Exception):  # Spark may still know the one that failed by its name: the next look
            self._start_query()
        return False

    def _came_too_late(self) -> bool:
        """Nothing was planned: only then is a new query just like the first."""
        try:
            error = None if self._query is None else self._query.exception()
        except (Py4JError, OSError):
            return False
        return _CAME_TOO_LATE in str(error) and self._ledger.last_planned_epoch() is None

    def poll(self) -> bool:
        """Take in what epochs have reported; whether there was anything new."""
        for line in self._ledger.messages(self._said):
            self._said += 1
            self._warn(line)
        self._say_what_is_planned()
        last, before = self._ledger.last_completed_epoch() or 0, self._told
        while self._told < last:
            self._told += 1
            self._take_in(self._told)
        idle_ns = self._ledger.idle_plan_ns()
        news = self._told != before or idle_ns != self._idle_ns
        if idle_ns != self._idle_ns and (idle := self._ledger.idle_plan()) is not None:
            # No epoch runs that could report it.
            self._totals.add(idle.results_without_task)
            self.report.partitions = self._totals.results()
        self._idle_ns = idle_ns
        if self._watch is not None and (other := self._watch.fenced_by) is not None and self.running:
            self._fence(f"another run of this flow took over: {other.run}, on {other.host}; this one ends")
        return news

    def _say_what_is_planned(self) -> None:
        epoch = self._ledger.last_planned_epoch() or 0
        if epoch > self._planned and (plan := self._ledger.plan(epoch)) is not None:
            self._planned = epoch
            self._progress.follows(plan, follows=any(one.follows for one in plan.ranges))

    def _take_in(self, epoch: int) -> None:
        plan = self._ledger.plan(epoch)
        attempts = self._ledger.attempts(epoch)
        if plan is None:
            return
        results = join_results(plan, attempts)
        self._totals.add(results)
        self.report.partitions = self._totals.results()
        at = f"{datetime.now().astimezone():%H:%M:%S}"
        self._consoles.show(f"{at} {self._named(f'epoch {epoch}: {_said(results)}')}")
        self._consoles.tell(epoch_json(self._flow.name, epoch, results))
        show_epoch(self._telemetry, self._flow, self._ledger, plan, attempts, results)
        for trace in dict.fromkeys(each.traceback for each in attempts if each.traceback):
            self._consoles.trace(trace)

    def _fence(self, line: str) -> None:
        self._consoles.error(self._named(line))
        self.report.fenced = line
        self.kill()

    def stop(self) -> None:
        """Have the epoch end in order."""
        if self._watch is not None:
            self._watch.stop()

    @property
    def _told_to_stop(self) -> bool:
        return self._watch is not None and self._watch.told_to_stop

    @property
    def ended_in_order(self) -> bool:
        """Whether it was told to end, and did so in its time."""
        return self._told_to_stop and not (self.report.cut_short or self.report.fenced or self.report.error)

    def wind_up(self, now_s: float) -> None:
        """End the query once its epoch has ended in order, or the time for that is up; nothing while it is to go on."""
        if not (self.running and self._told_to_stop):
            return
        self._deadline_s = min(self._deadline_s, now_s + self._flow.shutdown_timeout_ms / 1000)
        self._heard_s = min(self._heard_s, now_s + _HEARD_S)
        # Where all that was planned has reported, nothing is lost; but who goes on between two epochs is to hear of it.
        if (self._ledger.last_completed_epoch() or 0) >= (
            self._ledger.last_planned_epoch() or 0
        ) and now_s >= self._heard_s:
            self.kill()
        elif now_s >= self._deadline_s:
            self.report.cut_short = True
            self.kill()

    def kill(self) -> None:
        """End the query now, whatever it does; with a JVM that has died, it has ended."""
        with contextlib.suppress(Py4JError, OSError):
            if self.running and self._query is not None:
                self._query.stop()

    def end(self) -> Exception | None:
        """Let go of everything, and say so to others, once; why the query ended by itself, where it failed."""
        if self.report.ended is not None:
            return None
        self._progress.end()
        self.kill()
        self._open.close()
        with contextlib.suppress(OSError, ValueError):
            self.poll()
        failure = self._failure()
        target_options = self._config.clusters[self._flow.target].client_options()
        with contextlib.suppress(MirrorError), Admin(target_options) as target:
            RunControlClient(target, self._flow.name, self._options.run).end()
        remove_socket(self._ledger.path)  # Spark may have killed the planner
        self.report.ended = datetime.now(UTC)
        return failure

    def _failure(self) -> Exception | None:
        try:
            error = None if self._query is None else self._query.exception()
        except (Py4JError, OSError):
            return FlowError("Spark has ended before its stream: its log says why")
        if error is not None and (planning := self._ledger.error()) is not None:
            return FlowError(planning.line)
        return error


def _said(results: Sequence[RangeResult]) -> str:
    """One line about an epoch."""
    records, size = sum(one.records for one in results), sum(one.bytes for one in results)
    seconds = max((one.seconds for one in results), default=0.0)
    said = f"{records:,} records, {decimal(size)} in {seconds:.1f} s"
    wrong = [one for one in results if one.outcome is not Outcome.COMPLETE]
    if not wrong:
        return f"{said}; {len(results)} partitions"
    named = [f"{one.topic}-{one.partition} {one.outcome.value}: {one.error}" for one in wrong[:_NAMED]]
    more = [f"and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
    return f"{said}; {len(wrong)} of {len(results)} partitions not complete: {'; '.join([*named, *more])}"
