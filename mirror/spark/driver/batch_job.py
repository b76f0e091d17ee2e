"""The driver's script: reads the options, runs the selected flows in one Spark session, reports, gives a status.

Exit status: 0 every range complete; 1 could not run; 2 wrong usage; 3 ran, but some partitions did not complete;
130 or 143 cut short by SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from mirror.config.exposed import unencrypted_credentials
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.spark.driver.batch_flow import FlowRun
from mirror.spark.driver.console import Consoles
from mirror.spark.driver.error_report import one_line_each, report_error
from mirror.spark.driver.report_file import ReportFile
from mirror.spark.driver.report_lock import locked
from mirror.spark.driver.session import session
from mirror.spark.driver.submission import BEGAN
from mirror.spark.driver.tables import SHOWN, flow_table
from mirror.spark.driver.telemetry_bridge import showing
from mirror.spark.ledger.results import EXIT_COULD_NOT_RUN, FlowReport, Summary, exit_status
from mirror.spark.preflight.flow_checks import Findings, FlowsRefused, check_flows
from mirror.spark.run_control import new_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.models import FlowConfig, MirrorConfig

DEFAULT_REPORT_DIR: Final = Path("mirror-report")


class CutShort(BaseException):
    """A signal ends the run. Not an Exception: nothing on the way out may take it for a failed flow."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum: Final = signum


def options(prog: str, description: str, *, flows: str, as_json: str) -> argparse.ArgumentParser:
    """The options that a scheduled run and a stream share.

    ``flows`` is what is copied where none is named, ``as_json`` what ``--json`` prints.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--config", type=Path, required=True, help="the TOML file with clusters and flows")
    parser.add_argument("--flow", help=f"only this flow (default: {flows})")
    where = "where report.html and summary.json go"
    parser.add_argument("--report-dir", type=Path, default=DEFAULT_REPORT_DIR, help=where)
    parser.add_argument("--secrets-dir", type=Path, help="a folder with one file per secret")
    parser.add_argument("--json", action="store_true", help=f"print JSON, and nothing else, on stdout: {as_json}")
    shown = f"show all partitions at the end, not only the {SHOWN} that are worst"
    parser.add_argument("--all", action="store_true", help=shown)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The options, parsed. Exits with 2 on wrong usage."""
    description = "Copy Kafka topics as a configuration says."
    return options("replicate.py", description, flows="all", as_json="at the end, the summary").parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the job; ``argv`` without the program's name. Returns the exit status; prints what went wrong itself."""
    consoles = Consoles()
    # Under spark-submit, sys.stderr is not stderr (mirror.spark.driver.console).
    with contextlib.redirect_stderr(consoles.err.file):
        args = arguments(argv)
    if args.json:
        consoles.for_programs()
    _catch_signals()
    try:
        return _run(args, consoles)
    except CutShort as cut:
        consoles.error(f"cut short by {signal.Signals(cut.signum).name}; the next run goes on from here")
        return 128 + cut.signum
    except Exception as error:  # noqa: BLE001  (the last line of defence: one line for people, not a trace)
        report_error(error, consoles, debug=args.debug)
        return EXIT_COULD_NOT_RUN


def _run(args: argparse.Namespace, consoles: Consoles) -> int:
    began_ms = int(os.environ.get(BEGAN) or time.time_ns() // 1_000_000)
    config = load(args.config, secrets_dir=args.secrets_dir)
    flows = config.select(args.flow)
    with summarized(args.report_dir, consoles, indent=2) as summary, ReportFile(args.report_dir, consoles.warning):
        return _run_flows(config, flows, args, consoles, summary, began_ms)


@contextlib.contextmanager
def summarized(report_dir: Path, consoles: Consoles, *, indent: int | None = None) -> Iterator[Summary]:
    """The report folder for one job alone; programs are told at its end what its summary says, however it ends.

    Raises FlowError where another job has the folder.
    """
    with locked(report_dir):
        summary = Summary(report_dir, consoles.warning)
        try:
            yield summary
        finally:
            if summary.content is not None:
                consoles.tell(summary.content, indent=indent)


def _run_flows(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    args: argparse.Namespace,
    consoles: Consoles,
    summary: Summary,
    began_ms: int,
) -> int:
    warn_of_clear_text(config, flows, consoles)
    findings = checked(config, flows, summary, consoles)
    with showing(args.report_dir, consoles) as telemetry:
        consoles.doing("opening the Spark session")
        spark = start_spark()
        # Once more: a new SparkContext puts its own handler for SIGINT in place.
        _catch_signals()
        runner = FlowRun(
            spark,
            config,
            consoles,
            findings=findings,
            telemetry=telemetry,
            config_path=args.config,
            secrets_dir=args.secrets_dir,
            report_dir=args.report_dir,
            debug=args.debug,
            began_ms=began_ms,
        )
        reports: list[FlowReport] = []
        for flow in flows:
            reports.append(FlowReport(flow.name, datetime.now(UTC), run=new_run_id()))
            _run_flow(runner, flow, reports, consoles, summary, args)
        spark.stop()
    return exit_status(reports)


def warn_of_clear_text(config: MirrorConfig, flows: Sequence[FlowConfig], consoles: Consoles) -> None:
    """Say of which clusters of ``flows`` a password or token can be read on the way there."""
    for line in unencrypted_credentials(config, (name for flow in flows for name in (flow.source, flow.target))):
        consoles.warning(line)


def start_spark() -> SparkSession:
    """The session of this job. Raises FlowError where Spark cannot be started (no master, a wrong setting)."""
    try:
        return session()
    except Py4JJavaError as error:
        raise FlowError(f"Spark could not be started: {'; '.join(one_line_each(error))}") from error


def checked(config: MirrorConfig, flows: Sequence[FlowConfig], summary: Summary, consoles: Consoles) -> Findings:
    """What the clusters say about all the flows. Raises FlowsRefused, and the summary says it, too."""
    names = dict.fromkeys(name for flow in flows for name in (flow.source, flow.target))
    consoles.doing(f"asking the clusters {', '.join(names)}")
    try:
        return check_flows(config, flows, consoles.doing)
    except FlowsRefused as refused:
        now = datetime.now(UTC)
        others = f"not started: refused with flow {', '.join(refused.problems)}"
        errors = {flow.name: "; ".join(refused.problems.get(flow.name, [others])) for flow in flows}
        summary.write([FlowReport(name, now, now, error=error) for name, error in errors.items()])
        raise


def _run_flow(
    runner: FlowRun,
    flow: FlowConfig,
    reports: list[FlowReport],
    consoles: Consoles,
    summary: Summary,
    args: argparse.Namespace,
) -> None:
    """Run one flow; whatever it ends with, its report (the last of ``reports``) and the summary say it."""
    report = reports[-1]
    # Before it runs as well: whoever finds the summary after a kill -9 finds `unfinished`, not yesterday's success.
    summary.write(reports)
    try:
        runner.run(flow, report)
    except CutShort:
        report.cut_short = True
        raise
    except Exception as error:  # noqa: BLE001  (one flow's failure must not stop the next flow)
        report.error = report_error(error, consoles, debug=args.debug, where=f"flow {flow.name}: ")
    finally:
        report.ended = datetime.now(UTC)
        summary.write(reports)
        if report.partitions:
            consoles.show(flow_table(report, None if args.all else SHOWN))


def _catch_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _cut_short)


def _cut_short(signum: int, _frame: FrameType | None) -> NoReturn:
    # Only once: a second signal must not interrupt the writing of the summary.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise CutShort(signum)
