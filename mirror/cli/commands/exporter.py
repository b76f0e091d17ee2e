"""``mirror exporter``: serve what is known of all flows, for Prometheus, probes and people."""

from __future__ import annotations

import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.console import print_notice
from mirror.cli.options import Config, Flow, SecretsDir
from mirror.config.load import load
from mirror.errors import MirrorError
from mirror.exporter.page import render
from mirror.exporter.reader import FlowsReader
from mirror.exporter.site import Site
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.telemetry_bridge import describe_flow, endpoint_line
from mirror.spark.supervision.config_file import ConfigFile
from mirror.telemetry.export.process import exports
from mirror.telemetry.export.prometheus import Endpoint
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.models import MirrorConfig

_FLUSH_MS = 5_000
_POLL_MS = 5_000
"""How often it is seen whether the file, or a secret, was edited."""
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_log = logging.getLogger(__name__)


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
    what is known stays, with its age. An edit of the file, or of a secret, takes effect within seconds.

    Exit status: 0 stopped by a signal, 1 could not start.
    """
    host, port = _address(listen)
    file = ConfigFile(config, secrets_dir)
    loaded = load(config, secrets_dir=secrets_dir)
    file.watch(loaded.secret_files)
    settings = TelemetrySettings.of(os.environ)
    for line in settings.warnings:
        print_notice(line)
    # Taken by the main thread alone: a handler may interrupt what holds the lock that it needs. All threads inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    now: MirrorConfig | None = loaded
    while now is not None:
        now = _serve(now, flow, file, settings, (host, port), every)


def _serve(
    config: MirrorConfig,
    name: str | None,
    file: ConfigFile,
    settings: TelemetrySettings,
    address: tuple[str, int],
    every: float,
) -> MirrorConfig | None:
    """Serve until the process is stopped, or until the file was edited: then return what it says."""
    flows = config.select(name)
    metrics, clock = MetricStore(), SystemClock()
    for one in flows:
        describe_flow(metrics, one)
    with FlowsReader(config, flows, metrics, round(every * 1000)) as reader:
        page = partial(_page, reader, clock.unix_ms, every)
        endpoint = Endpoint(
            metrics,
            *address,
            option="--listen",
            remedy="choose another address",
            site=lambda app: Site(app, reader, page),
        )
        try:
            print_notice(f"{endpoint_line(address[0], endpoint.port)}; and the page about all flows at /")
            return _export(settings, metrics, clock, partial(edited, file, name))
        finally:
            endpoint.close()


def edited(file: ConfigFile, name: str | None) -> MirrorConfig | None:
    """Return what the file says once it was edited; None: it was not, or is wrong, which is printed."""
    edit = file.poll()
    if edit is None:
        return None
    wrong = [edit.error, *(f"flow {flow}: {line}" for flow, line in edit.wrong.items())]
    if edit.config is not None and not any(wrong):
        try:
            edit.config.select(name)
        except MirrorError as error:
            wrong = [str(error)]
        else:
            print_notice("the configuration was edited: it is read again")
            return edit.config
    print_notice(f"{'; '.join(filter(None, wrong))}; until this is corrected, the previous configuration is served")
    return None


def _page(reader: FlowsReader, unix_ms: Callable[[], int], every: float) -> str:
    return render(reader.readings.flows, reader.readings.clusters, unix_ms(), refresh_s=max(10, round(every)))


def _export(
    settings: TelemetrySettings,
    metrics: MetricStore,
    clock: SystemClock,
    poll_file: Callable[[], MirrorConfig | None],
) -> MirrorConfig | None:
    """Send the metrics to a backend, if one is named, until the process is stopped, or the file was edited."""
    began_ms, sent, now = clock.unix_ms(), exports(settings), None
    interval_ms = settings.metrics_every_ms if settings.metrics else _POLL_MS
    due_ms = clock.now() + interval_ms
    while now is None and signal.sigtimedwait(_SIGNALS, min(_POLL_MS, interval_ms) / 1000) is None:
        if settings.metrics and clock.now() >= due_ms:
            due_ms = clock.now() + interval_ms
            try:
                sent.export_metrics(metrics, began_ms, clock.unix_ms())
            except Exception:  # noqa: BLE001 - a bug, and what is scraped is still to be served
                _log.exception("the metrics were not exported")
        now = poll_file()
    sent.flush(_FLUSH_MS)
    return now
