"""``mirror import``: turn a MirrorMaker 2 configuration into one of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mirror.cli.options import AsJson
from mirror.cli.views import findings
from mirror.cli.views.findings import SourceFile
from mirror.errors import MigrationError
from mirror.exit_status import ATTENTION
from mirror.migration.configuration import Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source
from mirror.migration.sources import read
from mirror.migration.written_files import Destination, write_all

_INCOMPLETE_KINDS = {Kind.LEFT_OUT, Kind.TO_DO, Kind.REFUSED, Kind.OTHER_EFFECT}
"""Of the last two the writer probably means another flow than MirrorMaker 2 reads, and than is written."""
_DEFAULT = Path("mirror.toml")


def import_file(
    file: SourceFile,
    write: Annotated[
        Path | None, typer.Option("--write", dir_okay=False, help="Write the configuration to this path, with secrets.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a MirrorMaker 2 file into a configuration, in which each line names its origin.

    Without --write, the configuration is printed, and the findings on stderr. With it, passwords and keys are written
    to the folder NAME-secrets beside the configuration, which only its owner can read. What cannot be carried over is
    listed with what to do, and so is what MirrorMaker 2 itself ignores.

    Exit status: 0 all flows are carried over, 1 the file cannot be read or no flow can be carried over, 3 something is
    left out or left to do, or is refused by MirrorMaker 2 or has another effect than its writer probably means.
    """
    target = Destination(write or _DEFAULT)
    imported = import_source(read(findings.read_source(file), str(file)), name=file.name)
    if imported.file is not None and write is not None:
        write_all(target, imported.file, overwrite=overwrite)
    if as_json:
        print(json.dumps(_as_json(imported, target if write else None), indent=2, ensure_ascii=False))
    else:
        _print(imported, target if write else None)
    if imported.file is None:
        raise MigrationError(f"{file}: no flow can be carried over; the findings say why")
    if any(finding.kind in _INCOMPLETE_KINDS for finding in imported.findings):
        raise typer.Exit(ATTENTION)


def _print(imported: Imported, written: Destination | None) -> None:
    file = imported.file
    if file is not None and written is None:
        print(file.text)
    elif file is not None and written is not None:
        print(f"written: {written.path}, with the flows {', '.join(file.flows)}")
        secrets = ""
        if file.secrets:
            print(f"written: {len(file.secrets)} secrets in {written.secrets_dir}")
            secrets = f" --secrets-dir {written.secrets_dir}"
        print(f"check it: mirror check-config --config {written.path}{secrets}")
    findings.print_findings(imported.findings, sys.stdout if written else sys.stderr)


def _as_json(imported: Imported, written: Destination | None) -> dict[str, Any]:
    file = imported.file
    return {
        "path": str(written.path) if file and written else None,
        "secrets_dir": str(written.secrets_dir) if file and file.secrets and written else None,
        "flows": list(file.flows) if file else [],
        "secrets": sorted(file.secrets) if file else [],
        "text": file.text if file else None,
        "findings": findings.as_json(imported.findings),
    }
