"""The options that several commands have: the same name, type and help everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

Config = Annotated[Path, typer.Option("--config", readable=False, help="The TOML file with clusters and flows.")]
Flow = Annotated[str | None, typer.Option("--flow", help="Only this flow (default: all).")]
ReportDir = Annotated[
    Path,
    typer.Option("--report-dir", help="Folder of the runs: summary.json, ledger and Spark's log.", file_okay=False),
]
SecretsDir = Annotated[
    Path | None,
    typer.Option("--secrets-dir", help="Folder with one file per secret (else MIRROR_SECRETS_DIR).", file_okay=False),
]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs the tasks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Everything = Annotated[
    bool, typer.Option("--all", help="Show all partitions at the end, not only the 40 that are worst.")
]
Debug = Annotated[bool, typer.Option("--debug", envvar="MIRROR_DEBUG", help="Show tracebacks of errors.")]

REPORT_DIR: Final = Path("mirror-report")
MASTER: Final = "local[*,4]"
"""All cores; ``local[*]`` alone would never try a task again."""
