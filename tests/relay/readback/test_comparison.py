"""What was committed is compared with what the target has: each damage has its kind and offsets, harmless ones none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.readback.comparison import MAX_LAG_MS, MAX_PENDING, PartitionReadBack
from mirror.relay.readback.result import MAX_FOUND, Difference, Unverified
from mirror.relay.readback.written import NO_OFFSET
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import ATTRIBUTES_AT, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Batch
from tests.fakes.record_batches import COMMIT, appended_at, batch, build, build_marker
from tests.relay.readback.committed_log import SOURCE_BEGIN, batches_of, committed, fetch, moved, read_back

VALUES = [(b"a", b"b"), (b"c",), (b"d", b"e", b"f"), (b"g",), (b"h", b"i")]
SENT = batches_of(*VALUES)
HIT = SENT[2]
"""The batch that is damaged: source offsets 503 to 505, target offsets 3 to 5."""


def replaced(one: Batch) -> list[Batch]:
    return [*SENT[:2], one, *SENT[3:]]


def flipped(one: Batch, at: int, *, new_crc: bool) -> Batch:
    data = bytearray(one.view)
    data[at] ^= 0x10
    found = batch(data)
    if new_crc:
        attributes = found.attributes
        found.stamp_crc()
        found.patch(found.producer_id, found.producer_epoch, found.base_sequence)
        data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big", signed=True)
        found = moved(batch(data), one.base_offset)
    return found


DAMAGES: dict[str, tuple[str, Callable[[], list[Batch]]]] = {
    "another value": ("content", lambda: replaced(batch(build((b"d", b"X", b"f"), base_offset=3)))),
    "another value, as long, and the old checksum": (
        "content",
        lambda: replaced(flipped(HIT, HIT.size - 1, new_crc=False)),
    ),
    "one bit": ("content", lambda: replaced(flipped(HIT, HIT.size - 1, new_crc=True))),
    "a longer value": ("content", lambda: replaced(batch(build((b"d", b"e", b"ff"), base_offset=3)))),
    "other times": ("content", lambda: replaced(batch(build(VALUES[2], base_offset=3, timestamp=1)))),
    "swapped records": ("content", lambda: replaced(batch(build((b"e", b"d", b"f"), base_offset=3)))),
    "a record less": ("content", lambda: replaced(batch(build((b"d", b"e"), base_offset=3, deltas=(0, 2))))),
    "a record more": (
        "content",
        lambda: replaced(batch(build((b"d", b"e", b"f"), base_offset=3, last_offset_delta=3)))[:3],
    ),
    "two batches for one": (
        "content",
        lambda: [*SENT[:2], *batches_of((b"d",), (b"e", b"f"), base_offset=3), *SENT[3:]],
    ),
    "a batch that extends over it": (
        "content",
        lambda: [SENT[0], batch(build((b"c", b"d", b"e", b"f"), base_offset=2))],
    ),
    "a marker": ("content", lambda: replaced(batch(build_marker(7, 0, COMMIT, base_offset=3)))),
    "nothing": ("missing", lambda: [*SENT[:2], *SENT[3:]]),
}


def only(found: list[Difference], kind: str) -> Difference:
    return next(one for one in found if one.kind == kind and one.target_offset == HIT.base_offset)


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("mode", ["sample", "all"])
def test_damaged_batch_is_found_with_its_kind_and_offsets(name: str, mode: str) -> None:
    kind, damage = DAMAGES[name]
    core = read_back(SENT, damage(), mode=mode)
    found = only(core.take_differences(), kind)
    assert (found.start, found.end, found.records) == (SOURCE_BEGIN + 3, SOURCE_BEGIN + 6, 3), found
    assert core.result.differences[kind] >= 1
    if name in {"nothing", "one bit", "another value", "other times"}:
        assert (core.result.differences, core.result.batches) == ({kind: 1}, 4), "the others are as they were sent"
        assert core.result.verified_to == SOURCE_BEGIN + 9


def test_committed_batch_of_an_aborted_transaction_is_missing() -> None:
    sent = batches_of(*VALUES[:2], producer_id=7, attributes=TRANSACTIONAL)
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add(committed(sent), 0)
    core.on_fetched(fetch(sent, 0, aborted=(AbortedTransaction(producer_id=7, first_offset=2),)))
    (found,) = core.take_differences()
    assert (found.kind, found.start, found.target_offset) == ("missing", SOURCE_BEGIN + 2, 2)


def test_log_that_ends_earlier_lacks_its_last_batches() -> None:
    core = read_back(SENT, SENT[:2])
    assert core.pending == 3, "they may not be replicated yet"
    core.on_bounds(0, 3, core.committed_end)
    assert sorted((one.kind, one.target_offset) for one in core.take_differences()) == [
        ("missing", 3),
        ("missing", 6),
        ("missing", 7),
    ]
    assert core.fetch_offset is None


def test_batch_that_was_committed_after_the_bounds_were_read_is_not_missing() -> None:
    core, expected = read_back(SENT, SENT[:2]), committed(SENT)
    asked_to = core.committed_end
    core.add([one._replace(target_offset=one.target_offset + 9) for one in expected], 0)
    core.on_bounds(0, 9, asked_to)
    assert (core.take_differences(), core.pending) == ([], 8)


def test_invalid_response_is_a_difference_of_the_batch_that_was_wanted() -> None:
    core = read_back(SENT, SENT[:2])
    core.on_corrupt("magic 9")
    (found,) = core.take_differences()
    assert (found.kind, found.target_offset, found.reason) == ("content", 3, "magic 9")
    core.on_fetched(fetch(SENT, 6))
    assert core.result.batches == 4


# --- repetitions, and batches of others


def doubled(position: int, original: int) -> list[Batch]:
    """The log with the records of one batch once more in front of that at ``position``; all behind it is moved."""
    stored, offset = list[Batch](), 0
    for one in [*SENT[:position], SENT[original], *SENT[position:]]:
        stored.append(moved(one, offset))
        offset = stored[-1].next_offset
    return stored


@pytest.mark.parametrize("original", [1, 3])
def test_doubled_batch_is_found_before_and_after_the_one_that_was_sent(original: int) -> None:
    stored = doubled(3, original)
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add(committed([*stored[:3], *stored[4:]]), 0)
    core.on_fetched(fetch(stored, 0))
    (found,) = core.take_differences()
    assert (found.kind, found.target_offset) == ("doubled", stored[3].base_offset)
    assert found.start == SOURCE_BEGIN + SENT[original].base_offset
    assert core.result.batches == 5


def test_repetition_is_no_difference_at_least_once() -> None:
    stored = doubled(3, 1)
    core = PartitionReadBack("all", compacted=False, exactly_once=False)
    core.add(committed([*stored[:3], *stored[4:]]), 0)
    core.on_fetched(fetch(stored, 0))
    assert (core.take_differences(), core.result.foreign) == ([], 1)


def test_batch_that_the_source_has_twice_is_no_repetition() -> None:
    sent = batches_of((b"a",), (b"a",), (b"b",))
    assert read_back(sent, sent).take_differences() == []


def test_what_an_earlier_attempt_has_appended_is_not_compared() -> None:
    stored = doubled(3, 1)
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add(committed(stored[:3]), 0)
    core.add(committed(stored[4:]), 0)  # it begins a new attempt
    core.on_fetched(fetch(stored, 0))
    assert (core.take_differences(), core.result.foreign, core.result.batches) == ([], 0, 5)


def test_batches_of_others_and_markers_are_counted_and_no_difference() -> None:
    others = [*batches_of((b"x",), base_offset=3), batch(build_marker(7, 0, COMMIT, base_offset=4))]
    stored = [*SENT[:2], *others, *(moved(one, one.base_offset + 2) for one in SENT[2:])]
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add(committed([*stored[:2], *stored[4:]]), 0)
    core.on_fetched(fetch(stored, 0))
    assert (core.take_differences(), core.result.foreign, core.result.batches) == ([], 1, 5)


# --- harmless differences, and what is not compared


def test_broker_that_sets_the_timestamps_changes_nothing_that_is_compared() -> None:
    core = read_back(SENT, [batch(appended_at(one.view, 1_800_000_000_000)) for one in SENT])
    assert all(one.has_log_append_time for one in [batch(appended_at(SENT[0].view, 1))]), f"{LOG_APPEND_TIME}"
    assert (core.result.differences, core.result.batches) == ({}, 5)


def test_other_header_fields_are_the_producer_s_and_the_broker_s() -> None:
    stored = [batch(bytearray(one.view)) for one in SENT]
    for one in stored:
        base = one.base_offset
        one.patch(9, 4, 100, transactional=True)
        one.view[:] = moved(one, base).view
    assert read_back(SENT, [Batch(one.view) for one in stored]).result.batches == 5


def test_recompressed_batch_is_not_compared() -> None:
    stored = replaced(batch(build(VALUES[2], base_offset=3, attributes=4, payload=b"zstd")))
    core = read_back(SENT, stored)
    assert core.result.unverified == {Unverified.RECOMPRESSED: 1}
    assert (core.result.differences, core.result.batches) == ({}, 4)


@pytest.mark.parametrize(
    "stored",
    [
        replaced(batch(build((b"d", b"f"), base_offset=3, deltas=(0, 2)))),
        [*SENT[:2], *SENT[3:]],
        replaced(batch(build(VALUES[2], base_offset=3, attributes=DELETE_HORIZON, timestamp=5))),
    ],
    ids=["a record removed", "a batch removed", "a delete horizon"],
)
def test_what_compaction_has_changed_is_not_compared(stored: list[Batch]) -> None:
    core = read_back(SENT, stored, compacted=True)
    assert core.result.unverified == {Unverified.COMPACTED: 1}
    assert (core.result.differences, core.result.batches) == ({}, 4)


def test_other_records_in_a_compacted_topic_are_a_difference() -> None:
    core = read_back(SENT, replaced(batch(build((b"d", b"X", b"f"), base_offset=3))), compacted=True)
    assert core.result.differences == {"content": 1}


def test_what_retention_has_deleted_is_not_compared() -> None:
    core = read_back(SENT, SENT[3:], log_start=6)
    assert core.result.unverified == {Unverified.DELETED: 3}
    assert (core.result.differences, core.result.batches) == ({}, 2)
    core = read_back(SENT, SENT[:1])
    core.on_bounds(6, 9, core.committed_end)
    assert (core.result.unverified, core.pending) == ({Unverified.DELETED: 2}, 2)


def test_acknowledgement_without_an_offset_is_counted() -> None:
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add([one._replace(target_offset=NO_OFFSET) for one in committed(SENT)], 0)
    assert (core.result.unverified, core.fetch_offset) == ({Unverified.NO_OFFSET: 5}, None)


# --- bounds


def test_of_more_than_is_kept_the_oldest_batches_are_left_out_and_counted() -> None:
    sent = batches_of(*[(b"v",)] * (MAX_PENDING + 3))
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    core.add(committed(sent), 0)
    assert (core.pending, core.fetch_offset) == (MAX_PENDING, 3)
    assert core.result.unverified == {Unverified.BEHIND: 3}


def test_what_cannot_be_read_for_too_long_is_left_out_and_counted() -> None:
    core = PartitionReadBack("all", compacted=False, exactly_once=True)
    expected = committed(SENT)
    core.add(expected[:2], 0)
    core.add(expected[2:], 10)
    core.leave_out_late(MAX_LAG_MS)
    assert core.pending == 5
    core.leave_out_late(MAX_LAG_MS + 1)
    assert (core.pending, core.result.unverified) == (3, {Unverified.BEHIND: 2})
    core.leave_out_all(Unverified.ENDED)
    assert core.result.unverified == {Unverified.BEHIND: 2, Unverified.ENDED: 3}


def test_all_differences_are_counted_and_the_first_ones_listed() -> None:
    sent = batches_of(*[(b"v",)] * 50)
    core = read_back(sent, [batch(build((b"w",), base_offset=one.base_offset)) for one in sent])
    found = core.take_differences()
    assert [one.target_offset for one in found] == list(range(MAX_FOUND))
    assert (core.result.differences, core.take_differences()) == ({"content": 50}, [])


# --- properties


@given(st.data())
def test_log_as_it_was_sent_is_verified_however_it_is_committed_and_fetched(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=4), min_size=1, max_size=12))
    sent, expected = batches_of(*values), committed(batches_of(*values))
    core = PartitionReadBack(data.draw(st.sampled_from(["sample", "all"])), compacted=False, exactly_once=True)
    added = 0
    while core.pending or added < len(sent):
        if core.fetch_offset is None or (added < len(sent) and data.draw(st.booleans())):
            more = data.draw(st.integers(1, len(sent) - added))
            core.add(expected[added : added + more], 0)
            added += more
            continue
        first = next(n for n, one in enumerate(sent) if one.next_offset > core.fetch_offset)
        end = data.draw(st.integers(first + 1, len(sent)))
        core.on_fetched(fetch(sent[:end], core.fetch_offset))
    assert (core.result.differences, core.result.unverified, core.result.foreign) == ({}, {}, 0)
    assert (core.result.batches, core.result.records) == (len(sent), sum(map(len, values)))
    assert core.result.bytes == sum(one.size for one in sent)
    assert core.result.verified_to == SOURCE_BEGIN + sum(map(len, values))


@given(st.data())
def test_any_changed_byte_of_the_records_is_found(data: st.DataObject) -> None:
    hit = data.draw(st.integers(0, len(SENT) - 1))
    at = data.draw(st.integers(61, SENT[hit].size - 1))
    stored = [flipped(one, at, new_crc=data.draw(st.booleans())) if n == hit else one for n, one in enumerate(SENT)]
    core = read_back(SENT, stored)
    (found,) = core.take_differences()
    assert (found.kind, found.target_offset) == ("content", SENT[hit].base_offset)
    assert core.result.batches == len(SENT) - 1
