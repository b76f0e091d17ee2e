"""``mirror stream``: follow topics until told to end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirror.cli.submit import submit


def stream(
    config: Annotated[Path, typer.Option("--config", help="The TOML file with clusters and flows.")],
    flow: Annotated[str | None, typer.Option("--flow", help="Only this flow (default: all, side by side).")] = None,
    report_dir: Annotated[
        Path, typer.Option("--report-dir", help="Folder for summary.json, ledger and Spark's log.", file_okay=False)
    ] = Path("mirror-report"),
    secrets_dir: Annotated[
        Path | None, typer.Option("--secrets-dir", help="Folder with one file per secret.", file_okay=False)
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs the tasks.")] = "local[*,4]",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Copy what is there now, epoch by epoch, and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="MIRROR_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Follow each flow's topics, new ones included, until Ctrl-C, SIGTERM or `mirror stop`.

    Exit status: 0 ended in order, 1 could not run, 2 wrong usage, 3 ended with partitions that did not complete or
    because another run took over, 130 or 143 cut short: it did not end within shutdown-timeout-ms.
    """
    arguments = ["--available-now"] if available_now else []
    submit(config, flow, report_dir, secrets_dir, master, arguments, debug=debug, stream=True)
