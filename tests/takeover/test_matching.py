"""Where a copy goes on behind what MirrorMaker 2 left, by generated logs and by cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.offsets.extents import Extent
from mirror.takeover import matching
from mirror.takeover.matching import Evidence, Match, Pair, Unsettled, anchors_of, match_tail
from mirror.wire.decode import Record
from tests.takeover.simulated_mirrormaker import Attempt, SimulatedMirrorMaker

POOL = 20
"""So many records in front of the stored offset are read if nothing anchors it."""

attempts = st.lists(
    st.builds(Attempt, copies=st.integers(0, 30), flushed=st.integers(1, 40), resent=st.sampled_from([0, 0, 0, 2, 5])),
    min_size=1,
    max_size=5,
)


def content(record: Record) -> tuple[object, ...]:
    return record[1:]


@st.composite
def sources(draw: st.DrawFn, *, values: int = 1_000_000, keys: int = 5) -> list[Record]:
    """With holes, as transactions and compaction leave. With few ``values``, records are equal."""
    offset = draw(st.integers(0, 5))
    made = []
    for step, value, key in draw(
        st.lists(
            st.tuples(st.sampled_from([1, 1, 1, 2, 7]), st.integers(0, values), st.integers(0, keys - 1)),
            max_size=60,
        )
    ):
        timestamp = offset if values > 2 else 0
        made.append(Record(offset, timestamp, b"%d" % key, b"%d" % value, ()))
        offset += step
    return made


def taken_over(
    copier: SimulatedMirrorMaker, *, anchored: bool = True, compacted: bool = False, timestamps: bool = True
) -> Match | Unsettled:
    anchor = next(iter(anchors_of(copier.syncs, copier.stored)), None) if anchored else None
    if anchor is not None:
        source = [record for record in copier.source if record.offset > anchor.source]
        target = [record for record in copier.target if record.offset > anchor.target]
    elif copier.stored < 0:  # both logs from their beginnings
        source, target = copier.source, copier.target
    else:
        known = sum(record.offset <= copier.stored for record in copier.source)
        source, target = copier.source[max(0, known - POOL) :], copier.target
    return match_tail(
        source,
        target,
        stored=copier.stored,
        anchored=anchor is not None or copier.stored < 0,
        compacted=compacted,
        timestamps=timestamps,
    )


def continued(copier: SimulatedMirrorMaker, found: Match) -> list[Record]:
    """The target after the rest was copied."""
    rest = [record for record in copier.source if record.offset >= found.next_offset]
    end = copier.target[-1].offset + 1 if copier.target else 0
    return copier.target + [record._replace(offset=end + at) for at, record in enumerate(rest)]


def is_subsequence(wanted: Iterable[Record], log: Sequence[Record]) -> bool:
    rest = iter(map(content, log))
    return all(content(record) in rest for record in wanted)


def consumers_miss_nothing(copier: SimulatedMirrorMaker, found: Match) -> bool:
    """Whether one that goes on behind a copy of the index gets all that follows the record in the source."""
    log = continued(copier, found)
    at = len(log)
    last_starts = {}  # the last place of the target behind which all later records are in order
    for record in reversed(copier.source):
        last_starts[record.offset] = log[at - 1].offset if at else -1
        at = max((place for place in range(at) if content(log[place]) == content(record)), default=-1)
        if at < 0:
            break
    by_offset = {record.offset: record for record in copier.source}
    copies = {record.offset: record for record in log}
    pairs = [(extent.source + step, extent.target + step) for extent in found.extents for step in range(extent.length)]
    return all(
        content(by_offset[record]) == content(copies[copy]) and copy <= last_starts[record] for record, copy in pairs
    )


@given(sources(), attempts)
def test_nothing_is_missing_and_nothing_is_there_twice_beyond_what_mirrormaker_doubled(
    source: list[Record], tried: list[Attempt]
) -> None:
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    found = taken_over(copier)
    assert isinstance(found, Match)
    log = continued(copier, found)
    assert Counter(map(content, log)) - Counter(map(content, source)) == Counter(map(content, copier.target)) - Counter(
        map(content, source)
    )
    assert len(log) == len(source) + copier.doubled
    assert found.may_double == 0
    assert consumers_miss_nothing(copier, found)


@given(sources(), attempts)
def test_without_offset_syncs_nothing_is_missing_and_what_is_doubled_is_counted(
    source: list[Record], tried: list[Attempt]
) -> None:
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    found = taken_over(copier, anchored=False)
    assert isinstance(found, Match)
    log = continued(copier, found)
    assert is_subsequence(source, log)
    assert len(log) <= len(source) + copier.doubled + found.may_double
    assert consumers_miss_nothing(copier, found)


@given(sources(values=2, keys=1), attempts)
def test_equal_records_are_neither_lost_nor_doubled(source: list[Record], tried: list[Attempt]) -> None:
    """Those who read the target cannot distinguish them, so that only their number and order count."""
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    found = taken_over(copier)
    assert isinstance(found, Match)
    log = continued(copier, found)
    assert is_subsequence(source, log)
    assert len(log) <= len(source) + copier.doubled
    assert consumers_miss_nothing(copier, found)


@given(sources(values=2, keys=1), attempts)
def test_equal_records_are_never_lost_without_offset_syncs(source: list[Record], tried: list[Attempt]) -> None:
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    found = taken_over(copier, anchored=False)
    assert isinstance(found, Match)
    log = continued(copier, found)
    assert is_subsequence(source, log)
    assert len(log) <= len(source) + copier.doubled + found.may_double


@given(sources(), attempts, st.data())
def test_compacted_target_ends_with_the_last_value_of_each_key(
    source: list[Record], tried: list[Attempt], data: st.DataObject
) -> None:
    """An attempt that was killed early leaves older values at the end, and compaction may have kept these."""
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    cleaned = data.draw(st.integers(0, len(copier.target)), label="compacted in front of")
    last = {record.key: record.offset for record in copier.target}
    copier.target = [
        record for record in copier.target if record.offset >= cleaned or last[record.key] == record.offset
    ]
    found = taken_over(copier, compacted=True, anchored=data.draw(st.booleans(), label="anchored"))
    assert isinstance(found, Match)
    log = continued(copier, found)
    assert {one.key: one.value for one in log} == {one.key: one.value for one in source}


@given(sources(), attempts, st.data())
def test_records_that_source_compaction_removed_are_not_missed(
    source: list[Record], tried: list[Attempt], data: st.DataObject
) -> None:
    copier = SimulatedMirrorMaker(source)
    copier.run(tried)
    cleaned = data.draw(st.integers(0, 60), label="compacted in front of")
    last = {record.key: record.offset for record in source}
    copier.source = [record for at, record in enumerate(source) if at >= cleaned or last[record.key] == record.offset]
    found = taken_over(copier)
    assert isinstance(found, Match)
    assert is_subsequence(copier.source, continued(copier, found))
    assert len(continued(copier, found)) <= len(source) + copier.doubled


def records(letters: str, start: int = 0) -> list[Record]:
    return [Record(start + at, 1_000 + ord(letter), None, letter.encode(), ()) for at, letter in enumerate(letters)]


def matched(source: str, target: str, *, stored: int, anchored: bool = True, timestamps: bool = True) -> Match:
    found = match_tail(records(source), records(target, 50), stored=stored, anchored=anchored, timestamps=timestamps)
    assert isinstance(found, Match)
    return found


def test_one_interrupted_attempt() -> None:
    assert matched("abcdefgh", "abcdef", stored=2) == Match(
        next_offset=6,
        target_end=56,
        extents=(Extent(0, 50, 6),),
        copies=6,
        repeated=0,
        unmatched=0,
        may_double=0,
        evidence=Evidence.ANCHOR,
    )


def test_second_attempt_got_less_far_than_the_first() -> None:
    """A consumer behind a copy of the second attempt would miss what only the first one has copied."""
    found = matched("abcdefgh", "abcdefcd", stored=1)
    assert (found.next_offset, found.repeated, found.extents) == (6, 2, (Extent(0, 50, 6),))


def test_second_attempt_got_further_than_the_first() -> None:
    found = matched("abcdefgh", "abcdcdef", stored=1)
    assert (found.next_offset, found.repeated, found.extents) == (6, 2, (Extent(0, 50, 2), Extent(2, 54, 4)))


def test_copies_out_of_order_are_taken_up_to_the_first_record_that_is_missing() -> None:
    """A producer with several requests in flight may reorder batches when it sends one of them again."""
    found = matched("abcdefgh", "abefcd", stored=1)
    assert (found.next_offset, found.may_double) == (6, 0)
    found = matched("abcdefgh", "abef", stored=1)
    assert (found.next_offset, found.may_double) == (2, 2)


def test_consumers_behind_copies_out_of_order_miss_nothing() -> None:
    found = matched("abcdefgh", "abefcd", stored=1)
    assert found.extents == (Extent(0, 50, 2), Extent(4, 52, 2))


def test_records_of_others_are_counted() -> None:
    found = matched("abcdef", "axbcyyd", stored=0)
    assert (found.next_offset, found.copies, found.unmatched) == (4, 4, 3)


def test_nothing_behind_the_stored_offset_is_copied() -> None:
    assert matched("abcdef", "abc", stored=2).next_offset == 3
    assert matched("abc", "abc", stored=2).next_offset == 3


def test_begins_with_the_first_record_if_nothing_was_stored() -> None:
    found = match_tail(records("cde", 7), [], stored=-1, anchored=True)
    assert isinstance(found, Match)
    assert found.next_offset == 7


def test_without_an_anchor_the_last_copy_of_the_stored_record_counts() -> None:
    """The target may have records that equal it, of long before."""
    found = matched("abcdef", "cdabcd", stored=2, anchored=False)
    assert (found.next_offset, found.evidence) == (4, Evidence.STORED_RECORD)
    found = matched("xxxxx", "xxx", stored=1, anchored=False)
    assert (found.next_offset, found.may_double) == (2, 1)


def keyed(*texts: str, start: int = 0) -> list[Record]:
    """``k1`` has key ``k`` and value ``1``."""
    return [Record(start + at, 0, text[:1].encode(), text[1:].encode(), ()) for at, text in enumerate(texts)]


def compacted(source: list[Record], target: list[Record], *, stored: int) -> int:
    found = match_tail(source, target, stored=stored, anchored=True, compacted=True)
    assert isinstance(found, Match)
    return found.next_offset


def test_records_that_target_compaction_removed_are_not_copied_again() -> None:
    source = keyed("a1", "b1", "a2", "c1", "b2", "c2")
    assert compacted(source, keyed("a1", "c1", "b2"), stored=0) == 1
    assert compacted(source, keyed("a1", "a2", "c1", "b2"), stored=0) == 5


def test_record_that_no_later_copy_supersedes_is_missing() -> None:
    """The later record with its key is an earlier value."""
    assert compacted(keyed("a1", "b1", "a2", "b2"), keyed("a1", "b1", "b2", "a1"), stored=0) == 2


def test_older_values_at_the_end_are_followed_by_the_later_ones() -> None:
    source = keyed("a1", "b1", "a2", "b2", "c1")
    assert compacted(source, keyed("a1", "b1", "a2", "b2", "a1", "b1"), stored=-1) == 2
    # The older value is of a record in front of those that are compared.
    assert compacted(source[2:], keyed("a2", "b2", "c1", "b1"), stored=1) == 3


def test_without_timestamps_records_are_compared_by_the_rest() -> None:
    source = [record._replace(timestamp_ms=5) for record in records("abcd")]
    found = match_tail(source, records("abc"), stored=0, anchored=True, timestamps=False)
    assert isinstance(found, Match)
    assert found.next_offset == 3
    found = match_tail(source, records("abc"), stored=0, anchored=True)
    assert isinstance(found, Match)
    assert found.next_offset == 1


@pytest.mark.parametrize(
    "changed",
    [{"key": b"k"}, {"value": None}, {"headers": {"h": b"1"}}, {"timestamp_ms": 1}],
    ids=lambda one: next(iter(one)),
)
def test_every_part_of_a_record_is_compared(changed: dict[str, object]) -> None:
    source = records("abcd")
    target = [source[0], source[1], source[2].replace(**changed)]
    found = match_tail(source, target, stored=0, anchored=True)
    assert isinstance(found, Match)
    assert found.next_offset == 2


def test_target_without_any_copy_is_not_settled() -> None:
    found = match_tail(records("abcdef"), records("xyz"), stored=2, anchored=False)
    assert isinstance(found, Unsettled)
    assert "stored offset 2" in found.reason


def test_empty_target_leaves_the_stored_offset() -> None:
    """Retention may have removed all of it."""
    found = matched("abcdef", "", stored=2, anchored=False)
    assert (found.next_offset, found.evidence) == (3, Evidence.STORED_OFFSET)


def test_stored_records_that_the_target_removed_leave_the_stored_offset() -> None:
    found = matched("abcdef", "de", stored=2, anchored=False)
    assert (found.next_offset, found.may_double, found.evidence) == (3, 2, Evidence.STORED_OFFSET)


def test_too_many_records_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MAX_RECORDS", 3)
    tail = iter(records("abcdef"))
    assert isinstance(match_tail(records("abcd"), tail, stored=0, anchored=True), Unsettled)
    assert next(tail).value == b"e"


def test_stored_records_without_a_copy_are_passed_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "LOOKAHEAD", 2)
    assert matched("abcdefgh", "fg", stored=4).next_offset == 7


def test_source_is_not_read_much_further_than_the_target_reaches() -> None:
    read = 0

    def backlog() -> Iterable[Record]:
        nonlocal read
        for read in range(10 * matching.LOOKAHEAD):
            yield Record(read, read, None, b"", ())

    match_tail(backlog(), [Record(0, 0, None, b"", ())], stored=-1, anchored=True)
    assert read <= matching.LOOKAHEAD + 1


def test_anchor_is_in_front_of_all_copies_behind_the_stored_offset() -> None:
    first, second = [Pair(0, 0), Pair(80, 80), Pair(150, 150)], [Pair(90, 160), Pair(120, 190)]
    assert anchors_of(first + second, 95)[0] == Pair(80, 80)
    assert anchors_of(first + second, 199)[0] == Pair(120, 190)
    # The last record before the second attempt may have been 159.
    assert anchors_of(first + second, 158)[0] == Pair(150, 150)
    assert anchors_of(first[2:], 95) == []
    assert anchors_of([], 95) == []
