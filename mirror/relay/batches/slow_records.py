"""Finds records that were copied late and belong to a trace, so that telemetry can show their way. No I/O.

A record's trace is in its payload, which is not decoded for a copy. So a few small batches of a task are decoded now
and then, and only if they are late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mirror.relay.batches.trace_parents import is_sampled, traced_records
from mirror.relay.model.observer import SlowRecord

if TYPE_CHECKING:
    from mirror.relay.batches.output_batch import OutputBatch
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.model.ranges import Range

INTERVAL_MS: Final = 1_000
"""So often a task shows the way of a slow record: in a catch-up all of them are slow."""
MOST_DECODED: Final = 10
"""So many batches it decodes in this time to find one: that takes up to a millisecond each.

They may come at once: when a target answers again, all that has waited for it is acknowledged within milliseconds.
"""


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
        self._interval_ends_ms = now()
        self._decodes_left = 0
        """In the present interval; none once a record was shown."""

    def on_acknowledged(
        self, range_: Range, output: OutputBatch, target_offset: int, sent_ms: int, answered_ms: int
    ) -> None:
        """The target has acknowledged a batch at ``target_offset`` (-1: unknown); its bytes are still there.

        It was sent at ``sent_ms`` by the task's clock, and answered at ``answered_ms`` since 1970.
        """
        batch, latest_ms = output.batch, answered_ms - self._slow_ms
        if batch is None or _time(output, batch.base_timestamp) > latest_ms:
            return
        now = self._now()
        if now >= self._interval_ends_ms:
            self._interval_ends_ms, self._decodes_left = now + INTERVAL_MS, MOST_DECODED
        if not self._decodes_left:
            return
        self._decodes_left -= 1
        for record, trace in traced_records(batch):
            appended_ms = _time(output, record.timestamp_ms)
            if not 0 <= appended_ms <= latest_ms or not is_sampled(trace):
                continue
            self._decodes_left = 0
            behind = record.offset - batch.base_offset
            since_1970_ms = self._unix_ms() - now
            slow = SlowRecord(
                trace=trace,
                offset=None if output.jumps else output.base_offset + behind,
                target_offset=None if target_offset < 0 else target_offset + behind,
                appended_ms=appended_ms,
                received_ms=since_1970_ms + (output.received_ms or sent_ms),
                sent_ms=since_1970_ms + sent_ms,
                acknowledged_ms=answered_ms,
            )
            self._observer.record_was_slow(range_, slow)
            return


def _time(output: OutputBatch, timestamp_ms: int) -> int:
    """Return when the record with this timestamp was appended to the source, or made by its producer."""
    return timestamp_ms if output.append_time_ms is None else output.append_time_ms
