"""The driver's script of a scheduled run: runs the selected flows in one Spark context, and reports their results.

Exit status: 0 every range complete; 1 could not run; 2 wrong usage; 3 some partitions did not complete; 4 a flow is
held, or MirrorMaker 2 copies again what it has taken over; 130 or 143 interrupted by SIGINT or SIGTERM.
"""

from __future__ import annotations

import contextlib
import signal
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import pyspark

from mirror.config.exposed import readable_secrets, unencrypted_credentials
from mirror.config.load import load
from mirror.exit_status import FAILED
from mirror.spark.clusters import Clusters
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN, JobOptions
from mirror.spark.driver.launch.spark_versions import version_warning
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.tables import flow_results
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.report.report_lock import locked
from mirror.spark.driver.session import start_context
from mirror.spark.driver.spark_start import SparkStart, terminate_jvm
from mirror.spark.driver.telemetry_bridge import describe_flow, run_telemetry
from mirror.spark.ledger.results import FlowReport, Summary, exit_status, summary_text
from mirror.spark.planning.range_planner import left_out_lines
from mirror.spark.preflight.flow_checks import Findings, FlowsRefused, check_flows
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.supervision.flow_states import Resumed
from mirror.spark.tasks.options import FlowOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.supervision.flow_states import Held, OtherRunClaimed

_DESCRIPTION: Final = "Copy Kafka topics as a configuration specifies. With --json, the summary is printed at the end."


class Interrupted(BaseException):
    """A signal ends the run. Not an Exception, so that no handler treats it as the failure of a flow."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum: Final = signum


def parse(argv: Sequence[str]) -> JobOptions:
    """Parse the options. Exits with status 2 on wrong usage."""
    return JobOptions.parse(argv, script="replicate.py", description=_DESCRIPTION, stream=False)


def main(argv: Sequence[str]) -> int:
    """Run the job with the arguments ``argv``, print its errors, and return the exit status."""
    consoles = Consoles()
    # Under spark-submit, sys.stderr is not stderr (mirror.spark.driver.output.console).
    with contextlib.redirect_stderr(consoles.err.file):
        options = parse(argv)
    if options.as_json:
        consoles.switch_to_json()
    catch_signals()
    try:
        return _run(options, consoles)
    except Interrupted as interrupted:
        consoles.error(interrupted_line(interrupted.signum))
        return 128 + interrupted.signum
    except Exception as error:  # noqa: BLE001  (no traceback reaches a user who did not request it)
        consoles.report(error, debug=options.debug)
        return FAILED


def interrupted_line(signum: int) -> str:
    """Return the line that reports an interrupted run."""
    return f"interrupted by {signal.Signals(signum).name}; the next run resumes from the committed progress"


def _run(options: JobOptions, consoles: Consoles) -> int:
    config = load(options.config, secrets_dir=options.secrets_dir)
    flows = config.select(options.flow)
    report_dir = options.report_dir
    with summarized(report_dir, consoles, as_file=True) as summary, ReportFile(report_dir, consoles.warning):
        warn_of_versions(consoles)
        warn_of_exposed_credentials(config, flows, consoles)
        with SparkStart(start_context) as spark:
            return exit_status(run_flows(spark.context, config, flows, options, consoles, summary))


@contextlib.contextmanager
def summarized(report_dir: Path, consoles: Consoles, *, as_file: bool = False) -> Iterator[Summary]:
    """Lock the report folder for one job, and print its summary as JSON when the block ends.

    ``as_file``: the text of the file, otherwise one line. Raises FlowError if another job has locked the folder.
    """
    with locked(report_dir):
        summary = Summary(report_dir, consoles.warning)
        try:
            yield summary
        finally:
            if summary.content is not None:
                consoles.write_json(summary_text(summary.content) if as_file else summary.content)


def run_flows(
    context: Callable[[], SparkContext],
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    options: JobOptions,
    consoles: Consoles,
    summary: Summary,
) -> list[FlowReport]:
    """Check the flows, run them one after the other in Spark's ``context``, and return their reports.

    The error of one flow is in its report. Raises FlowsRefused if none may run, ConfigError or FlowError if telemetry
    cannot start.
    """
    reports: list[FlowReport] = []
    findings = check(config, flows, summary, consoles)
    with run_telemetry(options.report_dir, consoles) as telemetry:
        for flow in flows:
            describe_flow(telemetry.metrics, flow)
            runs: list[FlowRun] = []
            target = config.clusters[flow.target].client_options()
            control = ControlRecordThread(flow, target, partial(_follow, runs), partial(_warn, consoles, flow.name))
            report = FlowReport(flow.name, datetime.now(UTC), run=control.run)
            run = FlowRun(
                context,
                config,
                flow,
                _flow_options(options, flow.name, report.run),
                report,
                consoles=consoles,
                telemetry=telemetry,
                findings=findings,
                control=control,
                follows=False,
                debug=options.debug,
            )
            runs.append(run)
            reports.append(report)
            with control:
                _run_flow(run, reports, consoles, summary, options)
    return reports


def _follow(runs: Sequence[FlowRun], event: Held | OtherRunClaimed | Resumed) -> None:
    """Stop the run that ``mirror stop``, or another run of its flow, ends."""
    for run in runs:
        if not isinstance(event, Resumed):
            run.stop()


def _warn(consoles: Consoles, flow: str, line: str) -> None:
    consoles.warning(f"flow {flow}: {line}")


def _flow_options(options: JobOptions, flow: str, run: str) -> FlowOptions:
    """Return where the tasks of a run find its flow."""
    ledger = options.report_dir.absolute() / "ledger" / flow / run
    secrets_dir = options.secrets_dir.absolute() if options.secrets_dir else None
    return FlowOptions(options.config.absolute(), flow, ledger, secrets_dir)


def warn_of_versions(consoles: Consoles) -> None:
    """Warn of a Spark with which jobs are not tested, and of a Python that it does not support."""
    if line := version_warning(pyspark.__version__):
        consoles.warning(line)


def warn_of_exposed_credentials(config: MirrorConfig, flows: Sequence[FlowConfig], consoles: Consoles) -> None:
    """Warn of secrets that every user can read, and of clusters of ``flows`` to which they are sent unencrypted."""
    ends = (name for flow in flows for name in (flow.source, flow.target))
    for line in (*unencrypted_credentials(config, ends), *readable_secrets(config)):
        consoles.warning(line)


def check(config: MirrorConfig, flows: Sequence[FlowConfig], summary: Summary, consoles: Consoles) -> Findings:
    """Check all flows against their clusters.

    Raises FlowsRefused if none may run, after writing the problems into the summary.
    """
    names = dict.fromkeys(name for flow in flows for name in (flow.source, flow.target))
    consoles.progress(f"checking the clusters {', '.join(names)}")
    try:
        with Clusters(config) as clusters:
            findings = check_flows(config, flows, clusters, consoles.progress)
    except FlowsRefused as refused:
        now = datetime.now(UTC)
        errors = {name: "; ".join(lines) for name, lines in refused.problems.items()}
        summary.write([FlowReport(name, now, now, error=error) for name, error in errors.items()])
        raise
    for flow in flows:
        for line in left_out_lines(findings.left_out.get(flow.name, {})):
            consoles.progress(f"flow {flow.name}: {line}")
    return findings


def _run_flow(
    run: FlowRun, reports: list[FlowReport], consoles: Consoles, summary: Summary, options: JobOptions
) -> None:
    """Run one flow, and write its outcome into its report (the last of ``reports``) and into the summary."""
    report = reports[-1]
    # Before the run, too: if it is killed, the summary says `unfinished`, and not what an earlier run wrote.
    summary.write(reports)
    try:
        run.run(lambda _: None)
    except Exception as error:  # noqa: BLE001  (a failed flow does not stop the next flow)
        report.failed(error, consoles.report(error, debug=options.debug, flow=report.flow))
    except BaseException:  # a signal, or the interrupt of a notebook's cell
        report.cut_short = True
        raise
    finally:
        report.ended = datetime.now(UTC)
        summary.write(reports)
        if report.partitions or report.groups:
            consoles.print_table(flow_results(report, None if options.all_partitions else MAX_PARTITIONS_SHOWN))


def catch_signals() -> None:
    """Have SIGINT and SIGTERM raise :class:`Interrupted`."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)


def _interrupt(signum: int, _frame: FrameType | None) -> NoReturn:
    # A second signal must not interrupt the writing of the summary.
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    terminate_jvm()  # Spark's JVM ignores SIGINT, and the report has what was copied until now
    raise Interrupted(signum)
