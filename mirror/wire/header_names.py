"""Names of record headers that are not UTF-8, which the record codec neither decodes nor encodes.

In the protocol a name is bytes, and brokers look at its length only (``LogValidator``): producers that are not written
in Java may send any. Here a name is a str, in which each byte that is not UTF-8 is a lone surrogate from U+DC80 to
U+DCFF (PEP 383, ``surrogateescape``): so names are compared as text, and each one has its exact bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mirror.wire.records import HEADER_BYTES, Batch

Headers = Sequence[tuple[str, bytes | None]]

_ERRORS: Final = "surrogateescape"
_COUNT: Final = struct.Struct(">i")
_COUNT_AT: Final = 57
_MAX_VARINT_BITS: Final = 63


class EscapedRecord(NamedTuple):
    """A record as :func:`records_with_any_name` decodes it; it stands for the record codec's own object."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


# Invariant: The name of a header is the same bytes after it was decoded and encoded again, also where it is not UTF-8.
# Test: tests/wire/test_header_names.py::test_names_are_the_same_bytes_when_they_were_encoded_again
def name_bytes(name: str) -> bytes:
    """Return the bytes of a header's name. Raises UnicodeEncodeError for a str that stands for no bytes."""
    return name.encode("utf-8", _ERRORS)


def records_with_any_name(batch: Batch, data: memoryview) -> Iterator[EscapedRecord]:
    """Yield the records in ``data``, which is ``batch`` without compression. Raises ValueError, IndexError.

    It checks what the record codec checks: the length of each record, and that nothing is left behind the last one.
    """
    append_time = batch.max_timestamp if batch.has_log_append_time else None
    view, at = bytes(data), HEADER_BYTES
    (count,) = _COUNT.unpack_from(view, _COUNT_AT)
    for _ in range(count):
        length, at = _varint(view, at)
        end = at + length
        _, at = _varint(view, at)  # attributes
        delta, at = _varint(view, at)
        offset_delta, at = _varint(view, at)
        key, at = _bytes(view, at)
        value, at = _bytes(view, at)
        headers, at = _headers(view, at)
        if at != end:
            problem = f"a record of {length} bytes takes {at - end + length}"
            raise ValueError(problem)
        timestamp = batch.base_timestamp + delta if append_time is None else append_time
        yield EscapedRecord(batch.base_offset + offset_delta, timestamp, key, value, headers)
    if at != len(view):
        problem = f"{len(view) - at} bytes are left behind the last record"
        raise ValueError(problem)


def _headers(view: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, at = _varint(view, at)
    if count < 0:
        problem = f"a record has {count} headers"
        raise ValueError(problem)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(view, at)
        value, at = _bytes(view, at)
        if name is None:
            problem = "a header has no name"
            raise ValueError(problem)
        headers.append((name.decode("utf-8", _ERRORS), value))
    return headers, at


def _bytes(view: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes whose length is at ``at`` (below 0: None), and where they end."""
    length, at = _varint(view, at)
    end = at + max(0, length)
    if end > len(view):
        problem = f"{length} bytes do not fit into a batch of {len(view)}"
        raise ValueError(problem)
    return (None if length < 0 else view[at:end]), end


def _varint(view: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            return value >> 1 ^ -(value & 1), at
        if shift > _MAX_VARINT_BITS:
            problem = "a number is longer than 64 bits"
            raise ValueError(problem)


# --- encoding: the record codec gets a name of as many bytes, which is replaced in the batch that it has built


def stand_ins(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return ``headers`` with names that the record codec encodes, and that take as many bytes."""
    return [(name if _is_plain(name) else "?" * len(name_bytes(name)), value) for name, value in headers]


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def names_before(end: int, headers: Headers) -> list[tuple[int, bytes]]:
    """Return each name of ``headers`` that has a stand-in, and its place in the bytes of a record that ends at ``end``.

    The headers are the last part of a record.
    """
    places: list[tuple[int, bytes]] = []
    at = end
    for name, value in reversed(headers):
        raw = name_bytes(name)
        size = 0 if value is None else len(value)
        at -= size + _varint_size(-1 if value is None else size) + len(raw)
        if not _is_plain(name):
            places.append((at, raw))
        at -= _varint_size(len(raw))
    return places


def _varint_size(value: int) -> int:
    bits = (value << 1 ^ value >> 63).bit_length()
    return max(1, -(-bits // 7))
