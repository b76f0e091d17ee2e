"""What the supervisor of a stream supervises with: Spark, the configuration's clusters, and what people see.

::

    Supervisor ──open──► check ► FlowRun          ──on_change──► a line, the status topic, the metric, summary.json
"""

from __future__ import annotations

import re
import signal
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.errors import ConfigError, FlowError, MirrorError, NotRetriable
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusWriter
from mirror.relay.progress.status_values import RunState
from mirror.spark.contact import is_away
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.report.folder_check import FolderCheck
from mirror.spark.driver.session import reserves_slots, slots_of
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.spark.preflight.flow_checks import check_flows
from mirror.spark.run_control import RunRecord, new_run_id
from mirror.spark.supervision.states import FlowState, Lost, Refused
from mirror.spark.supervision.waiting_control import WaitingControl
from mirror.telemetry.metrics.record_results import record_state

if TYPE_CHECKING:
    from pyspark import SparkContext

    from mirror.spark.driver.job_options import JobOptions
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.driver.report.report_file import ReportFile
    from mirror.spark.ledger.results import Summary
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.spark.supervision.config_file import FlowSettings
    from mirror.spark.supervision.states import Event, Supervised
    from mirror.telemetry.run import RunTelemetry

_SUMMARY_S: Final = 5.0
"""How often the summary is written while nothing changes but counts."""
_CLOSE_MS: Final = 1_000
_ACTIVE: Final = frozenset({FlowState.PREPARING, FlowState.RUNNING})
_AFTER_EDIT: Final = {
    **dict.fromkeys(_ACTIVE, "it ends in order and restarts"),
    FlowState.HELD: "that takes effect once it is resumed",
}
"""What becomes of an edited flow, by its state; one in another state is started."""


class NoFreeSlot(FlowError):
    """Spark has no task slot for a flow."""


class Signals:
    """The signals that end the job. The handlers only count them, and the main thread acts on it."""

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first one; None: there was none."""
        self.count = 0

    def listen(self) -> None:
        """Install the handlers. To be repeated after Spark has installed its own."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, _frame: object) -> None:
        self.signum = self.signum or signum
        self.count += 1


class _Flow:
    """What is known of one flow. Its thread and the main thread use it, one after the other."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.report = FlowReport(name, datetime.now(UTC))
        self.record = RunRecord(new_run_id())
        """Of the run that runs, or of the next one."""
        self.stream: FlowRun | None = None
        self.slots = 0
        """How many task slots it has."""
        self.refresh_ms = 0
        """How often it is checked again while it is refused."""
        self.has_begun = False
        self.control: WaitingControl | None = None
        self.writer: StatusWriter | None = None
        self.written_to: object = None
        """The options of the target that it writes to."""
        self.state = FlowState.WANTED
        self.said: object = None
        """What was last printed about its state."""


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
        findings: Findings,
        give_up_s: float,
    ) -> None:
        """``findings`` are those of the first check, of all flows.

        ``give_up_s``: until when a flow that has never run waits for its clusters, in monotonic seconds.
        """
        self._context: Final = context
        self._options: Final = options
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._summary: Final = summary
        self._report: Final = report
        self._signals: Final = signals
        self._findings: Final = findings
        self._give_up_s: Final = give_up_s
        self._flows: Final = dict[str, _Flow]()
        self._checked: Final = set[str]()
        self._folder: Final = FolderCheck(options.report_dir, consoles.warning, consoles.progress)
        self._summary_s = 0.0
        self._spark_lost = self._has_said_signal = self._is_file_wrong = False

    # --- in a flow's thread

    def open(self, settings: FlowSettings) -> FlowRun:
        """Check a flow, and return a new stream of it. Raises MirrorError."""
        flow = self._flows[settings.flow.name]
        findings = self._findings
        if flow.name in self._checked or flow.name not in findings.warnings:
            findings = check_flows(settings.config, [settings.flow], self._consoles.progress)
        self._checked.add(flow.name)
        if (error := findings.errors.get(flow.name)) is not None:
            raise error
        if flow.control is not None:
            flow.control.close()
            flow.control = None
        if flow.record.wanted.ended:
            flow.record = RunRecord(new_run_id())
        slots = self._take_slots(flow)
        ledger = Ledger.open(self._options.report_dir, flow.name, flow.record.run)
        secrets_dir = self._options.secrets_dir.absolute() if self._options.secrets_dir else None
        options = FlowOptions(self._options.config.absolute(), flow.name, ledger.path, secrets_dir, slots)
        flow.report = FlowReport(flow.name, datetime.now(UTC), run=flow.record.run)
        flow.stream = FlowRun(
            lambda: self._context,
            settings.config,
            settings.flow,
            options,
            flow.report,
            consoles=self._consoles,
            telemetry=self._telemetry,
            findings=findings,
            record=flow.record,
            follows=True,
            debug=self._options.debug,
        )
        return flow.stream

    def _take_slots(self, flow: _Flow) -> int:
        """Return how many tasks a flow may have. A local master has slots in reserve for flows that are added."""
        slots = slots_of(self._context)
        flows = [one for one in self._flows.values() if one.state not in {FlowState.ENDED, FlowState.HELD}]
        taken = sum(one.slots for one in flows if one is not flow)
        flow.slots = max(1, slots // max(1, len(flows)))
        if not reserves_slots(self._context):
            flow.slots = min(flow.slots, slots - taken)
        if flow.slots < 1:
            flow.slots = 0
            raise NoFreeSlot(
                f"Spark has {slots} task slots, and other flows use them: add executors, or stop the stream and start"
                " it again, which divides the slots among all flows"
            )
        return flow.slots

    def event_of(self, flow: str, error: BaseException) -> Event:
        """Return what an error is: one that may pass by itself soon, or one that someone has to mend."""
        line = "; ".join(error_lines(error))
        if not isinstance(error, MirrorError) and self._has_lost_spark():
            return Lost(line)  # it fails each call in its own way, which says nothing of the reason
        if is_away(error):
            return Lost(line, outage=True)
        if self._options.debug or not isinstance(error, MirrorError):
            self._consoles.report(
                error if isinstance(error, Exception) else FlowError(line),
                debug=self._options.debug,
                prefix=f"flow {flow}: ",
            )
        is_refused = isinstance(error, ConfigError | FlowError | NotRetriable) and not isinstance(error, NoFreeSlot)
        return Refused(line, self._flows[flow].refresh_ms) if is_refused else Lost(line)

    def idle(self, settings: FlowSettings, now: Supervised) -> Event | None:
        """Look for ``mirror stop`` and for other runs of a flow that does not run."""
        flow = self._flows[settings.flow.name]
        if now.state in {FlowState.WANTED, FlowState.ENDED}:
            return None
        if flow.record.wanted.ended and now.state is not FlowState.HELD:
            flow.record = RunRecord(new_run_id())
        if flow.control is None or flow.control.record is not flow.record or flow.control.settings is not settings:
            if flow.control is not None:
                flow.control.close()
            flow.control = WaitingControl(settings, flow.record)
        return flow.control.poll(now)

    def leave(self, settings: FlowSettings) -> None:
        """Record that the flow's run has ended."""
        flow = self._flows[settings.flow.name]
        control, flow.control = flow.control, None
        (control or WaitingControl(settings, flow.record)).leave()
        writer, flow.writer = flow.writer, None
        if writer is not None:
            writer.close(_CLOSE_MS)

    # --- in the main thread

    def gives_up(self, flow: str, now: Supervised) -> bool:
        """Whether the job is not to wait for what keeps a flow from running."""
        waits_for_nothing = now.state is FlowState.BACKING_OFF and not self._flows[flow].has_begun
        return waits_for_nothing and time.monotonic() >= self._give_up_s

    def on_change(self, name: str, settings: FlowSettings | None, before: Supervised | None, now: Supervised) -> None:
        """Print the change, and write it for other hosts, the metrics and the summary."""
        flow = self._flows.setdefault(name, _Flow(name))
        flow.state = now.state
        flow.has_begun = flow.has_begun or now.state is FlowState.RUNNING
        if now.state not in _ACTIVE:
            flow.slots = 0
        if now.state is FlowState.ENDED and before is not None:
            self._end(flow, before)
        self._say(flow, before, now)
        with self._telemetry.metrics.lock:
            record_state(self._telemetry.metrics, name, None if now.state is FlowState.ENDED else now.state.value)
        self._telemetry.export_metrics()
        if now.by_other_run:
            flow.report.fenced = flow.report.fenced or now.reason
        if settings is not None:
            flow.refresh_ms = settings.flow.refresh_ms
            if not (now.by_other_run or (before is not None and before.by_other_run)):  # it is that run's to write
                self._write_state(flow, settings, now)
        self.summarize()

    def _end(self, flow: _Flow, before: Supervised) -> None:
        """Keep why a flow did not run at its end."""
        does_not_run = before.state in {FlowState.BACKING_OFF, FlowState.REFUSED, FlowState.PREPARING}
        if does_not_run and flow.report.error is None:
            away = "not started: a cluster has not answered"
            flow.report.error = before.reason or (None if flow.has_begun else away)
        flow.report.ended = flow.report.ended or datetime.now(UTC)

    def _say(self, flow: _Flow, before: Supervised | None, now: Supervised) -> None:
        refused_before = "" if before is None else before.edit_refused
        if refused_before and not now.edit_refused and now.state is not FlowState.ENDED:
            self._consoles.progress(f"flow {flow.name}: its configuration is valid again")
        if now.edit_refused and refused_before != now.edit_refused:
            line = f"{now.edit_refused}; until this is corrected, the flow keeps its previous configuration"
            self._consoles.warning(f"flow {flow.name}: {line}")
        said = now.state, re.sub(r"\d+", "#", now.reason)
        is_again = now.state is FlowState.PREPARING and flow.said is not None
        is_known = said == flow.said or is_again or now.state in {FlowState.WANTED, FlowState.ENDED}
        if is_known or (now.state is FlowState.BACKING_OFF and self._has_lost_spark()):
            return
        flow.said = said
        line = f"flow {flow.name}: {now.state.value}"
        if now.state in {FlowState.BACKING_OFF, FlowState.REFUSED}:
            again = "it is tried again by itself" if now.until_ms is not None else "correct the configuration file"
            self._consoles.warning(f"{line}: {now.reason}; {again}")
        else:
            self._consoles.progress(f"{line}: {now.reason}" if now.reason else line)

    def _write_state(self, flow: _Flow, settings: FlowSettings, now: Supervised) -> None:
        options = settings.config.clusters[settings.flow.target].client_options()
        if flow.writer is None or flow.written_to != options:
            if flow.writer is not None:
                flow.writer.close(0)
            flow.writer, flow.written_to = StatusWriter(options, flow.name), options
        control = flow.record.wanted
        reason = "; ".join(filter(None, [now.reason, now.edit_refused and f"its edit is refused: {now.edit_refused}"]))
        state = RunState(
            run=control.run,
            generation=control.generation,
            job=control.job,
            host=socket.gethostname(),
            state=now.state.value,
            since_ms=now.since_ms,
            reason=reason,
            until_ms=now.until_ms,
            failures=now.failures,
        )
        flow.writer.put(status_values.RUN, state.to_json())

    def on_edit(self, flow: str, keys: list[str]) -> None:
        """Say which keys an edit has changed, without values."""
        changed = f" ({', '.join(keys)})" if keys else ""
        follows = _AFTER_EDIT.get(self._flows[flow].state, "it is started with it now")
        self._consoles.progress(f"flow {flow}: its configuration was read again{changed}: {follows}")

    def on_removal(self, flow: str) -> None:
        """Say that a flow ends because it was removed."""
        follows = "it ends in order" if self._flows[flow].state in _ACTIVE else "it is not started again"
        self._consoles.progress(f"flow {flow}: it was removed from the configuration file: {follows}")

    def on_file(self, error: str) -> None:
        """Say why the file is not used, and when it is used again."""
        if not error and self._is_file_wrong:
            self._consoles.progress(f"{self._options.config}: can be read again")
        self._is_file_wrong = bool(error)
        for line in error.splitlines():
            self._consoles.warning(f"{line}; until this is corrected, the flows keep their previous configuration")

    def tick(self) -> int:
        """Write what is due; return how many signals have asked the stream to end."""
        now_s = time.monotonic()
        if self._signals.signum is not None and not self._has_said_signal:
            self._has_said_signal = True
            name = signal.Signals(self._signals.signum).name
            self._consoles.progress(f"ending after {name}: committing what the target has acknowledged")
        self._folder.check([flow.stream.ledger for flow in self._flows.values() if flow.stream is not None], now_s)
        if now_s >= self._summary_s:
            self.summarize()
            self._report.write_if_due()
            self._has_lost_spark()
        return 2 if self._spark_lost else self._signals.count

    def _has_lost_spark(self) -> bool:
        """Return whether Spark has ended, and say so once."""
        try:
            self._spark_lost = self._spark_lost or bool(self._context._jsc.sc().isStopped())  # noqa: SLF001
        except (Py4JError, OSError):
            self._spark_lost = True
        if self._spark_lost and self._signals.signum is None:
            line = (
                "Spark ended before its stream: Spark's log has the reason; without one there it was killed, usually"
                " because memory has run out"
            )
            for flow in self._flows.values():
                if flow.state is not FlowState.ENDED and flow.report.error is None:
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
        return [flow.report for flow in self._flows.values()]

    def status(self) -> int:
        """Return the exit status of the job."""
        for report in self.reports:
            report.ended = report.ended or datetime.now(UTC)
        in_order = {one.flow for one in self.reports if not (one.cut_short or one.fenced or one.error)}
        return exit_status(self.reports, in_order)
