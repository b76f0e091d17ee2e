"""The findings of ``mirror import`` and ``mirror lint``, as lines and as JSON; and how the file is read."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

from mirror.migration.findings import Finding
from mirror.migration.parsing.reading import MAX_BYTES, refuse

_HELP: Final = "A file of MirrorMaker 2: its properties, connectors as JSON, or a resource of Strimzi as YAML."
SourceFile = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help=_HELP)]


def read_source(path: Path) -> bytes:
    """Return the content of a file, or its beginning if it is too large. Raises ConfigError."""
    try:
        if not path.is_file():  # Reading a FIFO or a device might never end.
            raise refuse(str(path), "not a file" if path.exists() else "no such file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refuse(str(path), f"cannot be read: {error.strerror}") from error


def print_findings(findings: Iterable[Finding], file: TextIO) -> None:
    """Print the findings under a heading for each kind."""
    for kind, of_kind in groupby(findings, key=lambda finding: finding.kind):
        print(f"{kind}:", file=file)
        for finding in of_kind:
            print(f"  {finding}", file=file)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings as JSON values."""
    return [
        {
            "kind": str(finding.kind),
            "line": finding.line or None,
            "key": finding.key,
            "value": finding.value,
            "meaning": finding.meaning,
            "action": finding.action,
        }
        for finding in findings
    ]
