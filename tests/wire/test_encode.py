"""Records into a batch, read back by our own decoder and by others' (kafka-python's records, Arrow's compression)."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.wire.decode import Record, records_of
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.records import CODEC_MASK, HEADER_BYTES, Batch, split_batches

with warnings.catch_warnings():
    # kafka-python reads its own files in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped] # ships no types

_NO_LIMIT = 2**31 - 1
_TIME = 1_700_000_000_123
_Made = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

_bytes = st.none() | st.binary(max_size=300) | st.binary(max_size=5).map(lambda part: part * 200)
_made = st.tuples(
    _bytes,
    _bytes,
    st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=3),
    st.integers(-3, 2**63 - 2),  # the last of all does not go with -1: see below
)


def _build(codec: str, records: Sequence[_Made]) -> Batch:
    builder = BatchBuilder(codec, _NO_LIMIT)
    for key, value, headers, timestamp_ms in records:
        assert builder.append(key, value, headers, timestamp_ms)
    return builder.build()


def _expected(records: Sequence[_Made]) -> list[Record]:
    return [Record(i, time, key, value, tuple(headers)) for i, (key, value, headers, time) in enumerate(records)]


def _unpacked(batch: Batch) -> bytes:
    """The batch without compression, undone by Arrow's codecs; Kafka's snappy comes in xerial's blocks."""
    payload = bytes(batch.view[HEADER_BYTES:])
    codec = {number: name for name, number in CODECS.items()}[batch.attributes & CODEC_MASK]
    if codec == "snappy":
        assert payload[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        plain, at = b"", 16
        while at < len(payload):
            (length,) = struct.unpack_from(">i", payload, at)
            block = payload[at + 4 : at + 4 + length]
            plain += pa.Codec("snappy").decompress(block, _snappy_length(block), asbytes=True)
            at += 4 + length
    elif codec in {"gzip", "lz4", "zstd"}:
        plain = pa.CompressedInputStream(pa.BufferReader(payload), codec).read()
    else:
        plain = payload
    data = bytearray(batch.view[:HEADER_BYTES]) + plain
    struct.pack_into(">h", data, 21, 0)
    return bytes(data)


def _snappy_length(block: bytes) -> int:
    value = shift = at = 0
    while True:
        value |= (block[at] & 0x7F) << shift
        if block[at] < 0x80:
            return value
        at, shift = at + 1, shift + 7


@pytest.mark.parametrize("codec", CODECS)
@given(records=st.lists(_made, min_size=1, max_size=20))
def test_what_goes_in_comes_out(codec: str, records: list[_Made]) -> None:
    batch = _build(codec, records)
    batch.verify()
    assert list(records_of(batch)) == _expected(records)
    times = [time for *_, time in records]
    assert (batch.base_timestamp, batch.max_timestamp) == (times[0], max(times))
    assert (batch.count, batch.last_offset_delta, batch.next_offset) == (len(records), len(records) - 1, len(records))


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_the_same(codec: str) -> None:
    records: list[_Made] = [
        (None, None, [], _TIME),
        (b"", b"", [("", b""), ("none", None)], _TIME - 5),
        (b"key", b"value" * 2_000, [("name", b"1"), ("name", b"2"), ("ключ", b"\xff")], _TIME + 5),
        *((str(number).encode(), b"x" * 1_000, [], _TIME + number) for number in range(100)),
    ]
    batch = _build(codec, records)
    assert batch.attributes == CODECS[codec], "the compression, and no other bit"
    read: list[Any] = list(DefaultRecordBatch(_unpacked(batch)))
    assert [
        Record(one.offset, one.timestamp, one.key, one.value, tuple(tuple(header) for header in one.headers))
        for one in read
    ] == _expected(records)
    if codec in {"none", "gzip"}:
        whole = DefaultRecordBatch(bytes(batch.view))
        assert whole.validate_crc()
        assert [one.value for one in whole] == [value for _, value, _, _ in records]


@pytest.mark.parametrize("codec", CODECS)
def test_nobody_has_sent_it_yet(codec: str) -> None:
    batch = _build(codec, [(None, b"value" * 100, [], _TIME)])
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.base_offset, batch.leader_epoch, batch.magic) == (0, -1, 2)
    batch.patch(4_711, 3, 99, transactional=True)
    (again,) = split_batches(batch.view)
    assert isinstance(again, Batch)
    again.verify()
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (4_711, 3, 99)
    assert again.is_transactional
    assert again.attributes & CODEC_MASK == CODECS[codec]
    assert [one.value for one in records_of(again)] == [b"value" * 100]


def test_what_does_not_shrink_goes_as_it_is() -> None:
    batch = _build("lz4", [(None, b"ab", [], _TIME)])
    assert batch.attributes & CODEC_MASK == 0
    assert [one.value for one in records_of(batch)] == [b"ab"]


def test_the_first_always_fits_and_the_others_as_far_as_the_limit() -> None:
    builder = BatchBuilder("none", 500)
    assert builder.append(None, b"x" * 1_000, [], _TIME)
    assert not builder.append(None, b"", [], _TIME)
    assert builder.count == 1

    builder = BatchBuilder("none", 500)
    while builder.append(b"key", b"x" * 20, [], _TIME):
        assert builder.size <= 500
    assert not builder.append(None, b"x" * 20, [], _TIME + 999), "it would be too long, too"
    batch = builder.build()
    assert batch.size == builder.size > 500 - 40
    assert batch.count == builder.count
    assert batch.max_timestamp == _TIME, "what was refused leaves no trace"


@given(record=_made)
def test_the_upper_bound_holds(record: _Made) -> None:
    key, value, headers, _ = record
    bound = BatchBuilder.upper_bound(key, value, headers)
    assert _build("none", [record]).size <= bound <= _build("none", [record]).size + 21


@pytest.mark.parametrize("codec", ["none", "lz4"])
@given(times=st.lists(st.sampled_from([-1, -2, 0, 1, _TIME, 2**62]), min_size=1, max_size=6))
def test_records_without_a_time_keep_having_none(codec: str, times: list[int]) -> None:
    """-1 is the record codec's own sign for "no record yet", and gave what came before a time that time."""
    records: list[_Made] = [(None, b"value" * 30, [], time) for time in times]
    batch = _build(codec, records)
    assert list(records_of(batch)) == _expected(records)
    assert (batch.base_timestamp, batch.max_timestamp) == (times[0], max(times))
    read: list[Any] = list(DefaultRecordBatch(_unpacked(batch)))
    assert [one.timestamp for one in read] == times


def test_no_time_and_the_last_of_all_do_not_go_together() -> None:
    builder = BatchBuilder("none", _NO_LIMIT)
    assert builder.append(None, b"a", [], -1)
    assert not builder.append(None, b"b", [], 2**63 - 1), "their difference has no place in a batch"
    assert builder.append(None, b"c", [], 2**63 - 2)
    assert [record.timestamp_ms for record in records_of(builder.build())] == [-1, 2**63 - 2]


def test_what_is_refused_leaves_no_trace() -> None:
    builder = BatchBuilder("none", _NO_LIMIT)
    wrong: list[tuple[Any, ...]] = [
        (b"k", "text", [], -1),
        (b"k", b"v", [("h", 1)], 0),
        (b"k", b"v", [], 2**63),
        (b"k", b"v", [1], 0),
    ]
    for one in wrong:
        with pytest.raises((TypeError, OverflowError)):
            builder.append(*one)
    assert builder.append(b"k", b"v", [], _TIME)
    assert list(records_of(builder.build())) == [Record(0, _TIME, b"k", b"v", ())]


def test_views_and_arrays_are_copied() -> None:
    value = bytearray(b"before")
    builder = BatchBuilder("none", 500)
    builder.append(None, memoryview(value), (("h", b"v"),), _TIME)  # type: ignore[arg-type] # the codec takes any bytes
    value[:] = b"after!"
    (record,) = records_of(builder.build())
    assert (record.value, record.headers) == (b"before", (("h", b"v"),))
