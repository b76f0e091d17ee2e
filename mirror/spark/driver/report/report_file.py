"""``report.html`` in the report folder: written while a stream runs, and when a run ends."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from mirror.extras import REPORT, require
from mirror.spark.driver.report.report_source import ReportSource
from mirror.spark.ledger.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

NAME: Final = "report.html"
EVERY_S: Final = 60.0
"""The interval at which a stream writes the report, longer if that would take more than :data:`MAX_TIME_FRACTION`."""
MAX_TIME_FRACTION: Final = 0.02

_BEGUN: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Replication report</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 4rem auto; padding: 0 1rem">
<h1>A run began at {began} UTC</h1>
<p>The report appears here once there are results. If it does not appear, the run was killed:
<code>mirror report</code> with this folder writes a report of the results that the run left.</p>
"""


def render_report(source: ReportSource, flow: str | None = None) -> bytes:
    """Return the HTML page of all flows in ``source``, or of one.

    Raises FlowError if there is nothing to report, or the packages that make the page are not installed.
    """
    require("a report", REPORT)
    # Not at the top: the import of Jinja and Plotly takes 0.1 s.
    from mirror.telemetry.report.page import render

    # A broker's message may contain lone surrogates, which cannot be encoded.
    return render(source.views(flow), int(time.time() * 1000)).encode("utf-8", "replace")


class ReportFile:
    """Keeps ``report.html`` up to date with ``summary.json`` while a run has the folder.

    When the run begins, the file says only that: after a kill -9 it must not show the report of an earlier run. An
    error is reported once with ``warn``, and does not end the run.
    """

    def __init__(self, report_dir: Path, warn: Callable[[str], None]) -> None:
        self._path: Final = report_dir / NAME
        self._dir: Final = report_dir
        self._source: Final = ReportSource(report_dir)
        self._warn: Final = warn
        self._warned: Final = set[str]()
        self._due_s = 0.0

    def __enter__(self) -> Self:
        self._try(lambda: _BEGUN.format(began=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}").encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.write()

    def write(self) -> None:
        """Write the report from the summary and the ledger."""
        began_s = time.monotonic()
        if (self._dir / "summary.json").exists():
            self._try(lambda: render_report(self._source))
        else:
            with contextlib.suppress(OSError):
                self._path.unlink()  # no flow was started, so there is nothing to report
        ended_s = time.monotonic()
        self._due_s = ended_s + max(EVERY_S, (ended_s - began_s) / MAX_TIME_FRACTION)

    def write_if_due(self) -> None:
        """Write the report if its interval has passed."""
        if time.monotonic() >= self._due_s:
            self.write()

    def _try(self, content: Callable[[], bytes]) -> None:
        try:
            write_atomically(self._path, content())
        except Exception as error:  # noqa: BLE001 - a run does not fail for its report
            why = " ".join(str(error).split())
            line = f"{self._path} could not be written ({type(error).__name__}: {why}); `mirror report` writes it later"
            if line not in self._warned:
                self._warn(line)
            self._warned.add(line)
