"""How the command line tells of errors: one line each on stderr, a traceback only when asked for."""

from __future__ import annotations

import sys
import traceback

from mirror.errors import MirrorError, printable
from mirror.spark.ledger.atomic_write import describe_file_error


def complain(error: Exception, *, debug: bool) -> None:
    """Say on stderr what went wrong; with ``debug`` show the traceback first."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    for line in _lines(error, debug=debug):
        print(f"mirror: {line}", file=sys.stderr)


def warn(line: str) -> None:
    """Say on stderr what a user should know, and what stops nothing."""
    print(f"mirror: warning: {printable(line)}", file=sys.stderr)


def _lines(error: Exception, *, debug: bool) -> list[str]:
    if isinstance(error, MirrorError):
        return str(error).splitlines() or [type(error).__name__]
    if line := describe_file_error(error):
        return [line]
    text = printable(" ".join(str(error).split()))
    hint = "" if debug else " (unexpected; mirror --debug shows the traceback)"
    return [f"{type(error).__name__}: {text}{hint}" if text else f"{type(error).__name__}{hint}"]
