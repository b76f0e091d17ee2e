"""Converts spans and metrics to OpenTelemetry's own types, and creates the exporters that its variables name."""

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
from mirror.version import VERSION

if TYPE_CHECKING:
    from mirror.telemetry.metrics.metric_store import MetricPoint, MetricStore
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.traces.ids import SpanId
    from mirror.telemetry.traces.spans import Span

_SCOPE: Final = InstrumentationScope("mirror", VERSION)
_NS: Final = 1_000_000
_BOUNDS_S: Final = tuple(bound / 1000 for bound in BOUNDS_MS)


@functools.cache
def resource() -> Resource:
    """Describe this process. ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` override our attributes."""
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
    detected = OTELResourceDetector().detect()
    overrides = {name: value for name, value in detected.attributes.items() if value not in {"unknown_service", ""}}
    return ours.merge(Resource(overrides))


def as_span(span: Span) -> ReadableSpan:
    """Return the span that the SDK's tracer would have created. Times in ms become ns."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.id),
        parent=None if span.parent is None else _context(span.parent),
        resource=resource(),
        attributes=dict(span.attributes),
        events=[Event(event.name, dict(event.attributes), event.time_ms * _NS) for event in span.events],
        links=[Link(_context(link.to), dict(link.attributes)) for link in span.links],
        kind=SpanKind[span.kind.name],
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.began_ms * _NS,
        end_time=max(span.began_ms, span.ended_ms) * _NS,
        instrumentation_scope=_SCOPE,
    )


def _context(ids: SpanId) -> SpanContext:
    return SpanContext(ids.trace, ids.span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def as_metrics(metrics: MetricStore, began_ms: int, now_ms: int, without: Collection[Instrument] = ()) -> MetricsData:
    """Return all points except those of some instruments, cumulative since ``began_ms``; times are ms since 1970."""
    with metrics.lock:
        stored = [(instrument, points) for instrument, points in metrics.points() if instrument not in without]
    converted = [_metric(instrument, points, began_ms * _NS, now_ms * _NS) for instrument, points in stored]
    scope = ScopeMetrics(_SCOPE, converted, "")
    return MetricsData([ResourceMetrics(resource(), [scope], "")])


def _metric(instrument: Instrument, points: Iterable[MetricPoint], began_ns: int, now_ns: int) -> Metric:
    data: Any
    if instrument.kind is Kind.HISTOGRAM:
        histograms = [_histogram(point, began_ns, now_ns) for point in points if isinstance(point.value, Histogram)]
        data = HistogramData(histograms, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(dict(point.attributes), began_ns, now_ns, point.value)
            for point in points
            if not isinstance(point.value, Histogram)
        ]
        cumulative = AggregationTemporality.CUMULATIVE
        data = Gauge(numbers) if instrument.kind is Kind.GAUGE else Sum(numbers, cumulative, is_monotonic=True)
    return Metric(instrument.name, instrument.meaning, instrument.unit, data)


def _histogram(point: MetricPoint, began_ns: int, now_ns: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, Histogram)  # noqa: S101 - the caller has checked the kind
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
    """Return a function that sends spans as ``OTEL_EXPORTER_OTLP_*`` say, and returns whether they were accepted."""
    _silence_exporters()
    if settings.traces == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        exporter: Any = GrpcExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        exporter = HttpExporter()
    return lambda spans: exporter.export(spans) is SpanExportResult.SUCCESS


def metric_exporter(settings: TelemetrySettings) -> Callable[[MetricsData], bool]:
    """Return a function that sends metrics as ``OTEL_EXPORTER_OTLP_*`` say, and returns whether they were accepted."""
    _silence_exporters()
    if settings.metrics == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        exporter: Any = GrpcExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        exporter = HttpExporter()
    return lambda data: exporter.export(data) is MetricExportResult.SUCCESS


def _silence_exporters() -> None:
    """Do not log each failed export of a backend that does not respond: ``mirror.telemetry.dropped`` counts them."""
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
