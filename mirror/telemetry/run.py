"""A run's telemetry, in the driver's script: the epochs' roots, what all tasks counted, files, and the endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.relay.model.ranges import RangeResult
from mirror.telemetry.export.process import exports
from mirror.telemetry.lag.lag_metrics import forget_lags
from mirror.telemetry.metrics.instruments import DROPPED, OF_TASKS
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.metrics.record_results import record_epoch, record_results, record_task
from mirror.telemetry.settings import sampled
from mirror.telemetry.traces.spans import EpochFacts, Span, TaskFacts, epoch_spans, task_spans

if TYPE_CHECKING:
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.task_report import TaskReport
    from mirror.timing import Clock

FLUSH_MS: Final = 5_000
"""How long a run's end waits for a backend."""
_SPANS_A_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class EpochTaskResults:
    """What one attempt of a task answered; ``told`` is None where it told nothing of itself."""

    task: int
    attempt: int
    results: Sequence[RangeResult]
    report: TaskReport | None


class RunTelemetry:
    """Of all flows of a run. Nothing of it raises for what a backend does."""

    def __init__(self, settings: TelemetrySettings, report_dir: Path, clock: Clock) -> None:
        """Raises FlowError where Prometheus is to find an endpoint, and the port is taken."""
        self.metrics: Final = MetricStore()
        self.port: int | None = None
        """Where Prometheus finds it."""
        self.file_error: str | None = None
        """Why the files cannot be written, in one line."""
        self._settings: Final = settings
        self._report_dir: Final = report_dir
        self._clock: Final = clock
        self._began_ms: Final = clock.unix_ms()
        self._next_ms = self._began_ms
        self._exports: Final = exports(settings)
        self._dropped: dict[str, int] = {}
        self._open: Final = contextlib.ExitStack()
        if settings.prometheus is not None:
            from mirror.telemetry.export.prometheus import Endpoint

            endpoint = Endpoint(self.metrics, *settings.prometheus)
            self.port = endpoint.port
            self._open.callback(endpoint.close)

    @property
    def enabled(self) -> bool:
        """Whether anything is made."""
        return not self._settings.disabled

    @property
    def export_interval_ms(self) -> int:
        """How often a backend wants to hear of measurements."""
        return self._settings.metrics_every_ms

    def forget_lags(self, flow: str) -> None:
        """How far a flow is cannot be seen any more."""
        with self.metrics.lock:
            forget_lags(self.metrics, flow)

    def record_epoch(self, facts: EpochFacts, tasks: Iterable[EpochTaskResults]) -> None:
        """An epoch is over. Returns at once."""
        if self._settings.disabled:
            return
        tasks = list(tasks)
        with self.metrics.lock:
            self._measure(facts, tasks)
        expired = any(one.expiries for task in tasks for one in task.results)
        if sampled(facts.id.trace, self._settings.ratio) or expired:
            self._trace(facts, tasks)

    def _measure(self, facts: EpochFacts, tasks: Sequence[EpochTaskResults]) -> None:
        record_results(self.metrics, facts.flow, facts.results)
        for task in tasks:
            if task.report is not None:
                record_task(self.metrics, facts.flow, task.report)
        record_epoch(
            self.metrics,
            facts.flow,
            outcome=facts.outcome.value,
            ended_ms=facts.ended_ms,
            took_ms=facts.ended_ms - facts.began_ms,
            planned_ms=facts.planned_ms,
        )

    def _trace(self, facts: EpochFacts, tasks: Sequence[EpochTaskResults]) -> None:
        """The root; and what tasks have not exported themselves: the ids are the same, whoever does it."""
        root = list(epoch_spans(facts))
        if self._settings.traces:
            self._exports.spans(root)
            self._exports.spans(_spans([task for task in tasks if not (task.report and task.report.exported)], facts))
        else:
            self._write_traces([*root, *_spans(tasks, facts)])

    def export_metrics(self, *, at_once: bool = False) -> None:
        """What was measured so far goes where it is to go, from any thread, where it is time for that, or ``at_once``.

        Returns at once.
        """
        now_ms = self._clock.unix_ms()
        with self.metrics.lock:
            if self._settings.disabled or (now_ms < self._next_ms and not at_once):
                return
            self._next_ms = now_ms + self._settings.metrics_every_ms
            self._count_dropped()
        if self._settings.metrics:
            self._exports.metrics(self.metrics, self._began_ms, now_ms, without=OF_TASKS)
        elif self._settings.prometheus is None:
            self._write_metrics(now_ms)

    def _count_dropped(self) -> None:
        for signal, count in self._exports.dropped().items():
            self.metrics.add(DROPPED, count - self._dropped.get(signal, 0), signal=signal)
            self._dropped[signal] = count

    def close(self) -> None:
        """The run is over; waits for a backend, but not for long."""
        self.export_metrics(at_once=True)
        self._exports.flush(FLUSH_MS)
        self._open.close()

    # --- files, where there is no backend

    def _write_traces(self, spans: Sequence[Span]) -> None:
        from mirror.telemetry.export import jsonl
        from mirror.telemetry.export.otlp import as_span

        for first in range(0, len(spans), _SPANS_A_LINE):
            some = [as_span(one) for one in spans[first : first + _SPANS_A_LINE]]
            self._append(jsonl.TRACES, jsonl.spans_line(some))

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


def _spans(tasks: Iterable[EpochTaskResults], facts: EpochFacts) -> Iterator[Span]:
    for task in tasks:
        told = task.report
        yield from task_spans(
            TaskFacts(
                epoch=facts.id,
                flow=facts.flow,
                task=task.task,
                attempt=task.attempt,
                host=told.host if told else "",
                pid=told.pid if told else 0,
                began_ms=told.began_ms if told else facts.began_ms,
                ended_ms=told.ended_ms if told else facts.ended_ms,
            ),
            task.results,
        )
