"""Where the driver's script prints: tables (or JSON) on stdout, everything else on stderr.

``spark-submit`` runs the script as a child of its JVM and copies its stdout and stderr, joined, to its own stdout
(Spark's ``PythonRunner``). So the script's streams are no terminals, its stderr is not stderr, and a signal that ends
the JVM cuts both off. ``mirror run`` therefore opens a pipe of its own for each and says in the environment which of
its streams are terminals; under a bare ``spark-submit`` the way to stderr leads through the JVM. Started as
``python jobs/replicate.py``, both are simply what they seem.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext

from mirror.errors import printable
from mirror.spark.driver.progress_lines import stamped
from mirror.spark.driver.submission import STDERR_PIPE, STDOUT_PIPE, TERMINALS
from mirror.spark.driver.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

_ERASE: Final = "\r\x1b[2K"


class Consoles:
    """The script's two consoles. Lines longer than the terminal are folded, nothing is cut off.

    stdout is for people (:meth:`show`), or after :meth:`for_programs` for programs (:meth:`tell`), never for both.
    Safe to use from several threads.
    """

    def __init__(self) -> None:
        terminals = os.environ.get(TERMINALS, "").split(",")
        self._out: Final = Terminal(_piped(STDOUT_PIPE) or sys.stdout, terminal="stdout" in terminals)
        self.err: Final = Terminal(_stderr(), terminal="stderr" in terminals)
        self._json: IO[str] | None = None
        self._live: Final = dict[str, str]()
        self._lock: Final = threading.RLock()

    def for_programs(self) -> None:
        """From now on stdout holds JSON and nothing else; once."""
        self._json = self._out.file
        if STDOUT_PIPE in os.environ:
            return
        # Under a bare spark-submit, what Python itself says on stderr would be joined to it.
        sys.stderr = cast("Any", self.err.file)
        # Whatever else has this stdout (a JVM that a stream starts, a user's transform) prints to stderr instead.
        sys.stdout.flush()
        self._json = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def show(self, what: RenderableType) -> None:
        """For people, on stdout."""
        if self._json is not None:
            return
        # With a live line on the same terminal, one way there: of two pipes it is not known which comes first.
        console = self.err if self._live and self._out.is_terminal else self._out
        with self._lock, self._without_live_line():
            console.print(what, markup=False, highlight=False)

    def tell(self, document: Mapping[str, object], *, indent: int | None = None) -> None:
        """For programs, on stdout: one document, on a line of its own unless there is an ``indent``."""
        if self._json is None:
            return
        # Who reads no more does not stop a copy.
        with contextlib.suppress(BrokenPipeError):
            self._json.write(json.dumps(document, indent=indent) + "\n")
            self._json.flush()

    def error(self, text: str) -> None:
        """One problem per line, on stderr, marked as ours."""
        self._say("mirror", text)

    def warning(self, text: str) -> None:
        """The same for what does not stop a flow."""
        self._say("mirror: warning", text)

    def info(self, text: str) -> None:
        """The same for what is as it should be, and somebody may want to know."""
        self._say("mirror: info", text)

    def doing(self, text: str) -> None:
        """What is being done, or how far it is, on stderr, with the time."""
        line = stamped(printable(text), datetime.now().astimezone(), terminal=self.err.is_terminal)
        with self._lock, self._without_live_line():
            self.err.print(line, markup=False, highlight=False, soft_wrap=True)

    def live(self, flow: str, text: str) -> None:
        """How far ``flow`` is, in the last line of the terminal, in place of what was said before; "" takes it away.

        Nothing where stderr is no terminal.
        """
        if not self.err.is_terminal:
            return
        with self._lock, self._without_live_line():
            if text:
                self._live[flow] = printable(text)
            else:
                self._live.pop(flow, None)

    @contextlib.contextmanager
    def _without_live_line(self) -> Iterator[None]:
        if self._live:
            self._write(_ERASE)
        try:
            yield
        finally:
            if self._live:
                line = "; ".join(f"{flow}: {text}" for flow, text in self._live.items())
                self._write(line[: self.err.width - 1])

    def _write(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.err.file.write(text)
            self.err.file.flush()

    def _say(self, mark: str, text: str) -> None:
        with self._lock, self._without_live_line():
            for line in text.splitlines():
                self.err.print(f"{mark}: {printable(line)}", markup=False, highlight=False, soft_wrap=True)

    def trace(self, text: str) -> None:
        """A traceback, for ``--debug``."""
        with self._lock, self._without_live_line():
            for line in text.splitlines():
                self.err.print(line, markup=False, highlight=False, soft_wrap=True)


def _piped(variable: str) -> IO[str] | None:
    pipe = os.environ.get(variable)
    if not pipe:
        return None
    file = Path(pipe).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  (open as long as the script runs)
    # The greeting by which the other end knows that somebody is there (mirror.spark.driver.submission).
    file.write("\0")
    file.flush()
    return file


def _stderr() -> IO[str]:
    if piped := _piped(STDERR_PIPE):
        return piped
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
