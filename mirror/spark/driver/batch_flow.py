"""One flow, once: make its target topics ready, let Spark plan and copy, and gather what came of it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import FlowError, KafkaError, MirrorError
from mirror.relay.progress.open_transactions import lines
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.options import SINK_FORMAT, SOURCE_FORMAT, FlowOptions
from mirror.spark.driver.progress_bar import ProgressBar
from mirror.spark.driver.telemetry_bridge import show_epoch
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.ledger import Ledger, PlanningError
from mirror.spark.ledger.results import FlowReport, join_results
from mirror.spark.planning.open_transactions import still_open
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.spark.run_control import RunControlClient, new_run_id
from mirror.spark.status.lag_monitor import record_lags
from mirror.spark.status.status import WATCH_CALL_TIMEOUT_MS, StatusReader
from mirror.spark.status.target_progress import read_target_progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions
    from mirror.spark.driver.console import Consoles
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.telemetry.run import RunTelemetry


_NAMED: Final = 20
"""Topics that cannot be copied, each with a line of its own; of the others their number."""


class PlanningFailed(FlowError):
    """Planning failed in Spark's planning process; ``remote`` is the traceback there."""

    def __init__(self, error: PlanningError) -> None:
        super().__init__(error.line)
        self.remote: Final = error.traceback


class FlowRun:
    """Runs the flows of one configuration, one after the other, in one Spark session; ``findings`` are theirs."""

    def __init__(
        self,
        spark: SparkSession,
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
        """``began_ms``: when a scheduled run began (ms since 1970); its first flow records what starting took."""
        self._spark: Final = spark
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

    def run(self, flow: FlowConfig, report: FlowReport) -> None:
        """Copy ``flow`` to the end offsets of now and fill ``report``, also with what is known when it raises.

        Raises MirrorError where the flow could not run; what single partitions met is in their results.
        """
        targets = self.prepare(flow)
        report.run = run = report.run or new_run_id()
        ledger = Ledger.open(self._report_dir, flow.name, run)
        self._withheld = None
        ledger.write_targets(targets)
        try:
            with (
                self._claimed(flow, run) as claimed,
                ProgressBar(flow.name, ledger, self._options_of(flow.target), self._consoles),
            ):
                self._consoles.doing(f"flow {flow.name}: planning")
                self._replicate(flow, ledger, run if claimed else "")
            self._look_at_open_transactions(flow, ledger)
            self._show_lag(flow)
        except MirrorError:
            raise
        except Exception as error:
            if planning := ledger.error():
                raise PlanningFailed(planning) from error
            if not ledger.attempts():
                ledger.check_writable()  # what the tasks answered may have found no room
            if ledger.plan() is None:
                raise
            # The plan stands and tasks ran: what Spark lost is `unfinished` below, range by range.
            if self._debug:
                self._consoles.trace(str(error))
        except BaseException:
            report.cut_short = True  # by a signal: what its tasks would have answered is asked of the target
            raise
        finally:
            self._gather(flow, ledger, report)

    @contextlib.contextmanager
    def _claimed(self, flow: FlowConfig, run: str) -> Iterator[bool]:
        """Tell a run of this flow that goes on elsewhere that it is over; whether that could be told."""
        with Admin(self._options_of(flow.target)) as target:
            orders = RunControlClient(target, flow.name, run)
            claimed = orders.claim_or_warn(partial(self._warn, flow))
            try:
                with Heartbeat(orders) if claimed else contextlib.nullcontext():
                    yield claimed
            finally:
                if claimed:
                    with contextlib.suppress(KafkaError):
                        orders.end()

    def prepare(self, flow: FlowConfig) -> TargetTopics:
        """Make the target's topics ready, and say what should be known. Raises MirrorError where it cannot be run."""
        if error := self._findings.unreachable.get(flow.name):
            raise error
        self._consoles.doing(f"flow {flow.name}: making the topics of {flow.target} ready")
        for line in self._findings.warnings.get(flow.name, []):
            self._warn(flow, line)
        return self.prepare_again(self._config, flow)

    def prepare_again(self, config: MirrorConfig, flow: FlowConfig, before: TargetTopics | None = None) -> TargetTopics:
        """For a stream: ``config`` is that in force, ``before`` what the last preparation came to.

        Says what it has not said before. Raises MirrorError.
        """
        source_options, target_options = (config.clusters[name].client_options() for name in (flow.source, flow.target))
        with Admin(source_options) as source, Admin(target_options) as target:
            prepared = prepare_topics(flow, source, target, before)
        for line in prepared.warnings:
            self._warn(flow, line)
        known = {} if before is None else before.obstacles
        new = [each.describe(topic) for topic, each in prepared.targets.obstacles.items() if topic not in known]
        for line in new[:_NAMED]:
            self._consoles.warning(f"flow {flow.name}: {line}")
        if len(new) > _NAMED:
            more = f"{len(new) - _NAMED} more topics cannot be copied: mirror status and summary.json name them"
            self._consoles.warning(f"flow {flow.name}: {more}")
        return prepared.targets

    def _warn(self, flow: FlowConfig, line: str) -> None:
        if (flow.name, line) not in self._warned:
            self._consoles.warning(f"flow {flow.name}: {line}")
        self._warned.add((flow.name, line))

    def _options_of(self, cluster: str) -> dict[str, object]:
        return dict(self._config.clusters[cluster].client_options())

    def _replicate(self, flow: FlowConfig, ledger: Ledger, run: str) -> None:
        context = self._spark.sparkContext
        slots = context.defaultParallelism
        options = FlowOptions(self._config_path, flow.name, ledger.path, self._secrets_dir, slots, run).to_spark()
        context.setJobDescription(f"mirror {flow.name}: {flow.source} to {flow.target}")
        ranges = self._spark.read.format(SOURCE_FORMAT).options(**options).load()
        ranges.write.format(SINK_FORMAT).options(**options).mode("append").save()

    def _show_lag(self, flow: FlowConfig) -> None:
        """What is left; whoever does not answer now has been heard of already."""
        if not self._telemetry.enabled:
            return
        with (
            contextlib.suppress(MirrorError),
            StatusReader(self._config, flow, call_timeout_ms=WATCH_CALL_TIMEOUT_MS) as watch,
        ):
            record_lags(self._telemetry, watch.read())

    def _look_at_open_transactions(self, flow: FlowConfig, ledger: Ledger) -> None:
        """Those that the plan saw, again: what still stands where it stood is named; it is not in any lag."""
        plan = ledger.plan()
        if plan is None or not plan.withheld:
            return
        found: OpenTransactions = plan.withheld
        with contextlib.suppress(MirrorError), Admin(self._options_of(flow.source)) as source:
            found = still_open(source, plan.withheld, SystemClock().unix_ms())
        self._withheld = {tp: one for tp, one in found.items() if one.noted}
        for line in lines(self._withheld):
            self._warn(flow, line)

    def _gather(self, flow: FlowConfig, ledger: Ledger, report: FlowReport) -> None:
        plan = ledger.plan()
        if plan is None:
            return
        attempts = ledger.attempts()
        if self._withheld is not None:
            plan = replace(plan, withheld=self._withheld)
        if self._began_ms is not None and attempts:
            copying_s = max(each.result.seconds for each in attempts)
            ledger.write_overhead(max(0.0, (SystemClock().unix_ms() - self._began_ms) / 1000 - copying_s))
        self._began_ms = None  # Spark is there for the flows that follow
        answered = {(each.result.topic, each.result.partition) for each in attempts}
        silent = [each for each in plan.ranges if (each.topic, each.partition) not in answered]
        reached = read_target_progress(self._options_of(flow.target), flow.name, silent)
        report.partitions = join_results(plan, attempts, reached, cut_short=report.cut_short)
        show_epoch(self._telemetry, flow, ledger, plan, attempts, report.partitions)
        if self._debug:
            for trace in dict.fromkeys(each.traceback for each in attempts if each.traceback):
                self._consoles.trace(trace)
