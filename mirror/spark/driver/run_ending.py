"""How a run is asked to end, from any thread, and the wait for its job until then."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.spark.driver.flow_job import FlowJob
    from mirror.spark.ledger.attempt_results import CopiedTask
    from mirror.spark.ledger.results import FlowReport
    from mirror.spark.tasks.task_spec import CopyTask

_POLL_S: Final = 1.0
"""How often periods of a stream and time limits are noticed; what ends a run is noticed at once."""
_CANCELLED_WITHIN_S: Final = 5.0
"""Spark ends a cancelled job within half a second, and its Python workers within 3.3 s."""


class RunEnding:
    """The end of one run. Thread-safe; :meth:`await_job` is for the thread of the run."""

    def __init__(self, report: FlowReport, shutdown_timeout_ms: int) -> None:
        """``report`` gets when the run was asked to end, and whether its tasks were killed."""
        self._report: Final = report
        self._timeout_s: Final = shutdown_timeout_ms / 1000
        self._asked: Final = threading.Event()
        self._cancelled: Final = threading.Event()
        self._changed: Final = threading.Event()

    def is_asked(self) -> bool:
        """Return whether the run is to end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Have it end in order."""
        self._report.asked = self._report.asked or datetime.now(UTC)
        self._asked.set()
        self._changed.set()

    def cancel(self) -> None:
        """Have it end at once."""
        self._cancelled.set()
        self.ask()

    def await_job(self, job: FlowJob[CopyTask, CopiedTask], update: Callable[[], None]) -> None:
        """Wait for the end of ``job``, and call ``update`` often meanwhile. Raises what the job raises.

        If the run is to end, its tasks are stopped, and cancelled if they take too long.
        """
        try:
            self._await_or_cancel(job, update)
        except BaseException:
            job.cancel()  # its tasks must not go on without this run
            raise
        if not self._cancelled.is_set():
            job.done.result()

    def _await_or_cancel(self, job: FlowJob[CopyTask, CopiedTask], update: Callable[[], None]) -> None:
        end_s = float("inf")
        job.done.add_done_callback(lambda _: self._changed.set())
        while True:
            self._changed.clear()  # before what it announces is read
            if job.done.done():
                return
            update()
            if self._asked.is_set():
                end_s = min(end_s, time.monotonic() + self._timeout_s)
            if self._cancelled.is_set() or time.monotonic() >= end_s:
                self._report.cut_short = True
                self._cancelled.set()
                job.cancel()
                with contextlib.suppress(Exception):
                    job.done.result(_CANCELLED_WITHIN_S)
                return
            self._changed.wait(_POLL_S)
