"""How a job's errors are told: one line for people, traces on demand."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from mirror.errors import MirrorError
from mirror.spark.driver.batch_flow import PlanningFailed
from mirror.spark.ledger.atomic_write import describe_file_error

if TYPE_CHECKING:
    from mirror.spark.driver.console import Consoles


def one_line_each(error: BaseException) -> list[str]:
    """The problems that ``error`` stands for, one line each, without any trace."""
    if isinstance(error, MirrorError):
        return [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if line := describe_file_error(error):
        return [line]
    if isinstance(error, Py4JJavaError):
        with contextlib.suppress(Py4JError, OSError):
            return [f"Spark: {str(error.java_exception).splitlines()[0]}"]
    text = str(error).strip().splitlines()
    return [f"{type(error).__name__}: {text[0]}" if text else type(error).__name__]


def report_error(error: Exception, consoles: Consoles, *, debug: bool, where: str = "") -> str:
    """Say what went wrong, each line with ``where``, and with ``debug`` its traces; the same as one line."""
    lines = one_line_each(error)
    for line in lines:
        consoles.error(line if line.startswith(where) else where + line)
    if debug:
        if isinstance(error, PlanningFailed):
            consoles.trace(error.remote)
        consoles.trace("".join(traceback.format_exception(error)))
    elif not isinstance(error, MirrorError) and describe_file_error(error) is None:
        consoles.error("this was not foreseen; --debug shows the traceback")
    return "; ".join(lines)
