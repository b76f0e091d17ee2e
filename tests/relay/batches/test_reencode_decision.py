"""How source batches are classified: the table of the design, row by row."""

from __future__ import annotations

import struct

import pytest

from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.batches.reencode_decision import (
    MAX_SMALL_BATCH_BYTES,
    MAX_SMALL_BATCH_RECORDS,
    SkipReason,
    codec_of,
    deep_reason,
    is_small,
    skip_reason,
)
from mirror.wire.legacy import MessageSet
from mirror.wire.records import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Batch
from tests.fakes.record_batches import COMMIT, batch, build, build_marker

_PLAIN = batch(build((b"a", b"b"), base_offset=10))
_GAPS = batch(build((b"a", b"b"), base_offset=10, deltas=(0, 4)))
_ENDS_IN_A_GAP = batch(build((b"a", b"b"), base_offset=10, last_offset_delta=6))
_EMPTY = batch(build((), base_offset=10, last_offset_delta=3))
_MARKER = batch(build_marker(5, 0, COMMIT, base_offset=10))
_APPEND_TIME = batch(build(base_offset=10, attributes=LOG_APPEND_TIME))
_TRANSACTIONAL = batch(
    build(base_offset=10, attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
)
_HORIZON = batch(build(base_offset=10, attributes=DELETE_HORIZON))
_COMPRESSED = batch(build(base_offset=10, attributes=3))
_OLD = MessageSet(memoryview(bytearray(struct.pack(">qiIbbii", 10, 14, 0, 0, 2, -1, -1))))


def _deep(
    batch_: Batch | MessageSet, *, start: int = 10, end: int = 1_000, append_time: bool = False, rewrites: bool = False
) -> str | None:
    return deep_reason(batch_, start=start, end=end, target_log_append_time=append_time, rewrites=rewrites)


@pytest.mark.parametrize(
    ("batch_", "reason"),
    [
        (_PLAIN, None),
        (_TRANSACTIONAL, None),
        (_HORIZON, None),
        (_COMPRESSED, None),
        (_GAPS, ReencodeReason.GAPS),
        (_ENDS_IN_A_GAP, ReencodeReason.GAPS),
        (_APPEND_TIME, ReencodeReason.APPEND_TIME),
        (_OLD, ReencodeReason.OLD_FORMAT),
    ],
)
def test_reason_for_reencoding_by_kind_of_batch(batch_: Batch | MessageSet, reason: ReencodeReason | None) -> None:
    assert _deep(batch_) == reason


def test_log_append_time_batch_is_passed_on_to_a_log_append_time_target() -> None:
    assert _deep(_APPEND_TIME, append_time=True) is None


def test_batch_that_begins_before_the_start_is_trimmed() -> None:
    assert _deep(_PLAIN, start=11) is ReencodeReason.TRIMMED


def test_batch_that_ends_after_the_end_is_trimmed() -> None:
    assert _deep(_PLAIN, end=_PLAIN.next_offset) is None
    assert _deep(_PLAIN, end=_PLAIN.next_offset - 1) is ReencodeReason.TRIMMED


def test_flow_that_rewrites_records_reencodes_every_batch() -> None:
    assert _deep(_PLAIN, rewrites=True) is ReencodeReason.CONFIGURED


@pytest.mark.parametrize(
    ("batch_", "aborted", "reason"),
    [
        (_PLAIN, False, None),
        (_EMPTY, False, SkipReason.EMPTY),
        (_MARKER, False, SkipReason.CONTROL),
        (batch(build(attributes=CONTROL)), False, SkipReason.CONTROL),
        (_TRANSACTIONAL, True, SkipReason.ABORTED),
        (_GAPS, True, SkipReason.ABORTED),
        (_EMPTY, True, SkipReason.ABORTED),
        (_OLD, False, None),
    ],
)
def test_batch_without_records_to_copy_is_skipped(
    batch_: Batch | MessageSet, aborted: bool, reason: SkipReason | None
) -> None:
    assert skip_reason(batch_, aborted=aborted) is reason


def test_small_batch_is_bounded_in_records_and_bytes() -> None:
    assert is_small(batch(build((b"",) * MAX_SMALL_BATCH_RECORDS)))
    assert not is_small(batch(build((b"",) * (MAX_SMALL_BATCH_RECORDS + 1))))
    assert not is_small(batch(build((bytes(MAX_SMALL_BATCH_BYTES),))))


def test_codec_is_read_from_the_attributes() -> None:
    assert codec_of(_COMPRESSED) == 3
    assert codec_of(_TRANSACTIONAL) == 0
