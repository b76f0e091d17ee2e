"""What the supervisor of a stream supervises with: Spark, the configuration's clusters, and what people see.

::

    Supervisor ──open──► check ► FlowRun          ──on_change──► a line, the status topic, the metric, summary.json
"""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.errors import FlowError
from mirror.spark.clusters import Clusters
from mirror.spark.driver.report.folder_check import FolderCheck
from mirror.spark.driver.rounds.outages import ClusterOutages
from mirror.spark.driver.session import reserves_slots, slots_of
from mirror.spark.driver.stream_flow import NoFreeSlot, StreamFlow, StreamParts
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.spark.planning.limits import why_not_followed
from mirror.spark.planning.range_planner import left_out_lines
from mirror.spark.preflight.flow_checks import check_flows
from mirror.spark.supervision.flow_states import FlowState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.job_options import JobOptions
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.driver.report.report_file import ReportFile
    from mirror.spark.ledger.results import Summary
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.spark.supervision.config_file import LoadedFlow
    from mirror.spark.supervision.flow_states import Event
    from mirror.telemetry.run_telemetry import RunTelemetry

_SUMMARY_S: Final = 5.0
"""How often the summary is written while nothing changes but counts."""


class Signals:
    """The signals that end the job. The handlers only count them and wake the main thread, which acts on it."""

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first one; None: there was none."""
        self.count = 0
        self.wake: Callable[[], object] = bool

    def listen(self) -> None:
        """Install the handlers. To be repeated after Spark has installed its own."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, _frame: object) -> None:
        self.signum = self.signum or signum
        self.count += 1
        self.wake()


class StreamSite:
    """See :class:`mirror.spark.supervision.supervisor.Site`."""

    def __init__(
        self,
        context: SparkContext,
        options: JobOptions,
        consoles: Consoles,
        telemetry: RunTelemetry,
        summary: Summary,
        report: ReportFile,
        signals: Signals,
        checks: Mapping[str, Future[Findings]],
        give_up_s: float,
    ) -> None:
        """``checks`` are the first ones of the flows, which may not have ended.

        ``give_up_s``: until when a flow that has never run waits for its clusters, in monotonic seconds.
        """
        self._context: Final = context
        self._options: Final = options
        self._consoles: Final = consoles
        self._parts: Final = StreamParts(
            context=context,
            options=options,
            consoles=consoles,
            telemetry=telemetry,
            outages=ClusterOutages(consoles.warning, consoles.progress, time.monotonic),
            give_up_s=give_up_s,
            check=self._check,
            take_slots=self._take_slots,
            has_lost_spark=self._has_lost_spark,
            summarize=self.summarize,
        )
        self._summary: Final = summary
        self._report: Final = report
        self._signals: Final = signals
        self._checks: Final = dict(checks)
        self._flows: Final = dict[str, StreamFlow]()
        self._slots_lock: Final = threading.Lock()
        self._folder: Final = FolderCheck(options.report_dir, consoles.warning, consoles.progress)
        self._summary_s = 0.0
        self._signals_said = 0
        self._spark_lost = self._is_file_wrong = False

    # --- for flows

    def _check(self, settings: LoadedFlow) -> Findings:
        """Return the findings about a flow that may run. Raises MirrorError for another one."""
        first = self._checks.pop(settings.flow.name, None)
        return check_flow(settings.config, settings.flow, self._consoles) if first is None else first.result()

    def _take_slots(self, flow: StreamFlow) -> int:
        """Return how many tasks a flow may have. A local master has slots in reserve for flows that are added."""
        with self._slots_lock:
            slots = slots_of(self._context)
            flows = [one for one in self._flows.values() if one.state not in {FlowState.ENDED, FlowState.HELD}]
            taken = sum(one.slots for one in flows if one is not flow)
            flow.slots = max(1, slots // max(1, len(flows)))
            if not reserves_slots(self._context):
                flow.slots = min(flow.slots, slots - taken)
            if flow.slots < 1:
                flow.slots = 0
                raise NoFreeSlot(
                    f"Spark has {slots} task slots, and other flows use them: add executors, or stop the stream and"
                    " start it again, which divides the slots among all flows"
                )
            return flow.slots

    # --- for the supervisor

    def add(self, flow: str, post: Callable[[Event], None]) -> StreamFlow:
        """Return what a flow that is added is supervised with."""
        self._flows[flow] = added = StreamFlow(self._parts, flow, post)
        return added

    def on_file(self, error: str) -> None:
        """Say why the file is not used, and when it is used again."""
        if not error and self._is_file_wrong:
            self._consoles.progress(f"{self._options.config}: can be read again")
        self._is_file_wrong = bool(error)
        for line in error.splitlines():
            self._consoles.warning(f"{line}; until this is corrected, the flows keep their previous configuration")

    def tick(self) -> int:
        """Write what is due; return how many signals have asked the stream to end."""
        self._parts.telemetry.begin_round()
        now_s = time.monotonic()
        if (count := min(2, self._signals.count)) > self._signals_said and self._signals.signum is not None:
            self._signals_said = count
            follows = "committing what the target has acknowledged" if count == 1 else "at once, as it was asked again"
            self._consoles.progress(f"ending after {signal.Signals(self._signals.signum).name}: {follows}")
        self._folder.check([flow.ledger for flow in self._flows.values() if flow.ledger is not None], now_s)
        if now_s >= self._summary_s:
            self.summarize()
            self._report.write_if_due()
            self._has_lost_spark()
        return 2 if self._spark_lost else self._signals.count

    def _has_lost_spark(self) -> bool:
        """Return whether Spark has ended, and say so once."""
        if self._spark_lost:
            return True
        try:
            self._spark_lost = bool(self._context._jsc.sc().isStopped())  # noqa: SLF001
        except (Py4JError, OSError):
            self._spark_lost = True
        if self._spark_lost and self._signals.signum is None:
            line = (
                "Spark ended before its stream: Spark's log has the reason; without one there it was killed, usually"
                " because memory has run out"
            )
            for flow in self._flows.values():
                if flow.state is not FlowState.ENDED:
                    flow.report.error = line
                    self._consoles.error(f"flow {flow.name}: {line}")
        return self._spark_lost

    def summarize(self) -> None:
        """Write the summary."""
        self._summary_s = time.monotonic() + _SUMMARY_S
        self._summary.write(self.reports)

    @property
    def reports(self) -> list[FlowReport]:
        """The report of the last run of each flow."""
        return [flow.report for flow in self._flows.values() if flow.is_reported]

    def status(self) -> int:
        """Return the exit status of the job."""
        for report in self.reports:
            report.ended = report.ended or datetime.now(UTC)
        return exit_status(
            self.reports, {one.flow for one in self.reports if not (one.cut_short or one.fenced or one.error)}
        )


def check_flow(config: MirrorConfig, flow: FlowConfig, consoles: Consoles) -> Findings:
    """Check a flow that a stream is to copy, and say what it leaves out. Raises MirrorError if it cannot run."""
    if (reason := why_not_followed(flow)) is not None:
        raise FlowError(reason)
    with Clusters(config) as clusters:
        findings = check_flows(config, [flow], clusters, consoles.progress)
    if (error := findings.errors.get(flow.name)) is not None:
        raise error
    for line in left_out_lines(findings.left_out.get(flow.name, {})):
        consoles.progress(f"flow {flow.name}: {line}")
    return findings
