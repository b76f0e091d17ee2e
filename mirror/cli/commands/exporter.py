"""``mirror exporter``: serve what is known of all flows, for Prometheus, probes and people."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.console import print_notice
from mirror.cli.options import Config, Flow, SecretsDir
from mirror.config.load import load
from mirror.exporter.page import render
from mirror.exporter.reader import FlowsReader
from mirror.exporter.site import Site
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.telemetry_bridge import describe_flow, endpoint_line
from mirror.telemetry.export.process import exports
from mirror.telemetry.export.prometheus import Endpoint
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import Callable

_FLUSH_MS = 5_000


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004 - the last port
        raise typer.BadParameter("must be HOST:PORT, such as 0.0.0.0:9465 or [::]:9465", param_hint="--listen")
    return host.removeprefix("[").removesuffix("]"), int(port)


def exporter(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve HTTP; port 0 chooses a free one.")
    ] = "localhost:9465",
    every: Annotated[float, typer.Option("--every", min=1, help="Seconds between two readings of a flow.")] = 10.0,
) -> None:
    """Serve what is known of all flows of a file until it is stopped: from any host, without Spark; it only reads.

    /metrics is for Prometheus, / a page for people, /healthz says whether the process works, and /readyz whether each
    flow was tried, and which cluster does not answer. Where OpenTelemetry's variables name an endpoint for metrics,
    they are sent there, too. It serves scheduled runs as it does streams, between them and while one side is away: then
    what is known stays, with its age.

    Exit status: 0 stopped by a signal, 1 could not start.
    """
    host, port = _address(listen)
    loaded = load(config, secrets_dir=secrets_dir)
    flows = loaded.select(flow)
    settings = TelemetrySettings.of(os.environ)
    for line in settings.warnings:
        print_notice(line)
    stopped = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: stopped.set())
    metrics, clock = MetricStore(), SystemClock()
    for one in flows:
        describe_flow(metrics, one)
    with FlowsReader(loaded, flows, metrics, round(every * 1000)) as reader:
        page = partial(_page, reader, clock.unix_ms, every)
        endpoint = Endpoint(
            metrics,
            host,
            port,
            option="--listen",
            remedy="choose another address",
            site=lambda app: Site(app, reader, page),
        )
        try:
            print_notice(f"{endpoint_line(host, endpoint.port)}; and the page about all flows at /")
            _export(settings, metrics, clock, stopped)
        finally:
            endpoint.close()


def _page(reader: FlowsReader, unix_ms: Callable[[], int], every: float) -> str:
    return render(reader.readings.flows, reader.readings.clusters, unix_ms(), refresh_s=max(10, round(every)))


def _export(settings: TelemetrySettings, metrics: MetricStore, clock: SystemClock, stopped: threading.Event) -> None:
    """Send the metrics to a backend, if one is named, until the process is stopped."""
    began_ms, sent = clock.unix_ms(), exports(settings)
    while not stopped.wait(settings.metrics_every_ms / 1000 if settings.metrics else None):
        sent.export_metrics(metrics, began_ms, clock.unix_ms())
    sent.flush(_FLUSH_MS)
