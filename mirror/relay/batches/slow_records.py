"""Finds records that were copied late and belong to a trace, so that telemetry can show their way. No I/O.

A record's trace is in its payload, which is not decoded for a copy. So one small batch of a task is decoded now and
then, and only if it is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mirror.relay.batches.trace_parents import traced_record
from mirror.relay.model.observer import SlowRecord
from mirror.wire.records import Batch

if TYPE_CHECKING:
    from mirror.relay.batches.output_batch import OutputBatch
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.model.ranges import Range

INTERVAL_MS: Final = 1_000
"""So often a task shows the way of a slow record: in a catch-up all of them are slow."""
LOOK_INTERVAL_MS: Final = 100
"""So often it decodes a batch to find one: that takes up to a millisecond."""


class SlowRecords:
    """Those of a task. Used on its thread."""

    def __init__(
        self, slow_ms: int, observer: TaskObserver, now: Callable[[], int], unix_ms: Callable[[], int]
    ) -> None:
        """``slow_ms`` after its timestamp a record is late."""
        self._slow_ms: Final = slow_ms
        self._observer: Final = observer
        self._now: Final = now
        self._unix_ms: Final = unix_ms
        self._next_ms = now()

    def on_acknowledged(
        self, range_: Range, output: OutputBatch, target_offset: int, sent_ms: int, answered_ms: int
    ) -> None:
        """The target has acknowledged a batch at ``target_offset`` (-1: unknown); its bytes are still there.

        It was sent at ``sent_ms`` by the task's clock, and answered at ``answered_ms`` since 1970.
        """
        batch = output.batch
        if batch is None or answered_ms - _first_ms(batch) < self._slow_ms or self._now() < self._next_ms:
            return
        self._next_ms = self._now() + LOOK_INTERVAL_MS
        if (found := traced_record(batch)) is None:
            return
        self._next_ms = self._now() + INTERVAL_MS
        record, trace = found
        behind = record.offset - batch.base_offset
        since_1970_ms = self._unix_ms() - self._now()
        slow = SlowRecord(
            trace=trace,
            offset=None if output.jumps else output.base_offset + behind,
            target_offset=None if target_offset < 0 else target_offset + behind,
            appended_ms=batch.max_timestamp if batch.has_log_append_time else record.timestamp_ms,
            received_ms=since_1970_ms + (output.received_ms or sent_ms),
            sent_ms=since_1970_ms + sent_ms,
            acknowledged_ms=answered_ms,
        )
        if slow.acknowledged_ms - slow.appended_ms >= self._slow_ms:
            self._observer.record_was_slow(range_, slow)


def _first_ms(batch: Batch) -> int:
    """Return the timestamp of the first record."""
    first_ms: int = batch.max_timestamp if batch.has_log_append_time else batch.base_timestamp
    return first_ms
