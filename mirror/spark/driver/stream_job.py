"""The driver's script of a stream: runs one Spark job per flow, until it is stopped.

Exit status: 0 ended in order (stopped by a signal or ``mirror stop``); 1 could not run; 2 wrong usage;
3 ended with partitions that did not complete, or because another run took over; 4 MirrorMaker 2 copies again what a
flow has taken over; 130 or 143 interrupted: a signal stopped it, and it did not end within ``shutdown-timeout-ms``.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.config.load import load
from mirror.errors import MirrorError
from mirror.exit_status import FAILED
from mirror.runtime.memory.malloc_tuning import collect_rarely
from mirror.spark.clusters import is_away
from mirror.spark.driver.batch_job import (
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
from mirror.spark.driver.spark_start import SparkStart
from mirror.spark.driver.stream_site import Signals, StreamSite, check_flow
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger.results import FlowReport, Summary
from mirror.spark.preflight.flow_checks import FlowsRefused
from mirror.spark.supervision.config_file import ConfigFile
from mirror.spark.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.preflight.flow_checks import Findings

_CHECK_S: Final = 0.2
"""How soon a signal is noticed while flows are checked."""
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
        return FAILED


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
    with SparkStart(start_stream_context) as spark:
        checks = _begin_checks(config, flows, consoles)
        try:
            is_wanted = _await_first(checks, signals, may_wait=options.wait != 0)
        except FlowsRefused as refused:
            now = datetime.now(UTC)
            errors = {name: "; ".join(lines) for name, lines in refused.problems.items()}
            summary.write([FlowReport(name, now, now, error=error) for name, error in errors.items()])
            raise
        if not is_wanted:
            consoles.progress("ending before any flow was checked, as it was asked to")
            return 0
        with run_telemetry(options.report_dir, consoles) as telemetry:
            consoles.progress("starting the Spark session")
            context = spark.context()
            signals.listen()  # Spark has installed its own handlers
            site = StreamSite(context, options, consoles, telemetry, summary, report, signals, checks, give_up_s)
            supervisor = Supervisor(site, config, file, only=options.flow)
            signals.wake = supervisor.wake
            supervisor.run()
            status = site.status()
            site.summarize()
            for one in site.reports:
                if one.partitions or one.groups:
                    consoles.print_table(flow_results(one, None if options.all_partitions else MAX_PARTITIONS_SHOWN))
            if signals.signum is not None and any(one.cut_short for one in site.reports):
                consoles.error(interrupted_line(signals.signum))
                return 128 + signals.signum
            return status


def _begin_checks(config: MirrorConfig, flows: Sequence[FlowConfig], consoles: Consoles) -> dict[str, Future[Findings]]:
    """Check each flow in a thread of its own: a cluster that is away delays no flow of others."""
    names = dict.fromkeys(name for flow in flows for name in (flow.source, flow.target))
    consoles.progress(f"checking the clusters {', '.join(names)}")
    checks: dict[str, Future[Findings]] = {flow.name: Future() for flow in flows}

    def check(flow: FlowConfig) -> None:
        try:
            checks[flow.name].set_result(check_flow(config, flow, consoles))
        except BaseException as error:  # noqa: BLE001 - the flow's start raises it
            checks[flow.name].set_exception(error)

    for flow in flows:
        threading.Thread(target=check, args=(flow,), name=f"mirror-check-{flow.name}", daemon=True).start()
    return checks


def _await_first(checks: Mapping[str, Future[Findings]], signals: Signals, *, may_wait: bool) -> bool:
    """Wait until a flow may run, or may later; return False if a signal comes first.

    Raises FlowsRefused, or another error of a flow, if none may.
    """
    errors: dict[str, BaseException] = {}
    waiting = dict(checks)
    while waiting and not signals.count:
        done, _ = wait(waiting.values(), _CHECK_S, FIRST_COMPLETED)
        for name in [name for name, one in waiting.items() if one in done]:
            error = waiting.pop(name).exception()
            if error is None or (may_wait and is_away(error)):
                return True
            errors[name] = error
    if signals.count:
        return False
    other = next((error for error in errors.values() if not isinstance(error, MirrorError)), None)
    if other is not None:
        raise other
    raise FlowsRefused(
        {
            name: [line for lines in error.problems.values() for line in lines]
            if isinstance(error, FlowsRefused)
            else [f"flow {name}: {error}"]
            for name, error in errors.items()
        }
    )
