"""What was left out because flows have written it to the source is on the target, or it is named."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.verify import left_out
from mirror.verify.left_out import LeftOut
from mirror.verify.values import Absent, Bounds, Rules
from mirror.wire.decode import Record
from mirror.wire.records import AnyBatch
from tests.relay.batches.logs_by_hand import Made, batch_at
from tests.verify.logs import fetches_of, numbered

_LOCAL, _OTHER_FLOW, _OWN = (7, 0, 0), (500, 0, 0), (4001, 3, 0)
_RULES = Rules(
    is_left_out=lambda batch: batch.producer_id == _OTHER_FLOW[0],
    is_own=lambda batch: batch.producer_id == _OWN[0],
)
_COMPACTED = replace(_RULES, target_compacted=True)


class By(NamedTuple):
    """Records in one batch, and who has written them."""

    producer: tuple[int, int, int]
    records: Sequence[Made]


def local(*numbers: int) -> By:
    return By(_LOCAL, [numbered(number) for number in numbers])


def by_other_flow(*numbers: int) -> By:
    return By(_OTHER_FLOW, [numbered(number) for number in numbers])


def own(*numbers: int) -> By:
    return By(_OWN, [numbered(number) for number in numbers])


def _log(batches: Sequence[By]) -> list[AnyBatch]:
    log: list[AnyBatch] = []
    at = 0
    for one in batches:
        log.append(batch_at(at, one.records, codec="lz4", producer=one.producer))
        at += len(one.records)
    return log


class _Target:
    """Reads a log, one reader at a time, and counts the batches that were read."""

    def __init__(self, log: Sequence[AnyBatch]) -> None:
        self._log = log
        self._is_open = False
        self.reads = list[tuple[int, int]]()

    def read(self, start: int, end: int) -> Generator[Fetched]:
        assert not self._is_open, "one generator at a time"
        self.reads.append((start, end))
        self._is_open = True
        try:
            wanted = [one for one in self._log if start < one.next_offset and one.base_offset < end]
            yield from fetches_of(wanted, per_fetch=1)
        finally:
            self._is_open = False


def absent(
    source: Sequence[By], target: Sequence[By], rules: Rules = _RULES, *, start: int = 0, back: Rules | None = None
) -> Absent | None:
    """``start`` is the target offset where the copy has begun."""
    there = _log(target)
    end = there[-1].next_offset if there else 0
    here = _log(source)
    bounds = Bounds(source_start=0, source_end=here[-1].next_offset, target_start=start, target_end=end)
    return LeftOut(fetches_of(here), _Target(there).read, bounds, rules, back).run(0)


def test_records_that_others_have_written_to_the_target_are_found_in_any_order() -> None:
    source = [local(1, 2), by_other_flow(10, 11), local(3), by_other_flow(20)]
    assert absent(source, [by_other_flow(20), own(1, 2, 3), local(10, 11)]) is None


def test_record_that_the_target_has_from_this_flow_only_is_absent() -> None:
    assert absent([local(1, 2), by_other_flow(2)], [own(1, 2)]) == Absent(2, 3, 1)


def test_records_that_the_target_does_not_have_are_counted_with_their_offsets() -> None:
    source = [by_other_flow(10, 11, 12), local(1), by_other_flow(11, 13)]
    found = absent(source, [local(10), own(1), local(12)])
    assert found == Absent(1, 6, 3)
    assert str(found).startswith("3 records at the source offsets 1 to 5,")


def test_records_in_front_of_the_beginning_of_the_copy_are_found() -> None:
    assert absent([by_other_flow(10, 11), local(1)], [local(10, 11), own(1)], start=2) is None


def test_record_differs_by_key_value_and_headers_and_not_by_its_time() -> None:
    source = [by_other_flow(10)]
    record = numbered(10)
    assert absent(source, [By(_LOCAL, [record._replace(time_ms=1)])]) is None
    for changed in (record._replace(key=b"x"), record._replace(value=None), record._replace(headers=())):
        assert absent(source, [By(_LOCAL, [changed])]) == Absent(0, 1, 1)


def test_records_that_the_flow_back_changes_are_found() -> None:
    def upper(record: Record) -> Record | None:
        return None if record.key == b"key-3" else record.replace(value=(record.value or b"").upper())

    back = Rules(transform=upper, headers=(("from", b"b"),))
    record = numbered(10)
    written = record._replace(value=(record.value or b"").upper(), headers=(*record.headers, ("from", b"b")))
    assert absent([By(_OTHER_FLOW, [written])], [local(3, 10)], back=back) is None
    assert absent([By(_OTHER_FLOW, [written])], [local(3, 10)]) == Absent(0, 1, 1)


def test_search_ends_with_enough_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "_MOST_WANTED", 2)
    monkeypatch.setattr(left_out, "_MOST_ABSENT", 3)
    found = absent([by_other_flow(*range(9))], [local(0)])
    assert found == Absent(1, 4, 3, is_exact=False)
    assert str(found).startswith("at least 3 records")


def test_target_is_read_once_where_the_order_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "_MOST_WANTED", 10)
    batches = [tuple(range(at, at + 5)) for at in range(0, 100, 5)]
    target = _Target(_log([local(*one) for one in batches]))
    bounds = Bounds(source_start=0, source_end=100, target_start=0, target_end=100)
    search = LeftOut(fetches_of(_log([by_other_flow(*one) for one in batches])), target.read, bounds, _RULES)
    assert search.run(0) is None
    assert target.reads == [(at, 100) for at in (0, *range(0, 90, 10))]


# --- compaction


def _value(key: bytes, value: bytes | None) -> Made:
    return Made(key, value, (), 5)


_A, _A2, _A_GONE, _B = _value(b"a", b"1"), _value(b"a", b"2"), _value(b"a", None), _value(b"b", b"1")


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ([By(_OTHER_FLOW, [_A, _A2])], [By(_LOCAL, [_A2])], None),
        ([By(_OTHER_FLOW, [_A]), By(_LOCAL, [_A2])], [By(_OWN, [_A2])], None),
        ([By(_OTHER_FLOW, [_A]), By(_LOCAL, [_B])], [By(_OWN, [_B])], Absent(0, 1, 1)),
        ([By(_OTHER_FLOW, [_A, _A_GONE])], [By(_LOCAL, [_B])], None),
        ([By(_OTHER_FLOW, [_A, _A_GONE])], [By(_LOCAL, [_A])], Absent(1, 2, 1)),
        ([By(_OTHER_FLOW, [_A, _A_GONE])], [By(_LOCAL, [_A, _A_GONE, _B])], None),
        ([By(_OTHER_FLOW, [_A._replace(key=None)]), By(_LOCAL, [_A])], [By(_OWN, [_A])], Absent(0, 1, 1)),
    ],
    ids=[
        "superseded by the other flow",
        "superseded on the source",
        "the last value",
        "a removed deletion",
        "a deletion whose value is there",
        "a deletion",
        "no key",
    ],
)
def test_only_the_last_state_of_a_key_is_wanted_of_a_compacted_target(
    source: list[By], target: list[By], found: Absent | None
) -> None:
    assert absent(source, target, _COMPACTED) == found


def test_superseded_record_is_wanted_of_a_target_that_is_not_compacted() -> None:
    assert absent([By(_OTHER_FLOW, [_A, _A2])], [By(_LOCAL, [_A2])]) == Absent(0, 1, 1)


# --- any logs

_BATCHES = st.lists(
    st.tuples(st.sampled_from([local, by_other_flow, own]), st.lists(st.integers(0, 6), min_size=1, max_size=3)),
    min_size=1,
    max_size=8,
).map(lambda drawn: [make(*numbers) for make, numbers in drawn])


@given(_BATCHES, _BATCHES, st.integers(1, 4), st.integers(0, 9))
def test_whatever_is_absent_is_counted(source: list[By], target: list[By], most: int, start: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(left_out, "_MOST_WANTED", most)
        end = sum(len(one.records) for one in target)
        found = absent(source, target, start=min(start, end))
    there = {record for one in target if one.producer != _OWN for record in one.records}
    wanted = [record for one in source if one.producer == _OTHER_FLOW for record in one.records]
    assert (0 if found is None else found.records) == sum(record not in there for record in wanted)
