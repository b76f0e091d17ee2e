"""The folder of a stream's checkpoint, which Spark requires and nothing reads again.

It is not in the report folder: a query whose checkpoint cannot be written ends, and copying must not depend on that
folder. Each batch replaces an older one there, so a file system in memory has room for it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "mirror-checkpoint-"
IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder within is private (mkdtemp)

_TRIES: Final = 10
"""Each fails only if another stream starts between two system calls."""


@contextlib.contextmanager
def checkpoint_folder(parent: Path = IN_MEMORY) -> Iterator[Path]:
    """Yield a new private folder, and remove it at the end; in the temporary folder if ``parent`` is not writable.

    Also removes those of this user whose process was killed: a living one holds a lock. Raises OSError.
    """
    if not os.access(parent, os.W_OK | os.X_OK):
        parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    with contextlib.ExitStack() as stack:
        folder = _new_folder(parent, stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _new_folder(parent: Path, stack: contextlib.ExitStack) -> Path:
    """Return a new folder that ``stack`` keeps locked. Raises OSError."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Another stream that starts may find it before it is locked, and remove it.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            stack.enter_context(_locked(folder))
            folder.lstat()
            return folder
    raise BlockingIOError(errno.EAGAIN, "other processes remove each new folder; start again", str(parent))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock ``folder`` for the block. Raises OSError if another process has, or if it is another user's or a link."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.getuid():
            raise PermissionError(folder)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
