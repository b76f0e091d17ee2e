"""Atomic writes of files that several processes share."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from mirror.errors import printable


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` so that a reader sees either the old file or the whole new one.

    Creates missing folders. The file's mode is that of any new file of this process: the umask, or the folder's
    default ACL, decides it. Raises OSError that names ``path``.
    """
    try:
        _write_atomically(path, content)
    except OSError as error:
        # A full disk is reported by a call on a file descriptor, whose error has no file name.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def describe_file_error(error: BaseException) -> str | None:
    """Return ``<file>: <reason>`` if ``error`` is an OSError that names a file, else None."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return printable(f"{os.fsdecode(error.filename)}: {error.strerror}")
    return None
