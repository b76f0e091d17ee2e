"""``mirror stream``: follow topics until told to end."""

from __future__ import annotations

from typing import Annotated

import typer

from mirror.cli.options import (
    MASTER,
    REPORT_DIR,
    AsJson,
    Config,
    Debug,
    Everything,
    Flow,
    Master,
    ReportDir,
    SecretsDir,
)
from mirror.cli.submit import submit


def stream(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = REPORT_DIR,
    secrets_dir: SecretsDir = None,
    master: Master = MASTER,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Copy what is there now, epoch by epoch, and end.")
    ] = False,
    everything: Everything = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Follow each flow's topics, new ones included, until Ctrl-C, SIGTERM or `mirror stop`; the flows side by side.

    With --json it prints a line for each epoch of a flow that has ended, and as the last one what summary.json says.

    Exit status: 0 ended in order, 1 could not run, 2 wrong usage, 3 ended with partitions that did not complete or
    because another run took over, 130 or 143 cut short: it did not end within shutdown-timeout-ms.
    """
    more = [*(["--available-now"] if available_now else []), *(["--all"] if everything else [])]
    submit(config, flow, report_dir, secrets_dir, master, more, as_json=as_json, debug=debug, stream=True)
