"""A task's telemetry, in the executor: its spans while it runs, what it counts, and what it tells with its results."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mirror.meters import Histogram
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.telemetry.export.process import exports
from mirror.telemetry.logs import log_partition
from mirror.telemetry.metrics.record_results import record_task
from mirror.telemetry.settings import sampled
from mirror.telemetry.task_report import TaskReport
from mirror.telemetry.traces.ids import SpanId, partition_id
from mirror.telemetry.traces.spans import TaskFacts, part_span, partition_span, task_span, task_spans

if TYPE_CHECKING:
    from mirror.relay.model.observer import TaskSnapshot
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.timing import Clock

_LOOK_S: Final = 1.0


class TaskTelemetry:
    """One attempt of one task (``TaskObserver``). Nothing of it waits but :meth:`ends`.

    ``follows``: it is a stream's, whose tasks may go on after they have told their results, and must not wait.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        epoch: SpanId,
        flow: str,
        task: int,
        attempt: int,
        follows: bool,
        clock: Clock,
    ) -> None:
        self._settings: Final = settings
        self._exports: Final = exports(settings)
        self._epoch: Final = epoch
        self._flow: Final = flow
        self._task: Final = task
        self._attempt: Final = attempt
        self._follows: Final = follows
        self._clock: Final = clock
        self._began_ms: Final = clock.unix_ms()
        self._sampled: Final = sampled(epoch.trace, settings.ratio)
        self._look: Callable[[], TaskSnapshot] | None = None
        self._first: TaskSnapshot | None = None
        self._last: TaskSnapshot | None = None
        self._peaks: Counter[str] = Counter()
        self._over: Final = threading.Event()
        self._dropped_before: Final = self._exports.dropped()
        self._results: list[RangeResult] = []

    # --- the watcher

    def begins(self, look: Callable[[], TaskSnapshot]) -> None:
        """From now on it is looked at once a second."""
        self._look = look
        self._first = self._last = look()
        threading.Thread(target=self._look_on, name="mirror-telemetry", daemon=True).start()

    def passed(self, one: Range, span: Mapping[str, Any]) -> None:
        """Exported at once."""
        if self._sampled and not self._over.is_set():
            partition = partition_id(self._epoch, one.topic, one.partition, self._attempt)
            self._exports.span(part_span(partition, one.flow, span))

    def done(self, one: Range, result: RangeResult) -> None:
        """Exported at once, also while others are still being copied."""
        del one
        if self._over.is_set():
            return  # it went on under the lease; who goes on from there tells of it
        log_partition(result, self._epoch, self._attempt)
        self._results.append(result)
        if self._sampled and not is_idle(result):
            self._exports.span(partition_span(self._facts(), result))

    # --- the end

    def ends(self) -> TaskReport:
        """What goes with the results. Waits for a backend for a moment: a worker that is idle may be killed."""
        self._over.set()
        told = self._told()
        if not self._settings.traces:
            return told
        if self._sampled:
            self._exports.span(task_span(self._facts(), self._results))
        elif any(one.expiries for one in self._results):
            self._exports.spans(task_spans(self._facts(), self._results))  # never left out, whatever was sampled
        else:
            return told
        flushed = self._exports.flush(500 if self._follows else 2_000)
        dropped = self._dropped_since()
        return replace(told, exported=flushed and not dropped.get("traces"), dropped=dropped)

    def _facts(self) -> TaskFacts:
        return TaskFacts(
            epoch=self._epoch,
            flow=self._flow,
            task=self._task,
            attempt=self._attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            began_ms=self._began_ms,
            ended_ms=self._clock.unix_ms(),
        )

    def _told(self) -> TaskReport:
        look = self._look_once()
        counted = None if look is None or self._first is None else look.since(self._first)
        told = self._told_of(counted, self._began_ms, self._clock.unix_ms(), self._peaks)
        return replace(told, dropped=self._dropped_since())

    def _told_of(
        self, counted: TaskSnapshot | None, began_ms: int, ended_ms: int, peaks: Mapping[str, int]
    ) -> TaskReport:
        """What this task ``counted`` in between; None: it was never looked at."""
        return TaskReport(
            task=self._task,
            attempt=self._attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            began_ms=began_ms,
            ended_ms=ended_ms,
            networks={} if counted is None else counted.networks,
            commits=Histogram() if counted is None else counted.commits,
            peaks=dict(peaks),
        )

    def _dropped_since(self) -> dict[str, int]:
        return {name: count - self._dropped_before.get(name, 0) for name, count in self._exports.dropped().items()}

    # --- looks

    def _look_on(self) -> None:
        every = max(1, round(self._settings.metrics_every_ms / 1000 / _LOOK_S))
        looks = 0
        while not self._over.wait(_LOOK_S):
            self._look_once()
            looks += 1
            if looks % every == 0:
                self._export_metrics()
        self._export_metrics()

    def _look_once(self) -> TaskSnapshot | None:
        if self._look is None:
            return None
        look = self._look()
        for name, value in _bytes_of(look).items():
            self._peaks[name] = max(self._peaks[name], value)
        return look

    def _export_metrics(self) -> None:
        """What this task has counted since the last time."""
        if not self._settings.metrics or self._last is None:
            return
        look = self._look_once()
        if look is None:
            return
        counted, self._last = look.since(self._last), look
        now_ms = self._clock.unix_ms()
        told = self._told_of(counted, now_ms - self._settings.metrics_every_ms, now_ms, _bytes_of(look))
        measured = self._exports.of_tasks
        with measured.lock:
            record_task(measured, self._flow, told)
        self._exports.metrics(measured, self._exports.began_ms, now_ms)


def is_idle(result: RangeResult) -> bool:
    """Whether nothing happened to it: of a stream's thousands, only the others have a span."""
    quiet = result.outcome is Outcome.COMPLETE and not (result.records or result.expiries or result.skipped)
    return quiet and not (result.story and (result.story.events or result.story.spans))


def _bytes_of(look: TaskSnapshot) -> dict[str, int]:
    return {"buffer": look.buffer, "buffer_size": look.buffer_size, "in_flight": look.in_flight, "held": look.held}
