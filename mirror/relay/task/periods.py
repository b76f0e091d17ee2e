"""Lets telemetry have what came of each partition in each period, although its copy goes on for months.

What reports failures soon learns of them here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from mirror.client import TopicPartition
from mirror.relay.model.observer import SlowRecord, TaskObserver, TaskSnapshot
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.reports import difference
from mirror.relay.model.timeline import SpanName
from mirror.relay.partition.machine.partition_copy import PartitionCopy


class PeriodObserver:
    """Passes on what a copy has done since the present period began. Used on the task's thread.

    Without :meth:`end_period`, there is one period: that of the whole copy.
    """

    def __init__(self, observer: TaskObserver, on_failed: Callable[[TopicPartition], object]) -> None:
        """``on_failed`` is called when an attempt at a target partition has failed."""
        self._observer: Final = observer
        self._on_failed: Final = on_failed
        self._began: Final = dict[TopicPartition, RangeResult]()
        """By target partition: the result when the present period began; none in the first one."""

    def end_period(self, copy: PartitionCopy, now: int) -> None:
        """End the period of ``copy`` at ``now``. It is not passed on if nothing happened in it."""
        result = copy.result_at(now)
        period = self._since_began(copy.target, result)
        self._began[copy.target] = result
        timeline = copy.recorder.next_timeline(now)
        if period.end != period.start or period.retries or period.outcome is not Outcome.COMPLETE:
            period.timeline = timeline
            self._observer.range_finished(copy.range, period)

    def forget(self, targets: Collection[TopicPartition]) -> None:
        """Other copies of ``targets`` may follow."""
        for target in targets:
            self._began.pop(target, None)

    def _since_began(self, target: TopicPartition, result: RangeResult) -> RangeResult:
        began = self._began.get(target)
        return result if began is None else difference(began, result)

    # --- the observer

    def task_started(self, take_snapshot: Callable[[], TaskSnapshot]) -> None:
        """Pass it on."""
        self._observer.task_started(take_snapshot)

    @property
    def slow_ms(self) -> int | None:
        """Pass it on."""
        return self._observer.slow_ms

    def record_was_slow(self, range_: Range, record: SlowRecord) -> None:
        """Pass it on."""
        self._observer.record_was_slow(range_, record)

    def span_ended(self, range_: Range, span: Mapping[str, Any]) -> None:
        """Pass it on."""
        if span["name"] == SpanName.ATTEMPT:
            self._on_failed(TopicPartition(range_.target_topic, range_.partition))
        self._observer.span_ended(range_, span)

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        """Pass on what came of the last period."""
        target = TopicPartition(range_.target_topic, range_.partition)
        self._observer.range_finished(range_, self._since_began(target, result))
