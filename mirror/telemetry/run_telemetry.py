"""A run's telemetry in the driver: the root spans of periods, the sums of all tasks, files, and the HTTP endpoint."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.relay.model.ranges import RangeResult
from mirror.telemetry.export.process import exports
from mirror.telemetry.lag.lag_metrics import remove_lags
from mirror.telemetry.lineage.emitter import Lineage
from mirror.telemetry.metrics.instruments import DROPPED, OF_TASKS
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.metrics.record_results import (
    record_counts,
    record_outcomes,
    record_period,
    record_plan,
    record_task,
)
from mirror.telemetry.settings import is_sampled
from mirror.telemetry.traces.spans import PeriodFacts, Span, TaskFacts, is_idle, period_spans, task_spans

if TYPE_CHECKING:
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.task_report import TaskReport
    from mirror.timing import Clock

_log: Final = logging.getLogger(__name__)

FLUSH_MS: Final = 5_000
"""How long the end of a run waits for a backend."""
_SPANS_PER_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class PeriodTaskResults:
    """The results of one attempt of a task in a period."""

    task: int
    attempt: int
    results: Sequence[RangeResult]
    report: TaskReport | None
    """None if the attempt left no report."""


class RunTelemetry:
    """The telemetry of all flows of a run. No method raises because of a backend."""

    def __init__(
        self, settings: TelemetrySettings, report_dir: Path, clock: Clock, lineage: Lineage | None = None
    ) -> None:
        """Raises FlowError if the port of the Prometheus endpoint cannot be used."""
        self.lineage: Final = lineage or Lineage(clock)
        self.metrics: Final = MetricStore()
        self.port: int | None = None
        """The port of the Prometheus endpoint."""
        self.file_error: str | None = None
        """Why the files cannot be written, in one line."""
        self._settings: Final = settings
        self._report_dir: Final = report_dir
        self._clock: Final = clock
        self._began_ms: Final = clock.unix_ms()
        self._exports: Final = exports(settings)
        self._dropped: dict[str, int] = {}
        self._round_ms: int | None = None
        self._resources: Final = contextlib.ExitStack()
        if settings.prometheus is not None:
            from mirror.telemetry.export.prometheus import Endpoint

            endpoint = Endpoint(self.metrics, *settings.prometheus, silent_ms=self._silent_ms)
            self.port = endpoint.port
            self._resources.callback(endpoint.close)
        self._closed: Final = threading.Event()
        self._exporter: Final = threading.Thread(target=self._keep_exporting, name="mirror-export", daemon=True)
        if self.enabled:
            self._exporter.start()

    @property
    def enabled(self) -> bool:
        """Whether any telemetry is produced."""
        return not self._settings.disabled

    @property
    def export_interval_ms(self) -> int:
        """The interval between exports of metrics."""
        return self._settings.metrics_every_ms

    def begin_round(self) -> None:
        """Say that the driver's main thread begins a round. A run has none, and does not count as hung."""
        self._round_ms = self._clock.now()

    def _silent_ms(self) -> int:
        return 0 if self._round_ms is None else self._clock.now() - self._round_ms

    def remove_lags(self, flow: str) -> None:
        """Remove a flow's lags: they are no longer known."""
        with self.metrics.lock:
            remove_lags(self.metrics, flow)

    def record_counts(self, flow: str, results: Iterable[RangeResult]) -> None:
        """Record what was copied since the last call, of a period that goes on."""
        if self._settings.disabled:
            return
        with self.metrics.lock:
            record_counts(self.metrics, flow, results)

    def record_task(self, flow: str, report: TaskReport) -> None:
        """Record what a task has measured since the last call."""
        if self._settings.disabled:
            return
        with self.metrics.lock:
            record_task(self.metrics, flow, report)

    def record_plan(self, flow: str, took_ms: int) -> None:
        """Record a plan that took so long."""
        if self._settings.disabled:
            return
        with self.metrics.lock:
            record_plan(self.metrics, flow, took_ms)

    def record_period(self, facts: PeriodFacts, tasks: Iterable[PeriodTaskResults], *, of_stream: bool = False) -> None:
        """Record the outcomes and export the spans of a period that has ended. Returns immediately.

        What was copied and measured in it is recorded as it is reported. The tasks of a stream export their spans
        themselves if there is a backend.
        """
        self.lineage.copied(facts.flow, facts.results)
        if self._settings.disabled:
            return
        tasks = list(tasks)
        took_ms = facts.ended_ms - facts.began_ms
        with self.metrics.lock:
            record_outcomes(self.metrics, facts.flow, facts.results)
            outcome = facts.outcome.value
            record_period(self.metrics, facts.flow, outcome=outcome, ended_ms=facts.ended_ms, took_ms=took_ms)
        expired = any(result.expiries for task in tasks for result in task.results)
        if is_sampled(facts.id.trace, self._settings.ratio) or expired:
            self._trace(facts, tasks, of_stream=of_stream)

    def _trace(self, facts: PeriodFacts, tasks: Sequence[PeriodTaskResults], *, of_stream: bool) -> None:
        """Export the root span, and the spans that tasks have not exported: ids are the same in every process."""
        root = list(period_spans(facts))
        if self._settings.traces:
            self._exports.export_spans(root)
            missing = [task for task in tasks if not (of_stream or (task.report and task.report.exported))]
            self._exports.export_spans(_spans(missing, facts))
        else:
            self._write_traces([*root, *_spans(_active(tasks) if of_stream else tasks, facts)])

    def _keep_exporting(self) -> None:
        while not self._closed.wait(self._settings.metrics_every_ms / 1000):
            try:
                self._export_metrics()
            except Exception:  # noqa: BLE001 - a bug, and later metrics are still to be exported
                _log.exception("the metrics were not exported")

    def _export_metrics(self) -> None:
        now_ms = self._clock.unix_ms()
        with self.metrics.lock:
            self._count_dropped()
        if self._settings.metrics:
            self._exports.export_metrics(self.metrics, self._began_ms, now_ms, without=OF_TASKS)
        elif self._settings.prometheus is None:
            self._write_metrics(now_ms)

    def _count_dropped(self) -> None:
        for signal, count in {**self._exports.dropped(), "lineage": self.lineage.dropped}.items():
            self.metrics.add(DROPPED, count - self._dropped.get(signal, 0), signal=signal)
            self._dropped[signal] = count

    def close(self) -> None:
        """Export what is left, and wait for the backend for at most :data:`FLUSH_MS`."""
        self.lineage.close(FLUSH_MS)
        if self.enabled:
            self._closed.set()
            self._exporter.join()  # it only writes to a file or a queue
            self._export_metrics()
        self._exports.flush(FLUSH_MS)
        self._resources.close()

    # --- files, if there is no backend

    def _write_traces(self, spans: Sequence[Span]) -> None:
        from mirror.telemetry.export import jsonl

        for first in range(0, len(spans), _SPANS_PER_LINE):
            self._append(jsonl.TRACES, jsonl.spans_line(spans[first : first + _SPANS_PER_LINE]))

    def _write_metrics(self, now_ms: int) -> None:
        from mirror.telemetry.export import jsonl
        from mirror.telemetry.export.otlp import as_metrics

        self._append(jsonl.METRICS, jsonl.metrics_line(as_metrics(self.metrics, self._began_ms, now_ms)))

    def _append(self, name: str, line: str) -> None:
        from mirror.telemetry.export import jsonl

        try:
            jsonl.append(self._report_dir / name, line)
        except OSError as error:
            self.file_error = f"{self._report_dir / name} cannot be written: {error.strerror or error}"


def _active(tasks: Iterable[PeriodTaskResults]) -> Iterator[PeriodTaskResults]:
    """Leave out the partitions of which a stream has no spans."""
    for task in tasks:
        if results := [result for result in task.results if not is_idle(result)]:
            yield replace(task, results=results)


def _spans(tasks: Iterable[PeriodTaskResults], facts: PeriodFacts) -> Iterator[Span]:
    for task in tasks:
        report = task.report
        yield from task_spans(
            TaskFacts(
                period=facts.id,
                flow=facts.flow,
                task=task.task,
                attempt=task.attempt,
                host=report.host if report else "",
                pid=report.pid if report else 0,
                began_ms=report.began_ms if report else facts.began_ms,
                ended_ms=report.ended_ms if report else facts.ended_ms,
            ),
            task.results,
        )
