"""Allow one run at a time in a report folder: two would copy records twice, and overwrite each other's summary."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE: Final = "run.lock"
"""Not removed when the run ends: a run with the removed file and a run with a new one could both hold the lock."""


@contextlib.contextmanager
def locked(report_dir: Path) -> Iterator[None]:
    """Lock the folder for this process while the block runs. The kernel releases the lock however the process ends.

    Creates the folder if needed. Raises FlowError if another run has locked it, or if it cannot be written.
    """
    try:
        report_dir.mkdir(parents=True, exist_ok=True)
        file = (report_dir / LOCK_FILE).open("ab")
    except OSError as error:
        raise FlowError(f"the report folder {report_dir} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
