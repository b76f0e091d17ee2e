"""The header of a record batch (magic 2, KIP-98) as a view over its bytes: read, verify, patch. The payload is opaque.

Messages of the older formats, which only old segments hold, are in :mod:`mirror.wire.legacy`.

Layout: base offset i64, length i32, partition leader epoch i32, magic i8, CRC u32, then what the CRC-32C covers:
attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer epoch i16,
base sequence i32, record count i32, records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, overload

from crc32c import crc32c

from mirror.errors import CorruptBatch
from mirror.wire.decompress import NAMES
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
_CLAIMS: Final = struct.Struct(">q13xhi30xi")
"""Base offset, attributes, last offset delta, record count."""

_MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43

NO_END: Final = 2**63 - 1
"""What no log reaches."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class Batch:
    """One record batch in ``view``, a writable view of exactly its bytes. Offsets and times are as in the log.

    ``size`` is in bytes, header included; ``next_offset`` is the offset after its last record, compacted away or not;
    ``is_control``: it holds a transaction marker instead of records. Plain values: a copy asks for them a dozen times
    for each batch, and a property is a call.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "is_control",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "next_offset",
        "producer_epoch",
        "producer_id",
        "size",
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
        self.size = len(view)
        self.next_offset: int = self.base_offset + self.last_offset_delta + 1
        self.is_control = bool(self.attributes & CONTROL)

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
        _ATTRIBUTES.pack_into(self.view, ATTRIBUTES_AT, attributes)
        _PRODUCER.pack_into(self.view, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
        self.attributes, self.base_offset, self.leader_epoch = attributes, 0, -1
        self.next_offset, self.is_control = self.last_offset_delta + 1, False
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.crc = crc32c(self.view[_CRC_COVERS:])
        _CRC.pack_into(self.view, _CRC_START, self.crc)


AnyBatch = Batch | MessageSet
"""What a Fetch may bring."""


def split_batches(records: memoryview) -> Iterator[AnyBatch]:
    """The whole batches in ``records``, in order; a last one cut off by the fetch's size limit is left out.

    Of the formats before batches, each message is one. Raises CorruptBatch for a length or a format that cannot be.
    """
    for start, end in _bounds(records):
        yield _batch(records[start:end])


def _batch(view: memoryview) -> AnyBatch:
    return Batch(view) if view[_MAGIC_AT] == 2 else MessageSet(view)  # noqa: PLR2004 - the format's own name


def _bounds(records: memoryview) -> Iterator[tuple[int, int]]:
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
        yield start, end
        start = end


def _next_offset(records: memoryview, start: int, least: int, end: int) -> int:
    """The offset after the last of the batch at ``start``. Raises CorruptBatch for offsets that cannot be.

    They can be from ``least`` on and before ``end``. What damage does to a log, the CRC tells; this is what a lie does:
    records passed over, or the same ones fetched for ever.
    """
    wrong = ""
    if records[start + _MAGIC_AT] == 2:  # noqa: PLR2004 - the format's own name
        base_offset, attributes, delta, count = _CLAIMS.unpack_from(records, start)  # one look for each batch
        codec, next_offset = attributes & CODEC_MASK, base_offset + delta + 1
        if not 0 <= count <= delta + 1:
            wrong = f"{count} records with a last offset delta of {delta}"
        elif codec and codec not in NAMES:
            wrong = f"the compression codec {codec}, where 0 to {max(NAMES)} are known"
    else:
        base_offset, _ = _LENGTH.unpack_from(records, start)
        next_offset = base_offset + 1
    if not (wrong or least <= base_offset < next_offset <= end):
        wrong = f"the offsets {base_offset} to {next_offset - 1}, where {least} to {end - 1} can be"
    if wrong:
        raise CorruptBatch(f"the batch at offset {base_offset} is corrupt: it says that it has {wrong}")
    return int(next_offset)


class Batches(Sequence[AnyBatch]):
    """The batches of ``records``, as :func:`split_batches` has them, but for those that end at ``offset`` or before.

    Made anew from the bytes at each look: thousands of small ones, kept, would take many times the memory of these. So
    a batch that was patched is found as it is by then. ``size`` is the bytes of all, ``largest`` those of the largest.
    They end before the first one that cannot be: whoever goes on behind them meets it as the first.
    """

    __slots__ = ("_count", "_last", "_records", "largest", "size")

    def __init__(self, records: memoryview, offset: int, end: int = NO_END) -> None:
        """``end`` is the first offset that cannot be in the log yet.

        Raises CorruptBatch where already the first one cannot be, or is not whole, or all are before ``offset``: a
        broker gives the batch with the offset that it was asked for, and whole (KIP-74).
        """
        first = stop = least = self._last = self._count = self.largest = 0
        try:
            for start, batch_end in _bounds(records):
                least = _next_offset(records, start, least, end)
                stop = batch_end
                if not self._count and least <= offset:
                    first = stop
                    continue
                self._count += 1
                self._last = start - first
                self.largest = max(self.largest, stop - start)
        except CorruptBatch:
            if not self._count:
                raise
        if records and not self._count:
            raise CorruptBatch(f"asked for offset {offset}, the broker gave {_what_there_is(records[first:])}")
        self.size = stop - first
        self._records = records[first:stop]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AnyBatch]:
        return split_batches(self._records)

    @overload
    def __getitem__(self, index: int) -> AnyBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyBatch]: ...
    def __getitem__(self, index: int | slice) -> AnyBatch | Sequence[AnyBatch]:
        """The last one is found at once, any other by going through those before it."""
        if self._count and index in (-1, self._count - 1):  # a slice is no element of a set
            return _batch(self._records[self._last :])
        return list(self)[index]


def _what_there_is(rest: memoryview) -> str:
    if not rest:
        return "only batches before it"
    if len(rest) < _LENGTH.size:
        return f"{len(rest)} bytes, too few for a batch"
    base_offset, length = _LENGTH.unpack_from(rest)
    there = len(rest) - _LENGTH_END
    return f"a batch at offset {base_offset} that says it has {length} bytes, of which {there} are there"
