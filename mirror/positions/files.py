"""The files of a checkpoint: what is asked of a file system, and this host's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from mirror.errors import FlowError


class Files(Protocol):
    """A file system, by whole paths. Each method raises FlowError with the path if it cannot do what it is to do."""

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder; none if there is no such folder."""

    def walk(self, folder: str) -> Iterable[str]:
        """Return the paths within a folder of all files below it, with ``/``."""

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is none."""

    def create(self, path: str, content: bytes) -> None:
        """Write a file, and the folders above it; there is none before."""

    def replace(self, path: str, content: bytes) -> None:
        """Write a file in place of another one, such that a reader sees one of them whole."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file, and make the folders above ``target``."""


class LocalFiles:
    """Those of this host. Spark's checksums beside files (``.NAME.crc``) may be missing, but not be wrong."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return sorted(one.name for one in Path(folder).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(folder, error) from error

    def walk(self, folder: str) -> Iterable[str]:
        """Yield the files below a folder."""

        def failed(error: OSError) -> None:
            raise _failed(folder, error) from error

        for path, _, names in os.walk(folder, onerror=failed):
            yield from (Path(path, name).relative_to(folder).as_posix() for name in sorted(names))

    def read(self, path: str) -> bytes | None:
        """Return a file's content."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(path, error) from error

    def create(self, path: str, content: bytes) -> None:
        """Write a file."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("xb") as file:
                file.write(content)
        except OSError as error:
            raise _failed(path, error) from error

    def replace(self, path: str, content: bytes) -> None:
        """Write another file, and rename it."""
        other = Path(path).with_name(f".{Path(path).name}.mirror")
        try:
            other.write_bytes(content)
            other.replace(path)
        except OSError as error:
            raise _failed(path, error) from error

    def copy(self, source: str, target: str) -> None:
        """Copy a file."""
        try:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise _failed(target, error) from error


def _failed(path: str, error: OSError) -> FlowError:
    return FlowError(f"{path}: {error.strerror or error}")
