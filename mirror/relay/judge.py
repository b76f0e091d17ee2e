"""What becomes of each source batch: passed on as bytes, dropped, or not possible yet."""

from __future__ import annotations

import enum

from mirror.wire.records import Batch


class Fate(enum.StrEnum):
    """The verdict on one batch; the skipped ones are counted under their names."""

    SHALLOW = "shallow"
    CONTROL = "control"
    ABORTED = "aborted"
    EMPTY = "empty"
    GAPS = "offset gaps"
    APPEND_TIME = "log append time"


SKIPPED = frozenset({Fate.CONTROL, Fate.ABORTED, Fate.EMPTY})
"""Nothing to copy: progress passes them, or lag would never reach zero behind them."""


def judge(batch: Batch, *, aborted: bool, target_log_append_time: bool) -> Fate:
    """The fate of ``batch``.

    Passed on are batches whose offsets have no gaps: the broker refuses another last offset delta (LogValidator,
    error 87). A LogAppendTime batch carries times that are the broker's; they would be lost in a CreateTime target.
    A batch that begins before the copy does (``start`` at a time, DeleteRecords) is passed on whole: to cut it, its
    records would have to be decoded, and at-least-once allows the few before the start.
    """
    if batch.is_control:
        return Fate.CONTROL
    if aborted:
        return Fate.ABORTED
    if batch.count == 0:
        return Fate.EMPTY
    if batch.last_offset_delta != batch.count - 1:
        return Fate.GAPS
    if batch.has_log_append_time and not target_log_append_time:
        return Fate.APPEND_TIME
    return Fate.SHALLOW
