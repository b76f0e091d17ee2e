"""The offset index: extents laid over each other, holes, and both directions."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.relay.offsets import extents
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import UNKNOWN, Hole, OffsetIndex, Place, Translation
from mirror.relay.offsets.segments import Segment
from mirror.relay.progress.committed import Beginning
from tests.relay.offsets.test_segments import segment

FIRST = segment(10, 40, Extent(12, 100, 5), Extent(20, 106, 3))
"""Records at 12 to 16 and 20 to 22; a marker at the target's 105."""


def index(*segments: Segment, copied_to: int = 40, exactly_once: bool = True, **options: Any) -> OffsetIndex:
    return OffsetIndex(segments, copied_to, exactly_once=exactly_once, **options)


@pytest.mark.parametrize(
    ("offset", "place", "target"),
    [
        (9, Place.UNKNOWN, None),
        (10, Place.NEXT, 100),
        (12, Place.RECORD, 100),
        (16, Place.RECORD, 104),
        (17, Place.NEXT, 106),
        (22, Place.RECORD, 108),
        (23, Place.END, 109),
        (40, Place.END, 109),
        (41, Place.NOT_COPIED, 109),
        (10**9, Place.NOT_COPIED, 109),
    ],
)
def test_offset_of_the_source(offset: int, place: Place, target: int | None) -> None:
    assert index(FIRST).translate(offset) == (place, target)


@pytest.mark.parametrize(
    ("offset", "place", "source"),
    [
        (99, Place.UNKNOWN, None),
        (100, Place.RECORD, 12),
        (104, Place.RECORD, 16),
        (105, Place.NEXT, 20),
        (108, Place.RECORD, 22),
        (109, Place.END, 40),
        (10**9, Place.END, 40),
    ],
)
def test_offset_of_the_target(offset: int, place: Place, source: int | None) -> None:
    assert index(FIRST).translate_back(offset) == (place, source)


@pytest.mark.parametrize(
    ("offset", "around"),
    [
        (99, (99, 99)),
        (100, (100, 100)),
        (102, (102, 102)),
        (105, (105, 106)),
        (106, (106, 106)),
        (109, (109, None)),
        (120, (109, None)),
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_target_offsets_around_a_position_that_are_no_copies(
    exactly_once: bool, offset: int, around: tuple[int, int | None]
) -> None:
    assert index(FIRST, exactly_once=exactly_once).gap_around(offset) == around


def test_nothing_is_known_without_segments() -> None:
    empty = index()
    assert (empty.translate(3), empty.translate_back(3)) == (UNKNOWN, UNKNOWN)
    assert empty.translate(41) == (Place.NOT_COPIED, None)


def test_what_is_behind_the_progress_does_not_count() -> None:
    """Another copy may begin there, and then has other offsets."""
    cut = index(FIRST, copied_to=15)
    assert cut.translate(14) == (Place.RECORD, 102)
    assert cut.translate(15) == (Place.END, 103)
    assert cut.translate(16) == (Place.NOT_COPIED, 103)
    assert cut.translate_back(103) == (Place.END, 15)


def test_hole_is_asked_for_only_if_the_answer_needs_it() -> None:
    both = index(FIRST, segment(60, 70, Extent(60, 200, 10)), copied_to=80)
    hole = Hole(40, 60, 109, 200)
    assert both.translate(22) == (Place.RECORD, 108)
    assert both.translate(65) == (Place.RECORD, 205)
    assert both.translate(23) == both.translate(50) == hole
    assert both.translate_back(150) == hole
    assert both.translate(70) == Hole(70, 80, 210, None)
    assert both.translate(81) == Hole(70, 80, 210, None)
    both.fill(hole, [Extent(45, 150, 2)])
    assert both.translate(23) == (Place.NEXT, 150)
    assert both.translate(46) == (Place.RECORD, 151)
    assert both.translate_back(152) == (Place.NEXT, 60)


def test_hole_that_cannot_be_filled_is_unknown_and_nothing_else_is() -> None:
    both = index(FIRST, segment(60, 70, Extent(60, 200, 10)), copied_to=70)
    both.leave_unknown(Hole(40, 60, 109, 200))
    assert [both.translate(offset) for offset in (23, 50)] == [UNKNOWN] * 2
    assert both.translate_back(150) == UNKNOWN
    assert both.translate(60) == (Place.RECORD, 200)
    assert both.translate(70) == (Place.END, 210)


def test_last_copy_of_a_record_counts() -> None:
    repeated = index(FIRST, segment(14, 40, Extent(14, 120, 3), Extent(20, 123, 3)), exactly_once=False)
    assert repeated.translate(13) == (Place.RECORD, 101)
    assert repeated.translate(14) == (Place.RECORD, 120)
    assert repeated.translate(22) == (Place.RECORD, 125)
    assert repeated.translate(40) == (Place.END, 126)
    assert repeated.translate_back(102) == (Place.RECORD, 14)
    assert repeated.translate_back(121) == (Place.RECORD, 15)
    assert repeated.read_again(121, 15) == 8  # 15, 16 and 20 to 22 are in front, too
    assert repeated.read_again(102, 14) == 0


def test_records_that_the_source_has_lost_are_passed() -> None:
    """It was cut back to 14 after they were copied, and has other records at their offsets."""
    again = index(FIRST, segment(14, 30, Extent(18, 120, 2)), copied_to=30)
    assert again.translate(15) == (Place.NEXT, 120)
    assert again.translate(20) == (Place.END, 122)
    assert again.translate_back(101) == (Place.RECORD, 13)
    assert again.translate_back(103) == (Place.NEXT, 18)


def test_older_write_of_a_segment_says_nothing_else() -> None:
    whole = segment(10, 40, *FIRST.extents)
    part = segment(10, 15, Extent(12, 100, 3))
    middle = segment(14, 21, Extent(14, 102, 3), Extent(20, 106, 1))
    for order in ([whole, part, middle], [middle, part, whole]):
        found = index(*order)
        assert [found.translate(offset) for offset in range(10, 42)] == [
            index(FIRST).translate(offset) for offset in range(10, 42)
        ]


def test_index_that_contradicts_itself_says_nothing() -> None:
    """Any client may have written it: exactly once, later records are behind the earlier ones."""
    crossed = index(segment(0, 10, Extent(0, 100, 10)), segment(10, 20, Extent(10, 50, 10)), copied_to=20)
    assert (crossed.translate(3), crossed.translate_back(52)) == (UNKNOWN, UNKNOWN)
    assert crossed.translate(21) == Translation(Place.NOT_COPIED, None)


def test_last_copy_counts_of_attempts_that_wrote_between_each_other() -> None:
    """At least once, an attempt is not fenced: it may append behind what a later one has begun with."""
    late = segment(10, 14, Extent(10, 100, 1), Extent(12, 110, 1))
    found = index(late, segment(12, 14, Extent(12, 105, 1)), copied_to=14, exactly_once=False)
    assert found.translate(12) == (Place.RECORD, 110)
    assert found.translate_back(105) == (Place.RECORD, 12)


def test_late_copy_behind_those_of_later_records_does_not_count() -> None:
    """A group that went on there would skip them."""
    copied = segment(10, 30, Extent(10, 100, 20)), segment(30, 40, Extent(30, 130, 10))
    found = index(*copied, segment(10, 15, Extent(10, 120, 5)), exactly_once=False)
    assert [found.translate(offset) for offset in range(10, 41)] == [
        index(*copied, exactly_once=False).translate(offset) for offset in range(10, 41)
    ]
    assert found.translate_back(121) == (Place.RECORD, 11)
    repeated = segment(10, 15, Extent(10, 140, 5)), segment(30, 40, Extent(30, 150, 10))
    last = index(*copied, *repeated, exactly_once=False)
    assert [last.translate(offset) for offset in (10, 15, 29, 30)] == [
        (Place.RECORD, 100),
        (Place.RECORD, 105),
        (Place.RECORD, 119),
        (Place.RECORD, 150),
    ]


def test_record_whose_only_known_copy_is_behind_those_of_later_ones_is_looked_for() -> None:
    late = segment(10, 20, Extent(10, 200, 10))
    found = index(segment(20, 40, Extent(20, 100, 20)), late, exactly_once=False, beginning=Beginning(10, 50))
    assert found.translate(12) == Hole(10, 20, 50, 100)
    found.fill(Hole(10, 20, 50, 100), [Extent(10, 60, 10)])
    assert found.translate(12) == (Place.RECORD, 62)
    assert found.translate_back(203) == (Place.RECORD, 13)


def test_copies_behind_the_end_of_what_the_progress_covers_do_not_count() -> None:
    """An attempt that is not fenced may repeat records there, in front of which later ones are not committed yet."""
    late = segment(10, 40, Extent(12, 200, 5), Extent(20, 206, 3))
    found = index(FIRST, late, exactly_once=False, target_end=109)
    assert found.translate(22) == (Place.RECORD, 108)
    assert found.translate(40) == (Place.END, 109)
    assert found.translate_back(201) == (Place.END, 40)
    assert index(exactly_once=False, target_end=109, beginning=Beginning(10, 50)).translate(12) == Hole(10, 40, 50, 109)


def test_offset_in_front_of_a_known_copy_is_that_of_the_next_record_that_was_not_read() -> None:
    """The copies of 10 to 19 that were in front of that of 20 are not known: a group at 100 has read none of them."""
    found = index(
        segment(20, 25, Extent(20, 120, 5)),
        segment(10, 40, Extent(10, 130, 30)),
        exactly_once=False,
        beginning=Beginning(10, 90),
    )
    assert found.translate_back(100) == (Place.NEXT, 10)
    assert found.translate_back(122) == (Place.RECORD, 22)
    assert found.translate_back(126) == (Place.NEXT, 10)


def test_hole_that_stays_open_is_unknown() -> None:
    """The progress, which any client may have written, says that the copy began behind where the target ended."""
    found = index(exactly_once=False, target_end=40, beginning=Beginning(10, 50))
    hole = found.translate(12)
    assert hole == Hole(10, 40, 50, 40)
    found.fill(hole, [])
    assert found.translate(12) == UNKNOWN


def test_only_what_may_be_in_front_of_the_next_copy_is_looked_for() -> None:
    found = index(FIRST, exactly_once=False, copied_to=80)
    assert found.translate_back(105) == (Place.NEXT, 20)
    assert found.translate_back(109) == Hole(40, 80, 109, None)


def test_index_begins_where_the_copy_did() -> None:
    begun = index(FIRST, beginning=Beginning(4, 90))
    hole = Hole(4, 10, 90, 100)
    assert (begun.begin, begun.target_begin) == (4, 90)
    assert [begun.translate(offset) for offset in (3, 4, 9)] == [UNKNOWN, hole, hole]
    assert [begun.translate_back(offset) for offset in (89, 90, 99)] == [UNKNOWN, hole, hole]
    assert begun.translate(12) == (Place.RECORD, 100)
    begun.fill(hole, [Extent(5, 92, 2)])
    assert [begun.translate(offset) for offset in (4, 6, 7)] == [
        (Place.NEXT, 92),
        (Place.RECORD, 93),
        (Place.NEXT, 100),
    ]
    assert [begun.translate_back(offset) for offset in (90, 93, 94)] == [
        (Place.NEXT, 5),
        (Place.RECORD, 6),
        (Place.NEXT, 12),
    ]


def test_index_that_begins_where_its_first_segment_does_has_no_hole() -> None:
    begun = index(FIRST, beginning=Beginning(10, 90))
    assert begun.translate(10) == (Place.NEXT, 100)
    assert begun.translate_back(90) == (Place.NEXT, 12)
    nothing = index(copied_to=10, beginning=Beginning(10, 90))
    assert [nothing.translate(offset) for offset in (9, 10, 11)] == [UNKNOWN, (Place.END, 90), (Place.NOT_COPIED, 90)]
    assert nothing.translate_back(95) == (Place.END, 10)


def test_behind_its_last_append_a_copy_exactly_once_has_no_hole() -> None:
    """It has passed records that it leaves out, and writes nothing about them."""
    assert index(FIRST, copied_to=90, target_end=109).translate(50) == (Place.END, 109)
    assert index(FIRST, copied_to=90, target_end=109).translate_back(109) == (Place.END, 90)
    assert index(FIRST, copied_to=90, target_end=110).translate(50) == Hole(40, 90, 109, None)
    assert isinstance(index(FIRST, copied_to=90, target_end=109, exactly_once=False).translate(50), Hole)


def test_behind_a_full_segment_another_one_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "MAX_EXTENTS", 2)
    assert index(FIRST, copied_to=90, target_end=109).translate(50) == Hole(40, 90, 109, None)
    assert index(FIRST, copied_to=90, target_end=109).translate_back(109) == Hole(40, 90, 109, None)
