"""Where the driver's script prints: tables on stdout, everything else on stderr.

``spark-submit`` runs the script as a child of its JVM and copies its stdout and stderr, joined, to its own stdout
(Spark's ``PythonRunner``). So the script's stderr is neither a terminal nor stderr. ``mirror run`` therefore opens a
pipe of its own for it and says in the environment which of its streams are terminals; under a bare ``spark-submit``
the way to stderr leads through the JVM. Started as ``python jobs/replicate.py``, both are simply what they seem.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import IO, Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext
from rich.console import Console

from mirror.spark.submission import STDERR_PIPE, TERMINALS

PLAIN_WIDTH: Final = 160
"""Columns of a table that goes to a file or pipe; no terminal's width to keep to."""


class Consoles:
    """The script's two consoles. Lines longer than the terminal are folded, nothing is cut off."""

    def __init__(self) -> None:
        terminals = os.environ.get(TERMINALS, "").split(",")
        self.out: Final = _console(sys.stdout, "stdout" in terminals)
        self.err: Final = _console(_stderr(), "stderr" in terminals)

    def error(self, text: str) -> None:
        """One problem per line, on stderr, marked as ours."""
        self._say("mirror", text)

    def warning(self, text: str) -> None:
        """The same for what does not stop a flow."""
        self._say("mirror: warning", text)

    def _say(self, mark: str, text: str) -> None:
        for line in text.splitlines():
            self.err.print(f"{mark}: {line}", markup=False, highlight=False, soft_wrap=True)

    def trace(self, text: str) -> None:
        """A traceback, for ``--debug``."""
        self.err.print(text, markup=False, highlight=False, soft_wrap=True)


def _console(file: IO[str], terminal: bool) -> Console:
    shown = terminal or file.isatty()
    return Console(file=file, force_terminal=True if terminal else None, width=None if shown else PLAIN_WIDTH)


def _stderr() -> IO[str]:
    if pipe := os.environ.get(STDERR_PIPE):
        file = Path(pipe).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  (open as long as the script runs)
        # The greeting by which the other end knows that somebody is there (mirror.spark.submission).
        file.write("\0")
        file.flush()
        return file
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return cast("IO[str]", _JvmStderr())
    return sys.stderr


class _JvmStderr(io.TextIOBase):
    """The stderr of the JVM that ``spark-submit`` is."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        # The JVM may be gone already (a SIGTERM stops it first): then there is nobody to tell.
        with contextlib.suppress(Py4JError, OSError):
            SparkContext._ensure_initialized()  # noqa: SLF001  (PySpark has no public way to the gateway without a session)
            jvm: Any = SparkContext._jvm  # noqa: SLF001  (the same)
            jvm.java.lang.System.err.write(bytearray(text.encode()))
            jvm.java.lang.System.err.flush()
        return len(text)
