"""The driver's script of a stream: runs one streaming query per flow in one Spark session, until it is stopped.

Exit status: 0 ended in order (drained, or stopped by a signal or ``mirror stop``); 1 could not run; 2 wrong usage;
3 ended with partitions that did not complete, or because another run took over; 4 MirrorMaker 2 copies again what a
flow has taken over; 130 or 143 interrupted: a signal stopped it, and it did not end within ``shutdown-timeout-ms``.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.config.load import load
from mirror.errors import FlowError
from mirror.runtime.memory.malloc_tuning import collect_rarely
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.awaited_flow import AwaitedFlow, is_away, may_start_later
from mirror.spark.driver.batch_flow import FlowRunner
from mirror.spark.driver.batch_job import (
    check,
    interrupted_line,
    summarized,
    warn_of_exposed_credentials,
    warn_of_versions,
)
from mirror.spark.driver.job_design import runs_one_job
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN, JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.tables import flow_results
from mirror.spark.driver.report.folder_check import FolderCheck
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.session import slots_of, start_session, start_stream_context, use_cheap_checkpoints
from mirror.spark.driver.stream_flow import StreamFlow
from mirror.spark.driver.stream_site import Signals, StreamSite
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import EXIT_COULD_NOT_RUN, FlowReport, Summary, exit_status
from mirror.spark.preflight.flow_checks import check_flows
from mirror.spark.run_control import new_run_id
from mirror.spark.supervision.config_file import ConfigFile
from mirror.spark.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.telemetry.run import RunTelemetry

_POLL_S: Final = 0.2
_DESCRIPTION: Final = (
    "Follow Kafka topics as a configuration specifies, all flows concurrently. With --json, one line is printed per"
    " completed epoch of a flow, and the summary as the last line."
)


class ShutdownSignal:
    """The signal that ends the job, if one has arrived. The handlers only record it, and the main thread acts on it."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def listen(self) -> None:
        """Install the handlers. To be repeated after Spark has installed its own."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.signum = self.signum or signum


def parse(argv: Sequence[str]) -> JobOptions:
    """Parse the options. Exits with status 2 on wrong usage."""
    return JobOptions.parse(argv, script="stream.py", description=_DESCRIPTION, stream=True)


def main(argv: Sequence[str]) -> int:
    """Run the job with the arguments ``argv``, print its errors, and return the exit status."""
    consoles = Consoles()
    with contextlib.redirect_stderr(consoles.err.file):
        options = parse(argv)
    if options.as_json:
        consoles.switch_to_json()
    shutdown = ShutdownSignal()
    shutdown.listen()
    collect_rarely()
    signals = Signals()
    if runs_one_job():
        signals.listen()
    file = ConfigFile(options.config, options.secrets_dir)
    try:
        config = load(options.config, secrets_dir=options.secrets_dir)
        flows = config.select(options.flow)
        with (
            summarized(options.report_dir, consoles) as summary,
            ReportFile(options.report_dir, consoles.warning) as report,
        ):
            stream = _Stream(config, flows, options, consoles, shutdown, summary, report)
            if not runs_one_job():
                return stream.run()
            file.watch(config.secret_files)
            return stream.supervise(file, signals)
    except Exception as error:  # noqa: BLE001  (no traceback reaches a user who did not request it)
        consoles.report(error, debug=options.debug)
        return EXIT_COULD_NOT_RUN


class _Stream:
    """Runs the queries of one job."""

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[FlowConfig],
        options: JobOptions,
        consoles: Consoles,
        shutdown: ShutdownSignal,
        summary: Summary,
        report: ReportFile,
    ) -> None:
        self._config: Final = config
        self._flows: Final = flows
        self._options: Final = options
        self._consoles: Final = consoles
        self._shutdown: Final = shutdown
        self._summary: Final = summary
        self._report: Final = report
        self._runs: Final = list[StreamFlow]()
        self._awaited: Final = dict[StreamFlow, AwaitedFlow]()
        self._give_up_s = math.inf
        """Until when flows wait for their clusters, in monotonic seconds."""
        self._parallelism = 1
        self._warned: Final = set[str]()
        self._folder: Final = FolderCheck(options.report_dir, consoles.warning, consoles.progress)
        self._shutdown_reported = False

    def run(self) -> int:
        """Run until all queries have ended. Raises MirrorError if no flow may run, or if Spark has too few slots."""
        warn_of_versions(self._consoles)
        warn_of_exposed_credentials(self._config, self._flows, self._consoles)
        findings = check(self._config, self._flows, self._summary, self._consoles)
        if not any(self._may_run(findings, flow) for flow in self._flows):
            return self._refuse(findings)
        with run_telemetry(self._options.report_dir, self._consoles) as telemetry:
            self._consoles.progress("starting the Spark session")
            spark = start_session()
            use_cheap_checkpoints(spark)
            self._shutdown.listen()
            try:
                self._begin(spark, findings, telemetry)
                self._follow(spark, telemetry)
            finally:
                for run in self._runs:
                    self._finish(run)
            status = self._status()
            with contextlib.suppress(Py4JError, OSError):
                spark.stop()
        return status

    def supervise(self, file: ConfigFile, signals: Signals) -> int:
        """As :meth:`run`, with one job per flow, which a supervisor starts again after failures and edits."""
        warn_of_versions(self._consoles)
        warn_of_exposed_credentials(self._config, self._flows, self._consoles)
        if self._options.wait is not None:
            self._give_up_s = time.monotonic() + self._options.wait
        findings = check(self._config, self._flows, self._summary, self._consoles)
        if not any(self._may_run(findings, flow) for flow in self._flows):
            return self._refuse(findings)
        with run_telemetry(self._options.report_dir, self._consoles) as telemetry:
            self._consoles.progress("starting the Spark session")
            context = start_stream_context()
            signals.listen()
            site = StreamSite(
                context,
                self._options,
                self._consoles,
                telemetry,
                self._summary,
                self._report,
                signals,
                findings,
                self._give_up_s,
            )
            Supervisor(site, self._config, file, only=self._options.flow).run()
            status = site.status()
            site.summarize()
            for report in site.reports:
                if report.partitions or report.groups:
                    most = None if self._options.all_partitions else MAX_PARTITIONS_SHOWN
                    self._consoles.print_table(flow_results(report, most))
            with contextlib.suppress(Py4JError, OSError):
                context.stop()
            if signals.signum is not None and any(report.cut_short for report in site.reports):
                self._consoles.error(interrupted_line(signals.signum))
                return 128 + signals.signum
            return status

    def _begin(self, spark: SparkSession, findings: Findings, telemetry: RunTelemetry) -> None:
        slots = slots_of(spark.sparkContext)
        if len(self._flows) > slots:
            msg = (
                f"{len(self._flows)} flows need one task slot each, and Spark has {slots}: give it more slots"
                " (--master), or select one flow with --flow"
            )
            raise FlowError(msg)
        self._parallelism = slots // len(self._flows)
        if self._options.wait is not None:
            self._give_up_s = time.monotonic() + self._options.wait
        for flow in self._flows:
            run = self._new_run(flow, telemetry)
            self._runs.append(run)
            if (error := findings.errors.get(flow.name)) is not None and self._may_wait and is_away(error):
                self._await(run, error)
            else:
                self._start(run, spark, findings, telemetry)
        self._summarize()

    def _new_run(self, flow: FlowConfig, telemetry: RunTelemetry) -> StreamFlow:
        name = new_run_id()
        ledger = Ledger.open(self._options.report_dir, flow.name, name)
        secrets_dir = self._options.secrets_dir.absolute() if self._options.secrets_dir else None
        options = FlowOptions(
            self._options.config.absolute(), flow.name, ledger.path, secrets_dir, self._parallelism, name
        )
        report = FlowReport(flow.name, datetime.now(UTC), run=name)
        return StreamFlow(flow, self._config, options, report, consoles=self._consoles, telemetry=telemetry)

    def _refuse(self, findings: Findings) -> int:
        """Report why no flow runs, and return the exit status."""
        now = datetime.now(UTC)
        reports = []
        for name, error in findings.errors.items():
            line = self._consoles.report(error, debug=self._options.debug, prefix=f"flow {name}: ")
            reports.append(FlowReport(name, now, now, error=line))
        self._summary.write(reports)
        return EXIT_COULD_NOT_RUN

    def _may_run(self, findings: Findings, flow: FlowConfig) -> bool:
        """Return whether ``flow`` can start now, or waits for a cluster."""
        error = findings.errors.get(flow.name)
        return error is None or (self._may_wait and is_away(error))

    @property
    def _may_wait(self) -> bool:
        return not self._options.available_now and self._options.wait != 0 and time.monotonic() < self._give_up_s

    def _await(self, run: StreamFlow, error: Exception) -> None:
        line = f"flow {run.report.flow}: {error}; it starts once the cluster answers"
        if line not in self._warned:
            self._consoles.warning(line)
        self._warned.add(line)
        check = partial(check_flows, self._config, [self._config.flows[run.report.flow]])
        self._awaited[run] = AwaitedFlow(run.report.flow, check)

    def _start(self, run: StreamFlow, spark: SparkSession, findings: Findings, telemetry: RunTelemetry) -> None:
        runner = FlowRunner(
            lambda: spark.sparkContext,
            self._config,
            self._consoles,
            findings=findings,
            telemetry=telemetry,
            config_path=self._options.config,
            secrets_dir=self._options.secrets_dir,
            report_dir=self._options.report_dir,
            debug=self._options.debug,
        )
        try:
            run.start(spark, runner, available_now=self._options.available_now)
        except Exception as error:  # noqa: BLE001 - a flow that cannot start does not stop the others
            if self._may_wait and may_start_later(error):
                self._await_again(run, error, telemetry)
            else:
                self._give_up(run, error)

    def _await_again(self, run: StreamFlow, error: Exception, telemetry: RunTelemetry) -> None:
        """Replace a run whose clusters answered its check but not its start: what it has opened is closed."""
        run.end()
        fresh = self._new_run(self._config.flows[run.report.flow], telemetry)
        self._runs[self._runs.index(run)] = fresh
        self._await(fresh, error)

    def _give_up(self, run: StreamFlow, error: Exception) -> None:
        self._report_error(run, error)
        self._finish(run)

    def _follow_awaited(self, run: StreamFlow, spark: SparkSession, telemetry: RunTelemetry) -> None:
        """Start a flow whose clusters have answered, or give up one that is to wait no longer."""
        awaited = self._awaited[run]
        if awaited.findings is not None and self._shutdown.signum is None:
            del self._awaited[run]
            self._start(run, spark, awaited.findings, telemetry)
        elif self._shutdown.signum is not None or time.monotonic() >= self._give_up_s:
            awaited.end()
            del self._awaited[run]
            self._give_up(run, FlowError("not started: a cluster has not answered"))

    def _follow(self, spark: SparkSession, telemetry: RunTelemetry) -> None:
        while running := [run for run in self._runs if run.report.ended is None]:
            self._folder.check([run.ledger for run in running], time.monotonic())
            for run in running:
                if run in self._awaited:
                    self._follow_awaited(run, spark, telemetry)
                    continue
                if run.poll():
                    self._summarize()
                    self._report.write_if_due()
                if self._shutdown.signum is not None:
                    self._report_shutdown(self._shutdown.signum)
                    run.stop()
                run.wind_up(time.monotonic(), recorded=self._folder.why_not is None)
                if run.ended():
                    self._finish(run)
            time.sleep(_POLL_S)

    def _report_shutdown(self, signum: int) -> None:
        if not self._shutdown_reported:
            self._shutdown_reported = True
            name = signal.Signals(signum).name
            self._consoles.progress(f"ending after {name}: committing what the target has acknowledged")

    def _finish(self, run: StreamFlow) -> None:
        """End a flow and write the summary, while other flows may still run."""
        if (error := run.end()) is not None:
            self._report_error(run, error)
        self._summarize()

    def _report_error(self, run: StreamFlow, error: Exception) -> None:
        prefix = f"flow {run.report.flow}: "
        run.report.failed(error, self._consoles.report(error, debug=self._options.debug, prefix=prefix))

    def _summarize(self) -> None:
        self._summary.write([run.report for run in self._runs])

    def _status(self) -> int:
        most = None if self._options.all_partitions else MAX_PARTITIONS_SHOWN
        for run in self._runs:
            if run.report.partitions or run.report.groups:
                self._consoles.print_table(flow_results(run.report, most))
        signum = self._shutdown.signum
        if signum is not None and any(run.report.cut_short for run in self._runs):
            self._consoles.error(interrupted_line(signum))
            return 128 + signum
        in_order = {run.report.flow for run in self._runs if run.ended_in_order}
        return exit_status([run.report for run in self._runs], in_order)
