"""Print errors and warnings of a command on stderr: one line each, and a traceback only with ``--debug``."""

from __future__ import annotations

import sys
import time
import traceback

from mirror.errors import printable
from mirror.spark.driver.output.error_report import error_lines, is_expected, unexpected_hint
from mirror.telemetry.logs import is_json, json_line


def print_error(error: Exception, *, debug: bool) -> None:
    """Print the lines of ``error``; with ``debug`` print its traceback first."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    lines = error_lines(error)
    if not debug and not is_expected(error):
        lines.append(unexpected_hint("mirror --debug"))
    for line in lines:
        _print("ERROR", line, f"mirror: {line}")


def print_notice(line: str) -> None:
    """Print what the command waits for, or could not do for one of its flows."""
    _print("INFO", line, f"mirror: {printable(line)}")


def print_warning(line: str) -> None:
    """Print a warning."""
    _print("WARNING", line, f"mirror: warning: {printable(line)}")


def _print(level: str, text: str, line: str) -> None:
    """Print ``line``, or ``text`` as JSON if logs are to be JSON."""
    if is_json():
        line = json_line(level, f"mirror.{level.lower()}", text, time.time())
    print(line, file=sys.stderr)
