"""Opens the telemetry of a job with the settings in the environment."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from mirror.cluster.auth.oauth_settings import is_loopback
from mirror.groups.summary import counted
from mirror.runtime.clock import SystemClock
from mirror.telemetry.lineage.emitter import Lineage, lineage_of
from mirror.telemetry.lineage.facts import LineageJob
from mirror.telemetry.metrics.record_results import record_flow_info
from mirror.telemetry.run_telemetry import FLUSH_MS, RunTelemetry
from mirror.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.output.console import Consoles
    from mirror.telemetry.lineage.facts import JobKind
    from mirror.telemetry.metrics.metric_store import MetricStore


@contextlib.contextmanager
def run_telemetry(report_dir: Path, consoles: Consoles) -> Iterator[RunTelemetry]:
    """Open a run's telemetry with the settings in the environment. Raises ConfigError, FlowError if they are wrong."""
    settings = TelemetrySettings.of(os.environ)
    for line in settings.warnings:
        consoles.warning(line)
    clock = SystemClock()
    lineage = lineage_of(os.environ, clock, consoles.warning)
    telemetry = RunTelemetry(settings, report_dir, clock, lineage)
    if settings.prometheus is not None:
        # With port 0 only this line shows the port; with another port it confirms that the endpoint is open.
        consoles.info(endpoint_line(settings.prometheus[0], telemetry.port))
    try:
        yield telemetry
    finally:
        telemetry.close()
        if telemetry.file_error:
            consoles.warning(telemetry.file_error)
        _warn_of_dropped(lineage, consoles)


def close_lineage(lineage: Lineage, consoles: Consoles) -> None:
    """Wait for the receiver of lineage for at most :data:`FLUSH_MS`, and warn of what it has not accepted."""
    lineage.close(FLUSH_MS)
    _warn_of_dropped(lineage, consoles)


def _warn_of_dropped(lineage: Lineage, consoles: Consoles) -> None:
    if lineage.dropped:
        consoles.warning(f"OpenLineage's receiver has not accepted {counted(lineage.dropped, 'event')} of lineage")


def lineage_job(config: MirrorConfig, flow: FlowConfig, kind: JobKind, run: str) -> LineageJob:
    """Return what lineage says about a run of ``flow``."""
    servers = [str(config.clusters[name].client_options()["bootstrap.servers"]) for name in (flow.source, flow.target)]
    return LineageJob(flow=flow.name, kind=kind, run=run, source=servers[0], target=servers[1])


def describe_flow(metrics: MetricStore, flow: FlowConfig) -> None:
    """Record the settings of ``flow`` in the metrics."""
    with metrics.lock:
        record_flow_info(
            metrics,
            flow.name,
            source=flow.source,
            target=flow.target,
            delivery=flow.delivery,
            exactly_once_by=flow.exactly_once_by,
            naming=flow.naming,
        )


def endpoint_line(host: str, port: int | None) -> str:
    """Say where the measurements can be read, and by whom, because the endpoint has no login."""
    name = f"[{host}]" if ":" in host else host
    readers = "everybody on this host" if is_loopback(host) else "everybody who can connect to this port"
    content = "names of flows and topics, lags, rates, causes of expiries"
    return f"measurements for Prometheus at http://{name}:{port}/metrics, for {readers}, without a login: {content}"
