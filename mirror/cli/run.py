"""``mirror run``: submit the replication job to Spark and wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirror.cli.submit import submit


def run(
    config: Annotated[Path, typer.Option("--config", help="The TOML file with clusters and flows.")],
    flow: Annotated[
        str | None, typer.Option("--flow", help="Only this flow (default: all, one after the other).")
    ] = None,
    report_dir: Annotated[
        Path, typer.Option("--report-dir", help="Folder for summary.json and Spark's log.", file_okay=False)
    ] = Path("mirror-report"),
    secrets_dir: Annotated[
        Path | None, typer.Option("--secrets-dir", help="Folder with one file per secret.", file_okay=False)
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs the tasks.")] = "local[*,4]",
    debug: Annotated[bool, typer.Option("--debug", envvar="MIRROR_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Copy each flow's topics to where they end now, and say what came of it.

    Exit status: 0 every partition complete, 1 could not run, 2 wrong usage, 3 some partitions did not complete,
    130 or 143 cut short.
    """
    submit(config, flow, report_dir, secrets_dir, master, [], debug=debug)
