"""The exporters of one process: created at first use, after a fork, and shared by everything in the process."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mirror.runtime.clock import SystemClock
from mirror.telemetry.export.export_queue import ExportQueue
from mirror.telemetry.metrics.metric_store import MetricStore

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

    from mirror.telemetry.metrics.instruments import Instrument
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.traces.spans import Span

_MAX_QUEUED_METRICS: Final = 10
"""Exports of metrics that may wait for a backend. They are cumulative, so a later export replaces a dropped one."""


class Exports:
    """Sends the spans and metrics of this process to a backend, if the environment names one."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self.settings: Final = settings
        self.task_metrics: Final = MetricStore()
        """The sums of all tasks that have run in this process."""
        self.began_ms: Final = SystemClock().unix_ms()
        self._spans: ExportQueue[Span] | None = None
        self._metrics: ExportQueue[MetricsData] | None = None
        if settings.traces:
            self._spans = self._span_queue()
        if settings.metrics:
            self._metrics = self._metric_queue()

    def _span_queue(self) -> ExportQueue[Span]:
        from mirror.telemetry.export.otlp import as_span, span_exporter

        export = span_exporter(self.settings)
        return ExportQueue(
            "spans",
            # The exporter's thread converts the spans, and only those that the queue had room for.
            lambda spans: export([as_span(span) for span in spans]),
            queue_size=self.settings.queue_size,
            batch_size=self.settings.batch_size,
            delay_ms=self.settings.delay_ms,
        )

    def _metric_queue(self) -> ExportQueue[MetricsData]:
        from mirror.telemetry.export.otlp import metric_exporter

        export = metric_exporter(self.settings)

        def export_all(waiting: Sequence[MetricsData]) -> bool:
            accepted = [export(data) for data in waiting]
            return all(accepted)

        return ExportQueue("metrics", export_all, queue_size=_MAX_QUEUED_METRICS, batch_size=1, delay_ms=0)

    def export_span(self, span: Span) -> None:
        """Queue a span. Returns immediately."""
        if self._spans is not None:
            self._spans.put(span)

    def export_spans(self, spans: Iterable[Span]) -> None:
        """Queue several spans. Returns immediately."""
        for span in spans:
            self.export_span(span)

    def export_metrics(
        self, metrics: MetricStore, began_ms: int, now_ms: int, without: Collection[Instrument] = ()
    ) -> None:
        """Queue all points since ``began_ms`` except those of some instruments. Returns immediately."""
        if self._metrics is not None:
            from mirror.telemetry.export.otlp import as_metrics

            self._metrics.put(as_metrics(metrics, began_ms, now_ms, without))

    def dropped(self) -> dict[str, int]:
        """Return, by signal, how many spans or exports of metrics no backend has accepted."""
        queues = {"traces": self._spans, "metrics": self._metrics}
        return {signal: queue.dropped for signal, queue in queues.items() if queue is not None}

    def flush(self, timeout_ms: int) -> bool:
        """Export everything queued; return whether the backends accepted all of it within ``timeout_ms``."""
        queues = [queue for queue in (self._spans, self._metrics) if queue is not None]
        flushed = [queue.flush(timeout_ms) for queue in queues]
        return all(flushed)

    def close(self, timeout_ms: int) -> None:
        """Flush for at most ``timeout_ms`` and stop the exporters' threads."""
        for queue in (self._spans, self._metrics):
            if queue is not None:
                queue.close(timeout_ms)


@functools.cache
def _exports_of(pid: int, settings: TelemetrySettings) -> Exports:
    del pid  # part of the key: a forked child does not have its parent's threads
    return Exports(settings)


def exports(settings: TelemetrySettings) -> Exports:
    """Return the exporters of this process."""
    return _exports_of(os.getpid(), settings)
