"""Names of headers are bytes: those that are not UTF-8 are carried exactly, whatever batch they are in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import CorruptBatch, InvalidArgument
from mirror.runtime import arguments
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import CODECS, BatchBuilder
from mirror.wire.header_names import name_bytes
from mirror.wire.records import LOG_APPEND_TIME
from tests.fakes.record_batches import appended_at, batch, build, varint

NAMES = (b"plain", "é".encode(), b"\xff\xfe", "é".encode("latin-1"), b"", b"\xed\xa0\x80", b"a" * 70 + b"\x80")


def record_with(headers: list[tuple[bytes, bytes | None]], *, offset_delta: int = 0, time_delta: int = 0) -> bytes:
    """A record as a producer in C writes it."""
    body = b"\0" + varint(time_delta) + varint(offset_delta) + varint(1) + b"k" + varint(1) + b"v"
    body += varint(len(headers))
    for name, value in headers:
        body += varint(len(name)) + name
        body += varint(-1) if value is None else varint(len(value)) + value
    return varint(len(body)) + body


def read(data: bytearray) -> list[Record]:
    return list(records_of(batch(data)))


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_name_is_text_with_its_exact_bytes(name: bytes) -> None:
    payload = record_with([(b"before", b"1"), (name, None), (b"behind", b"2")], time_delta=3)
    (found,) = read(build((b"",), payload=payload, base_offset=44, timestamp=1_000))
    assert [name_bytes(one) for one, _ in found.headers] == [b"before", name, b"behind"]
    assert [value for _, value in found.headers] == [b"1", None, b"2"]
    assert found[:4] == (44, 1_003, b"k", b"v")


def test_records_around_such_a_name_are_read_once_and_in_order() -> None:
    names = [b"a", b"\xff", b"b", b"\xfe", b"c"]
    payload = b"".join(record_with([(name, b"")], offset_delta=2 * at) for at, name in enumerate(names))
    found = read(build((b"",) * 5, payload=payload, base_offset=7, last_offset_delta=8))
    assert [(one.offset, name_bytes(one.headers[0][0])) for one in found] == list(
        zip(range(7, 16, 2), names, strict=True)
    )


def test_records_with_such_names_have_the_brokers_time() -> None:
    data = appended_at(build((b"",), payload=record_with([(b"\xff", b"")], time_delta=9)), 5_000)
    assert batch(data).attributes & LOG_APPEND_TIME
    assert [one.timestamp_ms for one in read(data)] == [5_000]


@pytest.mark.parametrize(
    ("count", "payload"),
    [
        pytest.param(1, record_with([(b"\xff", b"")]) + b"more", id="bytes behind the last record"),
        pytest.param(2, record_with([(b"\xff", b"")]), id="a record is missing"),
        pytest.param(1, record_with([(b"\xff", b"value")])[:-3], id="cut off"),
        pytest.param(1, varint(20) + record_with([(b"\xff", b"value")])[1:], id="a length that lies"),
        pytest.param(
            2, record_with([(b"\xff", b"")], offset_delta=1) + record_with([(b"\xff", b"")]), id="offsets out of order"
        ),
    ],
)
def test_damaged_batch_with_such_a_name_is_corrupt(count: int, payload: bytes) -> None:
    with pytest.raises(CorruptBatch, match="offset 44 cannot be read"):
        read(build((b"",) * count, base_offset=44, payload=payload))


_HEADERS = st.lists(
    st.tuples(st.binary(max_size=90) | st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=200)),
    max_size=4,
)


@given(st.sampled_from(sorted(CODECS)), st.lists(st.tuples(_HEADERS, st.integers(-1, 10)), min_size=1, max_size=5))
def test_names_are_the_same_bytes_when_they_were_encoded_again(
    codec: str, records: list[tuple[list[tuple[bytes, bytes | None]], int]]
) -> None:
    payload = b"".join(record_with(headers, offset_delta=at) for at, (headers, _) in enumerate(records))
    decoded = read(build((b"",) * len(records), payload=payload))
    builder = BatchBuilder(codec, 2**31 - 1)
    for one, (_, time_ms) in zip(decoded, records, strict=True):
        assert BatchBuilder.upper_bound(one.key, one.value, one.headers) >= 61 + len(record_with([]))
        assert builder.append(one.key, one.value, one.headers, time_ms)
    made = builder.build()
    made.verify()
    again = list(records_of(made))
    assert [[(name_bytes(name), value) for name, value in one.headers] for one in again] == [one for one, _ in records]
    assert [one.timestamp_ms for one in again] == [time_ms for _, time_ms in records]
    assert [(one.key, one.value) for one in again] == [(b"k", b"v")] * len(records)


def test_applications_send_the_names_that_they_receive() -> None:
    assert arguments.headers({"é": b"", "\udcff": None}) == [("é", b""), ("\udcff", None)]
    with pytest.raises(InvalidArgument, match="a header's name must be text that UTF-8 can hold"):
        arguments.headers({"\ud800": b""})
    with pytest.raises(InvalidArgument, match="a header's name must have at most 32767 bytes, not 32769"):
        arguments.headers({"é" * 16_384 + "\udcff": b""})


def test_name_that_stands_for_no_bytes_is_refused_and_nothing_is_added() -> None:
    builder = BatchBuilder("none", 1_000)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        builder.append(b"k", b"v", [("\ud800", b"")], 0)
    assert builder.count == 0
    assert builder.append(b"k", b"v", [("\udcff", b"")], 0)
    assert [name_bytes(one.headers[0][0]) for one in records_of(builder.build())] == [b"\xff"]
