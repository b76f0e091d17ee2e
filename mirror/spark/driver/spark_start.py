"""Starts Spark for a job beside what the driver does without it, and ends it.

A script that ``spark-submit`` runs is a child of Spark's JVM. Any other starts the JVM itself, and is its parent.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Self

from pyspark import SparkContext

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_EXIT_WITHIN_S: Final = 120.0
"""Of the JVM: usually 0.2 s, and some 10 s if it writes an archive of its classes."""
_TERMINATED_WITHIN_S: Final = 5.0
"""It deletes its folders meanwhile. What a run does after a signal has to be over in 20 s."""


class SparkStart:
    """Spark's context, which a thread starts. The block's end ends Spark, also while it starts."""

    def __init__(self, start: Callable[[], SparkContext]) -> None:
        """``start`` returns the context, or raises FlowError."""
        self._start_context: Final = start
        self._started: Final = Future[SparkContext]()

    def __enter__(self) -> Self:
        threading.Thread(target=self._start, name="mirror-spark-start", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            terminate_jvm()
            return
        with contextlib.suppress(Exception):  # `context` has raised it
            self.context().stop()
        _close_jvm()

    def context(self) -> SparkContext:
        """Return the context as soon as it is there. Raises FlowError if Spark cannot be started."""
        return self._started.result()

    def _start(self) -> None:
        try:
            self._started.set_result(self._start_context())
        except BaseException as error:  # noqa: BLE001 - `context` raises it
            self._started.set_exception(error)


def terminate_jvm() -> None:
    """End the JVM that this process has started, with all its tasks."""
    if (jvm := _jvm()) is not None:
        jvm.terminate()
        try:
            jvm.wait(_TERMINATED_WITHIN_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()


def _close_jvm() -> None:
    """Have the JVM that this process has started exit, and wait for it. Raises FlowError if it does not."""
    if (jvm := _jvm()) is None:
        return
    if jvm.stdin is not None:
        jvm.stdin.close()  # the JVM exits at the end of its input
    try:
        jvm.wait(_EXIT_WITHIN_S)
    except subprocess.TimeoutExpired as error:
        raise FlowError(f"the copies have ended, but Spark's JVM did not exit within {_EXIT_WITHIN_S:.0f} s") from error


def _jvm() -> subprocess.Popen[bytes] | None:
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no other name for it
    return getattr(gateway, "proc", None)
