"""From the ledger to telemetry: what an epoch was, and what its tasks answered."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from mirror.cluster.auth.security import is_loopback
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
    from mirror.spark.driver.console import Consoles
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan
    from mirror.telemetry.task_report import TaskReport


@contextlib.contextmanager
def showing(report_dir: Path, consoles: Consoles) -> Iterator[RunTelemetry]:
    """A run's telemetry, as the environment asks for it. Raises ConfigError, FlowError where it asks for nonsense."""
    settings = TelemetrySettings.of(os.environ)
    for line in settings.warnings:
        consoles.warning(line)
    telemetry = RunTelemetry(settings, report_dir, SystemClock())
    if settings.prometheus is not None:
        # With port 0 the port is known from here alone; with any other, who sets the scraping up sees that it is on.
        consoles.info(_scraped_at(settings.prometheus[0], telemetry.port))
    try:
        yield telemetry
    finally:
        telemetry.close()
        if telemetry.file_error:
            consoles.warning(telemetry.file_error)


def _scraped_at(host: str, port: int | None) -> str:
    """Where what can be read, and by whom: there is no login."""
    name = f"[{host}]" if ":" in host else host
    readers = "everybody on this host" if is_loopback(host) else "everybody who can connect to this port"
    what = "names of flows and topics, lags, rates, causes of expiries"
    return f"measurements for Prometheus at http://{name}:{port}/metrics, for {readers}, without a login: {what}"


def show_epoch(
    telemetry: RunTelemetry,
    flow: FlowConfig,
    ledger: Ledger,
    plan: Plan,
    attempts: list[Attempt],
    results: Iterable[RangeResult],
) -> None:
    """Tell telemetry of an epoch: its ``plan``, what its tasks answered, and what that comes to for each partition."""
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
    telemetry.record_epoch(facts, tasks_of(attempts, ledger.task_reports(epoch)))
    telemetry.export_metrics()


def tasks_of(attempts: Iterable[Attempt], told: Iterable[TaskReport]) -> list[EpochTaskResults]:
    """The results task by task, each with what it told of itself."""
    by_task: dict[tuple[int, int], list[RangeResult]] = defaultdict(list)
    for each in attempts:
        by_task[each.task, each.attempt].append(each.result)
    themselves = {(one.task, one.attempt): one for one in told}
    return [EpochTaskResults(*key, results, themselves.get(key)) for key, results in sorted(by_task.items())]
