"""What a group reads again and skips that moves, compared with the records of both logs. Generated logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.translation.logs import PartitionLogs
from mirror.relay.offsets.copy_count import CopyCount, Move
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import OffsetIndex
from mirror.relay.offsets.log_answers import LogStarts
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from tests.groups.both_sides import A, B, BothSides, Record
from tests.relay.offsets.test_segments import segment

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from([A, B]), st.integers(1, 5)),
        st.tuples(st.just("mark"), st.sampled_from([A, B]), st.just(0)),
        st.tuples(st.just("copy"), st.sampled_from([A, B]), st.integers(1, 6)),
        st.tuples(st.just("commit"), st.sampled_from([A, B]), st.just(0)),
        st.tuples(st.just("index"), st.sampled_from([A, B]), st.just(0)),
    ),
    max_size=25,
)
BEFORE = st.tuples(st.just(0), st.integers(0, 3))


def _made(before: tuple[int, int], steps: list[tuple[str, int, int]], only: int | None = None) -> BothSides:
    """``only``: of the other side nothing is produced or copied."""
    sides = BothSides(before)
    for what, side, count in steps:
        if what == "mark":
            sides.mark(side)
        elif only is None or side == only:
            if what == "produce":
                sides.produce(side, count)
            elif what == "copy":
                sides.copy(side, count)
            else:
                sides.commit(side, index=what == "index")
    return sides


def _truth(sides: BothSides, source: int, offset: int, target_offset: int, of: set[int]) -> tuple[int, int]:
    """How many records of these sides are read again, and skipped, by content."""
    here, there = sides.logs[source], sides.logs[1 - source]
    before, delivered = set(here[:offset]), [record for record in there[target_offset:] if _is_of(record, of)]
    again = sum(record in before for record in delivered)
    passed = [record for record in there[:target_offset] if _is_of(record, of)]
    return again, sum(record not in before for record in passed)


def _is_of(record: Record | None, sides: set[int]) -> bool:
    return record is not None and record[0] in sides


def _check(found: Move, truth: tuple[int, int]) -> None:
    for count, true in zip(found, truth, strict=True):
        assert count.records == true if count.is_exact else count.records >= true


@given(BEFORE, STEPS, st.data())
def test_what_is_said_is_what_the_logs_have(
    before: tuple[int, int], steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    sides = _made(before, steps, only=A)
    logs = sides.copied(A)
    offset = data.draw(st.integers(0, len(sides.logs[A])))
    target_offset = data.draw(st.integers(0, len(sides.logs[B])))
    if sides.flows[A].indexed.extents:
        found = logs.moved(offset, target_offset)
        assert found is not None
        _check(found, _truth(sides, A, offset, target_offset, {A}))


@given(BEFORE, STEPS, st.data())
def test_what_is_said_of_a_copy_that_has_stopped_is_exact(
    before: tuple[int, int], steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    sides = _made(before, steps, only=A)
    sides.commit(A, index=data.draw(st.booleans()))
    logs = sides.copied(A)
    offset = data.draw(st.integers(0, len(sides.logs[A])))
    # Only copies, and markers, are behind the first copy.
    target_offset = data.draw(st.integers(before[1], len(sides.logs[B])))
    found = logs.moved(offset, target_offset)
    assert found is not None
    if sides.flows[A].known.extents:
        assert found.read_again.is_exact
        assert found.skipped.is_exact
    _check(found, _truth(sides, A, offset, target_offset, {A}))


@given(BEFORE, STEPS, st.data())
def test_what_is_said_of_the_way_back_is_what_the_logs_have(
    before: tuple[int, int], steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    sides = _made(before, steps, only=A)
    sides.commit(A, index=True)
    logs = sides.copied(A)
    offset = data.draw(st.integers(0, len(sides.logs[A])))
    target_offset = data.draw(st.integers(before[1], len(sides.logs[B])))
    found = logs.moved_back(target_offset, offset)
    assert found is not None
    read = {record for record in sides.logs[B][:target_offset] if record is not None}
    again = sum(record in read for record in sides.logs[A][offset:])
    there = set(sides.logs[A][:offset])
    unread = [record for record in sides.logs[B][target_offset:] if record is not None]
    _check(found, (again, sum(record in there for record in unread)))


@given(STEPS, st.data())
def test_what_is_said_where_both_sides_feed_a_topic_is_no_less_than_the_logs_have(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    sides = _made((0, 0), steps)
    settled = data.draw(st.booleans())
    if settled:
        sides.settle()
    offset = data.draw(st.integers(0, len(sides.logs[A])))
    target_offset = data.draw(st.integers(0, len(sides.logs[B])))
    found = sides.opened(A).moved(offset, target_offset)
    assert found is not None
    _check(found, _truth(sides, A, offset, target_offset, {A, B}))
    assert found.skipped.is_exact or not settled


def test_a_record_with_a_later_copy_is_not_skipped() -> None:
    """At least once, an attempt has appended records 1 and 2 again."""
    index = OffsetIndex(
        [segment(0, 3, Extent(0, 0, 3)), segment(1, 4, Extent(1, 3, 3))], 4, exactly_once=False, target_end=6
    )
    logs = PartitionLogs(PartitionOffsets(index, lambda _: [], LogStarts(0, 0)))
    # The log has 0 1 2 1 2 3: a group that has read up to 2 continues at the later copy of it.
    assert logs.moved(2, 4) == Move(CopyCount(0), CopyCount(0))
    assert logs.moved(2, 5) == Move(CopyCount(0), CopyCount(1))
    assert logs.moved(2, 0) == Move(CopyCount(3), CopyCount(0))


def test_nothing_is_said_of_a_topic_that_was_made_again() -> None:
    offsets = PartitionOffsets(OffsetIndex((), 2**63 - 1, exactly_once=True), lambda _: [], LogStarts(0, 0))
    offsets.is_of_copied_topic = False
    assert PartitionLogs(offsets).moved(3, 3) is None
    assert PartitionLogs(offsets).moved_back(3, 3) is None
    assert PartitionLogs(problem="no leader").moved(3, 3) is None


def test_copies_that_no_commit_has_confirmed_may_be_read_again_and_skipped() -> None:
    """By sequences, the progress is committed later than the records are appended."""
    sides = BothSides((0, 0))
    sides.produce(A, 6)
    sides.copy(A, 2)
    sides.commit(A, index=True)
    sides.copy(A, 3)
    logs = sides.copied(A)
    assert logs.moved(4, 2) == Move(CopyCount(2, is_exact=False), CopyCount(0))
    assert logs.moved(2, 4) == Move(CopyCount(0), CopyCount(2, is_exact=False))


def test_a_marker_behind_the_copy_changes_nothing() -> None:
    sides = BothSides((0, 0))
    sides.produce(A, 4)
    sides.copy(A, 2)
    sides.mark(B)
    sides.commit(A, index=True)
    assert sides.copied(A).moved(4, 3) == Move(CopyCount(0), CopyCount(0))
    assert sides.copied(A).moved(1, 0) == Move(CopyCount(1), CopyCount(0))
