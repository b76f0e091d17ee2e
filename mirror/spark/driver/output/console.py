"""The output of the driver's scripts: tables or JSON on stdout, everything else on stderr.

``spark-submit`` runs the script as a child of its JVM, and copies both its stdout and its stderr to its own stdout
(Spark's ``PythonRunner``). So the script's streams are not terminals, its stderr does not lead to stderr, and both are
lost when a signal ends the JVM. Therefore ``mirror run`` opens a pipe of its own for each stream, and names the streams
that are terminals in the environment. Under a bare ``spark-submit`` the script writes to stderr through the JVM. A
script started as ``python jobs/replicate.py`` uses its own stdout and stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
import traceback
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext

from mirror.errors import of_flow, printable
from mirror.spark.driver.launch.submission import ENCODING, STDERR_PIPE, STDOUT_PIPE, TERMINALS
from mirror.spark.driver.launch.unfailing_output import unfailing
from mirror.spark.driver.output.error_report import error_lines, is_expected, unexpected_hint
from mirror.spark.driver.output.progress_lines import stamped
from mirror.spark.driver.output.terminal import Terminal
from mirror.telemetry.logs import is_json, json_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

_ERASE: Final = "\r\x1b[2K"


class Consoles:
    """The script's stdout and stderr. Lines longer than the terminal are wrapped, not truncated.

    stdout has tables (:meth:`print_table`), or after :meth:`switch_to_json` JSON (:meth:`write_json`), never both. Safe
    to use from several threads.
    """

    def __init__(self) -> None:
        terminals, encoding = os.environ.get(TERMINALS, "").split(","), os.environ.get(ENCODING)
        self._out: Final = Terminal(
            _piped(STDOUT_PIPE) or unfailing("stdout"), terminal="stdout" in terminals, encoding=encoding
        )
        self.err: Final = Terminal(_stderr(), terminal="stderr" in terminals, encoding=encoding)
        self._json: IO[str] | None = None
        self._logs_json: Final = is_json()
        self._live: Final = dict[str, str]()
        self._lock: Final = threading.RLock()

    def switch_to_json(self) -> None:
        """Reserve stdout for JSON. To be called once."""
        self._json = self._out.file
        if STDOUT_PIPE in os.environ:
            return
        # Under a bare spark-submit, what Python itself writes to stderr would appear on stdout.
        sys.stderr = cast("Any", self.err.file)
        # Other users of this stdout (a JVM that a stream starts, a user's transform) write to stderr instead.
        if sys.stdout is not None:
            sys.stdout.flush()
        self._json = unfailing("stdout", os.dup(1))
        os.dup2(2, 1)

    def print_table(self, table: RenderableType) -> None:
        """Print a table or a line on stdout, unless stdout is reserved for JSON."""
        if self._json is not None:
            return
        # A live line and the table on one terminal take the same pipe: the order of two pipes is not defined.
        console = self.err if self._live and self._out.is_terminal else self._out
        with self._lock, self._without_live_line():
            console.print(table, markup=False, highlight=False)

    def write_json(self, document: Mapping[str, object] | str, *, indent: int | None = None) -> None:
        """Write a document on stdout if that is reserved for JSON: on one line unless ``indent`` is given.

        A text is JSON already, and written as it is.
        """
        if self._json is None:
            return
        self._json.write(document if isinstance(document, str) else json.dumps(document, indent=indent) + "\n")
        self._json.flush()

    def error(self, text: str) -> None:
        """Print problems on stderr, one per line."""
        self._print("ERROR", text, _marked("mirror", text))

    def warning(self, text: str) -> None:
        """Print warnings on stderr, one per line. A warning does not stop a flow."""
        self._print("WARNING", text, _marked("mirror: warning", text))

    def info(self, text: str) -> None:
        """Print information on stderr, one line each."""
        self._print("INFO", text, _marked("mirror: info", text))

    def report(self, error: Exception, *, debug: bool, flow: str = "") -> str:
        """Print ``error`` on stderr, each line with the ``flow`` in front, and return it as one line without that.

        With ``debug`` also print its traceback.
        """
        lines = error_lines(error)
        for line in lines:
            self.error(of_flow(flow, line) if flow else line)
        if debug:
            self.traceback("".join(traceback.format_exception(error)))
        elif not is_expected(error):
            self.error(unexpected_hint("--debug"))
        return "; ".join(lines)

    def progress(self, text: str) -> None:
        """Print on stderr, with the time, what the run is doing or how far it is."""
        line = stamped(printable(text), datetime.now().astimezone(), terminal=self.err.is_terminal)
        self._print("INFO", text, [line])

    def set_live_text(self, flow: str, text: str) -> None:
        """Replace the text about ``flow`` in the last line of the terminal; "" removes it.

        Does nothing if stderr is not a terminal.
        """
        if not self.err.is_terminal or self._logs_json:
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
        self.err.file.write(text)
        self.err.file.flush()

    def traceback(self, text: str) -> None:
        """Print a traceback on stderr."""
        self._print("ERROR", text, text.splitlines())

    def _print(self, level: str, text: str, lines: Sequence[str]) -> None:
        """Print ``lines``, or ``text`` as one line of JSON if logs are to be JSON."""
        if self._logs_json:
            lines = [json_line(level, f"mirror.{level.lower()}", text, time.time())]
        with self._lock, self._without_live_line():
            for line in lines:
                self.err.print(line, markup=False, highlight=False, soft_wrap=True)


def _marked(mark: str, text: str) -> list[str]:
    return [f"{mark}: {printable(line)}" for line in text.splitlines()]


def _piped(variable: str) -> IO[str] | None:
    pipe = os.environ.get(variable)
    if not pipe:
        return None
    file = unfailing("stdout" if variable == STDOUT_PIPE else "stderr", os.open(pipe, os.O_WRONLY | os.O_CREAT))
    # The first byte shows the reader that the pipe has been opened (mirror.spark.driver.launch.submission).
    file.write("\0")
    file.flush()
    return file


def _stderr() -> IO[str]:
    if piped := _piped(STDERR_PIPE):
        return piped
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return cast("IO[str]", _JvmStderr())
    return unfailing("stderr")


class _JvmStderr(io.TextIOBase):
    """The stderr of the ``spark-submit`` JVM."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        # The JVM may have ended already, because a SIGTERM stops it first.
        with contextlib.suppress(Py4JError, OSError):
            SparkContext._ensure_initialized()  # noqa: SLF001  (PySpark has no public way to the gateway without a session)
            jvm: Any = SparkContext._jvm  # noqa: SLF001  (the same)
            jvm.java.lang.System.err.write(bytearray(text.encode(errors="backslashreplace")))
            jvm.java.lang.System.err.flush()
        return len(text)
