"""One run at a time in a report folder: two would copy the same records twice, and overwrite each other's summary."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE: Final = "run.lock"
"""Stays when the run has ended: with a removed one open here and a new one there, two runs could hold the lock."""


@contextlib.contextmanager
def locked(report_dir: Path) -> Iterator[None]:
    """Hold the folder (made when needed) for this process while the block runs; however it ends, the kernel lets go.

    Raises FlowError where another run holds it, or where the folder cannot be written.
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
                f"another run is using the report folder {report_dir}; wait for its end, or, for other flows, choose"
                " another folder by --report-dir"
            ) from None
        except OSError as error:
            raise FlowError(
                f"the report folder {report_dir} cannot be locked: {error.strerror}; choose one on a local file system"
            ) from error
        yield
