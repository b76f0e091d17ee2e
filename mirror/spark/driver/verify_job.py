"""The driver's script of a verification: compares source and target of the selected flows.

It changes neither, but for one record of its result in the flow's status topic on the target, if it may write there.

Exit status: 0 everything that is copied is equal; 1 something could not be examined; 2 wrong usage; 3 differences, with
--strict also if the target is not complete; 130 or 143 interrupted by SIGINT or SIGTERM.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from mirror.config.load import load
from mirror.errors import FlowError, KafkaError
from mirror.exit_status import DONE, FAILED
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import STATUS_MS, write_status
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.batch_job import Interrupted, catch_signals, warn_of_exposed_credentials, warn_of_versions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.output.verify_tables import verification_lines
from mirror.spark.driver.report.report_lock import locked
from mirror.spark.driver.session import start_context
from mirror.spark.driver.spark_start import SparkStart
from mirror.spark.driver.telemetry_bridge import close_lineage, lineage_job
from mirror.spark.driver.verify_flow import FlowVerifier
from mirror.spark.driver.verify_options import VerifyOptions, check_options
from mirror.spark.ledger.atomic_write import write_atomically
from mirror.spark.ledger.status_table import read_status
from mirror.spark.verification.verification_result import FlowVerification
from mirror.telemetry.evidence import LastVerification
from mirror.telemetry.lineage.emitter import lineage_of
from mirror.telemetry.lineage.facts import JobKind, RunEnd, topic_verdicts
from mirror.verify.partition_results import exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig

_DESCRIPTION: Final = (
    "Compare source and target of flows, record by record, and report the result in their status topics."
)
_RESULT_FILE: Final = "verify.json"


def main(argv: Sequence[str]) -> int:
    """Run the job with the arguments ``argv``, print its errors, and return the exit status."""
    consoles = Consoles()
    # Under spark-submit, sys.stderr is not stderr (mirror.spark.driver.output.console).
    with contextlib.redirect_stderr(consoles.err.file):
        options = VerifyOptions.parse(argv, script="verify.py", description=_DESCRIPTION)
    if options.as_json:
        consoles.switch_to_json()
    catch_signals()
    try:
        return _run(options, consoles)
    except Interrupted as interrupted:
        consoles.error("interrupted: nothing of this verification is kept")
        return 128 + interrupted.signum
    except Exception as error:  # noqa: BLE001  (no traceback reaches a user who did not request it)
        consoles.report(error, debug=options.debug)
        return FAILED


def _run(options: VerifyOptions, consoles: Consoles) -> int:
    config = load(options.config, secrets_dir=options.secrets_dir)
    flows, proof = check_options(options, config)
    warn_of_versions(consoles)
    warn_of_exposed_credentials(config, flows, consoles)
    lineage = lineage_of(os.environ, SystemClock(), consoles.warning)
    with locked(options.report_dir), contextlib.ExitStack() as started:
        started.callback(close_lineage, lineage, consoles)
        verifier = FlowVerifier(config, options, proof, _lazy_context(started, consoles), consoles.progress)
        reports = []
        for flow in flows:
            report = FlowVerification(flow=flow.name, partial=options.is_partial)
            lineage.begin(lineage_job(config, flow, JobKind.VERIFICATION, report.started.isoformat()))
            _verify(verifier, flow, report, consoles, options)
            end = RunEnd.FAIL if report.error else RunEnd.COMPLETE
            lineage.end(flow.name, end, report.error, topic_verdicts(report.results))
            reports.append(report)
            _leave(report, config.clusters[flow.target].client_options(), consoles)
            for lines in verification_lines(report, all_partitions=options.all_partitions):
                consoles.print_table(lines)
        content = _content(reports, strict=options.strict)
        write_atomically(options.report_dir / _RESULT_FILE, (json.dumps(content, indent=1) + "\n").encode())
    consoles.write_json(content, indent=2)
    return int(content["exit_status"])


def _lazy_context(started: contextlib.ExitStack, consoles: Consoles) -> Callable[[], SparkContext]:
    """Return what starts Spark when it is called first."""

    @functools.cache
    def context() -> SparkContext:
        consoles.progress("starting the Spark session")
        return started.enter_context(SparkStart(start_context)).context()

    return context


def _verify(
    verifier: FlowVerifier, flow: FlowConfig, report: FlowVerification, consoles: Consoles, options: VerifyOptions
) -> None:
    """Verify one flow, and fill ``report``. One that cannot be verified does not stop the next one."""
    try:
        verifier.verify(flow, report)
    except Py4JJavaError as error:
        failure = FlowError(f"Spark could not compare: {'; '.join(error_lines(error))}")
        report.error = consoles.report(failure, debug=options.debug, flow=flow.name)
    except Exception as error:  # noqa: BLE001
        report.error = consoles.report(error, debug=options.debug, flow=flow.name)
    report.ended = datetime.now(UTC)


def _leave(report: FlowVerification, target_options: Mapping[str, object], consoles: Consoles) -> None:
    """Leave the result in the flow's status topic, for its runs on any host."""
    flow, earlier = report.flow, None
    with contextlib.suppress(KafkaError):
        earlier = read_status(target_options, flow, STATUS_MS).evidence.verification
    ended = report.ended or datetime.now(UTC)
    found = LastVerification.of(report.to_record(), int(ended.timestamp() * 1000), earlier)
    if (refused := write_status(target_options, flow, {status_values.VERIFICATION: found}, STATUS_MS)) is not None:
        consoles.warning(f"flow {flow}: its runs will not know of this verification: {refused}")


def _content(reports: Sequence[FlowVerification], *, strict: bool) -> dict[str, Any]:
    status = exit_status((result for report in reports for result in report.results), strict=strict)
    if status == DONE and any(report.error for report in reports):
        status = FAILED
    return {"exit_status": status, "flows": [report.to_record() for report in reports]}
