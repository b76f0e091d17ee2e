"""Streams for stdout and stderr whose writes never raise, so that output cannot stop or fail a run.

What the encoding cannot express is written as escape sequences. What a full disk or a closed pipe does not accept is
dropped, and the next write tries again.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import IO, TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    Name = Literal["stdout", "stderr"]

_ESCAPED: Final = "backslashreplace"
"""How characters are written that an encoding lacks: a line of a table as ``\\u2500``."""


class _Output(io.FileIO):
    """Writes to a file descriptor, and drops what it does not accept."""

    def __init__(self, fd: int, name: Name, *, closefd: bool, raises: bool = False) -> None:
        """With ``raises``, the first error is raised: an OSError that names ``name``."""
        super().__init__(fd, "w", closefd=closefd)
        self._shown: Final = name
        self._raises = raises
        self._warns = not raises and name == "stdout"

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of ``data``; return how many bytes are written or dropped."""
        try:
            while (written := super().write(data)) is None:
                # Another process that shares the terminal or pipe may have made it non-blocking.
                poll = select.poll()
                poll.register(self.fileno(), select.POLLOUT)
                poll.poll()
        except OSError as error:
            if self._raises:
                self._raises = False
                raise OSError(error.errno, error.strerror, self._shown) from error
            # A reader that ends early is no problem.
            if self._warns and not isinstance(error, BrokenPipeError):
                self._warns = False
                print(f"mirror: warning: {self._shown}: {error.strerror}", file=unfailing("stderr"))
            return memoryview(data).nbytes
        return written


def unfailing(name: Name, fd: int | None = None) -> IO[str]:
    """Return a stream to this process's stdout or stderr, or for ``fd``, which it then closes.

    The stream of :mod:`sys` itself if it has no descriptor (a test's), and one that keeps nothing if it was closed
    before the process began.
    """
    return _opened(name, fd, raises=False)


def _opened(name: Name, fd: int | None = None, *, raises: bool) -> IO[str]:
    stream: Any = getattr(sys, name)
    if fd is None and stream is None:
        fd = os.open(os.devnull, os.O_WRONLY)
    if fd is not None:
        raw, encoding = _Output(fd, name, closefd=True), "utf-8"
    else:
        try:
            raw, encoding = _Output(stream.fileno(), name, closefd=False, raises=raises), stream.encoding or "utf-8"
        except (OSError, ValueError):
            return stream  # type: ignore[no-any-return]
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors=_ESCAPED, line_buffering=True)


def replace_standard_streams() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr`` of a command; to be called when it begins.

    An error of stdout still ends it: what it prints is all that it is for, and ``status`` would go on for ever for a
    reader that has ended.
    """
    sys.stdout, sys.stderr = _opened("stdout", raises=True), _opened("stderr", raises=False)
