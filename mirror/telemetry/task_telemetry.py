"""A task's telemetry in the executor: it exports spans while the task runs, and reports with the results."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mirror.meters import Histogram
from mirror.relay.model.ranges import Range, RangeResult
from mirror.telemetry.export.process import exports
from mirror.telemetry.logs import log_partition
from mirror.telemetry.metrics.record_results import record_task
from mirror.telemetry.settings import is_sampled
from mirror.telemetry.task_report import TaskReport
from mirror.telemetry.traces.ids import SpanId, partition_id
from mirror.telemetry.traces.spans import (
    TaskFacts,
    is_idle,
    partition_span,
    record_spans,
    subspan,
    task_span,
    task_spans,
)

if TYPE_CHECKING:
    from mirror.relay.model.observer import SlowRecord, TaskSnapshot
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.timing import Clock

_log: Final = logging.getLogger(__name__)

_SAMPLE_S: Final = 1.0
_REPORT_MS: Final = 5_000
"""How often a task reports what it has measured, 2 KB, or with each export of metrics."""
_FLUSH_MS: Final = 2_000


class TaskTelemetry:
    """Observes one attempt of one task (``TaskObserver``). Only :meth:`finish` waits."""

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        period: SpanId,
        flow: str,
        task: int,
        attempt: int,
        clock: Clock,
        run: str = "",
        period_at: Callable[[int], SpanId] | None = None,
    ) -> None:
        """``run`` is that of the task's reports.

        ``period_at`` returns the span of the period at a time (ms since 1970), if the task goes on for many of them.
        Without it all spans of the task belong to ``period``.
        """
        self._settings: Final = settings
        self._exports: Final = exports(settings)
        self._period = period
        """The period of :attr:`_results`."""
        self._period_at: Final = period_at or (lambda _: period)
        self._flow: Final = flow
        self._run: Final = run
        self._task: Final = task
        self._attempt: Final = attempt
        self._clock: Final = clock
        self._began_ms: Final = clock.unix_ms()
        self._part_began_ms = self._began_ms
        """When the task, or the period of :attr:`_results`, began."""
        self._part_ended_ms: int | None = None
        """When that period ended; None until then, and in a task without periods."""
        self._has_periods: Final = period_at is not None
        self._take_snapshot: Callable[[], TaskSnapshot] | None = None
        self._first: TaskSnapshot | None = None
        self._last_exported: TaskSnapshot | None = None
        self._peaks: Counter[str] = Counter()
        self._phases: Final = dict[str, int]()
        self._send: Callable[[TaskReport], object] | None = None
        self._finished: Final = threading.Event()
        self._dropped_before: Final = self._exports.dropped()
        self._results: list[RangeResult] = []

    def describe_flow(self, source: str, target: str) -> None:
        """Have the metrics of the task name the flow's clusters by these aliases."""
        with self._exports.task_metrics.lock:
            self._exports.task_metrics.describe_flow(self._flow, source, target)

    def report_to(self, send: Callable[[TaskReport], object]) -> None:
        """Have the task report while it lives: ``send`` is called in a thread, and must not wait."""
        self._send = send

    # --- the observer

    def task_started(self, take_snapshot: Callable[[], TaskSnapshot]) -> None:
        """Start to sample the task once a second."""
        self._take_snapshot = take_snapshot
        self._first = self._last_exported = take_snapshot()
        threading.Thread(target=self._keep_sampling, name="mirror-telemetry", daemon=True).start()

    @property
    def slow_ms(self) -> int | None:
        """How late a record has to be, if a backend receives traces."""
        return self._settings.slow_ms if self._settings.traces and self._settings.ratio else None

    def record_was_slow(self, range_: Range, record: SlowRecord) -> None:
        """Export the record's way immediately, in the trace of its producer."""
        period = self._period_at(self._clock.unix_ms())
        partition = partition_id(period, range_.topic, range_.partition, self._attempt)
        if not self._finished.is_set():
            self._exports.export_spans(record_spans(partition, range_, record))

    def span_ended(self, range_: Range, span: Mapping[str, Any]) -> None:
        """Export the span immediately."""
        period = self._period_at(self._clock.unix_ms())
        if self._is_sampled(period) and not self._finished.is_set():
            partition = partition_id(period, range_.topic, range_.partition, self._attempt)
            self._exports.export_span(subspan(partition, range_.flow, span))

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        """Export the partition's span immediately, while other partitions are still being copied."""
        del range_
        now_ms = self._clock.unix_ms()
        began_ms = now_ms if result.timeline is None else result.timeline.began_ms
        period = self._period_at(began_ms)
        if period != self._period:
            self._export_task()
            self._period, self._part_began_ms, self._results = period, began_ms, []
        if self._has_periods:
            self._part_began_ms, self._part_ended_ms = min(self._part_began_ms, began_ms), now_ms
        for phase, ms in result.timeline.phases.items() if result.timeline else ():
            self._phases[phase] = self._phases.get(phase, 0) + ms
        log_partition(result, self._period, self._attempt)
        self._results.append(result)
        if self._is_sampled(period) and not is_idle(result):
            self._exports.export_span(partition_span(self._facts(), result))

    def _is_sampled(self, period: SpanId) -> bool:
        return is_sampled(period.trace, self._settings.ratio)

    def _export_task(self) -> bool:
        """Export the span of the task with its results; return whether there was anything to export."""
        if not self._settings.traces or (self._has_periods and not self._results):
            return False
        if self._is_sampled(self._period):
            self._exports.export_span(task_span(self._facts(), self._results))
        elif any(result.expiries for result in self._results):
            self._exports.export_spans(task_spans(self._facts(), self._results))  # sampling never omits an expiry
        else:
            return False
        return True

    # --- the end

    def finish(self) -> TaskReport:
        """Return the report that goes with the results.

        This waits for the backend for a moment, because Spark may kill an idle worker.
        """
        self._finished.set()
        report = self._report()
        exported = self._export_task()
        if not self._settings.traces:
            return report
        flushed = self._exports.flush(_FLUSH_MS)  # spans of slow records wait also where the period is not sampled
        dropped = self._dropped_since()
        return replace(report, exported=exported and flushed and not dropped.get("traces"), dropped=dropped)

    def _facts(self) -> TaskFacts:
        return TaskFacts(
            period=self._period,
            flow=self._flow,
            task=self._task,
            attempt=self._attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            began_ms=self._part_began_ms,
            ended_ms=self._clock.unix_ms() if self._part_ended_ms is None else self._part_ended_ms,
        )

    def _report(self) -> TaskReport:
        snapshot = self._sample()
        counted = None if snapshot is None or self._first is None else snapshot.since(self._first)
        peaks, self._peaks = self._peaks, Counter()
        report = self._report_of(counted, self._began_ms, self._clock.unix_ms(), peaks)
        return replace(report, run=self._run, phases=dict(self._phases), dropped=self._dropped_since())

    def _report_of(
        self, counted: TaskSnapshot | None, began_ms: int, ended_ms: int, peaks: Mapping[str, int]
    ) -> TaskReport:
        """Return a report of what the task ``counted`` between two times; None if it was never sampled."""
        return TaskReport(
            task=self._task,
            attempt=self._attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            began_ms=began_ms,
            ended_ms=ended_ms,
            networks={} if counted is None else counted.networks,
            commits=Histogram() if counted is None else counted.commits,
            latency=Histogram() if counted is None else counted.latency,
            peaks=dict(peaks),
        )

    def _dropped_since(self) -> dict[str, int]:
        return {name: count - self._dropped_before.get(name, 0) for name, count in self._exports.dropped().items()}

    # --- samples

    def _keep_sampling(self) -> None:
        samples_per_export = max(1, round(self._settings.metrics_every_ms / 1000 / _SAMPLE_S))
        report_ms = min(_REPORT_MS, self._settings.metrics_every_ms)
        samples_per_report = max(1, round(report_ms / 1000 / _SAMPLE_S))
        samples = 0
        while not self._finished.wait(_SAMPLE_S):
            samples += 1
            with _logged():
                self._sample()
                if samples % samples_per_export == 0:
                    self._export_metrics()
                if self._send is not None and samples % samples_per_report == 0:
                    self._send(self._report())
        with _logged():
            self._export_metrics()

    def _sample(self) -> TaskSnapshot | None:
        if self._take_snapshot is None:
            return None
        snapshot = self._take_snapshot()
        for name, value in _bytes_of(snapshot).items():
            self._peaks[name] = max(self._peaks[name], value)
        return snapshot

    def _export_metrics(self) -> None:
        """Export what the task has counted since the last export."""
        if not self._settings.metrics or self._last_exported is None:
            return
        snapshot = self._sample()
        if snapshot is None:
            return
        counted, self._last_exported = snapshot.since(self._last_exported), snapshot
        now_ms = self._clock.unix_ms()
        report = self._report_of(counted, now_ms - self._settings.metrics_every_ms, now_ms, _bytes_of(snapshot))
        metrics = self._exports.task_metrics
        with metrics.lock:
            record_task(metrics, self._flow, report)
        self._exports.export_metrics(metrics, self._exports.began_ms, now_ms)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Log an error of the block: it must not end the samples."""
    try:
        yield
    except Exception:  # noqa: BLE001 - a bug, and the copy goes on
        _log.exception("the task's metrics were not exported")


def _bytes_of(snapshot: TaskSnapshot) -> dict[str, int]:
    return {
        "buffer": snapshot.buffer,
        "buffer_size": snapshot.buffer_size,
        "in_flight": snapshot.in_flight,
        "held": snapshot.held,
    }
