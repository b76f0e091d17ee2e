"""Writes what an import has made: a configuration, and secrets that only their owner may read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.errors import MigrationError
from mirror.local_users import own_folder
from mirror.migration.configuration import ConfigurationFile

_PRIVATE_FILE: Final = 0o600
_FILE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a configuration and what belongs to it go."""

    path: Path

    @property
    def secrets_dir(self) -> Path:
        """The folder of its secrets."""
        return self.path.with_name(f"{self.path.stem}-secrets")


def write_all(target: Destination, file: ConfigurationFile, *, overwrite: bool) -> None:
    """Write the secrets, then the configuration. Raises MigrationError if one of the files exists."""
    private = {target.secrets_dir / name: text.encode() for name, text in file.secrets.items()}
    for path in (target.path, *private):
        if path.exists() and not overwrite:
            raise MigrationError(f"{path} exists: give another path, or --overwrite")
    for path, data in private.items():
        write_private(path, data)
    _write(target.path, file.text.encode(), _FILE)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, in a folder for which that holds, too. Raises MigrationError."""
    try:
        own_folder(path.parent)
    except OSError as error:
        raise MigrationError(f"{path.parent} cannot be used: {error.strerror}") from error
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
