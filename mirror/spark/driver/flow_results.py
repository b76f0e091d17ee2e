"""The results of one flow of a stream: added up for the report, and shown, kept and measured one part after the other.

A part is an epoch, a job whose ranges have ends, or a period of a job whose ranges have none.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from mirror.spark.driver.output.progress_lines import epoch_line
from mirror.spark.driver.telemetry_bridge import record_epoch
from mirror.spark.ledger.results import StreamTotals, epoch_json, join_results
from mirror.spark.planning.rates import catch_up_rate

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
    ) -> None:
        """``write_sync`` keeps what the flow's report says about what is in step, which depends on the results."""
        self._flow: Final = flow
        self._report: Final = report
        self._ledger: Final = ledger
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._write_sync: Final = write_sync
        self._totals: Final = StreamTotals()

    def add(self, plan: Plan, attempts: list[Attempt]) -> None:
        """Add the results of a part that has ended. Raises OSError if the ledger has no plan of it."""
        results = join_results(plan, attempts)
        self._totals.add(results)
        self._show(plan, attempts, results)

    def add_idle(self, plan: Plan) -> None:
        """Add the results of a plan without tasks."""
        self._totals.add(plan.results_without_task)
        self.update_report()

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
        self._show(plan, attempts, join_results(plan, attempts), counted=True)

    def update_report(self) -> None:
        """Have the flow's report show what was added and counted."""
        self._report.partitions = self._totals.results()

    def _show(self, plan: Plan, attempts: list[Attempt], results: list[RangeResult], *, counted: bool = False) -> None:
        if (rate := catch_up_rate(results)) is not None:
            self._ledger.add_rate(*rate)
        self.update_report()
        self._write_sync()
        at = f"{datetime.now().astimezone():%H:%M:%S}"
        line = f"flow {self._flow.name}: epoch {plan.epoch}: {epoch_line(results)}"
        self._consoles.print_table(f"{at} {line}")
        self._consoles.write_json(epoch_json(self._flow.name, plan.epoch, results))
        record_epoch(self._telemetry, self._flow, self._ledger, plan, attempts, results, counted=counted)
        for trace in dict.fromkeys(attempt.traceback for attempt in attempts if attempt.traceback):
            self._consoles.traceback(trace)
