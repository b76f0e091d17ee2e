"""The sandbox's folders, and locks for sharing them between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirror.errors import SandboxError
from mirror.local_users import open_own

APPLICATION = "kafka-spark-mirror"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the application's folder in ``$XDG_CACHE_HOME`` or ``~/.cache`` (XDG Base Directory)."""
    configured = environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return base / APPLICATION


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``folder``, which is created if it does not exist. Waits for another holder.

    The kernel releases the lock when its holder dies, so it is never stale. Raises SandboxError if the folder cannot be
    created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # For this user alone: who may read a file may lock it.
        lock = os.fdopen(open_own(folder / ".lock", os.O_RDWR | os.O_CREAT), "a")
    except OSError as error:
        raise SandboxError(
            f"cannot write to {folder}: {error.strerror}; give a folder that this user may write to"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_folder(folder: Path) -> None:
    """Delete a folder of the sandbox with everything in it. Does nothing if it does not exist.

    Raises SandboxError if something in it cannot be deleted.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise SandboxError(f"cannot delete {error.filename or folder}: {error.strerror}; delete it by hand") from error
