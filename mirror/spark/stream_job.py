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
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.config.load import load
from mirror.errors import FlowError
from mirror.spark.complaints import complain
from mirror.spark.console import Consoles
from mirror.spark.flow_run import FlowRun
from mirror.spark.job import DEFAULT_REPORT_DIR, checked
from mirror.spark.ledger import Ledger
from mirror.spark.options import FlowOptions
from mirror.spark.report_lock import locked
from mirror.spark.results import EXIT_COULD_NOT_RUN, FlowReport, exit_status, write_summary
from mirror.spark.run_orders import new_run
from mirror.spark.session import session
from mirror.spark.stream_run import StreamRun
from mirror.spark.table import flow_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.checks import Findings

_POLL_S: Final = 0.2


class Ending:
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
    parser = argparse.ArgumentParser(prog="stream.py", description="Follow Kafka topics as a configuration says.")
    parser.add_argument("--config", type=Path, required=True, help="the TOML file with clusters and flows")
    parser.add_argument("--flow", help="only this flow (default: all, side by side)")
    parser.add_argument("--report-dir", type=Path, default=DEFAULT_REPORT_DIR, help="where summary.json goes")
    parser.add_argument("--secrets-dir", type=Path, help="a folder with one file per secret")
    parser.add_argument("--available-now", action="store_true", help="copy what is there now, epoch by epoch, and end")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the job; ``argv`` without the program's name. Returns the exit status; prints what went wrong itself."""
    consoles = Consoles()
    with contextlib.redirect_stderr(consoles.err.file):
        args = arguments(argv)
    ending = Ending()
    ending.listen()
    try:
        config = load(args.config, secrets_dir=args.secrets_dir)
        flows = config.select(args.flow)
        with locked(args.report_dir):
            return _Stream(config, flows, args, consoles, ending).run()
    except Exception as error:  # noqa: BLE001  (the last line of defence: one line for people, not a trace)
        complain(error, consoles, debug=args.debug)
        return EXIT_COULD_NOT_RUN


class _Stream:
    """The queries of one job."""

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[FlowConfig],
        args: argparse.Namespace,
        consoles: Consoles,
        ending: Ending,
    ) -> None:
        self._config: Final = config
        self._flows: Final = flows
        self._args: Final = args
        self._consoles: Final = consoles
        self._ending: Final = ending
        self._runs: Final = list[StreamRun]()

    def run(self) -> int:
        """Until all queries have ended. Raises MirrorError where none could begin."""
        findings = checked(self._config, self._flows, self._args.report_dir)
        spark = session()
        self._ending.listen()
        try:
            self._begin(spark, findings)
            self._follow()
        finally:
            for run in self._runs:
                run.kill()
                run.end()
                run.report.ended = datetime.now(UTC)
            self._summarize()
        status = self._status()
        spark.stop()
        return status

    def _begin(self, spark: SparkSession, findings: Findings) -> None:
        slots = spark.sparkContext.defaultParallelism
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
            config_path=self._args.config,
            secrets_dir=self._args.secrets_dir,
            report_dir=self._args.report_dir,
            debug=self._args.debug,
        )
        for flow in self._flows:
            name = new_run()
            ledger = Ledger.open(self._args.report_dir, flow.name, name)
            secrets_dir = self._args.secrets_dir.absolute() if self._args.secrets_dir else None
            options = FlowOptions(
                self._args.config.absolute(), flow.name, ledger.path, secrets_dir, slots // len(self._flows), name
            )
            run = StreamRun(flow, self._config, options, FlowReport(flow.name, datetime.now(UTC)), self._consoles)
            self._runs.append(run)
            run.start(spark, runner.prepare, available_now=self._args.available_now)
        self._summarize()

    def _follow(self) -> None:
        while any(run.running for run in self._runs):
            if sum(run.poll() for run in self._runs):  # all of them, not only up to the first that has news
                self._summarize()
            for run in self._runs:
                if self._ending.signum is not None:
                    run.stop()
                run.wind_up(time.monotonic())
            time.sleep(_POLL_S)

    def _summarize(self) -> None:
        write_summary(self._args.report_dir, [run.report for run in self._runs])

    def _status(self) -> int:
        for run in self._runs:
            if (error := run.failure()) is not None:
                run.report.error = complain(
                    error, self._consoles, debug=self._args.debug, where=f"flow {run.report.flow}: "
                )
            if run.report.partitions:
                self._consoles.out.print(flow_table(run.report))
        self._summarize()
        signum = self._ending.signum
        if signum is not None and any(run.report.cut_short for run in self._runs):
            self._consoles.error(f"cut short by {signal.Signals(signum).name}; the next run goes on from here")
            return 128 + signum
        # Whom somebody ended in order has done what it should, whatever state its partitions were in.
        return exit_status([run.report for run in self._runs if not run.ended_in_order])
