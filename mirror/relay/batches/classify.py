"""What becomes of each source batch: passed on as bytes, encoded anew, or dropped. Pure."""

from __future__ import annotations

import enum
from typing import Final

from mirror.relay.batches.reencode import Reason
from mirror.wire.legacy import MessageSet
from mirror.wire.records import CODEC_MASK, AnyBatch

MAX_SMALL_BATCH_RECORDS: Final = 32
"""To pass a batch on costs as much CPU as to decode and encode about this many records (bench_deep, bench_produce)."""
MAX_SMALL_BATCH_BYTES: Final = 8 * 1024
"""A larger one of as few records is passed on all the same: each KB costs to compress, too."""


class SkipReason(enum.StrEnum):
    """Nothing to copy: progress passes these, or lag would never reach zero behind them."""

    CONTROL = "control"
    ABORTED = "aborted"
    EMPTY = "empty"


def skip_reason(batch: AnyBatch, *, aborted: bool) -> SkipReason | None:
    """Why there is nothing to copy in ``batch``; None where there is."""
    if isinstance(batch, MessageSet):
        return None
    if batch.is_control:
        return SkipReason.CONTROL
    if aborted:
        return SkipReason.ABORTED
    return SkipReason.EMPTY if batch.count == 0 else None


def deep_reason(
    batch: AnyBatch, *, start: int, end: int, target_log_append_time: bool, rewrites: bool
) -> Reason | None:
    """Why ``batch`` cannot be passed on as bytes; None where it can. The copy is that of the offsets [start, end).

    The broker refuses a batch whose last offset delta is not its count - 1 (LogValidator, error 87). The times of a
    LogAppendTime batch are its broker's, and would be lost in a CreateTime target.
    """
    if isinstance(batch, MessageSet):
        return Reason.OLD_FORMAT
    if rewrites:
        return Reason.CONFIGURED
    if batch.base_offset < start or batch.next_offset > end:
        return Reason.TRIMMED
    if batch.last_offset_delta != batch.count - 1:
        return Reason.GAPS
    if batch.has_log_append_time and not target_log_append_time:
        return Reason.APPEND_TIME
    return None


def is_small(batch: AnyBatch) -> bool:
    """Whether to put it together with its neighbours costs less than to pass it on."""
    if isinstance(batch, MessageSet):
        return True  # none of them is passed on
    return batch.size <= MAX_SMALL_BATCH_BYTES and batch.count <= MAX_SMALL_BATCH_RECORDS


def codec_of(batch: AnyBatch) -> int:
    """The codec's number, as its attributes have it; message sets of one codec may be encoded together, too."""
    return int(batch.attributes) & CODEC_MASK
