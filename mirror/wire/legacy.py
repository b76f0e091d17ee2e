"""Decode messages of the formats before record batches (magic 0 and 1), which old segments still contain.

Layout of a message: offset i64, length i32, CRC-32 u32, magic i8, attributes i8, timestamp i64 (magic 1 only), key and
value (i32 length each, negative for null). A message whose attributes name a codec is a wrapper: its value is a
compressed set of messages (``LegacyRecord``, ``AbstractLegacyRecordBatch``; KIP-31, KIP-32). Brokers no longer accept
such messages (KIP-724), but still serve stored ones unchanged.

The record codec's library is not used for them: it trusts the lengths inside a wrapper (a length of -12 makes it loop
for ever), refuses a null whose length is negative but not -1, and does not support lz4 in magic 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, NamedTuple

from mirror.errors import CorruptBatch
from mirror.wire.decompress import GZIP, LZ4, MAX_DECOMPRESSED_BYTES, SNAPPY, decompress
from mirror.wire.integers import INT64_MAX

NO_TIMESTAMP: Final = -1
"""The timestamp of messages of magic 0, and of record batches without one (``RecordBatch.NO_TIMESTAMP``)."""

_HEAD: Final = struct.Struct(">qiIbb")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_LENGTH_END: Final = 12
_CRC_COVERS: Final = 16
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CODECS: Final = (GZIP, SNAPPY, LZ4)

SMALLEST_LENGTH: Final = {0: 14, 1: 22}
"""Magic -> the smallest valid value of a message's length field."""


class Message(NamedTuple):
    """One record of magic 0 or 1."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class MessageSet:
    """One message, plain or a wrapper, with the interface of :class:`~mirror.wire.records.Batch`.

    ``view`` is exactly its bytes. ``base_offset`` is the offset in the header: the offset of a plain message, and the
    *last* offset of a wrapper. The first offset of a wrapper is found only by decompressing it.
    """

    leader_epoch: ClassVar[int] = -1
    producer_id: ClassVar[int] = -1
    is_control: ClassVar[bool] = False
    is_transactional: ClassVar[bool] = False

    __slots__ = ("attributes", "base_offset", "crc", "magic", "max_timestamp", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.base_offset, _, self.crc, self.magic, self.attributes = _HEAD.unpack_from(view)
        (self.max_timestamp,) = _INT64.unpack_from(view, _HEAD.size) if self.magic else (NO_TIMESTAMP,)

    @property
    def size(self) -> int:
        """Size in bytes, header included."""
        return len(self.view)

    @property
    def next_offset(self) -> int:
        """The offset after that of the message, or after the last one of a wrapper."""
        return int(self.base_offset) + 1

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker set the timestamp, which then holds for all messages of a wrapper. False for magic 0."""
        return bool(self.magic and self.attributes & _LOG_APPEND_TIME)

    def verify(self) -> None:
        """Check the CRC-32 and the lengths of key and value. Raises CorruptBatch."""
        actual = zlib.crc32(self.view[_CRC_COVERS:])
        if actual != self.crc:
            msg = (
                f"the message at offset {self.base_offset} ({self.size} bytes, magic {self.magic}) is corrupt:"
                f" its CRC-32 is {actual:08x}, its header says {self.crc:08x}"
            )
            raise CorruptBatch(msg)
        _key_and_value(self)

    def messages(
        self, max_bytes: int = MAX_DECOMPRESSED_BYTES, *, on_decompressed: Callable[[int], None] | None = None
    ) -> Iterator[Message]:
        """Yield the message itself, or the messages of a wrapper, in order. Call :meth:`verify` first.

        Inside a wrapper of magic 1, offsets are relative (KIP-31), and the last message has the wrapper's offset. An
        incomplete last message is skipped, as Kafka's own readers do. ``on_decompressed`` is called with the size of a
        decompressed wrapper in bytes.

        Raises CorruptBatch, and BatchTooLarge if a wrapper has more than ``max_bytes`` when decompressed.
        """
        key, value = _key_and_value(self)
        codec = self.attributes & _CODEC_MASK
        if not codec:
            yield Message(self.base_offset, self.max_timestamp, _bytes(key), _bytes(value))
            return
        if value is None:
            raise self._corrupt("it is compressed and has no value")
        inner = self._decompress(codec, value, max_bytes)
        if on_decompressed is not None:
            on_decompressed(len(inner))
        min_offset = base_offset = self._inner_base_offset(inner)
        end = self.next_offset if self.base_offset else INT64_MAX  # see _inner_base_offset
        for start, stop in _bounds(inner, self.base_offset):
            message = MessageSet(inner[start:stop])
            if message.attributes & _CODEC_MASK:
                raise self._corrupt("it is compressed twice")
            offset = base_offset + message.base_offset
            if not min_offset <= offset < end:
                raise self._corrupt(f"it holds a message of offset {offset} where {min_offset} or a later one is due")
            min_offset = offset + 1
            timestamp = message.max_timestamp
            if message.magic and self.has_log_append_time:
                timestamp = self.max_timestamp
            key, value = _key_and_value(message)
            yield Message(offset, timestamp, _bytes(key), _bytes(value))

    def _inner_base_offset(self, inner: memoryview) -> int:
        """Return the offset that is added to the offsets of the messages in ``inner``."""
        last = -1
        for start, _ in _bounds(inner, self.base_offset):
            (last,) = _INT64.unpack_from(inner, start)
        if last < 0:
            raise self._corrupt("it is compressed and holds no message")
        # A wrapper with offset 0 may have no assigned offset (librdkafka): then its messages have absolute offsets.
        if not self.magic or not self.base_offset:
            return 0
        if last > self.base_offset:
            raise self._corrupt(f"its last message has the relative offset {last}")
        return int(self.base_offset) - last

    def _decompress(self, codec: int, data: memoryview, max_bytes: int) -> memoryview:
        if codec not in _CODECS:
            raise self._corrupt(f"codec {codec} is not valid in its format")
        subject = f"the message set at offset {self.base_offset} (magic {self.magic})"
        if codec == LZ4 and not self.magic:
            data = self._with_valid_checksum(data)
        return decompress(codec, data, max_bytes, subject)

    def _with_valid_checksum(self, data: memoryview) -> memoryview:
        try:
            return memoryview(_with_valid_lz4_checksum(data))
        except IndexError:
            raise self._corrupt("its value is too short for lz4") from None

    def _corrupt(self, reason: str) -> CorruptBatch:
        return CorruptBatch(f"the message set at offset {self.base_offset} (magic {self.magic}) is corrupt: {reason}")


def check_length(offset: int, magic: int, length: int) -> None:
    """Check the length field of a message of ``magic`` 0 or 1. Raises CorruptBatch if it is too small."""
    if length < SMALLEST_LENGTH[magic]:
        msg = f"the message at offset {offset} (magic {magic}) says it has {length} bytes, less than its own header"
        raise CorruptBatch(msg)


def _bounds(inner: memoryview, wrapper: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each message of a decompressed set. ``wrapper`` is the offset for error texts."""
    start = 0
    while len(inner) - start >= _HEAD.size:
        _, length, _, magic, _ = _HEAD.unpack_from(inner, start)
        if magic not in SMALLEST_LENGTH:
            raise CorruptBatch(f"the message set at offset {wrapper} is corrupt: it holds a message of magic {magic}")
        check_length(wrapper, magic, length)
        end = start + _LENGTH_END + length
        if end > len(inner):
            return
        yield start, end
        start = end


def _key_and_value(message: MessageSet) -> tuple[memoryview | None, memoryview | None]:
    """Return views of key and value; None for null. Raises CorruptBatch if they do not end where the message ends."""
    view = message.view
    position = _HEAD.size + (_INT64.size if message.magic else 0)
    views: list[memoryview | None] = []
    for _ in range(2):
        end = position + _INT32.size
        size = _INT32.unpack_from(view, position)[0] if end <= len(view) else len(view)
        position = end + max(0, size)
        views.append(view[end:position] if size >= 0 else None)
    if position != len(view):
        msg = f"the message at offset {message.base_offset} is corrupt: its key and value do not end where it does"
        raise CorruptBatch(msg)
    return views[0], views[1]


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


# --- lz4 in magic 0: repair of the frame header's checksum

_WORD: Final = 0xFFFFFFFF
_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_FLAGS_AT: Final = 4
_HAS_CONTENT_SIZE: Final = 0x08


def _with_valid_lz4_checksum(data: memoryview) -> bytes:
    """Return the frame with a valid header checksum: producers of magic 0 computed it over other bytes (KAFKA-3160)."""
    frame = bytearray(data)
    end = _FLAGS_AT + (10 if frame[_FLAGS_AT] & _HAS_CONTENT_SIZE else 2)
    frame[end] = _short_xxh32(bytes(frame[_FLAGS_AT:end])) >> 8 & 0xFF
    return bytes(frame)


def _short_xxh32(data: bytes) -> int:
    """Compute XXH32 with seed 0 of less than 16 bytes, which is enough for a header (xxHash specification)."""
    value = _PRIMES[4] + len(data)
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotate_left(value + word * _PRIMES[2], 17) * _PRIMES[3]
    for byte in data[whole:]:
        value = _rotate_left(value + byte * _PRIMES[4], 11) * _PRIMES[0]
    value &= _WORD
    value = (value ^ value >> 15) * _PRIMES[1] & _WORD
    value = (value ^ value >> 13) * _PRIMES[2] & _WORD
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> 32 - bits) & _WORD
