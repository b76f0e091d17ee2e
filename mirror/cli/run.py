"""``mirror run``: submit the replication job to Spark and wait for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mirror.config.load import load
from mirror.sandbox import die_with_owner
from mirror.sandbox.java import find_java
from mirror.spark.submission import Submission


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
    # What is wrong with the configuration or the machine is said at once, not after Spark's start.
    load(config, secrets_dir=secrets_dir).select(flow)
    find_java()
    arguments = ["--config", str(config), "--report-dir", str(report_dir)]
    if flow is not None:
        arguments += ["--flow", flow]
    if secrets_dir is not None:
        arguments += ["--secrets-dir", str(secrets_dir)]
    if debug:
        arguments.append("--debug")
    # After a SIGKILL of this process nobody else would end Spark.
    guard = [sys.executable, "-I", "-S", die_with_owner.__file__, str(os.getpid())]
    raise typer.Exit(Submission(arguments, master, report_dir, guard=guard).run())
