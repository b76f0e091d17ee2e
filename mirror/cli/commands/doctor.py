"""``mirror doctor``: what keeps the flows of a configuration from working, on this host and on their clusters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from mirror.cli.commands.check_config import check_credentials, why_not_loaded
from mirror.cli.console import print_notice
from mirror.cli.options import AsJson, Config, Debug, Flow, ReportDir, SecretsDir
from mirror.config.load import load
from mirror.doctor.diagnosis import STEPS, diagnose
from mirror.doctor.findings import Finding, Severity
from mirror.exit_status import ATTENTION, DONE
from mirror.spark.driver.job_options import DEFAULT_REPORT_DIR
from mirror.spark.driver.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_S: Final = 60.0
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
    configuration cannot be used, 2 wrong usage.
    """
    loaded = load(config, secrets_dir=secrets_dir, why_not_loaded=why_not_loaded)
    check_credentials(loaded, str(config))
    findings = diagnose(
        loaded, loaded.select(flow), report_dir, max(1, round(timeout * 1000 / STEPS)), on_waiting=print_notice
    )
    if as_json:
        print(json.dumps({"findings": [one.to_json() for one in findings]}, indent=2, ensure_ascii=False))
    else:
        _print(findings)
    errors = any(one.severity is Severity.ERROR for one in findings)
    raise typer.Exit(ATTENTION if errors else DONE)


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
