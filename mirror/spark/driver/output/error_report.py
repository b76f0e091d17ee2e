"""The lines that report an error to people, for the driver's scripts and for the ``mirror`` command.

Imports neither pyspark nor py4j, which most ``mirror`` commands do without.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from mirror.errors import MirrorError, brief
from mirror.spark.ledger.atomic_write import describe_file_error

if TYPE_CHECKING:
    from collections.abc import Iterator

_WITH_STACK_TRACES: Final = ("pyspark", "py4j")
"""Packages whose exceptions have the stack trace of the JVM in their text."""


def is_expected(error: BaseException) -> bool:
    """Return whether the text of ``error`` says what is wrong; if not, only a traceback helps."""
    return isinstance(error, MirrorError) or describe_file_error(error) is not None


def unexpected_hint(option: str) -> str:
    """Return the line that follows an unexpected error; ``option`` is what to add to the command."""
    return f"unexpected error; rerun with {option} for a traceback"


def error_lines(error: BaseException) -> list[str]:
    """Return the problems that ``error`` reports, one line each, without any stack trace."""
    if isinstance(error, MirrorError):
        return [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if line := describe_file_error(error):
        return [line]
    if line := _java_error_line(error):
        return [f"Spark: {line}"]
    text = str(error).strip()
    if type(error).__module__.startswith(_WITH_STACK_TRACES):
        if line := _of_python_worker(text):  # with a session PySpark raises this, without one the Java exception
            return [f"Spark: {line}"]
        text = text.partition("\n")[0]
    return [f"{type(error).__name__}: {brief(text)}" if text else type(error).__name__]


@contextlib.contextmanager
def interruptions_kept() -> Iterator[None]:
    """Raise what interrupts the block (no Exception) also where PySpark raises another error on the way out.

    It calls the JVM there (SCCallSiteSync), which the same signal has ended.
    """
    try:
        yield
    except Exception as error:
        behind: BaseException | None = error
        while isinstance(behind, Exception):
            behind = behind.__context__
        if behind is None:
            raise
        raise behind from None


def _java_error_line(error: BaseException) -> str:
    """Return the line about the Java exception that a ``Py4JJavaError`` carries, or ""."""
    java_exception = getattr(error, "java_exception", None)
    if java_exception is None:
        return ""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types

    with contextlib.suppress(Py4JError, OSError):  # its text is in the JVM, which may have ended
        text = str(java_exception)
        return _of_python_worker(text) or text.partition("\n")[0]
    return ""


def _of_python_worker(text: str) -> str:
    """Return the line about the exception of a Python worker whose traceback is in ``text``, or ""."""
    _, found, trace = text.partition("Traceback (most recent call last):\n")
    for line in trace.splitlines() if found else ():
        if line.strip() and not line.startswith((" ", "\t")):
            return f"a Python worker failed: {line}"
    return ""
