"""Records out of batches: by our reader, against aiokafka's other codec; and what cannot be read is corrupt."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.errors import CorruptBatch
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.records import CODEC_MASK, LOG_APPEND_TIME, Batch
from tests.fakes.record_batches import COMMIT, batch, build, build_marker, record, varint

_bytes = st.none() | st.binary(max_size=100)
_made = st.lists(
    st.tuples(
        _bytes,
        _bytes,
        st.lists(st.tuples(st.text(max_size=8), _bytes), max_size=3),
        st.integers(-3, 2**41),
    ),
    min_size=1,
    max_size=10,
)


def test_the_two_codecs_are_two() -> None:
    assert DefaultRecordBatch is not _DefaultRecordBatchPy, "the compiled one is missing: nothing is compared"


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=50)
@given(made=_made)
def test_the_pure_codec_reads_the_same(codec: str, made: list[Any]) -> None:
    builder = BatchBuilder(codec, 2**31 - 1)
    for key, value, headers, time in made:
        assert builder.append(key, value, headers, time)
    one = builder.build()
    other: list[Any] = list(_DefaultRecordBatchPy(bytes(one.view)))
    assert list(records_of(one)) == [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(tuple(header) for header in r.headers)) for r in other
    ]


def test_offsets_are_the_logs() -> None:
    one = batch(build((b"a", b"b", b"c"), base_offset=2**40, deltas=(2, 5, 9), last_offset_delta=11))
    assert [r.offset for r in records_of(one)] == [2**40 + 2, 2**40 + 5, 2**40 + 9]
    assert one.next_offset == 2**40 + 12


def test_with_log_append_time_all_have_the_brokers() -> None:
    payload = b"".join(_with_time(number, number) for number in range(3))
    data = build((b"",) * 3, payload=payload, timestamp=1_234, attributes=LOG_APPEND_TIME)
    assert [r.timestamp_ms for r in records_of(batch(data))] == [1_234] * 3
    data = build((b"",) * 3, payload=payload, timestamp=1_234)
    assert [r.timestamp_ms for r in records_of(batch(data))] == [1_234, 1_235, 1_236]


def _with_time(time_delta: int, offset_delta: int) -> bytes:
    result = b"\0" + varint(time_delta) + varint(offset_delta) + varint(-1) + varint(-1) + varint(0)
    return varint(len(result)) + result


def test_a_marker_is_no_record() -> None:
    assert list(records_of(batch(build_marker(5, 0, COMMIT, base_offset=3)))) == []


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 6, 7])
def test_what_cannot_be_decompressed_is_corrupt(codec: int) -> None:
    """The header and the checksum are right: a producer sent it so."""
    for payload in (b"", b"no compressed bytes at all", b"\x1f\x8b\x08\x00", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"):
        one = batch(build((b"",), base_offset=44, payload=payload, attributes=codec))
        with pytest.raises(CorruptBatch, match=r"the batch at offset 44 is corrupt: .*(decompressed|codec)"):
            list(records_of(one))


def test_a_count_that_lies_is_corrupt() -> None:
    for count, payload in ((1, record(b"a", 0) + record(b"b", 1)), (3, record(b"a", 0))):
        one = batch(build((b"",) * count, base_offset=44, payload=payload))
        with pytest.raises(CorruptBatch, match="offset 44 cannot be read"):
            list(records_of(one))


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=100)
@given(data=st.data())
def test_damaged_payloads_are_read_or_refused_in_one_way(codec: str, data: st.DataObject) -> None:
    builder = BatchBuilder(codec, 2**31 - 1)
    for number in range(3):
        builder.append(b"key", b"value" * 40, [("header", b"value" * number)], number)
    made = builder.build()
    payload = bytearray(made.view[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = build((b"",) * 3, payload=bytes(payload), attributes=made.attributes & CODEC_MASK)
    with contextlib.suppress(CorruptBatch):
        list(records_of(Batch(memoryview(damaged))))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 1), (0, 2), (0, 2**31 - 1), (0, 2**62)])
def test_offsets_that_lie_inside_a_batch_are_corrupt(deltas: tuple[int, int]) -> None:
    """They would be left out as not asked for, or copied twice."""
    payload = b"".join(record(b"v", delta) for delta in deltas)
    one = batch(build((b"",) * 2, base_offset=44, payload=payload))
    with pytest.raises(CorruptBatch, match="offset 44 cannot be read: a record has the offset"):
        list(records_of(one))


_LIES = {
    "a length of 2**31 - 1": varint(2**31 - 1) + bytes(20),
    "a length that never ends": b"\xff" * 40,
    "a negative length": varint(-7) + bytes(20),
    "a key longer than the record": b"\x14\0\0\0" + varint(5_000) + bytes(20),
    "a key of 2**63 - 1 bytes": b"\x20\0\0\0" + varint(2**63 - 1) + bytes(20),
    "a value of 2**31 - 1 bytes": b"\x20\0\0\0\x01" + varint(2**31 - 1) + bytes(20),
    "2**31 - 1 headers": b"\x20\0\0\0\x01\x01" + varint(2**31 - 1) + bytes(20),
    "-1 headers": b"\x10\0\0\0\x01\x01" + varint(-1) + bytes(20),
    "a truncated record": record(b"value", 0)[:-3],
    "nothing": b"",
    "bytes behind the last record": record(b"value", 0) + b"\0",
}


@pytest.mark.parametrize("lie", _LIES)
def test_lengths_that_lie_inside_records_are_corrupt(lie: str) -> None:
    with pytest.raises(CorruptBatch, match="offset 44 cannot be read"):
        list(records_of(batch(build((b"",), base_offset=44, payload=_LIES[lie]))))
