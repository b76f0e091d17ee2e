"""The driver's script of a stream: one streaming query per flow in one Spark session, until it is told to end.

Exit status: 0 ended in order (drained, or told to by a signal or ``mirror stop``); 1 could not run; 2 wrong usage;
3 ended, but with partitions that did not complete, or because another run took over; 130 or 143 cut short: it was told
to end and did not within ``shutdown-timeout-ms``.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.config.load import load
from mirror.errors import FlowError
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.batch_flow import FlowRun
from mirror.spark.driver.batch_job import checked, options, start_spark, summarized, warn_of_clear_text
from mirror.spark.driver.console import Consoles
from mirror.spark.driver.error_report import report_error
from mirror.spark.driver.report_file import ReportFile
from mirror.spark.driver.session import spare_checkpoints
from mirror.spark.driver.stream_flow import StreamRun
from mirror.spark.driver.tables import SHOWN, flow_table
from mirror.spark.driver.telemetry_bridge import showing
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import EXIT_COULD_NOT_RUN, FlowReport, Summary, exit_status
from mirror.spark.run_control import new_run_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.preflight.flow_checks import Findings
    from mirror.telemetry.run import RunTelemetry

_POLL_S: Final = 0.2
_EXECUTORS_WITHIN_S: Final = 30.0


class StreamExit:
    """Whether a signal has told the job to end: the main thread looks at it, no handler does anything else."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def listen(self) -> None:
        """From now on; once more after Spark has put handlers of its own in place."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._hear)

    def _hear(self, signum: int, _frame: FrameType | None) -> None:
        self.signum = self.signum or signum


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The options, parsed. Exits with 2 on wrong usage."""
    description = "Follow Kafka topics as a configuration says."
    as_json = "a line per epoch and flow, and at the end the summary in one line"
    parser = options("stream.py", description, flows="all, side by side", as_json=as_json)
    parser.add_argument("--available-now", action="store_true", help="copy what is there now, epoch by epoch, and end")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the job; ``argv`` without the program's name. Returns the exit status; prints what went wrong itself."""
    consoles = Consoles()
    with contextlib.redirect_stderr(consoles.err.file):
        args = arguments(argv)
    if args.json:
        consoles.for_programs()
    ending = StreamExit()
    ending.listen()
    try:
        config = load(args.config, secrets_dir=args.secrets_dir)
        flows = config.select(args.flow)
        with (
            summarized(args.report_dir, consoles) as summary,
            ReportFile(args.report_dir, consoles.warning) as report,
        ):
            return _Stream(config, flows, args, consoles, ending, summary, report).run()
    except Exception as error:  # noqa: BLE001  (the last line of defence: one line for people, not a trace)
        report_error(error, consoles, debug=args.debug)
        return EXIT_COULD_NOT_RUN


def _slots(spark: SparkSession) -> int:
    """How many tasks run at once. A cluster's executors come in their own time; until then Spark knows of two slots."""
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        tracker = context._jsc.sc().statusTracker()  # noqa: SLF001  (PySpark's own tracker does not tell of executors)
        until = time.monotonic() + _EXECUTORS_WITHIN_S
        while len(tracker.getExecutorInfos()) < 2 and time.monotonic() < until:  # noqa: PLR2004 - the driver is one
            time.sleep(_POLL_S)
    return int(context.defaultParallelism)


class _Stream:
    """The queries of one job."""

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[FlowConfig],
        args: argparse.Namespace,
        consoles: Consoles,
        ending: StreamExit,
        summary: Summary,
        report: ReportFile,
    ) -> None:
        self._config: Final = config
        self._flows: Final = flows
        self._args: Final = args
        self._consoles: Final = consoles
        self._ending: Final = ending
        self._summary: Final = summary
        self._report: Final = report
        self._runs: Final = list[StreamRun]()
        self._said_that_it_ends = False

    def run(self) -> int:
        """Until all queries have ended. Raises MirrorError where no flow may run, or Spark has too few slots."""
        warn_of_clear_text(self._config, self._flows, self._consoles)
        findings = checked(self._config, self._flows, self._summary, self._consoles)
        with showing(self._args.report_dir, self._consoles) as telemetry:
            self._consoles.doing("starting Spark")
            spark = start_spark()
            spare_checkpoints(spark)
            self._ending.listen()
            try:
                self._begin(spark, findings, telemetry)
                self._follow()
            finally:
                for run in self._runs:
                    self._finish(run)
            status = self._status()
            with contextlib.suppress(Py4JError, OSError):
                spark.stop()
        return status

    def _begin(self, spark: SparkSession, findings: Findings, telemetry: RunTelemetry) -> None:
        slots = _slots(spark)
        if len(self._flows) > slots:
            msg = (
                f"{len(self._flows)} flows need a slot for a task each, and Spark has {slots}: give it more"
                " (--master), or name one by --flow"
            )
            raise FlowError(msg)
        runner = FlowRun(
            spark,
            self._config,
            self._consoles,
            findings=findings,
            telemetry=telemetry,
            config_path=self._args.config,
            secrets_dir=self._args.secrets_dir,
            report_dir=self._args.report_dir,
            debug=self._args.debug,
        )
        for flow in self._flows:
            name = new_run_id()
            ledger = Ledger.open(self._args.report_dir, flow.name, name)
            secrets_dir = self._args.secrets_dir.absolute() if self._args.secrets_dir else None
            of_sources = FlowOptions(
                self._args.config.absolute(), flow.name, ledger.path, secrets_dir, slots // len(self._flows), name
            )
            report = FlowReport(flow.name, datetime.now(UTC), run=name)
            run = StreamRun(flow, self._config, of_sources, report, consoles=self._consoles, telemetry=telemetry)
            self._runs.append(run)
            try:
                run.start(spark, runner, available_now=self._args.available_now)
            except Exception as error:  # noqa: BLE001 - one flow's trouble is not the others'
                self._complain(run, error)
                self._finish(run)
        self._summarize()

    def _follow(self) -> None:
        while going := [run for run in self._runs if run.report.ended is None]:
            for run in going:
                if run.poll():
                    self._summarize()
                    self._report.write_if_due()
                if self._ending.signum is not None:
                    self._say_that_it_ends(self._ending.signum)
                    run.stop()
                run.wind_up(time.monotonic())
                if run.over():
                    self._finish(run)
            time.sleep(_POLL_S)

    def _say_that_it_ends(self, signum: int) -> None:
        if not self._said_that_it_ends:
            self._said_that_it_ends = True
            name = signal.Signals(signum).name
            self._consoles.doing(f"ending, as {name} asks for: what is acknowledged is being committed")

    def _finish(self, run: StreamRun) -> None:
        """At once, also while others go on: who waits for it, or asks how it is, hears of it."""
        if (error := run.end()) is not None:
            self._complain(run, error)
        self._summarize()

    def _complain(self, run: StreamRun, error: Exception) -> None:
        where = f"flow {run.report.flow}: "
        run.report.error = report_error(error, self._consoles, debug=self._args.debug, where=where)

    def _summarize(self) -> None:
        self._summary.write([run.report for run in self._runs])

    def _status(self) -> int:
        for run in self._runs:
            if run.report.partitions:
                self._consoles.show(flow_table(run.report, None if self._args.all else SHOWN))
        signum = self._ending.signum
        if signum is not None and any(run.report.cut_short for run in self._runs):
            self._consoles.error(f"cut short by {signal.Signals(signum).name}; the next run goes on from here")
            return 128 + signum
        in_order = {run.report.flow for run in self._runs if run.ended_in_order}
        return exit_status([run.report for run in self._runs], in_order)
