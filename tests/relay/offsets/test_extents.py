"""Extents as they are gathered from acknowledged batches, and stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.offsets.extents import (
    MAX_EXTENTS,
    AppendedExtents,
    Extent,
    Span,
    decode_extents,
    decode_numbers,
    encode_numbers,
)


def _extents(spans: list[Span]) -> list[Extent]:
    return [extent for span in spans for extent in decode_extents(span.start, span.target_start, span.encoded)]


def _gathered(start: int = 0) -> AppendedExtents:
    gathered = AppendedExtents()
    gathered.restart(start, None)
    return gathered


def _taken(gathered: AppendedExtents) -> list[Span]:
    gathered.commit()
    return gathered.take()


def test_batches_at_a_constant_distance_are_one_run() -> None:
    gathered = _gathered(100)
    for number in range(1_000):
        gathered.append(100 + 10 * number, 7 + 10 * number, 10, (), 110 + 10 * number)
    (span,) = _taken(gathered)
    assert (span.start, span.end, span.target_start, span.target_end) == (100, 10_100, 7, 10_007)
    assert _extents([span]) == [Extent(100, 7, 10_000)]
    assert len(span.encoded) == 4


def test_records_of_a_batch_that_do_not_adjoin_in_the_source_begin_extents() -> None:
    gathered = _gathered()
    gathered.append(2, 50, 6, (1, 4, 4, 20), 30)
    assert _extents(_taken(gathered)) == [Extent(2, 50, 1), Extent(4, 51, 3), Extent(20, 54, 2)]
    assert gathered.end == 30


def test_markers_of_the_target_begin_a_run() -> None:
    gathered = _gathered()
    gathered.append(0, 10, 5, (), 5)
    gathered.append(5, 16, 5, (), 10)
    assert _extents(_taken(gathered)) == [Extent(0, 10, 5), Extent(5, 16, 5)]


def test_what_is_not_committed_is_taken_back() -> None:
    gathered = _gathered()
    gathered.append(0, 10, 5, (), 5)
    gathered.commit()
    gathered.append(5, 15, 5, (), 10)
    gathered.append(10, 40, 5, (1, 30), 50)
    gathered.roll_back()
    assert gathered.end == 5
    gathered.append(5, 60, 2, (), 7)
    assert _extents(_taken(gathered)) == [Extent(0, 10, 5), Extent(5, 60, 2)]


def test_a_span_is_taken_again_only_when_it_has_grown() -> None:
    gathered = _gathered()
    gathered.append(0, 10, 5, (), 5)
    assert len(_taken(gathered)) == 1
    assert _taken(gathered) == []
    gathered.skip_to(9)
    (span,) = _taken(gathered)
    assert (span.start, span.end) == (0, 9)


def test_full_spans_are_taken_once_and_the_next_one_adjoins() -> None:
    gathered = _gathered()
    count = MAX_EXTENTS + 10
    for number in range(count):
        gathered.append(3 * number, 2 * number, 1, (), 3 * number + 1)
    first, second = _taken(gathered)
    assert first.end == second.start
    assert first.target_end == second.target_start
    assert len(_extents([first])) == MAX_EXTENTS
    assert _extents([first, second]) == [Extent(3 * number, 2 * number, 1) for number in range(count)]
    gathered.append(3 * count, 2 * count, 1, (), 3 * count + 1)
    (again,) = _taken(gathered)
    assert again.start == second.start


@pytest.mark.parametrize("target", [-1, 12])
def test_nothing_is_gathered_behind_an_append_whose_place_is_not_known(target: int) -> None:
    """The response to a repeated batch may have no offset; one below the last is that of a log that was cut back."""
    gathered = _gathered()
    gathered.append(0, 10, 5, (), 5)
    gathered.append(5, target, 5, (), 10)
    gathered.append(10, 20, 5, (), 15)
    assert gathered.is_broken
    (span,) = _taken(gathered)
    assert (span.end, _extents([span])) == (5, [Extent(0, 10, 5)])


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_numbers_are_decoded_as_they_were_encoded(numbers: list[int]) -> None:
    assert list(decode_numbers(encode_numbers(*numbers))) == numbers


@given(st.binary(), st.integers(0, 2**63 - 1))
def test_any_bytes_are_runs_within_the_offsets_there_are_or_an_error(encoded: bytes, start: int) -> None:
    try:
        extents = list(decode_extents(start, start, encoded))
    except ValueError:
        return
    assert all(extent.length > 0 and max(extent.source, extent.target) + extent.length < 2**63 for extent in extents)
