"""Record batches made and read by hand: real records, and a CRC-32C of its own (table-driven, RFC 3720)."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from mirror.errors import CorruptBatch
from mirror.wire.records import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    split_batches,
)

_POLYNOMIAL = 0x82F63B78
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_AT, _MAX_TIMESTAMP_AT = 17, 35

ABORT, COMMIT = 0, 1
MADE_MS = 1_700_000_000_000
"""The timestamp of batches, unless the test says another one: when the fake's clock began."""


@functools.cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def crc32c(data: bytes) -> int:
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """A zigzag varint."""
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def record(value: bytes, offset_delta: int, key: bytes | None = None) -> bytes:
    result = b"\0" + varint(0) + varint(offset_delta)
    result += varint(-1) if key is None else varint(len(key)) + key
    result += varint(len(value)) + value + varint(0)
    return varint(len(result)) + result


def build(
    values: Sequence[bytes] = (b"value",),
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    timestamp: int = MADE_MS,
    deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    payload: bytes | None = None,
) -> bytearray:
    """A batch of ``values``. ``deltas`` leaves gaps between them, ``payload`` stands in for all the records' bytes."""
    deltas = range(len(values)) if deltas is None else deltas
    if payload is None:
        payload = b"".join(record(value, delta) for value, delta in zip(values, deltas, strict=True))
    last = last_offset_delta if last_offset_delta is not None else max(deltas, default=0)
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        last,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    covered += payload
    head = struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc32c(covered))
    return bytearray(head + covered)


def build_marker(
    producer_id: int, producer_epoch: int, kind: int, *, base_offset: int, timestamp: int = MADE_MS
) -> bytearray:
    """A control batch: ``kind`` ABORT or COMMIT."""
    marker = record(struct.pack(">hi", 0, 0), 0, key=struct.pack(">hh", 0, kind))
    return build(
        (b"",),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=CONTROL | TRANSACTIONAL,
        timestamp=timestamp,
        payload=marker,
    )


def batch(data: bytearray) -> Batch:
    return Batch(memoryview(data))


def batches_in(data: bytes | bytearray | memoryview) -> list[Batch]:
    """A copy's batches. Raises CorruptBatch, also for the older formats, which no broker takes any more (KIP-724)."""
    found: list[Batch] = []
    for one in split_batches(memoryview(bytearray(data))):
        if not isinstance(one, Batch):
            raise CorruptBatch(f"the batch at offset {one.base_offset} has magic {one.magic}")
        found.append(one)
    return found


def stamped(data: bytes | bytearray | memoryview, base_offset: int, leader_epoch: int) -> bytearray:
    """``data`` as a broker keeps it: its own offset and leader epoch, which the CRC does not cover."""
    kept = bytearray(data)
    struct.pack_into(">q", kept, 0, base_offset)
    struct.pack_into(">i", kept, 12, leader_epoch)
    return kept


def appended_at(data: bytes | bytearray | memoryview, unix_ms: int) -> bytearray:
    """``data`` as a broker keeps it with LogAppendTime: the time is its newest timestamp, which the CRC covers."""
    kept = bytearray(data)
    (attributes,) = struct.unpack_from(">h", kept, ATTRIBUTES_AT)
    struct.pack_into(">h", kept, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", kept, _MAX_TIMESTAMP_AT, unix_ms)
    struct.pack_into(">I", kept, _CRC_AT, crc32c(bytes(kept[ATTRIBUTES_AT:])))
    return kept


def values_of(data: bytes | bytearray | memoryview) -> list[bytes]:
    """The values of a batch's records, read by hand."""
    view = bytes(data)
    count = _HEADER.unpack_from(view)[-1]
    at, values = HEADER_BYTES, []
    for _ in range(count):
        length, at = read_varint(view, at)
        end = at + length
        at += 1
        for _ in range(2):  # the timestamp's and the offset's delta
            _, at = read_varint(view, at)
        key_length, at = read_varint(view, at)
        at += max(0, key_length)
        value_length, at = read_varint(view, at)
        values.append(view[at : at + value_length])
        at = end
    return values


def read_varint(view: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
