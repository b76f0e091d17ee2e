"""Print errors and warnings of a command on stderr: one line each, and a traceback only with ``--debug``."""

from __future__ import annotations

import sys
import traceback

from mirror.errors import printable
from mirror.spark.driver.output.error_report import error_lines, is_expected, unexpected_hint


def print_error(error: Exception, *, debug: bool) -> None:
    """Print the lines of ``error``; with ``debug`` print its traceback first."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    lines = error_lines(error)
    if not debug and not is_expected(error):
        lines.append(unexpected_hint("mirror --debug"))
    for line in lines:
        print(f"mirror: {line}", file=sys.stderr)


def print_notice(line: str) -> None:
    """Print what the command waits for, or could not do for one of its flows."""
    print(f"mirror: {printable(line)}", file=sys.stderr)


def print_warning(line: str) -> None:
    """Print a warning."""
    print(f"mirror: warning: {printable(line)}", file=sys.stderr)
