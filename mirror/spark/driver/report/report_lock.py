"""Allow one run at a time in a report folder: two would copy records twice, and overwrite each other's summary."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError
from mirror.local_users import REPORT_READERS, open_own, own_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_FILE: Final = "run.lock"
"""Not removed when the run ends: a run with the removed file and a run with a new one could both hold the lock."""
WAIT_S: Final = 10.0
"""How long to wait for a run that is ending: after a kill of `mirror run` its driver holds the lock some seconds."""
_POLL_S: Final = 0.1
"""flock(2) has no timeout."""


# Invariant: Two jobs never share a report folder, and no other user can replace, read or lock it.
# Test: tests/spark/driver/test_report_lock.py::test_a_second_run_is_refused_until_the_first_has_ended
# Test: tests/spark/driver/test_report_lock.py::test_a_report_folder_that_another_user_has_made_is_refused
@contextlib.contextmanager
def locked(report_dir: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Lock the folder for this process while the block runs. The kernel releases the lock however the process ends.

    Creates the folder if needed. Raises FlowError if another run holds the lock for ``wait_s`` seconds from now, or if
    the folder cannot be written, or other users could replace what is in it.
    """
    try:
        own_folder(report_dir, others=REPORT_READERS)
        # For this user alone: who may read a file may lock it (flock(2)).
        descriptor = open_own(report_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        at = "" if error.filename in {None, str(report_dir)} else f"{Path(error.filename).name}: "
        raise FlowError(f"the report folder {report_dir} cannot be used: {at}{error.strerror}") from error
    try:
        try:
            _lock(descriptor, wait_s)
        except BlockingIOError:
            raise FlowError(
                f"another run is using the report folder {report_dir}; wait until it ends, or for other flows choose"
                " another folder with --report-dir"
            ) from None
        except OSError as error:
            raise FlowError(
                f"the report folder {report_dir} cannot be locked: {error.strerror}; choose one on a local file system"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait_s: float) -> None:
    """Lock the file. Raises BlockingIOError if another process holds the lock for ``wait_s`` seconds, and OSError."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_POLL_S)
        else:
            return
