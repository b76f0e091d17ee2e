"""What was measured, to be scraped by Prometheus from a stream's driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from mirror.errors import FlowError
from mirror.meters import BOUNDS_MS, Histogram
from mirror.telemetry.metrics.instruments import Instrument, Kind

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from mirror.telemetry.metrics.metric_store import MetricPoint, MetricStore

_CLOSE_S: Final = 1.0


class Endpoint:
    """``http://host:port/metrics``; ``port`` is the one that was taken where 0 was asked for."""

    def __init__(self, measured: MetricStore, host: str, port: int) -> None:
        """Raises FlowError where it cannot listen there."""
        registry = CollectorRegistry()
        registry.register(_Measurements(measured))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise FlowError(
                f"OTEL_METRICS_EXPORTER=prometheus: cannot listen on {host}:{port}: {error.strerror or error};"
                " set OTEL_EXPORTER_PROMETHEUS_HOST and OTEL_EXPORTER_PROMETHEUS_PORT"
            ) from error
        self.port: Final[int] = self._server.server_address[1]

    def close(self) -> None:
        """Nobody is served any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_S)


class _Measurements(Collector):
    def __init__(self, measured: MetricStore) -> None:
        self._measured: Final = measured

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: what there is shows at each scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        with self._measured.lock:
            found = [(what, points) for what, points in self._measured.points()]
        for what, points in found:
            yield _family(what, points)


def _family(what: Instrument, points: Iterable[MetricPoint]) -> Metric:
    labels = [_label(name) for name in what.attributes]
    if what.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(what.prometheus, what.meaning, labels=labels)
        for one in points:
            assert isinstance(one.value, Histogram)  # noqa: S101 - asked for by kind
            histograms.add_metric(_values(what, one), _buckets(one.value), sum_value=one.value.sum_ms / 1000)
        return histograms
    kind = GaugeMetricFamily if what.kind is Kind.GAUGE else CounterMetricFamily
    numbers = kind(what.prometheus, what.meaning, labels=labels)
    for one in points:
        assert not isinstance(one.value, Histogram)  # noqa: S101 - the same
        numbers.add_metric(_values(what, one), one.value)
    return numbers


def _values(what: Instrument, point: MetricPoint) -> list[str]:
    known = dict(point.attributes)
    return [known.get(name, "") for name in what.attributes]


def _label(name: str) -> str:
    return name.replace(".", "_")


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus has them."""
    names = [*(repr(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    total = 0
    buckets = []
    for name, count in zip(names, histogram.counts, strict=True):
        total += count
        buckets.append((name, float(total)))
    return buckets
