"""The driver's script of a stream: runs one Spark job per flow, until it is stopped.

Exit status: 0 ended in order (stopped by a signal or ``mirror stop``); 1 could not run; 2 wrong usage;
3 ended with partitions that did not complete, or because another run took over; 4 MirrorMaker 2 copies again what a
flow has taken over; 130 or 143 interrupted: a signal stopped it, and it did not end within ``shutdown-timeout-ms``.
"""

from __future__ import annotations

import contextlib
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

from mirror.config.load import load
from mirror.errors import FlowError
from mirror.runtime.memory.malloc_tuning import collect_rarely
from mirror.spark.contact import is_away
from mirror.spark.driver.batch_job import (
    check,
    interrupted_line,
    summarized,
    warn_of_exposed_credentials,
    warn_of_versions,
)
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN, JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.tables import flow_results
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.session import start_stream_context
from mirror.spark.driver.stream_site import Signals, StreamSite
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger.results import EXIT_COULD_NOT_RUN, FlowReport, Summary
from mirror.spark.planning.limits import why_not_followed
from mirror.spark.supervision.config_file import ConfigFile
from mirror.spark.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import MirrorConfig
    from mirror.spark.preflight.flow_checks import Findings

_DESCRIPTION: Final = (
    "Follow Kafka topics as a configuration specifies, all flows concurrently. With --json, one line is printed per"
    " period of a flow (period-ms), and the summary as the last line."
)


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
    signals = Signals()
    signals.listen()
    collect_rarely()
    file = ConfigFile(options.config, options.secrets_dir)
    try:
        config = load(options.config, secrets_dir=options.secrets_dir)
        with (
            summarized(options.report_dir, consoles) as summary,
            ReportFile(options.report_dir, consoles.warning) as report,
        ):
            file.watch(config.secret_files)
            return _run(config, file, options, consoles, signals, summary, report)
    except Exception as error:  # noqa: BLE001  (no traceback reaches a user who did not request it)
        consoles.report(error, debug=options.debug)
        return EXIT_COULD_NOT_RUN


def _run(
    config: MirrorConfig,
    file: ConfigFile,
    options: JobOptions,
    consoles: Consoles,
    signals: Signals,
    summary: Summary,
    report: ReportFile,
) -> int:
    """Run until all flows have ended. Raises MirrorError if none may run."""
    flows = config.select(options.flow)
    warn_of_versions(consoles)
    warn_of_exposed_credentials(config, flows, consoles)
    give_up_s = math.inf if options.wait is None else time.monotonic() + options.wait
    findings = check(config, flows, summary, consoles)
    for flow in flows:
        if (reason := why_not_followed(flow)) is not None:
            findings.errors.setdefault(flow.name, FlowError(reason))
    may_wait = options.wait != 0
    errors = [findings.errors.get(flow.name) for flow in flows]
    if not any(error is None or (may_wait and is_away(error)) for error in errors):
        return _refuse(findings, options, consoles, summary)
    with run_telemetry(options.report_dir, consoles) as telemetry:
        consoles.progress("starting the Spark session")
        context = start_stream_context()
        signals.listen()  # Spark has installed its own handlers
        site = StreamSite(context, options, consoles, telemetry, summary, report, signals, findings, give_up_s)
        Supervisor(site, config, file, only=options.flow).run()
        status = site.status()
        site.summarize()
        for one in site.reports:
            if one.partitions or one.groups:
                consoles.print_table(flow_results(one, None if options.all_partitions else MAX_PARTITIONS_SHOWN))
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
        if signals.signum is not None and any(one.cut_short for one in site.reports):
            consoles.error(interrupted_line(signals.signum))
            return 128 + signals.signum
        return status


def _refuse(findings: Findings, options: JobOptions, consoles: Consoles, summary: Summary) -> int:
    """Report why no flow runs, and return the exit status."""
    now = datetime.now(UTC)
    lines = {
        name: consoles.report(error, debug=options.debug, prefix=f"flow {name}: ")
        for name, error in findings.errors.items()
    }
    summary.write([FlowReport(name, now, now, error=line) for name, line in lines.items()])
    return EXIT_COULD_NOT_RUN
