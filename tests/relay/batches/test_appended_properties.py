"""What was appended is found in any records, in any batches, whatever is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.appended import (
    ExpectedRecords,
    Shift,
    Unproved,
)
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import Batch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import Made, batch_at, fetched, marker_at
from tests.relay.batches.test_appended import PLAIN, found, numbered, shifted

_value = st.sampled_from([None, b"", b"x"])
_record = st.builds(
    Made,
    key=_value,
    value=_value,
    headers=st.sampled_from([(), (("a", None),), (("a", b""),), (("\udcff", b""),)]),
    time_ms=st.sampled_from([-1, 5, 6]),
)
_codec = st.sampled_from(["none", "gzip", "lz4"])


class Placed(NamedTuple):
    """A source: its batches, and for each record that is copied the offset after it."""

    batches: list[Fetched]
    records: list[Made]
    ends: list[int]


def cuts(draw: st.DrawFn, count: int) -> list[tuple[int, int]]:
    """Draw where a sequence of ``count`` items is cut."""
    inner = draw(st.sets(st.integers(1, count - 1))) if count > 1 else set()
    return list(pairwise(sorted({0, *inner, count}))) if count else []


@st.composite
def sources(draw: st.DrawFn, *, min_size: int = 0) -> Placed:
    """A log of any records in any batches, with offsets that hold nothing, and aborted ones, in between."""
    records = draw(st.lists(_record, min_size=min_size, max_size=10))
    at, batches, ends = draw(st.integers(0, 3)), list[Fetched](), list[int]()
    for first, end in cuts(draw, len(records)):
        between = draw(st.sampled_from(["", "gap", "marker", "aborted"]))
        if between == "gap":
            at += 2
        elif between == "marker":
            batches.append(fetched(marker_at(at, 4, 0, COMMIT)))
            at += 1
        elif between == "aborted":
            aborted = batch_at(at, [Made(b"z")], producer=(6, 0, 0), transactional=True)
            batches.append(fetched(aborted, marker_at(at + 1, 6, 0, ABORT), aborted=[AbortedTransaction(6, at)]))
            at += 2
        batches.append(fetched(batch_at(at, records[first:end], codec=draw(_codec))))
        ends += range(at + 1, at + 1 + end - first)
        at += end - first
    return Placed(batches, records, ends)


@st.composite
def appends(draw: st.DrawFn, records: Sequence[Made]) -> list[Batch]:
    """Draw batches of the target with these records."""
    parts = cuts(draw, len(records))
    return [batch_at(100 + first, records[first:end], codec=draw(_codec)) for first, end in parts]


@given(st.data())
def test_position_is_behind_what_was_appended_whatever_the_records_and_batches(data: st.DataObject) -> None:
    source = data.draw(sources())
    count = data.draw(st.integers(0, len(source.records)))
    own = data.draw(appends(source.records[:count]))
    position = found(own, source.batches)
    assert position == ((source.ends[count - 1], 0) if count else None)


def may_be_copy(other: Made, record: Made) -> bool:
    """Whether ``other`` is ``record``, perhaps with headers that a flow has added."""
    return other._replace(headers=other.headers[: len(record.headers)]) == record


@given(st.data())
def test_changed_record_is_always_unproved(data: st.DataObject) -> None:
    source = data.draw(sources(min_size=1))
    records = source.records[: data.draw(st.integers(1, len(source.records)))]
    at = data.draw(st.integers(0, len(records) - 1))
    field = data.draw(st.sampled_from(Made._fields))
    changed = _record.map(lambda drawn: records[at]._replace(**{field: getattr(drawn, field)}))
    other = data.draw(changed.filter(lambda one: not may_be_copy(one, records[at])))
    own = data.draw(appends([*records[:at], other, *records[at + 1 :]]))
    with pytest.raises(Unproved):
        found(own, source.batches)


@given(st.data())
def test_a_place_is_right_or_unproved_whatever_is_missing(data: st.DataObject) -> None:
    source = data.draw(sources(min_size=1))
    count = data.draw(st.integers(1, len(source.records)))
    start = data.draw(st.integers(0, source.ends[-1]))
    lost_at_target = data.draw(st.integers(0, count - 1))
    own = data.draw(appends(source.records[lost_at_target:count]))
    # Offsets of the target are at least as many as the records that are lost there.
    shift = Shift(start, lost_at_target + data.draw(st.integers(0, 3)) if lost_at_target else 0)
    keep = data.draw(st.integers(1, 12))
    try:
        position = shifted(own, source.batches, shift, start=start, keep=keep)
    except Unproved:
        return
    assert position == (source.ends[count - 1], 0)
    assert source.ends[count - 1] > start


@given(st.integers(1, 30), st.data())
def test_distinct_records_without_gaps_are_found_whatever_is_missing(count: int, data: st.DataObject) -> None:
    lost_at_target = data.draw(st.integers(0, count - 1))
    lost_at_source = data.draw(st.integers(0, count - lost_at_target - 1))
    own = data.draw(appends(numbered(lost_at_target, count - lost_at_target)))
    source = [fetched(batch_at(0, numbered(0, 40)))]
    shift = Shift(lost_at_source, lost_at_target)
    assert shifted(own, source, shift, start=lost_at_source) == (count, 0)


def test_batches_that_flows_have_written_to_the_source_are_not_expected_in_the_target() -> None:
    batches = [fetched(batch_at(number * 10, numbered(number * 10, 10))) for number in range(4)]
    expected = ExpectedRecords(batches, 0, PLAIN, is_foreign=lambda one: one.base_offset in {0, 20})
    taken = []
    while (record := expected.take()) is not None:
        taken.append(record.offset)
    assert taken == [*range(10, 20), *range(30, 40)]
