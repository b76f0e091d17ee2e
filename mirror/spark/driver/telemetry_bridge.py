"""Pass epochs from the ledger to telemetry, with the results of their tasks."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from mirror.cluster.auth.oauth_settings import is_loopback
from mirror.runtime.clock import SystemClock
from mirror.telemetry.run import EpochTaskResults, RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from mirror.telemetry.traces.ids import epoch_id
from mirror.telemetry.traces.spans import EpochFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.telemetry.task_report import TaskReport


@contextlib.contextmanager
def run_telemetry(report_dir: Path, consoles: Consoles) -> Iterator[RunTelemetry]:
    """Open a run's telemetry with the settings in the environment. Raises ConfigError, FlowError if they are wrong."""
    settings = TelemetrySettings.of(os.environ)
    for line in settings.warnings:
        consoles.warning(line)
    telemetry = RunTelemetry(settings, report_dir, SystemClock())
    if settings.prometheus is not None:
        # With port 0 only this line shows the port; with another port it confirms that the endpoint is open.
        consoles.info(_endpoint_line(settings.prometheus[0], telemetry.port))
    try:
        yield telemetry
    finally:
        telemetry.close()
        if telemetry.file_error:
            consoles.warning(telemetry.file_error)


def _endpoint_line(host: str, port: int | None) -> str:
    """Say where the measurements can be read, and by whom, because the endpoint has no login."""
    name = f"[{host}]" if ":" in host else host
    readers = "everybody on this host" if is_loopback(host) else "everybody who can connect to this port"
    content = "names of flows and topics, lags, rates, causes of expiries"
    return f"measurements for Prometheus at http://{name}:{port}/metrics, for {readers}, without a login: {content}"


def record_epoch(
    telemetry: RunTelemetry,
    flow: FlowConfig,
    ledger: Ledger,
    plan: Plan,
    attempts: list[Attempt],
    results: Iterable[RangeResult],
    *,
    counted: bool = False,
) -> None:
    """Record an epoch: its ``plan``, the tasks' ``attempts``, and the ``results`` by partition.

    ``counted``: what was copied was recorded while the epoch went on.
    """
    epoch = plan.epoch
    planned_ms = ledger.planned_ms(epoch)
    facts = EpochFacts(
        id=epoch_id(flow.name, ledger.path.name, epoch),
        flow=flow.name,
        run=ledger.path.name,
        epoch=epoch,
        source=flow.source,
        target=flow.target,
        began_ms=planned_ms - (plan.took_ms or 0),
        ended_ms=ledger.completed_ms(epoch) if attempts else planned_ms,
        planned_ms=plan.took_ms,
        results=tuple(results),
    )
    telemetry.record_epoch(facts, tasks_of(attempts, ledger.task_reports(epoch)), counted=counted)
    telemetry.export_metrics()


def tasks_of(attempts: Iterable[Attempt], reports: Iterable[TaskReport]) -> list[EpochTaskResults]:
    """Group the results by task, each with the task's report."""
    by_task: dict[tuple[int, int], list[RangeResult]] = defaultdict(list)
    for attempt in attempts:
        by_task[attempt.task, attempt.attempt].append(attempt.result)
    report_of = {(report.task, report.attempt): report for report in reports}
    return [EpochTaskResults(*key, results, report_of.get(key)) for key, results in sorted(by_task.items())]
