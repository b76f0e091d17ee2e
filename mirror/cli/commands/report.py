"""``mirror report``: write a run's report again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirror.errors import FlowError
from mirror.spark.driver.job_options import DEFAULT_REPORT_DIR
from mirror.spark.driver.report.report_file import NAME, render_report
from mirror.spark.driver.report.report_source import ReportSource
from mirror.spark.ledger.atomic_write import write_atomically


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --report-dir of a run.", file_okay=False, show_default=True)
    ] = DEFAULT_REPORT_DIR,
    flow: Annotated[
        str | None, typer.Option("--flow", help="Only this flow, of its last run (default: all of the last run).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help=f"The file to write (default: DIR/{NAME}).", dir_okay=False)
    ] = None,
) -> None:
    """Write the report of the last run again, as one HTML file that needs no network, and print the file's name.

    The command reads summary.json and the ledger in DIR, even while a run writes there.

    Exit status: 0 written, 1 not written.
    """
    path = output or folder / NAME
    page = render_report(ReportSource(folder), flow)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise FlowError(f"{path} cannot be written: {error.strerror}; choose another file with --output") from error
    print(path)
