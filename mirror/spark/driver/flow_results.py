"""The results of one flow of a stream: added up for the report, and shown, kept and measured one part after the other.

A part is an epoch, a job whose ranges have ends, or a period of a job whose ranges have none.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mirror.spark.driver.output.progress_lines import epoch_line
from mirror.spark.driver.telemetry_bridge import record_epoch
from mirror.spark.ledger.results import StreamTotals, epoch_json, join_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.results import FlowReport
    from mirror.telemetry.run import RunTelemetry


class FlowResults:
    """The results of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        report: FlowReport,
        ledger: Ledger,
        consoles: Consoles,
        telemetry: RunTelemetry,
        write_sync: Callable[[], None],
        *,
        debug: bool,
    ) -> None:
        """``write_sync`` keeps what the flow's report says about what is in step, which depends on the results."""
        self._flow: Final = flow
        self._report: Final = report
        self._ledger: Final = ledger
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._write_sync: Final = write_sync
        self._debug: Final = debug
        self._totals: Final = StreamTotals()

    def end_run(self, plan: Plan, attempts: list[Attempt], results: list[RangeResult]) -> None:
        """Take the ``results`` of a scheduled run."""
        self._report.partitions = results
        self._write_sync()
        with contextlib.suppress(OSError):  # the run fails by that, and telemetry has its times from the files
            self._record(plan, attempts, results)

    def count(self, results: Iterable[RangeResult]) -> None:
        """Add results of a part that goes on."""
        counted = list(results)
        for result in counted:
            self._totals.count(result)
        self._telemetry.record_counts(self._flow.name, counted)

    def end_counted(self, plan: Plan, attempts: list[Attempt], states: Iterable[RangeResult]) -> None:
        """End a part whose results were counted before; ``states`` are those of all partitions, without counts.

        Raises OSError if the ledger has no plan of it.
        """
        self._totals.add(states)
        results = join_results(plan, attempts)
        self.update_report()
        self._write_sync()
        at = f"{datetime.now().astimezone():%H:%M:%S}"
        self._consoles.print_table(f"{at} flow {self._flow.name}: epoch {plan.epoch}: {epoch_line(results)}")
        self._consoles.write_json(epoch_json(self._flow.name, plan.epoch, results))
        self._record(plan, attempts, results, counted=True)

    def update_report(self) -> None:
        """Have the flow's report show what was added and counted."""
        self._report.partitions = self._totals.results()

    def _record(
        self, plan: Plan, attempts: list[Attempt], results: list[RangeResult], *, counted: bool = False
    ) -> None:
        record_epoch(self._telemetry, self._flow, self._ledger, plan, attempts, results, counted=counted)
        if self._debug:
            for trace in dict.fromkeys(attempt.traceback for attempt in attempts if attempt.traceback):
                self._consoles.traceback(trace)
