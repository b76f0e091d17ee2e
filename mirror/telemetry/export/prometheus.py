"""The HTTP endpoint at which Prometheus scrapes the metrics of a stream's driver, or those of the exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from mirror.errors import FlowError
from mirror.meters import BOUNDS_MS, Histogram
from mirror.telemetry.metrics.instruments import Instrument, Kind

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.metrics_core import Metric

    from mirror.telemetry.metrics.metric_store import MetricPoint, MetricStore

_JOIN_S: Final = 1.0
HUNG_AFTER_MS: Final = 60_000
"""A driver that has not begun a round for this long hangs; it begins one each second."""


class Endpoint:
    """Serves ``http://host:port/metrics``, and ``/healthz``: 200, or 503 if the process hangs."""

    def __init__(
        self,
        metrics: MetricStore,
        host: str,
        port: int,
        silent_ms: Callable[[], int] = int,
        *,
        option: str = "OTEL_METRICS_EXPORTER=prometheus",
        remedy: str = "set OTEL_EXPORTER_PROMETHEUS_HOST and OTEL_EXPORTER_PROMETHEUS_PORT",
        site: Callable[[WSGIApplication], WSGIApplication] | None = None,
    ) -> None:
        """Port 0 chooses a free port. ``silent_ms`` is how long ago the process's last round began.

        ``site`` returns what answers each path, instead of these two; it gets the application for metrics. Raises
        FlowError if the endpoint cannot listen there: ``option`` has asked for it, ``remedy`` is what to do.
        """
        registry = CollectorRegistry()
        registry.register(_StoreCollector(metrics))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise FlowError(f"{option}: cannot listen on {host}:{port}: {error.strerror or error}; {remedy}") from error
        self._server.RequestHandlerClass = _Bounded
        if (serve_metrics := self._server.get_app()) is not None:
            self._server.set_app(_with_health(serve_metrics, silent_ms) if site is None else site(serve_metrics))
        self.port: Final[int] = self._server.server_address[1]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_JOIN_S)


# Invariant: A stream is alive while its main thread makes its rounds: neither a cluster that is away nor a report
#   folder that cannot be written makes it seem dead, since a restart would mend neither.
# Test: tests/telemetry/test_metrics.py::test_endpoint_says_whether_the_process_hangs
def _with_health(serve_metrics: WSGIApplication, silent_ms: Callable[[], int]) -> WSGIApplication:
    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return serve_metrics(environ, start_response)
        silent = silent_ms()
        status = HTTPStatus.OK if silent < HUNG_AFTER_MS else HTTPStatus.SERVICE_UNAVAILABLE
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"the last round began %d ms ago\n" % silent]

    return serve


class _Bounded(WSGIRequestHandler):
    """Logs no requests, and waits for none longer than a scrape takes."""

    timeout = 15

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the class above it names it
        """Log nothing."""


class _StoreCollector(Collector):
    def __init__(self, metrics: MetricStore) -> None:
        self._metrics: Final = metrics

    def describe(self) -> Iterable[Metric]:
        """Declare no metrics in advance: each scrape shows which ones have values."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        with self._metrics.lock:
            stored = list(self._metrics.points())
        for instrument, points in stored:
            yield _family(instrument, points)


def _family(instrument: Instrument, points: Iterable[MetricPoint]) -> Metric:
    labels = [_label(name) for name in instrument.attributes]
    if instrument.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(instrument.prometheus, instrument.meaning, labels=labels)
        for point in points:
            value = point.value
            assert isinstance(value, Histogram)  # noqa: S101 - the instrument's kind says so
            histograms.add_metric(_label_values(instrument, point), _buckets(value), sum_value=value.sum_ms / 1000)
        return histograms
    kind = GaugeMetricFamily if instrument.kind is Kind.GAUGE else CounterMetricFamily
    numbers = kind(instrument.prometheus, instrument.meaning, labels=labels)
    for point in points:
        assert not isinstance(point.value, Histogram)  # noqa: S101 - the instrument's kind says so
        numbers.add_metric(_label_values(instrument, point), point.value)
    return numbers


def _label_values(instrument: Instrument, point: MetricPoint) -> list[str]:
    attributes = dict(point.attributes)
    return [attributes.get(name, "") for name in instrument.attributes]


def _label(name: str) -> str:
    return name.replace(".", "_")


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the cumulative buckets that Prometheus expects."""
    names = [*(repr(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    total = 0
    buckets = []
    for name, count in zip(names, histogram.counts, strict=True):
        total += count
        buckets.append((name, float(total)))
    return buckets
