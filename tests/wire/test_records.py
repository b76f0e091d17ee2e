"""The record batch header: read, verified, patched in place."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import CorruptBatch
from mirror.wire.records import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    Batches,
    is_commit_marker,
    split_batches,
)
from tests.fakes.record_batches import ABORT, COMMIT, batch, build, build_marker, crc32c, values_of


def test_the_independent_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4


def test_the_header_is_read() -> None:
    one = batch(
        build(
            (b"a", b"b", b"c"),
            base_offset=2**40,
            leader_epoch=7,
            producer_id=2**50,
            producer_epoch=3,
            base_sequence=2**31 - 1,
            attributes=LOG_APPEND_TIME | 3,
            timestamp=1_234,
            last_offset_delta=9,
        )
    )
    assert (one.base_offset, one.last_offset_delta, one.next_offset, one.count) == (2**40, 9, 2**40 + 10, 3)
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (2**50, 3, 2**31 - 1)
    assert (one.leader_epoch, one.magic, one.base_timestamp, one.max_timestamp) == (7, 2, 1_234, 1_234)
    assert (one.has_log_append_time, one.is_control, one.is_transactional) == (True, False, False)
    assert one.size == len(one.view)
    one.verify()


def test_a_marker_is_control() -> None:
    marker = batch(build_marker(5, 0, COMMIT, base_offset=3))
    assert marker.is_control
    assert marker.is_transactional
    marker.verify()


def test_neither_an_abort_marker_nor_one_that_the_log_cleaner_has_emptied_is_a_commit_marker() -> None:
    assert is_commit_marker(batch(build_marker(5, 0, COMMIT, base_offset=3)))
    assert not is_commit_marker(batch(build_marker(5, 0, ABORT, base_offset=3)))
    assert not is_commit_marker(batch(build((), attributes=CONTROL | TRANSACTIONAL, last_offset_delta=0)))


def test_control_batch_that_counts_a_record_and_has_none_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="offset 3 is corrupt: it holds no control record"):
        is_commit_marker(batch(build((b"",), payload=b"", base_offset=3, attributes=CONTROL | TRANSACTIONAL)))
    with pytest.raises(CorruptBatch, match="offset 3 is corrupt: it holds no control record"):
        is_commit_marker(batch(build((), payload=b"more", base_offset=3, attributes=CONTROL | TRANSACTIONAL)))


_VALUES = st.lists(st.binary(max_size=30), min_size=1, max_size=4)


@given(
    _VALUES,
    st.integers(0, 0x7F),
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_a_patched_batch_is_this_producers_and_its_payload_untouched(
    values: list[bytes], attributes: int, producer_id: int, epoch: int, sequence: int, transactional: bool
) -> None:
    data = build(values, base_offset=99, leader_epoch=4, attributes=attributes)
    payload = bytes(data[HEADER_BYTES:])
    batch(data).patch(producer_id, epoch, sequence, transactional=transactional)
    result = Batch(memoryview(data))
    assert (result.base_offset, result.leader_epoch) == (0, -1)
    assert (result.producer_id, result.producer_epoch, result.base_sequence) == (producer_id, epoch, sequence)
    assert result.attributes == (attributes & CODEC_MASK) | (TRANSACTIONAL if transactional else 0)
    assert not result.attributes & (LOG_APPEND_TIME | DELETE_HORIZON | CONTROL)
    assert result.crc == crc32c(bytes(data[21:]))
    assert bytes(data[HEADER_BYTES:]) == payload
    assert values_of(data) == values
    result.verify()


def test_the_object_itself_reports_what_was_patched() -> None:
    one = batch(build(base_offset=5, leader_epoch=3, attributes=DELETE_HORIZON))
    one.patch(11, 2, 40)
    again = Batch(one.view)
    assert [getattr(one, slot) for slot in Batch.__slots__] == [getattr(again, slot) for slot in Batch.__slots__]


def test_a_flipped_bit_anywhere_in_what_the_checksum_covers_is_found() -> None:
    data = build((b"some value", b"another"))
    for position in range(17 * 8, len(data) * 8):
        data[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptBatch, match="CRC-32C"):
            Batch(memoryview(data)).verify()
        data[position // 8] ^= 1 << position % 8
    Batch(memoryview(data)).verify()


@given(_VALUES, st.data())
def test_damage_after_the_checksum_was_verified_is_not_stamped_as_good(
    values: list[bytes], data: st.DataObject
) -> None:
    one = batch(build(values))
    bit = data.draw(st.integers(HEADER_BYTES * 8, len(one.view) * 8 - 1))
    one.view[bit // 8] ^= 1 << bit % 8
    for sequence in (7, 8):
        one.patch(9, 1, sequence)
        with pytest.raises(CorruptBatch, match="CRC-32C"):
            Batch(one.view).verify()


def test_corruption_names_the_offset() -> None:
    data = build(base_offset=4_711)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"offset 4711 \(\d+ bytes\) is corrupt"):
        batch(data).verify()


@given(st.lists(_VALUES, min_size=1, max_size=4), st.data())
def test_a_last_batch_cut_off_is_left_out(batches: list[list[bytes]], data: st.DataObject) -> None:
    parts = [build(values, base_offset=10 * n) for n, values in enumerate(batches)]
    whole = bytearray(b"".join(parts))
    size = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    found = list(split_batches(memoryview(whole)[:size]))
    assert [one.base_offset for one in found] == [10 * n for n, end in enumerate(ends) if end <= size]
    assert [values_of(one.view) for one in found] == batches[: len(found)]


def test_split_batches_share_the_records_memory() -> None:
    whole = bytearray(build((b"one",)) + build((b"two",)))
    last = list(split_batches(memoryview(whole)))[-1]
    assert isinstance(last, Batch)
    last.patch(8, 0, 0)
    assert struct.unpack_from(">q", whole, len(whole) // 2 + 43) == (8,)


@pytest.mark.parametrize("magic", [-128, -1, 3, 127])
def test_another_magic_is_named_with_its_offset_and_what_it_may_mean(magic: int) -> None:
    data = build(base_offset=12)
    struct.pack_into(">b", data, 16, magic)
    with pytest.raises(CorruptBatch, match=rf"offset 12 has the format version \(magic\) {magic},.* older than the"):
        list(split_batches(memoryview(data)))


@pytest.mark.parametrize("length", [-1, 0, HEADER_BYTES - 13])
def test_a_length_below_the_header_is_refused(length: int) -> None:
    data = build(base_offset=12)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch, match=f"offset 12 says it has {length} bytes"):
        list(split_batches(memoryview(data)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 30), st.integers(0, 70))
def test_batches_are_those_behind_an_offset_and_made_again_at_each_look(
    counts: list[int], offset: int, cut: int
) -> None:
    log, at = bytearray(), 0
    for count in counts:
        log += build([b"v" * count] * count, base_offset=at)
        at += count
    records = memoryview(log)[: max(0, len(log) - cut)]
    wanted = [one for one in split_batches(records) if one.next_offset > offset]
    if records and not wanted:
        with pytest.raises(CorruptBatch, match=f"asked for offset {offset}, the broker gave"):
            Batches(records, offset)
        return
    batches = Batches(records, offset)
    assert [one.base_offset for one in batches] == [one.base_offset for one in wanted]
    assert (len(batches), bool(batches)) == (len(wanted), bool(wanted))
    assert batches.size == sum(one.size for one in wanted)
    assert batches.largest == max((one.size for one in wanted), default=0)
    for index in range(-len(wanted), len(wanted)):
        assert bytes(batches[index].view) == bytes(wanted[index].view)
    assert [one.base_offset for one in batches[1:]] == [one.base_offset for one in wanted[1:]]
    with pytest.raises(IndexError):
        batches[len(wanted)]


_LIES = {
    "magic 3": (">b", 16, 3),
    "magic -1": (">b", 16, -1),
    "a length of -1": (">i", 8, -1),
    "a length shorter than the header": (">i", 8, 48),
    "a count of -1": (">i", 57, -1),
    "a count of 2**31 - 1": (">i", 57, 2**31 - 1),
    "more records than offsets": (">i", 57, 3),
    "a last offset delta of -1": (">i", 23, -1),
    "a last offset delta of -2**31": (">i", 23, -(2**31)),
    "a last offset delta beyond the log's end": (">i", 23, 2**31 - 1),
    "an offset beyond the log's end": (">q", 0, 1_000),
    "an offset that overflows": (">q", 0, 2**63 - 1),
    "a negative offset": (">q", 0, -1),
    "an offset that goes back": (">q", 0, 1),
    "codec 5": (">h", 21, 5),
    "codec 7": (">h", 21, 7),
}


@pytest.mark.parametrize("lie", _LIES)
def test_batches_end_before_a_header_that_lies(lie: str) -> None:
    """The rest is requested again, and refused as what comes first."""
    form, at, value = _LIES[lie]
    first, lying, last = build((b"a", b"b")), build((b"c", b"d"), base_offset=2), build((b"e",), base_offset=4)
    struct.pack_into(form, lying, at, value)
    batches = Batches(memoryview(first + lying + last), 0, 100)
    assert [one.next_offset for one in batches] == [2]
    assert batches.size == batches.largest == len(first)
    if lie == "an offset that goes back":  # it may as well hold the one asked for
        assert [one.base_offset for one in Batches(memoryview(lying + last), 2, 100)] == [1, 4]
        return
    with pytest.raises(CorruptBatch, match=rf"offset {value if at == 0 else 2}\b"):
        Batches(memoryview(lying + last), 2, 100)


@pytest.mark.parametrize("length", [2**31 - 1, 200])
def test_a_length_beyond_the_answer_ends_it_and_is_refused_as_what_comes_first(length: int) -> None:
    """As a last batch it may be cut off by the size asked for; the first one comes whole (KIP-74)."""
    first, lying = build((b"a", b"b")), build((b"c",), base_offset=2)
    struct.pack_into(">i", lying, 8, length)
    assert [one.next_offset for one in Batches(memoryview(first + lying), 0)] == [2]
    with pytest.raises(CorruptBatch, match=f"a batch at offset 2 that says it has {length} bytes"):
        Batches(memoryview(lying), 2)


def test_only_what_is_before_the_offset_is_no_answer() -> None:
    """It would be asked for, and given, for ever."""
    with pytest.raises(CorruptBatch, match="asked for offset 2, the broker gave only batches before it"):
        Batches(memoryview(build((b"a", b"b"))), 2)
    with pytest.raises(CorruptBatch, match="5 bytes, too few for a batch"):
        Batches(memoryview(bytearray(5)), 2)
