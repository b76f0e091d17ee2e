"""The progress of a scheduled run, as its tasks report it: a live line on a terminal, or lines in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.assignments import target_of
from mirror.spark.driver.output.progress_lines import Cadence, copied, planned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.reports import PartitionReport
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.plan import Plan


class RunProgress:
    """One flow's progress line. :meth:`end` may be called from another thread than :meth:`on_reports`."""

    def __init__(self, flow: str, plan: Plan, consoles: Consoles) -> None:
        self._flow: Final = flow
        self._consoles: Final = consoles
        self._ranges: Final = {target_of(range_): range_ for range_ in plan.ranges}
        self._done: Final = dict[TopicPartition, int]()
        """How many offsets of each target partition are copied."""
        self._total: Final = sum(range_.end - range_.start for range_ in plan.ranges)
        self._began_s: Final = time.monotonic()
        self._cadence: Final = Cadence(round(self._began_s * 1000))
        self._ended = False
        consoles.progress(f"flow {flow}: {planned(plan, follows=False)}")

    def on_reports(self, reports: Iterable[PartitionReport]) -> None:
        """Show how far the copies are. To be called every second, also without reports."""
        for report in reports:
            if (range_ := self._ranges.get(report.target)) is not None and report.result.topic:
                done = min(report.result.end, range_.end) - range_.start
                self._done[report.target] = max(done, self._done.get(report.target, 0))
        done, now_s = sum(self._done.values()), time.monotonic()
        if self._ended or not 0 < done < self._total:
            return
        line = copied(done, self._total, done / max(0.001, now_s - self._began_s))
        self._consoles.set_live_text(self._flow, line)
        if self._cadence.due(round(now_s * 1000)) and not self._consoles.err.is_terminal:
            self._consoles.progress(f"flow {self._flow}: {line}")

    def end(self) -> None:
        """Show nothing more."""
        self._ended = True
        self._consoles.set_live_text(self._flow, "")
