"""Our spans and measurements as OpenTelemetry's own values, and the exporters that its variables ask for."""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mirror.meters import BOUNDS_MS, Histogram
from mirror.telemetry.metrics.instruments import Instrument, Kind
from mirror.telemetry.settings import SERVICE

if TYPE_CHECKING:
    from mirror.telemetry.metrics.metric_store import MetricPoint, MetricStore
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.traces.ids import SpanId
    from mirror.telemetry.traces.spans import Span

_SCOPE: Final = InstrumentationScope("mirror", "0.1.0")
_NS: Final = 1_000_000
_BOUNDS_S: Final = tuple(bound / 1000 for bound in BOUNDS_MS)


@functools.cache
def resource() -> Resource:
    """What this process is: ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` come before ours."""
    host = socket.gethostname()
    ours = Resource(
        {
            "service.name": SERVICE,
            "service.version": _SCOPE.version or "",
            "service.instance.id": f"{host}-{os.getpid()}",
            "host.name": host,
            "process.pid": os.getpid(),
        }
    )
    asked = OTELResourceDetector().detect()
    named = {name: value for name, value in asked.attributes.items() if value not in {"unknown_service", ""}}
    return ours.merge(Resource(named))


def as_span(span: Span) -> ReadableSpan:
    """As the SDK's tracer would have made it. Times in ms become ns."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.id),
        parent=None if span.parent is None else _context(span.parent),
        resource=resource(),
        attributes=dict(span.attributes),
        events=[Event(one.name, dict(one.attributes), one.time_ms * _NS) for one in span.events],
        links=[Link(_context(one.to), dict(one.attributes)) for one in span.links],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.began_ms * _NS,
        end_time=max(span.began_ms, span.ended_ms) * _NS,
        instrumentation_scope=_SCOPE,
    )


def _context(one: SpanId) -> SpanContext:
    return SpanContext(one.trace, one.span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def as_metrics(measured: MetricStore, began_ms: int, now_ms: int, without: Collection[Instrument] = ()) -> MetricsData:
    """All points but for those of some instruments, cumulative since ``began_ms``; times in ms since 1970."""
    with measured.lock:
        found = [(what, points) for what, points in measured.points() if what not in without]
    metrics = [_metric(what, points, began_ms * _NS, now_ms * _NS) for what, points in found]
    scope = ScopeMetrics(_SCOPE, metrics, "")
    return MetricsData([ResourceMetrics(resource(), [scope], "")])


def _metric(what: Instrument, points: Iterable[MetricPoint], began_ns: int, now_ns: int) -> Metric:
    data: Any
    if what.kind is Kind.HISTOGRAM:
        histograms = [_histogram(one, began_ns, now_ns) for one in points if isinstance(one.value, Histogram)]
        data = HistogramData(histograms, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(dict(one.attributes), began_ns, now_ns, one.value)
            for one in points
            if not isinstance(one.value, Histogram)
        ]
        cumulative = AggregationTemporality.CUMULATIVE
        data = Gauge(numbers) if what.kind is Kind.GAUGE else Sum(numbers, cumulative, is_monotonic=True)
    return Metric(what.name, what.meaning, what.unit, data)


def _histogram(point: MetricPoint, began_ns: int, now_ns: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, Histogram)  # noqa: S101 - asked for by kind
    return HistogramDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=value.count,
        sum=value.sum_ms / 1000,
        bucket_counts=list(value.counts),
        explicit_bounds=_BOUNDS_S,
        min=0.0,
        max=0.0,
    )


def span_exporter(settings: TelemetrySettings) -> Callable[[Sequence[ReadableSpan]], bool]:
    """Sends spans where ``OTEL_EXPORTER_OTLP_*`` say; says whether the backend took them."""
    _be_quiet()
    if settings.traces == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        exporter: Any = GrpcExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        exporter = HttpExporter()
    return lambda spans: exporter.export(spans) is SpanExportResult.SUCCESS


def metric_exporter(settings: TelemetrySettings) -> Callable[[MetricsData], bool]:
    """Sends measurements where ``OTEL_EXPORTER_OTLP_*`` say; says whether the backend took them."""
    _be_quiet()
    if settings.metrics == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        exporter: Any = GrpcExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        exporter = HttpExporter()
    return lambda data: exporter.export(data) is MetricExportResult.SUCCESS


def _be_quiet() -> None:
    """A backend that does not answer is told of once, and counted (``mirror.telemetry.dropped``); not line by line."""
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
