"""``mirror doctor``: what keeps the flows of a configuration from working, on this host and on their clusters."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from mirror.cli.commands.check_config import check_credentials, why_not_loaded
from mirror.cli.console import print_notice
from mirror.cli.options import AsJson, Config, Debug, Flow, ReportDir, SecretsDir
from mirror.config.load import load
from mirror.doctor.diagnosis import STEPS, diagnose
from mirror.doctor.findings import Finding, Severity
from mirror.errors import FlowError
from mirror.exit_status import ATTENTION, DONE
from mirror.spark.driver.job_options import DEFAULT_REPORT_DIR
from mirror.spark.driver.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TIMEOUT_S: Final = 60.0
_SHARE: Final = 0.9
"""Of the time of the command: what was found by then is printed."""
_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan", Severity.OK: "green"}

Timeout = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds that the command may take; a tenth of them for each step.")
]


def doctor(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = DEFAULT_REPORT_DIR,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = _TIMEOUT_S,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001 - the application prints the traceback
) -> None:
    """Find what keeps flows from working, on this host and on their clusters. Changes nothing.

    Addresses, TLS, logins, clocks, releases and missing APIs, permissions, settings of brokers and topics, quotas;
    Java, Spark, memory, cores, files and disks of this host. Each line says what was found, why it matters, and what to
    do, in the words of a run that fails by it.

    Exit status: 0 no error (there may be warnings), 3 an error because of which a flow fails or cannot run, 1 the
    configuration cannot be used or the time did not suffice for all, 2 wrong usage.
    """
    until_s = time.monotonic() + _SHARE * timeout
    loaded = load(config, secrets_dir=secrets_dir, why_not_loaded=why_not_loaded)
    check_credentials(loaded, str(config))
    step_ms = max(1, round(timeout * 1000 / STEPS))
    found = diagnose(loaded, loaded.select(flow), report_dir, step_ms, on_waiting=print_notice)
    findings, has_ended = _taken(found, until_s)
    if as_json:
        print(json.dumps({"findings": [one.to_json() for one in findings]}, indent=2, ensure_ascii=False))
    else:
        _print(findings)
    if not has_ended:
        raise FlowError(
            f"the diagnosis has not ended within --timeout {timeout:g}, and what has no line above was not checked;"
            " repeat it with more seconds, or for fewer flows (--flow)"
        )
    errors = any(one.severity is Severity.ERROR for one in findings)
    raise typer.Exit(ATTENTION if errors else DONE)


def _taken(found: Iterator[Finding], until_s: float) -> tuple[list[Finding], bool]:
    """Return what is found until ``until_s``, by the monotonic clock, and whether that is all."""
    findings, ended = list[Finding](), Future[None]()

    def take() -> None:
        try:
            for one in found:
                findings.append(one)
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            ended.set_exception(error)

    # A daemon: what does not answer is left behind.
    threading.Thread(target=take, name="mirror-diagnosis", daemon=True).start()
    try:
        ended.result(max(0.0, until_s - time.monotonic()))
    except TimeoutError:
        if ended.done():
            raise
        return list(findings), False
    return findings, True


def _print(findings: Sequence[Finding]) -> None:
    console = Terminal()
    where = ""
    for one in findings:
        if one.where != where:
            where = one.where
            console.print(Text(where, style="bold"))
        line = Text.assemble("  ", (f"{one.severity:<8}", _STYLES[one.severity]), one.what)
        console.print(line, soft_wrap=True)
        for label, text in (("why", one.why), ("do", one.remedy)):
            if text:
                console.print(Text.assemble(" " * 10, (f"{label:<5}", "dim"), text), soft_wrap=True)
