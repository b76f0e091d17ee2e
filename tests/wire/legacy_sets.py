"""Messages of magic 0 and 1 as a log holds them: by aiokafka's builder, and the wrappers around them by hand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from aiokafka import codec as codecs
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from mirror.wire.legacy import _short_xxh32

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
ATTRIBUTES_AT = 17
Old = tuple[int, bytes | None, bytes | None]
"""Time, key, value."""


def with_crc(message: bytearray) -> bytearray:
    struct.pack_into(">I", message, 12, zlib.crc32(memoryview(message)[16:]))
    return message


def messages(magic: int, records: Sequence[Old], offsets: Sequence[int]) -> list[bytearray]:
    """Uncompressed, one each."""
    made = []
    for offset, (time, key, value) in zip(offsets, records, strict=True):
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=2**31 - 1)
        assert builder.append(offset, time, key, value) is not None
        made.append(bytearray(builder.build()))
    return made


def wrapper(magic: int, inner: bytes, codec: str, offset: int, time: int, *, append_time: bool = False) -> bytearray:
    """A message around ``inner``, as a broker keeps it."""
    if codec == "gzip":
        value = codecs.gzip_encode(inner)
    elif codec == "snappy":
        value = codecs.snappy_encode(inner)
    else:
        value = codecs.lz4_encode(inner)
    if magic == 0 and codec == "lz4":
        value = _as_magic_0_has_it(value)
    (made,) = messages(magic, [(time, None, value)], [offset])
    made[ATTRIBUTES_AT] = CODECS[codec] | (8 if append_time else 0)
    return with_crc(made)


def _as_magic_0_has_it(frame: bytes) -> bytes:
    """With the wrong checksum of its header: taken over the frame's own magic, too (KAFKA-3160)."""
    assert not frame[4] & 8, "no content size"
    return frame[:6] + bytes([_short_xxh32(frame[:6]) >> 8 & 0xFF]) + frame[7:]


def whole_set(magic: int, records: Sequence[Old], codec: str, first: int, gap: int = 1) -> bytearray:
    """All of ``records`` in one message set, the first at the offset ``first``."""
    absolute = [first + number * gap for number in range(len(records))]
    relative = [offset - first for offset in absolute]
    if codec == "none":
        return bytearray(b"".join(messages(magic, records, absolute)))
    inner = b"".join(messages(magic, records, relative if magic else absolute))
    return wrapper(magic, inner, codec, absolute[-1], max(time for time, *_ in records))
