"""What becomes of each source batch: the table of the design, row by row."""

from __future__ import annotations

import pytest

from mirror.relay.judge import SKIPPED, Fate, judge
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


@pytest.mark.parametrize(
    ("one", "fate"),
    [
        (_PLAIN, Fate.SHALLOW),
        (_TRANSACTIONAL, Fate.SHALLOW),
        (_HORIZON, Fate.SHALLOW),
        (_COMPRESSED, Fate.SHALLOW),
        (_GAPS, Fate.GAPS),
        (_ENDS_IN_A_GAP, Fate.GAPS),
        (_EMPTY, Fate.EMPTY),
        (_MARKER, Fate.CONTROL),
        (_APPEND_TIME, Fate.APPEND_TIME),
    ],
)
def test_each_kind_of_batch_has_its_fate(one: Batch, fate: Fate) -> None:
    assert judge(one, aborted=False, target_log_append_time=False) is fate


def test_append_time_passes_into_a_target_that_stamps_its_own() -> None:
    assert judge(_APPEND_TIME, aborted=False, target_log_append_time=True) is Fate.SHALLOW


def test_an_aborted_batch_is_dropped_whatever_else_it_is() -> None:
    for one in (_TRANSACTIONAL, _GAPS, _EMPTY, _APPEND_TIME):
        assert judge(one, aborted=True, target_log_append_time=False) is Fate.ABORTED


def test_what_is_skipped_needs_nothing_of_the_target() -> None:
    assert {Fate.CONTROL, Fate.ABORTED, Fate.EMPTY} == SKIPPED
    for append_time in (False, True):
        assert judge(_MARKER, aborted=False, target_log_append_time=append_time) in SKIPPED
        assert judge(_EMPTY, aborted=False, target_log_append_time=append_time) in SKIPPED


def test_a_control_batch_is_one_by_its_bit() -> None:
    assert judge(batch(build(attributes=CONTROL)), aborted=False, target_log_append_time=False) is Fate.CONTROL
