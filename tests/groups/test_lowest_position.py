"""Two flows feed a topic from each other's side: a position skips nothing, no later one would, and the count is exact.

Records are appended on both sides, and copied with any delay; of what is copied, the indexes know a part.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.translation.lowest import EndsSeen, appended_from, kept_ends, lowest_position
from mirror.relay.offsets.copy_count import CopyCount
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from tests.groups.both_sides import A, B, BothSides, Record

SIDES = st.sampled_from([A, B])
STEPS = st.lists(
    st.tuples(st.just("produce"), SIDES, st.integers(1, 4))
    | st.tuples(st.just("mark"), SIDES, st.just(0))
    | st.tuples(st.just("copy"), SIDES, st.integers(1, 6))
    | st.tuples(st.just("commit"), SIDES, st.booleans())
    | st.tuples(st.just("translate"), st.booleans(), st.integers(0, 12)),
    max_size=40,
)
BEFORE = st.tuples(st.integers(0, 3), st.integers(0, 3))
Given = tuple[int, int, Translation, CopyCount, set[Record]]
"""A position that was said: the source's offset, the log ends of the target, the translation, the count."""


def step(sides: BothSides, kind: str, side: int, value: Any) -> None:
    if kind == "produce":
        sides.produce(side, value)
    elif kind == "mark":
        sides.mark(side)
    elif kind == "copy":
        sides.copy(side, value)
    else:
        sides.commit(side, index=value)


@given(BEFORE, STEPS)
def test_no_position_skips_a_record_now_or_later(before: tuple[int, int], steps: list[tuple[str, Any, Any]]) -> None:
    sides, said = BothSides(before), []
    for kind, first, value in steps:
        if kind != "translate":
            step(sides, kind, first, value)
            continue
        offset = max(0, len(sides.logs[A]) - value)
        logs = sides.opened(A, see_ends=value % 3 > 0)
        found, _ = logs.translate(offset, patient=first)
        if found.offset is not None:
            again = logs.read_again(offset, found.offset)
            there = [one for one in sides.from_on(B, found.offset) if one in sides.read(A, offset)]
            assert again.records >= len(there)
            assert not again.is_exact or again.records == len(there)
            said.append((offset, found))
    sides.settle()
    for offset, found in said:
        assert sides.read(B, found.offset or 0) <= sides.read(A, offset), (offset, found)


@given(BEFORE, STEPS, st.integers(0, 20))
def test_once_all_is_copied_a_position_is_in_front_of_a_record_that_was_not_read(
    before: tuple[int, int], steps: list[tuple[str, Any, Any]], back: int
) -> None:
    sides = BothSides(before)
    for kind, first, value in steps:
        if kind != "translate":
            step(sides, kind, first, value)
    sides.settle()
    offset = max(0, len(sides.logs[A]) - back)
    logs = sides.opened(A)
    found, _ = logs.translate(offset)
    assert found.offset is not None
    assert found.place in {Place.RECORD, Place.NEXT, Place.END}
    left = sides.from_on(B, found.offset)
    assert not left or left[0] not in sides.read(A, offset)
    again = [one for one in left if one in sides.read(A, offset)]
    assert logs.read_again(offset, found.offset) == CopyCount(len(again))


@pytest.mark.parametrize(
    ("ahead", "back", "appended", "lowest"),
    [
        ((Place.RECORD, 50), (Place.RECORD, 70), 0, (Place.RECORD, 50)),
        ((Place.NEXT, 80), (Place.RECORD, 70), 0, (Place.RECORD, 70)),
        ((Place.END, 50), (Place.RECORD, 70), 0, (Place.NOT_COPIED, 50)),
        ((Place.END, 50), (Place.RECORD, 70), 90, (Place.RECORD, 70)),
        ((Place.END, 50), (Place.END, 100), 100, (Place.END, 100)),
        ((Place.END, 50), (Place.END, 99), 100, (Place.NOT_COPIED, 99)),
        ((Place.END, 50), (Place.END, 100), 90, (Place.NOT_COPIED, 90)),
        ((Place.NOT_COPIED, 50), (Place.RECORD, 40), 90, (Place.NOT_COPIED, 40)),
        ((Place.NOT_COPIED, 50), (Place.RECORD, 95), 90, (Place.NOT_COPIED, 90)),
        ((Place.RECORD, 50), (Place.UNKNOWN, None), 0, UNKNOWN),
        ((Place.UNKNOWN, None), (Place.RECORD, 50), 0, UNKNOWN),
    ],
)
def test_the_lower_translation_counts(
    ahead: tuple[Place, int | None], back: tuple[Place, int | None], appended: int, lowest: tuple[Place, int | None]
) -> None:
    """The target's log ends at 100."""
    assert lowest_position(Translation(*ahead), Translation(*back), appended, 100) == lowest


def test_ends_are_remembered_until_all_in_front_of_them_is_copied() -> None:
    seen: list[EndsSeen] = []
    for turn in range(100):
        seen = kept_ends(seen, EndsSeen(10 * turn, 100 * turn, 1), copied_to=100 * (turn - 6))
    assert appended_from(seen, 9_300) == 930
    assert appended_from(seen, 9_299) == 0, "one of the records in front of 9,300 may be in front of 930"
    assert len(seen) < 20
    assert appended_from(seen, 9_899) >= 900
    assert kept_ends(seen, EndsSeen(1_000, 10_000, 2), 10_000) == [EndsSeen(1_000, 10_000, 2)], "another leader"
    assert kept_ends(seen, EndsSeen(5, 10_000, 1), 10_000) == [EndsSeen(5, 10_000, 1)], "another log"
    assert kept_ends(seen, None, 10_000) == seen


def test_what_the_other_flow_has_not_committed_may_be_read_again() -> None:
    """Three records of B are copied to A, and read there, but the other flow's progress has none of them."""
    sides = BothSides((2, 0))
    sides.settle()
    sides.produce(B, 3)
    sides.copy(B, 5)
    found, _ = sides.opened(A).translate(5)
    assert found == (Place.NOT_COPIED, 2), "B's own records are behind its end, but not committed as copied"
    assert sides.opened(A).read_again(5, 2) == CopyCount(6, is_exact=False)
    sides.settle()
    assert sides.opened(A).translate(5)[0] == (Place.END, 5)
    assert sides.opened(A).read_again(5, 5) == CopyCount(0)
