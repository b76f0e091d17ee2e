"""``mirror report``: a run's report made anew from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirror.errors import FlowError
from mirror.spark.driver.report_file import NAME, render_report
from mirror.spark.driver.report_source import ReportSource
from mirror.spark.ledger.atomic_write import write_atomically


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --report-dir of a run.", file_okay=False, show_default=True)
    ] = Path("mirror-report"),
    flow: Annotated[
        str | None, typer.Option("--flow", help="Only this flow, of its last run (default: all of the last run).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help=f"The file to write (default: DIR/{NAME}).", dir_okay=False)
    ] = None,
) -> None:
    """Make the report of the last run anew: one HTML file, readable without a network. Prints its name.

    It reads summary.json and the ledger in DIR, also while a run writes there. Exit status: 0 written, 1 could not.
    """
    path = output or folder / NAME
    page = render_report(ReportSource(folder), flow)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise FlowError(f"{path} cannot be written: {error.strerror}; choose another file by --output") from error
    print(path)
