"""Decides whether a source batch is passed on as bytes, re-encoded, or skipped. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from mirror.relay.batches.reencode import ReencodeReason
from mirror.wire.legacy import MessageSet
from mirror.wire.records import CODEC_MASK, AnyBatch

MAX_SMALL_BATCH_RECORDS: Final = 32
"""Passing a batch on costs as much CPU as decoding and encoding about this many records (bench_deep, bench_produce)."""
MAX_SMALL_BATCH_BYTES: Final = 8 * 1024
"""A larger batch is passed on even if it has as few records: compression costs CPU for each KB, too."""


class SkipReason(enum.StrEnum):
    """Why a batch holds nothing to copy. Progress passes these batches, otherwise lag would never reach zero."""

    CONTROL = "control"
    ABORTED = "aborted"
    EMPTY = "empty"
    NOT_LOCAL = "not-local"
    """A flow has written it to the source, and ``origin`` is "local"."""


IsForeign = Callable[[AnyBatch], bool]
"""Whether a flow has written a batch of the source, so that it is not copied."""


def skip_reason(batch: AnyBatch, *, aborted: bool, is_foreign: IsForeign | None = None) -> SkipReason | None:
    """Return why ``batch`` holds nothing to copy; None if it does. Without ``is_foreign``, every origin is copied."""
    if isinstance(batch, MessageSet):
        return SkipReason.NOT_LOCAL if is_foreign is not None and is_foreign(batch) else None
    if batch.is_control:
        return SkipReason.CONTROL
    if aborted:
        return SkipReason.ABORTED
    if batch.count == 0:
        return SkipReason.EMPTY
    return SkipReason.NOT_LOCAL if is_foreign is not None and is_foreign(batch) else None


def deep_reason(
    batch: AnyBatch, *, start: int, end: int, target_log_append_time: bool, rewrites: bool
) -> ReencodeReason | None:
    """Return why ``batch`` has to be re-encoded for a copy of the offsets ``[start, end)``; None if it does not.

    The broker refuses a batch whose last offset delta is not its count - 1 (LogValidator, error 87). The timestamps of
    a LogAppendTime batch were set by its broker, and would be lost in a CreateTime target.
    """
    if isinstance(batch, MessageSet):
        return ReencodeReason.OLD_FORMAT
    if rewrites:
        return ReencodeReason.CONFIGURED
    if batch.base_offset < start or batch.next_offset > end:
        return ReencodeReason.TRIMMED
    if batch.last_offset_delta != batch.count - 1:
        return ReencodeReason.GAPS
    if batch.has_log_append_time and not target_log_append_time:
        return ReencodeReason.APPEND_TIME
    return None


def is_small(batch: AnyBatch) -> bool:
    """Whether merging the batch with its neighbours costs less than passing it on."""
    if isinstance(batch, MessageSet):
        return True  # message sets are never passed on
    return batch.size <= MAX_SMALL_BATCH_BYTES and batch.count <= MAX_SMALL_BATCH_RECORDS


def codec_of(batch: AnyBatch) -> int:
    """Return the number of the codec in the batch's attributes; message sets of one codec may be merged, too."""
    return int(batch.attributes) & CODEC_MASK


def has_bad_timestamp(batch: AnyBatch, allowed: tuple[int, int]) -> bool:
    """Whether the batch's header shows a timestamp out of ``allowed``; a record inside it may still be too old."""
    if isinstance(batch, MessageSet):
        return False
    earliest_ms, latest_ms = allowed
    return bool(0 <= batch.base_timestamp < earliest_ms or batch.max_timestamp > latest_ms)
