"""Up to where all records of the target are copies: what no copy is known at may be a marker, which is read."""

from __future__ import annotations

import pytest

from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import Hole, OffsetIndex
from mirror.relay.offsets.log_answers import LogStarts
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from tests.relay.offsets.test_segments import segment

FIRST = segment(10, 40, Extent(12, 100, 5), Extent(20, 106, 3))
"""Copies at the target's 100 to 104 and 106 to 108."""


def offsets(*records: int, most: int = 1_000) -> PartitionOffsets:
    """``records`` are those of the target that are no copies; at most so many offsets are read at once."""
    there = {*range(100, 105), *range(106, 109), *records}

    def count(start: int, end: int | None) -> int:
        assert end is not None
        assert end - start <= most
        return len(there & {*range(start, end)})

    index = OffsetIndex((FIRST,), 40, exactly_once=True, target_end=109)
    return PartitionOffsets(index, _unread, LogStarts(0, 0), count=count)


def _unread(hole: Hole) -> list[Extent]:
    raise AssertionError(hole)


@pytest.mark.parametrize(
    ("records", "start", "end", "found"),
    [
        ((), 100, 109, 109),
        ((), 102, 104, 104),
        ((), 102, 120, 120),
        ((), 105, 105, 105),
        ((105,), 102, 109, 105),
        ((105,), 106, 109, 109),
        ((112,), 102, 120, 109),
        ((99,), 98, 109, 98),
    ],
)
@pytest.mark.parametrize("most", [1_000, 12])
def test_copies_end_in_front_of_what_is_no_copy(
    records: tuple[int, ...], start: int, end: int, found: int, most: int
) -> None:
    assert offsets(*records, most=most).copies_end(start, end, most) == found


def test_what_is_only_copies_is_not_read() -> None:
    assert offsets(most=0).copies_end(100, 105, 0) == 105


def test_a_gap_that_is_too_long_to_be_read_ends_them() -> None:
    assert offsets(most=12).copies_end(100, 10_000, 12) == 109


def test_what_the_log_has_deleted_is_no_gap() -> None:
    kept = offsets()
    kept.starts = kept.starts._replace(target=106)  # type: ignore[misc]
    assert kept.copies_end(0, 109, 100) == 109
