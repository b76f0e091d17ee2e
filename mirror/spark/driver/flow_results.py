"""Shows, keeps and measures the results of one run of one flow: those of a scheduled run, or of a stream's periods."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mirror.spark.driver.output.progress_lines import epoch_line
from mirror.spark.driver.telemetry_bridge import record_epoch
from mirror.spark.ledger.results import epoch_json, join_results

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def end_run(self, plan: Plan, attempts: list[Attempt], results: list[RangeResult]) -> None:
        """Take the ``results`` of a scheduled run."""
        self._report.partitions = results
        self._write_sync()
        with contextlib.suppress(OSError):  # the run fails by that, and telemetry has its times from the files
            self._record(plan, attempts, results)

    def record_counts(self, results: list[RangeResult]) -> None:
        """Measure what was counted in a period that goes on."""
        self._telemetry.record_counts(self._flow.name, results)

    def show(self, partitions: list[RangeResult]) -> None:
        """Have the flow's report show what the run has come to."""
        self._report.partitions = partitions

    def end_period(self, plan: Plan, attempts: list[Attempt]) -> None:
        """Take the results of a period, which were counted before. Raises OSError if the ledger has no plan of it."""
        results = join_results(plan, attempts)
        self._write_sync()
        at = f"{datetime.now().astimezone():%H:%M:%S}"
        self._consoles.print_table(f"{at} flow {self._flow.name}: period {plan.epoch}: {epoch_line(results)}")
        self._consoles.write_json(epoch_json(self._flow.name, plan.epoch, results))
        self._record(plan, attempts, results, counted=True)

    def _record(
        self, plan: Plan, attempts: list[Attempt], results: list[RangeResult], *, counted: bool = False
    ) -> None:
        record_epoch(self._telemetry, self._flow, self._ledger, plan, attempts, results, counted=counted)
        if self._debug:
            for trace in dict.fromkeys(attempt.traceback for attempt in attempts if attempt.traceback):
                self._consoles.traceback(trace)
