"""Writes what an import has made: configurations, and secrets that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.errors import MigrationError
from mirror.migration.configuration import ConfigurationFile

_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
_FILE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one configuration goes."""

    path: Path
    secrets_dir: Path
    file: ConfigurationFile


def destinations(path: Path, files: Sequence[ConfigurationFile]) -> list[Destination]:
    """Return where each configuration goes: the first to ``path``, the others beside it, named for their first flow."""
    found = []
    for number, file in enumerate(files):
        own = path if number == 0 else path.with_name(f"{path.stem}-{file.flows[0]}{path.suffix}")
        found.append(Destination(own, own.with_name(f"{own.stem}-secrets"), file))
    return found


def certificates_folder(path: Path) -> Path:
    """Return the folder of the PEM files that belong to the configuration ``path``."""
    return path.absolute().with_name(f"{path.stem}-certificates")


def write_all(targets: Sequence[Destination], certificates: Mapping[Path, bytes], *, overwrite: bool) -> None:
    """Write secrets and certificates, then configurations. Raises MigrationError if a file exists."""
    if not overwrite:
        for file in (*_files(targets), *certificates):
            if file.exists():
                raise MigrationError(f"{file} exists: give another path, or --overwrite")
    for target in targets:
        for name, text in target.file.secrets.items():
            write_private(target.secrets_dir / name, text.encode())
    for path, pem in certificates.items():
        write_private(path, pem)
    for target in targets:
        _write(target.path, target.file.text.encode(), _FILE)


def _files(targets: Sequence[Destination]) -> Iterator[Path]:
    for target in targets:
        yield target.path
        yield from (target.secrets_dir / name for name in target.file.secrets)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, in a folder for which that holds, too. Raises MigrationError."""
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise MigrationError(f"{path.parent} cannot be made: {error.strerror}") from error
    _write(path, data, _PRIVATE_FILE)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file as a whole; it is never there in part, or with other permissions."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise MigrationError(f"{path} cannot be written: {error.strerror}") from error
