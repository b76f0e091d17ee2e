"""What a stream says of how far it is: the last line of a terminal, or now and then a line in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mirror.spark.driver.progress_lines import SOON_MS, Cadence, followed, planned

if TYPE_CHECKING:
    from mirror.errors import MirrorError
    from mirror.spark.driver.console import Consoles
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.status.flow_status import FlowStatus

_LIVE_MS: Final = 3_000


class StreamProgress:
    """One flow's progress line.

    :meth:`on_status` and :meth:`on_error` are called from the lag monitor's thread, the others by the driver.
    """

    def __init__(self, flow: str, consoles: Consoles) -> None:
        self._flow: Final = flow
        self._consoles: Final = consoles
        self._cadence: Cadence | None = None
        self._planned = self._trouble = ""
        self._over = False

    @property
    def interval_ms(self) -> int:
        """How often there is something to show."""
        return _LIVE_MS if self._consoles.err.is_terminal else SOON_MS

    def follows(self, plan: Plan, *, follows: bool) -> None:
        """An epoch is planned; said where that is another plan than before."""
        line = planned(plan, follows=follows)
        if line != self._planned:
            self._planned = line
            self._consoles.doing(f"flow {self._flow}: {line}")
        self._cadence = self._cadence or Cadence(_now_ms())

    def on_status(self, status: FlowStatus) -> None:
        """Both clusters have answered."""
        if self._over or self._cadence is None:
            return
        line = followed(status)
        back, self._trouble = bool(self._trouble), ""
        self._consoles.live(self._flow, line)
        if (self._cadence.due(_now_ms()) and not self._consoles.err.is_terminal) or back:
            self._consoles.doing(f"flow {self._flow}: {line}")

    def on_error(self, error: MirrorError) -> None:
        """A cluster does not answer: said once, until it does."""
        if self._over or self._trouble:
            return
        self._trouble = " ".join(str(error).split())
        self._consoles.live(self._flow, "")
        self._consoles.doing(f"flow {self._flow}: how far it is cannot be seen; asking on: {self._trouble}")

    def end(self) -> None:
        """Nothing more is said."""
        self._over = True
        self._consoles.live(self._flow, "")


def _now_ms() -> int:
    return round(time.monotonic() * 1000)
