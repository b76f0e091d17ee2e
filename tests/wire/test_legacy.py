"""Messages of magic 0 and 1, made by aiokafka's builder; read by us, by its two decoders and by kafka-python."""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Sequence
from typing import Any

import cramjam
import pytest
from aiokafka import codec as codecs
from aiokafka.record.legacy_records import LegacyRecordBatch, _LegacyRecordBatchPy
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.errors import CorruptBatch
from mirror.wire.decode import Record, records_of
from mirror.wire.legacy import MessageSet, _short_xxh32, _with_valid_lz4_checksum
from mirror.wire.records import Batch, split_batches
from tests.examples import examples
from tests.fakes.record_batches import build
from tests.wire.legacy_sets import ATTRIBUTES_AT, CODECS, Old, messages, whole_set, with_crc, wrapper

with warnings.catch_warnings():
    # kafka-python reads its own files in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatch as Another  # type: ignore[import-untyped] # no types

_TIME = 1_500_000_000_123

_bytes = st.none() | st.binary(max_size=300)
_made = st.lists(st.tuples(st.integers(0, 2**62), _bytes, _bytes), min_size=1, max_size=8)


def read(data: bytearray) -> list[Record]:
    found: list[Record] = []
    for batch in split_batches(memoryview(data)):
        assert isinstance(batch, MessageSet)
        found += records_of(batch)
    return found


def expected(magic: int, records: Sequence[Old], first: int, gap: int = 1) -> list[Record]:
    return [
        Record(first + number * gap, time if magic else -1, key, value, ())
        for number, (time, key, value) in enumerate(records)
    ]


def by_others(data: bytearray, codec: str, magic: int) -> list[list[Record]]:
    """What aiokafka's compiled and pure decoders and kafka-python's make of it."""
    result = []
    for other in (LegacyRecordBatch, _LegacyRecordBatchPy, Another):
        if other is Another and codec in {"snappy", "lz4"}:
            continue  # it needs libraries for them that are not here
        found: list[Record] = []
        for one in split_batches(memoryview(data)):
            batch: Any = other(bytes(one.view), magic)
            assert batch.validate_crc()
            found += [
                Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, tuple(r.headers))
                for r in batch
            ]
        result.append(found)
    return result


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=examples(20, 100))
@given(records=_made, first=st.integers(0, 2**40), gap=st.integers(1, 3))
def test_what_goes_in_comes_out_of_both_formats(
    magic: int, codec: str, records: list[Old], first: int, gap: int
) -> None:
    data = whole_set(magic, records, codec, first, gap)
    before = bytes(data)
    assert read(data) == expected(magic, records, first, gap)
    assert bytes(data) == before
    if (magic, codec) != (0, "lz4"):
        for result in by_others(data, codec, magic):
            assert result == expected(magic, records, first, gap)


def test_lz4_of_magic_0_is_what_others_cannot_read() -> None:
    data = whole_set(0, [(_TIME, b"k", b"value" * 100)], "lz4", 3)
    (one,) = split_batches(memoryview(data))
    with pytest.raises(cramjam.DecompressionError, match=r"[Cc]hecksum"):
        codecs.lz4_decode(bytes(one.view[18 + 8 :]))
    assert [record.value for record in records_of(one)] == [b"value" * 100]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)],  # known vectors of the reference implementation
)
def test_the_short_checksum_is_xxh32(data: bytes, checksum: int) -> None:
    assert _short_xxh32(data) == checksum


@pytest.mark.parametrize("sized", [False, True])
def test_a_mended_frame_is_one_that_the_library_takes(sized: bool) -> None:
    """It checks the header's checksum, and so ours."""
    frame = codecs.lz4_encode(b"x" * 70_000)
    assert frame[6] == _short_xxh32(frame[4:6]) >> 8 & 0xFF
    if sized:
        frame = frame[:4] + bytes([frame[4] | 8]) + frame[5:6] + struct.pack("<Q", 70_000) + frame[6:]
    end = 14 if sized else 6
    broken = frame[:end] + bytes([(_short_xxh32(frame[4:end]) >> 8 ^ 0x5A) & 0xFF]) + frame[end + 1 :]
    with pytest.raises(cramjam.DecompressionError):
        codecs.lz4_decode(broken)
    assert codecs.lz4_decode(_with_valid_lz4_checksum(memoryview(broken))) == b"x" * 70_000


def test_a_wrapper_with_log_append_time_gives_all_its_time() -> None:
    inner = b"".join(messages(1, [(5, None, b"a"), (6, None, b"b")], [0, 1]))
    one = MessageSet(memoryview(wrapper(1, inner, "gzip", 11, 9_999, append_time=True)))
    assert one.has_log_append_time
    assert one.max_timestamp == 9_999
    assert [(r.offset, r.timestamp_ms) for r in records_of(one)] == [(10, 9_999), (11, 9_999)]


def test_a_plain_message_with_log_append_time() -> None:
    (made,) = messages(1, [(_TIME, b"k", b"v")], [4])
    made[ATTRIBUTES_AT] |= 8
    one = MessageSet(memoryview(with_crc(made)))
    assert one.has_log_append_time
    assert list(records_of(one)) == [Record(4, _TIME, b"k", b"v", ())]


def test_magic_0_has_no_time_whatever_its_attributes_say() -> None:
    (made,) = messages(0, [(_TIME, b"k", b"v")], [4])
    made[ATTRIBUTES_AT] |= 8
    one = MessageSet(memoryview(with_crc(made)))
    assert not one.has_log_append_time
    assert one.max_timestamp == -1
    assert [record.timestamp_ms for record in records_of(one)] == [-1]


def test_a_compacted_wrapper_keeps_its_gaps() -> None:
    """The cleaner leaves the relative offsets as they were, and the wrapper's at its last record's."""
    inner = b"".join(messages(1, [(1, b"a", b"1"), (2, b"b", None)], [3, 7]))
    one = MessageSet(memoryview(wrapper(1, inner, "snappy", 107, _TIME)))
    assert [(r.offset, r.value) for r in records_of(one)] == [(103, b"1"), (107, None)]
    assert (one.base_offset, one.next_offset) == (107, 108)


def test_a_wrapper_at_offset_0_has_relative_offsets_for_absolute() -> None:
    inner = b"".join(messages(1, [(1, None, b"a"), (2, None, b"b")], [0, 1]))
    one = MessageSet(memoryview(wrapper(1, inner, "gzip", 0, _TIME)))
    assert [r.offset for r in records_of(one)] == [0, 1]


def test_it_has_the_names_of_a_batch() -> None:
    data = whole_set(1, [(_TIME, b"k", b"v")], "none", 12)
    (one,) = split_batches(memoryview(data))
    assert isinstance(one, MessageSet)
    assert (one.base_offset, one.next_offset, one.size, one.magic) == (12, 13, len(data), 1)
    assert (one.leader_epoch, one.producer_id, one.is_control, one.is_transactional) == (-1, -1, False, False)
    assert one.view.obj is data
    assert one.attributes == 0
    one.verify()


def test_formats_follow_each_other_in_one_answer() -> None:
    """As a log has them whose topic lived through two changes of ``message.format.version``."""
    data = whole_set(0, [(0, None, b"zero")], "none", 5) + whole_set(1, [(_TIME, None, b"one")] * 2, "gzip", 6)
    data += build((b"two",), base_offset=8)
    found = list(split_batches(memoryview(data)))
    assert [(type(one), one.magic) for one in found] == [(MessageSet, 0), (MessageSet, 1), (Batch, 2)]
    records = [record for one in found for record in records_of(one)]
    assert [(r.offset, r.value) for r in records] == [(5, b"zero"), (6, b"one"), (7, b"one"), (8, b"two")]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_bit_is_found(magic: int) -> None:
    data = whole_set(magic, [(_TIME, b"key", b"value")], "none", 7)
    for position in range(16 * 8, len(data) * 8):
        if position // 8 == 16:
            continue  # the magic itself: it decides how the rest is read
        data[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptBatch, match=r"offset 7 .* is corrupt: its CRC-32 is"):
            MessageSet(memoryview(data)).verify()
        data[position // 8] ^= 1 << position % 8
    MessageSet(memoryview(data)).verify()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [-12, -1, 0, 13])
def test_a_length_below_the_header_is_refused(magic: int, length: int) -> None:
    data = whole_set(magic, [(_TIME, b"key", b"value")], "none", 7)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch, match=rf"offset 7 \(magic {magic}\) says it has {length} bytes"):
        list(split_batches(memoryview(data)))


def test_magic_1_needs_more_than_magic_0() -> None:
    data = whole_set(1, [(_TIME, None, None)], "none", 7)
    list(split_batches(memoryview(data)))
    struct.pack_into(">i", data, 8, 21)
    with pytest.raises(CorruptBatch, match="says it has 21 bytes"):
        list(split_batches(memoryview(data)))


@given(data=st.data())
def test_a_last_message_cut_off_is_left_out(data: st.DataObject) -> None:
    parts = messages(data.draw(st.integers(0, 1)), [(_TIME, b"k", b"v" * 10)] * 3, [5, 6, 7])
    whole = bytearray(b"".join(parts))
    size = data.draw(st.integers(0, len(whole)))
    found = list(split_batches(memoryview(whole)[:size]))
    assert [one.base_offset for one in found] == [5, 6, 7][: size // len(parts[0])]


def _lying(at: int, value: int, form: str = ">i") -> bytearray:
    """Two messages of magic 1 (43 bytes each) in a wrapper, a number in it another, and the wrapper's CRC right."""
    inner = bytearray(b"".join(messages(1, [(1, b"key", b"value")] * 2, [0, 1])))
    struct.pack_into(form, inner, at, value)
    return wrapper(1, bytes(inner), "gzip", 21, _TIME)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (_lying(8, -12), "offset 21 .* says it has -12 bytes"),
        (_lying(8, 0), "offset 21 .* says it has 0 bytes"),
        (_lying(26, 2**31 - 1), "key and value do not end where it does"),
        (_lying(33, 2**31 - 1), "key and value do not end where it does"),
        (_lying(33, 4), "key and value do not end where it does"),
        (_lying(16, 2, "b"), "holds a message of magic 2"),
        (_lying(16, -1, "b"), "holds a message of magic -1"),
        (_lying(17, 1, "b"), "compressed twice"),
        (_lying(42, 22, ">q"), "last message has the relative offset 22"),
        (_lying(42, -1, ">q"), "holds no message"),
        (_lying(0, 1, ">q"), "holds a message of offset 21 where 22 or a later one is due"),
        (_lying(0, -5, ">q"), "holds a message of offset 15 where 20 or a later one is due"),
        (wrapper(1, b"", "gzip", 21, _TIME), "holds no message"),
        (wrapper(0, b"", "lz4", 21, _TIME), "holds no message"),
    ],
)
def test_a_wrapper_that_lies_is_corrupt(data: bytearray, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        list(records_of(MessageSet(memoryview(data))))


def test_a_null_of_any_negative_length_is_null() -> None:
    inner = bytearray(messages(1, [(1, None, b"value")], [0])[0])
    struct.pack_into(">i", inner, 26, -5)
    assert [
        (r.key, r.value) for r in records_of(MessageSet(memoryview(wrapper(1, bytes(inner), "gzip", 3, _TIME))))
    ] == [(None, b"value")]


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("value", [None, b"", b"no compressed bytes at all"])
def test_what_cannot_be_decompressed_is_corrupt(codec: int, value: bytes | None) -> None:
    (made,) = messages(1, [(_TIME, None, value)], [21])
    made[ATTRIBUTES_AT] = codec
    with pytest.raises(CorruptBatch, match=r"message set at offset 21 .*corrupt"):
        list(records_of(MessageSet(memoryview(with_crc(made)))))


@settings(max_examples=examples(100, 300))
@given(st.data())
def test_damaged_messages_are_read_or_refused_in_one_way(data: st.DataObject) -> None:
    magic = data.draw(st.integers(0, 1))
    codec = data.draw(st.sampled_from(sorted(CODECS)))
    inner = bytearray(b"".join(messages(magic, [(1, b"k", b"value"), (2, None, b"")], [0, 1])))
    for _ in range(data.draw(st.integers(0, 4))):
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(st.integers(0, 255))
    whole = inner if codec == "none" else wrapper(magic, bytes(inner), codec, 1, _TIME)
    for _ in range(data.draw(st.integers(0, 2))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        for one in split_batches(memoryview(whole)):
            if isinstance(one, MessageSet):
                with_crc(bytearray(one.view))
                list(one.messages())
            else:
                one.verify()
