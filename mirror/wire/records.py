"""The header of a record batch (magic 2, KIP-98) as a view over its bytes: read, verify, patch. The payload is opaque.

Messages of the older formats, which only old segments hold, are in :mod:`mirror.wire.legacy`.

Layout: base offset i64, length i32, partition leader epoch i32, magic i8, CRC u32, then what the CRC-32C covers:
attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer epoch i16,
base sequence i32, record count i32, records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from mirror.errors import CorruptBatch
from mirror.wire.legacy import SMALLEST_LENGTH, MessageSet, check_length

HEADER_BYTES: Final = 61
_LENGTH_END: Final = 12
_CRC_START: Final = 17
_CRC_COVERS: Final = 21

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH: Final = struct.Struct(">qi")
_MAGIC: Final = struct.Struct(">b")
_CRC: Final = struct.Struct(">I")
_FRONT: Final = struct.Struct(">qii")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")

_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class Batch:
    """One record batch in ``view``, a writable view of exactly its bytes. Offsets and times are as in the log."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "view",
    )

    def __init__(self, view: memoryview) -> None:
        self.view = view
        (
            self.base_offset,
            _,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(view)

    @property
    def size(self) -> int:
        """Bytes, header included."""
        return len(self.view)

    @property
    def next_offset(self) -> int:
        """The offset after this batch's last, compacted away or not."""
        return int(self.base_offset) + int(self.last_offset_delta) + 1

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction marker instead of records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Whether its records' times are the broker's (all equal to ``max_timestamp``)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    def verify(self) -> None:
        """Raise CorruptBatch unless the CRC-32C matches the bytes."""
        actual = crc32c(self.view[_CRC_COVERS:])
        if actual != self.crc:
            msg = (
                f"the batch at offset {self.base_offset} ({self.size} bytes) is corrupt: "
                f"its CRC-32C is {actual:08x}, its header says {self.crc:08x}"
            )
            raise CorruptBatch(msg)

    def patch(self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool = False) -> None:
        """Make it this producer's own, in place: offset 0, leader epoch -1, ids and sequence, attributes, CRC.

        The LogAppendTime and delete-horizon bits are always cleared: the broker refuses them from producers
        (LogValidator), or would silently read wrong times.
        """
        attributes = self.attributes & CODEC_MASK
        if transactional:
            attributes |= TRANSACTIONAL
        _FRONT.pack_into(self.view, 0, 0, self.size - _LENGTH_END, -1)
        _ATTRIBUTES.pack_into(self.view, _ATTRIBUTES_AT, attributes)
        _PRODUCER.pack_into(self.view, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
        self.attributes, self.base_offset, self.leader_epoch = attributes, 0, -1
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.crc = crc32c(self.view[_CRC_COVERS:])
        _CRC.pack_into(self.view, _CRC_START, self.crc)


AnyBatch = Batch | MessageSet
"""What a Fetch may bring."""


def split_batches(records: memoryview) -> Iterator[AnyBatch]:
    """The whole batches in ``records``, in order; a last one cut off by the fetch's size limit is left out.

    Of the formats before batches, each message is one. Raises CorruptBatch for a length or a format that cannot be.
    """
    start = 0
    while len(records) - start >= _MAGIC_AT + 1:
        base_offset, length = _LENGTH.unpack_from(records, start)
        (magic,) = _MAGIC.unpack_from(records, start + _MAGIC_AT)
        if magic == 2:  # noqa: PLR2004 - the format's own name
            if length < HEADER_BYTES - _LENGTH_END:
                msg = f"the batch at offset {base_offset} says it has {length} bytes, less than its own header"
                raise CorruptBatch(msg)
        elif magic in SMALLEST_LENGTH:
            check_length(base_offset, magic, length)
        else:
            msg = (
                f"the batch at offset {base_offset} has the format version (magic) {magic}, where 0, 1 and 2 are known:"
                " its log is damaged, or this version of the mirror is older than the broker's format"
            )
            raise CorruptBatch(msg)
        end = start + _LENGTH_END + length
        if end > len(records):
            return
        yield Batch(records[start:end]) if magic == 2 else MessageSet(records[start:end])  # noqa: PLR2004 - as above
        start = end
