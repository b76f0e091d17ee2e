"""The exporters of one process: made when first needed, after a fork, and shared by all that runs in it."""

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

_MEASUREMENTS: Final = 10
"""That wait for a backend, at most: they are cumulative, so that the next ones say all that these do."""


class Exports:
    """Where spans and measurements of this process go; nowhere where the environment asks for no backend."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self.settings: Final = settings
        self.of_tasks: Final = MetricStore()
        """What the tasks of this process have counted, one after the other."""
        self.began_ms: Final = SystemClock().unix_ms()
        self._spans: ExportQueue[Span] | None = None
        self._metrics: ExportQueue[MetricsData] | None = None
        if settings.traces:
            self._spans = self._span_outlet()
        if settings.metrics:
            self._metrics = self._metric_outlet()

    def _span_outlet(self) -> ExportQueue[Span]:
        from mirror.telemetry.export.otlp import as_span, span_exporter

        export = span_exporter(self.settings)
        return ExportQueue(
            "spans",
            # In the exporter's thread, and only for what the queue had room for.
            lambda spans: export([as_span(one) for one in spans]),
            queue_size=self.settings.queue_size,
            batch_size=self.settings.batch_size,
            delay_ms=self.settings.delay_ms,
        )

    def _metric_outlet(self) -> ExportQueue[MetricsData]:
        from mirror.telemetry.export.otlp import metric_exporter

        export = metric_exporter(self.settings)

        def each(waiting: Sequence[MetricsData]) -> bool:
            taken = [export(one) for one in waiting]
            return all(taken)

        return ExportQueue("metrics", each, queue_size=_MEASUREMENTS, batch_size=1, delay_ms=0)

    def span(self, span: Span) -> None:
        """Returns at once."""
        if self._spans is not None:
            self._spans.put(span)

    def spans(self, spans: Iterable[Span]) -> None:
        """Returns at once."""
        for one in spans:
            self.span(one)

    def metrics(self, measured: MetricStore, began_ms: int, now_ms: int, without: Collection[Instrument] = ()) -> None:
        """All that was measured since ``began_ms``, but for these; returns at once."""
        if self._metrics is not None:
            from mirror.telemetry.export.otlp import as_metrics

            self._metrics.put(as_metrics(measured, began_ms, now_ms, without))

    def dropped(self) -> dict[str, int]:
        """How many spans, and looks at measurements, no backend has taken; by signal."""
        told = {"traces": self._spans, "metrics": self._metrics}
        return {signal: outlet.dropped for signal, outlet in told.items() if outlet is not None}

    def flush(self, timeout_ms: int) -> bool:
        """Whether all that was put got there within ``timeout_ms``."""
        outlets = [one for one in (self._spans, self._metrics) if one is not None]
        flushed = [one.flush(timeout_ms) for one in outlets]
        return all(flushed)

    def close(self, timeout_ms: int) -> None:
        """The process ends."""
        for outlet in (self._spans, self._metrics):
            if outlet is not None:
                outlet.close(timeout_ms)


@functools.cache
def _exports_of(pid: int, settings: TelemetrySettings) -> Exports:
    del pid  # a forked child has none of the threads
    return Exports(settings)


def exports(settings: TelemetrySettings) -> Exports:
    """Those of this process."""
    return _exports_of(os.getpid(), settings)
