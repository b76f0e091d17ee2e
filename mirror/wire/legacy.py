"""Messages of the formats before record batches (magic 0 and 1), as old segments still hold them.

A message: offset i64, length i32, CRC-32 u32, magic i8, attributes i8, timestamp i64 (magic 1 only), key and value
(i32 length each, negative for null). A message whose attributes name a codec is a wrapper: its value is a compressed
set of messages (``LegacyRecord``, ``AbstractLegacyRecordBatch``; KIP-31, KIP-32). Brokers no longer take such messages
(KIP-724), and go on serving those they have, as they are.

Read here and not by the record codec's library: that one believes the lengths inside a wrapper (one of -12 makes it
read for ever), takes a null of another length than -1 for an error, and knows no lz4 in magic 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, NamedTuple

from mirror.errors import CorruptBatch
from mirror.wire.decompress import GZIP, LZ4, MOST, SNAPPY, decompressed

NO_TIMESTAMP: Final = -1
"""What magic 0 has in a timestamp's place, in a record batch too (``RecordBatch.NO_TIMESTAMP``)."""

_HEAD: Final = struct.Struct(">qiIbb")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_LENGTH_END: Final = 12
_CRC_COVERS: Final = 16
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CODECS: Final = (GZIP, SNAPPY, LZ4)
_FAR: Final = 2**63 - 1

SMALLEST_LENGTH: Final = {0: 14, 1: 22}
"""Magic -> the least that a message's length field can say."""


class Message(NamedTuple):
    """One record of an old format."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class MessageSet:
    """One message, perhaps a wrapper, in ``view``, exactly its bytes; named as :class:`~mirror.wire.records.Batch` is.

    ``base_offset`` is the offset in its header: a plain message's own, and a wrapper's *last* one. Where a wrapper
    begins is known only by decompressing it: at most where the one before it ended.
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
        """Bytes, header included."""
        return len(self.view)

    @property
    def next_offset(self) -> int:
        """The offset after this one's, or after a wrapper's last."""
        return int(self.base_offset) + 1

    @property
    def has_log_append_time(self) -> bool:
        """Whether the time is the broker's: a wrapper's is that of all its messages then. Magic 0 has none at all."""
        return bool(self.magic and self.attributes & _LOG_APPEND_TIME)

    def verify(self) -> None:
        """Raise CorruptBatch unless the CRC-32 matches the bytes, and they hold what their lengths say."""
        actual = zlib.crc32(self.view[_CRC_COVERS:])
        if actual != self.crc:
            msg = (
                f"the message at offset {self.base_offset} ({self.size} bytes, magic {self.magic}) is corrupt:"
                f" its CRC-32 is {actual:08x}, its header says {self.crc:08x}"
            )
            raise CorruptBatch(msg)
        _key_and_value(self)

    def messages(self, most: int = MOST, *, unfolded: Callable[[int], None] | None = None) -> Iterator[Message]:
        """The message itself, or those of a wrapper, in order. What is not verified may be wrong.

        Raises CorruptBatch, and BatchTooLarge for a wrapper of more than ``most`` bytes when decompressed.

        Inside a wrapper of magic 1, offsets are relative (KIP-31); the last one is the wrapper's own. A last message
        cut off is left out, as by Kafka's own readers. ``unfolded`` is called with a wrapper's bytes, decompressed.
        """
        key, value = _key_and_value(self)
        codec = self.attributes & _CODEC_MASK
        if not codec:
            yield Message(self.base_offset, self.max_timestamp, _bytes(key), _bytes(value))
            return
        if value is None:
            raise self._wrong("it is compressed and has no value")
        inner = self._decompressed(codec, value, most)
        if unfolded is not None:
            unfolded(len(inner))
        least = base_offset = self._base_of(inner)
        beyond = self.next_offset if self.base_offset else _FAR  # see _base_of
        for start, end in _bounds(inner, self.base_offset):
            message = MessageSet(inner[start:end])
            if message.attributes & _CODEC_MASK:
                raise self._wrong("it is compressed twice")
            offset = base_offset + message.base_offset
            if not least <= offset < beyond:
                raise self._wrong(f"it holds a message of offset {offset} where {least} or a later one is due")
            least = offset + 1
            timestamp = message.max_timestamp
            if message.magic and self.has_log_append_time:
                timestamp = self.max_timestamp
            key, value = _key_and_value(message)
            yield Message(offset, timestamp, _bytes(key), _bytes(value))

    def _base_of(self, inner: memoryview) -> int:
        """What is to be added to the offsets of ``inner``."""
        last = -1
        for start, _ in _bounds(inner, self.base_offset):
            (last,) = _INT64.unpack_from(inner, start)
        if last < 0:
            raise self._wrong("it is compressed and holds no message")
        # A wrapper at offset 0 may never have been given its own (librdkafka); there, relative is absolute.
        if not self.magic or not self.base_offset:
            return 0
        if last > self.base_offset:
            raise self._wrong(f"its last message has the relative offset {last}")
        return int(self.base_offset) - last

    def _decompressed(self, codec: int, data: memoryview, most: int) -> memoryview:
        if codec not in _CODECS:
            raise self._wrong(f"codec {codec} is none of its format")
        what = f"the message set at offset {self.base_offset} (magic {self.magic})"
        if codec == LZ4 and not self.magic:
            data = self._mended_lz4(data)
        return decompressed(codec, data, most, what)

    def _mended_lz4(self, data: memoryview) -> memoryview:
        try:
            return memoryview(_mended_lz4(data))
        except IndexError:
            raise self._wrong("its value is too short for lz4") from None

    def _wrong(self, why: str) -> CorruptBatch:
        return CorruptBatch(f"the message set at offset {self.base_offset} (magic {self.magic}) is corrupt: {why}")


def check_length(offset: int, magic: int, length: int) -> None:
    """Raise CorruptBatch where a message of ``magic`` (0 or 1) cannot have ``length``."""
    if length < SMALLEST_LENGTH[magic]:
        msg = f"the message at offset {offset} (magic {magic}) says it has {length} bytes, less than its own header"
        raise CorruptBatch(msg)


def _bounds(inner: memoryview, wrapper: int) -> Iterator[tuple[int, int]]:
    """Where each message of a decompressed set begins and ends; ``wrapper`` is the offset to name."""
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
    """Views of both; None for null. Raises CorruptBatch where they are not exactly what follows the header."""
    view = message.view
    at = _HEAD.size + (_INT64.size if message.magic else 0)
    found: list[memoryview | None] = []
    for _ in range(2):
        end = at + _INT32.size
        size = _INT32.unpack_from(view, at)[0] if end <= len(view) else len(view)
        at = end + max(0, size)
        found.append(view[end:at] if size >= 0 else None)
    if at != len(view):
        msg = f"the message at offset {message.base_offset} is corrupt: its key and value do not end where it does"
        raise CorruptBatch(msg)
    return found[0], found[1]


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


# --- lz4 in magic 0

_WORD: Final = 0xFFFFFFFF
_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_FLAGS_AT: Final = 4
_HAS_CONTENT_SIZE: Final = 0x08


def _mended_lz4(data: memoryview) -> bytes:
    """The frame with the right checksum of its header: producers of magic 0 took it over other bytes (KAFKA-3160)."""
    frame = bytearray(data)
    end = _FLAGS_AT + (10 if frame[_FLAGS_AT] & _HAS_CONTENT_SIZE else 2)
    frame[end] = _short_xxh32(bytes(frame[_FLAGS_AT:end])) >> 8 & 0xFF
    return bytes(frame)


def _short_xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes, enough for a header (the xxHash specification)."""
    value = _PRIMES[4] + len(data)
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + word * _PRIMES[2], 17) * _PRIMES[3]
    for byte in data[whole:]:
        value = _rotated(value + byte * _PRIMES[4], 11) * _PRIMES[0]
    value &= _WORD
    value = (value ^ value >> 15) * _PRIMES[1] & _WORD
    value = (value ^ value >> 13) * _PRIMES[2] & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> 32 - bits) & _WORD
