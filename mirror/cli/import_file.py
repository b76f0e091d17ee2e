"""``mirror import``: turn a MirrorMaker 2 configuration into one of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mirror.cli import findings
from mirror.cli.findings import SourceFile
from mirror.cli.options import AsJson
from mirror.errors import MigrationError
from mirror.migration.clusters import is_conversion
from mirror.migration.configuration import Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source, read
from mirror.migration.stores import find_keytool, to_pem
from mirror.migration.written_files import Destination, certificates_folder, destinations, write_all

_INCOMPLETE = 3
_INCOMPLETE_KINDS = {Kind.LEFT_OUT, Kind.TO_DO}
_DEFAULT = Path("mirror.toml")


def import_file(
    file: SourceFile,
    write: Annotated[
        Path | None, typer.Option("--write", dir_okay=False, help="Write the configuration to this path, with secrets.")
    ] = None,
    convert_stores: Annotated[
        bool, typer.Option("--convert-stores", help="Write the certificates and keys of Java's stores as PEM files.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a MirrorMaker 2 file into a configuration, in which each line names its origin.

    Without --write, the configuration is printed, and the findings on stderr. With it, passwords and keys are written
    to the folder NAME-secrets beside the configuration, which only its owner can read. What cannot be carried over is
    listed with what to do, and so is what MirrorMaker 2 itself ignores.

    Exit status: 0 all flows are carried over, 1 the file cannot be read or no flow can be carried over, 3 something is
    left out or left to do.
    """
    imported = import_source(
        read(findings.read_source(file), str(file)),
        name=file.name,
        certificates_folder=str(certificates_folder(write or _DEFAULT)),
    )
    targets = destinations(write or _DEFAULT, imported.files)
    if convert_stores and write is None:
        raise typer.BadParameter("needs --write", param_hint="--convert-stores")
    if write is not None and imported.files:
        converted = _converted(imported) if convert_stores else {}
        write_all(targets, converted, overwrite=overwrite)
        imported.findings = [finding for finding in imported.findings if not (converted and is_conversion(finding))]
    if as_json:
        print(json.dumps(_as_json(imported, targets, written=write is not None), indent=2, ensure_ascii=False))
    else:
        _print(imported, targets, written=write is not None)
    if not imported.files:
        raise MigrationError(f"{file}: no flow can be carried over; the findings say why")
    if any(finding.kind in _INCOMPLETE_KINDS for finding in imported.findings):
        raise typer.Exit(_INCOMPLETE)


def _converted(imported: Imported) -> dict[Path, bytes]:
    if not imported.stores:
        return {}
    keytool = find_keytool()
    return {Path(store.pem): to_pem(store, keytool) for store in imported.stores}


def _print(imported: Imported, targets: list[Destination], *, written: bool) -> None:
    for target in targets:
        if not written:
            print(target.file.text)
            continue
        print(f"written: {target.path}, with the flows {', '.join(target.file.flows)}")
        secrets = ""
        if target.file.secrets:
            print(f"written: {len(target.file.secrets)} secrets in {target.secrets_dir}")
            secrets = f" --secrets-dir {target.secrets_dir}"
        print(f"check it: mirror check-config --config {target.path}{secrets}")
    findings.print_findings(imported.findings, sys.stdout if written else sys.stderr)


def _as_json(imported: Imported, targets: list[Destination], *, written: bool) -> dict[str, Any]:
    files = [
        {
            "path": str(target.path) if written else None,
            "flows": list(target.file.flows),
            "secrets": sorted(target.file.secrets),
            "secrets_dir": str(target.secrets_dir) if written and target.file.secrets else None,
            "text": target.file.text,
        }
        for target in targets
    ]
    return {"files": files, "findings": findings.as_json(imported.findings)}
