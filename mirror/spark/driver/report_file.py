"""``report.html`` in the report folder: written while and when a run ends, never at its cost."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from mirror.spark.driver.report_source import ReportSource
from mirror.spark.ledger.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

NAME: Final = "report.html"
EVERY_S: Final = 60.0
"""How often a stream writes it; and no more often than takes :data:`SHARE` of its time."""
SHARE: Final = 0.02

_BEGUN: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Replication report</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 4rem auto; padding: 0 1rem">
<h1>A run began at {began} UTC</h1>
<p>This is its report as soon as there is something to tell. If it does not come, the run was killed:
<code>mirror report</code> with this folder makes a report of what it left.</p>
"""


def render_report(source: ReportSource, flow: str | None = None) -> bytes:
    """The page of what ``source`` has, or of one flow. Raises FlowError where there is nothing to tell of."""
    # Jinja and Plotly take 0.1 s to import, which only who writes a report is to wait for.
    from mirror.telemetry.report.page import render

    # A broker's message may hold what is no text (lone surrogates); the page is text all the same.
    return render(source.views(flow), int(time.time() * 1000)).encode("utf-8", "replace")


class ReportFile:
    """Keeps ``report.html`` as ``summary.json`` is, while a run has the folder.

    When the run begins the file says so, and no more: whoever finds it after a kill -9 must not take yesterday's for
    this one's. What goes wrong is told once by ``warn``, and never ends a run.
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
        """Now: of all that the summary and the ledger have."""
        began_s = time.monotonic()
        if (self._dir / "summary.json").exists():
            self._try(lambda: render_report(self._source))
        else:
            with contextlib.suppress(OSError):
                self._path.unlink()  # nothing was begun that there could be a report of
        ended_s = time.monotonic()
        self._due_s = ended_s + max(EVERY_S, (ended_s - began_s) / SHARE)

    def write_if_due(self) -> None:
        """The same, where it is time for it."""
        if time.monotonic() >= self._due_s:
            self.write()

    def _try(self, made: Callable[[], bytes]) -> None:
        try:
            write_atomically(self._path, made())
        except Exception as error:  # noqa: BLE001 - a run must not fail for its report, whatever is wrong with that
            why = " ".join(str(error).split())
            line = f"{self._path} could not be written ({type(error).__name__}: {why}); `mirror report` makes it anew"
            if line not in self._warned:
                self._warn(line)
            self._warned.add(line)
