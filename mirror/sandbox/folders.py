"""Where the sandbox keeps its files, and how two processes share a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirror.errors import SandboxError

APPLICATION = "kafka-spark-mirror"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The application's folder in the user's cache: ``$XDG_CACHE_HOME`` or ``~/.cache`` (XDG Base Directory)."""
    configured = environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return base / APPLICATION


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made if it is not there) for one process at a time; waits for the other one to finish.

    The kernel gives the lock back when its owner dies, so that there is no stale one. Raises SandboxError where the
    folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise SandboxError(
            f"cannot write to {folder}: {error.strerror}; give a folder that this user may write to"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_folder(folder: Path) -> None:
    """Delete a folder made by the sandbox and all in it; one that is gone already is fine.

    Raises SandboxError where something in it cannot be deleted.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise SandboxError(f"cannot delete {error.filename or folder}: {error.strerror}; delete it by hand") from error
