"""The progress of a stream: a live line on a terminal, or a line in a log now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mirror.errors import named
from mirror.spark.driver.output.progress_lines import FIRST_INTERVAL_MS, Cadence, followed, planned
from mirror.spark.ledger.results import STANDS_STILL_MS
from mirror.telemetry.lag.lags import LagState

if TYPE_CHECKING:
    from mirror.errors import MirrorError
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.status.flow_status import FlowStatus

_STATUS: Final = "the progress shown here"
_LIVE_INTERVAL_MS: Final = 3_000
_COMMITS: Final = 3
"""The progress moves with each commit: one that may come seldom is waited for this many times."""


class StreamProgress:
    """One flow's progress line.

    :meth:`on_status` and :meth:`on_error` are called from the lag monitor's thread, :meth:`on_news` from the one that
    discovers topics, the others by the driver.
    """

    def __init__(
        self, flow: str, consoles: Consoles, outages: Outages | None = None, *, commit_interval_ms: int = 0
    ) -> None:
        self._flow: Final = flow
        self._outages: Final = outages
        self._consoles: Final = consoles
        self._cadence: Cadence | None = None
        self._error = ""
        self._ended = False
        self._behind_after_ms: Final = max(STANDS_STILL_MS, _COMMITS * commit_interval_ms)
        self._unmoved: dict[tuple[str, int], tuple[int | None, int]] = {}
        """The progress of each partition with a lag, and since when the readings in a row have found that."""
        self._read_ms = 0
        """When the last status was read."""
        self._unread: tuple[int, str] | None = None
        """Since when no status could be read, and the first error; None if the last one could."""
        self.index_bytes: int | None = None
        """The size of the offset index by the last status; None if it is not known."""

    @property
    def interval_ms(self) -> int:
        """The interval between two updates."""
        return _LIVE_INTERVAL_MS if self._consoles.err.is_terminal else FIRST_INTERVAL_MS

    def on_plan(self, plan: Plan) -> None:
        """Print what is followed."""
        self._consoles.progress(f"flow {self._flow}: {planned(plan, follows=True)}")
        self._cadence = self._cadence or Cadence(_now_ms())

    def on_status(self, status: FlowStatus) -> None:
        """Show the status that was read from both clusters."""
        self.index_bytes = status.index_bytes
        self._note_lags(status, _now_ms())
        if self._outages is not None and not self._ended:
            self._outages.recovered(_STATUS)
        if self._ended or self._cadence is None:
            return
        line = followed(status)
        recovered, self._error = bool(self._error), ""
        self._consoles.set_live_text(self._flow, line)
        if (self._cadence.due(_now_ms()) and not self._consoles.err.is_terminal) or recovered:
            self._consoles.progress(f"flow {self._flow}: {line}")

    def on_news(self, line: str) -> None:
        """Print a line about new partitions."""
        if not self._ended:
            self._consoles.progress(f"flow {self._flow}: {line}")

    def on_error(self, error: MirrorError) -> None:
        """Report that a cluster does not answer, once until it does."""
        line = " ".join(str(error).split())
        if self._unread is None:
            self._unread = _now_ms(), line
        if self._ended or (self._outages is not None and self._outages.failed(_STATUS, error)) or self._error:
            return
        self._error = line
        self._consoles.set_live_text(self._flow, "")
        self._consoles.progress(f"flow {self._flow}: its progress cannot be read; retrying: {self._error}")

    def _note_lags(self, status: FlowStatus, now_ms: int) -> None:
        self._unread, self._read_ms = None, now_ms
        before, self._unmoved = self._unmoved, {}
        for one in status.partitions:
            if one.lag.records or one.lag.state is LagState.NOT_BEGUN:
                key, fresh = (one.topic, one.partition), (one.progress, now_ms)
                seen = before.get(key, fresh)
                self._unmoved[key] = seen if seen[0] == one.progress else fresh

    def why_behind(self) -> str | None:
        """Return in one line why not all is copied, though nothing failed; None if nothing stands still.

        A stream that copies is always a little behind, and one that is asked to end may be. What the last status does
        not show may have been copied since.
        """
        read_long_ago_ms = self._read_ms - self._behind_after_ms
        still = [f"{topic}-{number}" for (topic, number), (_, ms) in self._unmoved.items() if ms <= read_long_ago_ms]
        found = [f"the copy of {named('partition', still)} stood still"] if still else []
        if self._unread is not None and self._unread[0] <= _now_ms() - self._behind_after_ms:
            found.append(f"its progress could not be read: {self._unread[1]}")
        return "; ".join(found) or None

    def end(self) -> None:
        """Print nothing more."""
        self._ended = True
        self._consoles.set_live_text(self._flow, "")


def _now_ms() -> int:
    return round(time.monotonic() * 1000)
