"""What happens in a task is seen within 15 s: the intervals on the way to a backend, with a clock that the test moves.

::

    task ──turn, round──► status topic ──read──► driver's metrics ──export──► OTLP backend
                                                        └──────────scrape───► Prometheus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from mirror.relay.model.reports import ReportedCounts
from mirror.relay.task.reporting import ROUND_MS, URGENT_ROUND_MS
from mirror.relay.task.task import _MAX_WAIT_MS as TURN_MS
from mirror.spark.driver.run_status import _FOLLOW_S
from mirror.telemetry import task_telemetry
from mirror.telemetry.metrics.instruments import EXPIRIES, FAILURES, RECORDS
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.metrics.record_results import record_counts
from mirror.telemetry.settings import EXPORT_INTERVAL_MS, TelemetrySettings
from tests.relay.task.test_reporting import POLICY, Reported
from tests.telemetry.results import expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.relay.model.reports import PartitionReport
    from mirror.telemetry.metrics.instruments import Instrument

READ_MS: Final = round(_FOLLOW_S * 1000)
LINK_MS: Final = 1_000
"""A request to the target with its response, on a slow link: one that writes a report, and one that reads it."""
SOON_MS: Final = 15_000
STEP_MS: Final = 50


def test_the_intervals_on_the_way_add_up_to_less_than_fifteen_seconds() -> None:
    to_driver_ms = TURN_MS + ROUND_MS + LINK_MS + READ_MS + LINK_MS
    assert to_driver_ms < 10_000, "Prometheus scrapes the driver"
    assert to_driver_ms + EXPORT_INTERVAL_MS < SOON_MS
    settings = TelemetrySettings.of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})
    assert settings.metrics_every_ms == EXPORT_INTERVAL_MS
    assert task_telemetry._REPORT_MS + LINK_MS + READ_MS + LINK_MS + EXPORT_INTERVAL_MS < SOON_MS, "measurements"


def copied(task: Reported) -> None:
    task[0].copy(5)


def failed(task: Reported) -> None:
    task[0].fail()
    task[0].result.failures = {"failed": 1}
    task.reporter.on_failed(task[0].target)


def expires(task: Reported) -> None:
    task[0].fail()
    task[0].result.expiries = expired(0).expiries
    task.reporter.on_failed(task[0].target)


@pytest.mark.parametrize("at_ms", range(0, ROUND_MS + EXPORT_INTERVAL_MS, 1_025))
@pytest.mark.parametrize(
    ("happen", "counter", "within_ms"),
    [
        (copied, RECORDS, SOON_MS),
        (failed, FAILURES, SOON_MS - ROUND_MS + URGENT_ROUND_MS),
        (expires, EXPIRIES, SOON_MS - ROUND_MS + URGENT_ROUND_MS),
    ],
)
def test_a_count_reaches_a_backend_soon_whenever_it_happens(
    happen: Callable[[Reported], None], counter: Instrument, within_ms: int, at_ms: int
) -> None:
    task, counts, metrics = Reported(3), ReportedCounts(POLICY.run), MetricStore()
    in_topic: list[tuple[int, PartitionReport]] = []
    now = turn_at = read_at = 0
    export_at = EXPORT_INTERVAL_MS + 2 * LINK_MS - STEP_MS  # just before what a round reports arrives
    exported: set[Instrument] = set()
    has_happened = False
    while counter not in exported:
        assert now <= at_ms + within_ms, f"not seen within {within_ms} ms"
        if now >= at_ms and not has_happened:
            has_happened = True
            happen(task)
        if now >= turn_at:
            in_topic += [(now + LINK_MS, report) for report in task.update(now)]
            turn_at = min(now + TURN_MS, max(now + STEP_MS, task.reporter.due_ms()))
        arrived = [report for written_ms, report in in_topic if written_ms + LINK_MS <= now]
        if now >= read_at and arrived:  # the broker holds a request until there is something new
            in_topic = in_topic[len(arrived) :]
            record_counts(metrics, "f", [added for report in arrived if (added := counts.take(report)) is not None])
            read_at = now + READ_MS
        if now >= export_at:
            export_at += EXPORT_INTERVAL_MS
            exported = {instrument for instrument, _ in metrics.points()}
        now += STEP_MS
