"""Read, verify and patch the headers of record batches (magic 2, KIP-98) in place. The records are not decoded.

Messages of the older formats, which exist in old segments only, are in :mod:`mirror.wire.legacy`.

Layout: base offset i64, length i32, partition leader epoch i32, magic i8, CRC u32, then the bytes that the CRC-32C
covers: attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer epoch
i16, base sequence i32, record count i32, records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, overload

from crc32c import crc32c

from mirror.errors import CorruptBatch
from mirror.wire.checksums import shifted
from mirror.wire.decompress import NAMES
from mirror.wire.integers import INT64_MAX
from mirror.wire.legacy import SMALLEST_LENGTH, MessageSet, check_length

HEADER_BYTES: Final = 61
_LENGTH_END: Final = 12
_CRC_START: Final = 17
_CRC_COVERS: Final = 21

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH: Final = struct.Struct(">qi")
_LENGTH_AND_MAGIC: Final = struct.Struct(">qi4xb")
"""Base offset, length, magic."""
_CRC: Final = struct.Struct(">I")
_START: Final = struct.Struct(">qii")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")
_OFFSETS_AND_COUNT: Final = struct.Struct(">q13xhi30xi")
"""Base offset, attributes, last offset delta, record count."""

_CONTROL_KEY: Final = struct.Struct(">4xBhh")
_CONTROL_KEY_LENGTH: Final = 8
"""4 as a zigzag varint."""
_COMMIT: Final = 1

_MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43

NO_END: Final = INT64_MAX
"""An end offset above that of any log."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class Batch:
    """One record batch. ``view`` is a writable view of exactly its bytes; offsets and timestamps are those of the log.

    ``size`` is in bytes and includes the header. ``next_offset`` is the offset after the last record, including records
    that compaction removed. ``is_control`` marks a transaction marker, which has no records.

    The attributes are plain values, not properties: copying reads them a dozen times per batch.
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
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker set the timestamps. All records then have ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME)

    def verify(self) -> None:
        """Check the CRC-32C. Raises CorruptBatch if it does not match the bytes."""
        actual = crc32c(self.view[_CRC_COVERS:])
        if actual != self.crc:
            msg = (
                f"the batch at offset {self.base_offset} ({self.size} bytes) is corrupt: "
                f"its CRC-32C is {actual:08x}, its header says {self.crc:08x}"
            )
            raise CorruptBatch(msg)

    # Invariant: A patched batch keeps the source's checksum of its payload, computed from the old checksum and the
    #   changed header alone, so that a batch damaged in memory after its verification is refused by the target.
    # Test: tests/producer/test_expiry_causes.py::test_batch_damaged_in_memory_is_refused_and_fails_at_once
    def patch(self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool = False) -> None:
        """Prepare the batch for sending, in place: base offset 0, leader epoch -1, producer, attributes, CRC.

        The LogAppendTime and delete-horizon bits are always cleared: the broker refuses them from producers
        (LogValidator), or would silently read wrong timestamps. The CRC is derived from that of the batch before, so
        that the target refuses a batch that was damaged after its CRC had been verified or computed.
        """
        # Invariant: The LogAppendTime and delete-horizon bits of a batch never reach the target, which would refuse it
        #   or read wrong timestamps.
        # Test: tests/wire/test_records.py::test_a_patched_batch_is_this_producers_and_its_payload_untouched
        attributes = self.attributes & CODEC_MASK
        if transactional:
            attributes |= TRANSACTIONAL
        before = self._header_crc()
        _START.pack_into(self.view, 0, 0, self.size - _LENGTH_END, -1)
        _ATTRIBUTES.pack_into(self.view, ATTRIBUTES_AT, attributes)
        _PRODUCER.pack_into(self.view, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
        self.attributes, self.base_offset, self.leader_epoch = attributes, 0, -1
        self.next_offset, self.is_control = self.last_offset_delta + 1, False
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.crc ^= shifted(before ^ self._header_crc(), self.size - HEADER_BYTES)
        _CRC.pack_into(self.view, _CRC_START, self.crc)

    def stamp_crc(self) -> None:
        """Compute the CRC-32C of all its bytes, and write it: the batch was just encoded."""
        self.crc = crc32c(self.view[_CRC_COVERS:])
        _CRC.pack_into(self.view, _CRC_START, self.crc)

    def _header_crc(self) -> int:
        """Return the CRC-32C of the part of the header that the batch's CRC covers."""
        return int(crc32c(self.view[_CRC_COVERS:HEADER_BYTES]))


AnyBatch = Batch | MessageSet
"""The batch types in a Fetch response."""


def is_commit_marker(batch: Batch) -> bool:
    """Whether the control batch ends a transaction by a commit (``ControlRecordType``). Raises CorruptBatch.

    Its only record is never compressed, and its lengths and deltas are varints of one byte: length, attributes,
    timestamp delta, offset delta and key length, then the key: version i16 and type i16.

    The log cleaner empties a marker once it has removed all records of the transaction, and keeps the header of the
    last marker of a producer without data, and of the last batch that it has cleaned (``Cleaner.checkBatchRetention``):
    such a marker ends nothing that is still there.
    """
    batch.verify()
    if batch.count == 0 and batch.size == HEADER_BYTES:
        return False
    if batch.size < HEADER_BYTES + _CONTROL_KEY.size or batch.count != 1:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} is corrupt: it holds no control record")
    key_length, _, control_type = _CONTROL_KEY.unpack_from(batch.view, HEADER_BYTES)
    if key_length != _CONTROL_KEY_LENGTH:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} is corrupt: its key is not of 4 bytes")
    return bool(control_type == _COMMIT)


def split_batches(records: memoryview) -> Iterator[AnyBatch]:
    """Yield the complete batches in ``records``, in order. A last batch that the fetch's size limit cut off is skipped.

    In the formats before record batches, every message counts as a batch. Raises CorruptBatch for an invalid length or
    an unknown format.
    """
    for start, end in _bounds(records):
        yield _batch(records[start:end])


def _batch(view: memoryview) -> AnyBatch:
    return Batch(view) if view[_MAGIC_AT] == 2 else MessageSet(view)  # noqa: PLR2004 - the format's own name


def _bounds(records: memoryview) -> Iterator[tuple[int, int]]:
    start = 0
    while len(records) - start >= _MAGIC_AT + 1:
        base_offset, length, magic = _LENGTH_AND_MAGIC.unpack_from(records, start)
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


def _next_offset(records: memoryview, start: int, min_offset: int, end: int) -> int:
    """Return the offset after the last record of the batch at ``start``. Raises CorruptBatch for an invalid header.

    The batch's offsets must be at least ``min_offset`` and below ``end``. The CRC detects damage; this check detects
    false offsets with a valid CRC, which would skip records or fetch the same ones for ever.
    """
    problem = ""
    if records[start + _MAGIC_AT] == 2:  # noqa: PLR2004 - the format's own name
        base_offset, attributes, delta, count = _OFFSETS_AND_COUNT.unpack_from(records, start)  # one unpack per batch
        codec, next_offset = attributes & CODEC_MASK, base_offset + delta + 1
        if not 0 <= count <= delta + 1:
            problem = f"{count} records with a last offset delta of {delta}"
        elif codec and codec not in NAMES:
            problem = f"the compression codec {codec}, where 0 to {max(NAMES)} are known"
    else:
        base_offset, _ = _LENGTH.unpack_from(records, start)
        next_offset = base_offset + 1
    if not (problem or min_offset <= base_offset < next_offset <= end):
        problem = f"the offsets {base_offset} to {next_offset - 1}, where {min_offset} to {end - 1} are possible"
    if problem:
        raise CorruptBatch(f"the batch at offset {base_offset} is corrupt: it says that it has {problem}")
    return int(next_offset)


class Batches(Sequence[AnyBatch]):
    """The batches of ``records`` as in :func:`split_batches`, without those that end at or before ``offset``.

    Batch objects are created on each access and not stored: thousands of objects for small batches would need many
    times the memory of the bytes. So the object of a batch that was patched shows the patched header.

    ``size`` is the total and ``largest`` the size of the largest batch, in bytes. The sequence ends before the first
    invalid batch. A later fetch from there has that batch as its first, and raises.
    """

    __slots__ = ("_count", "_last", "_records", "largest", "size")

    def __init__(self, records: memoryview, offset: int, end: int = NO_END) -> None:
        """``end`` is an upper limit of the log's end offset: a batch that extends beyond it is invalid.

        Raises CorruptBatch if the first batch is invalid or incomplete, or if all batches are before ``offset``: a
        broker returns the batch that contains the requested offset, and returns it completely (KIP-74).
        """
        first = stop = next_offset = self._last = self._count = self.largest = 0
        try:
            for start, batch_end in _bounds(records):
                next_offset = _next_offset(records, start, next_offset, end)
                stop = batch_end
                if not self._count and next_offset <= offset:
                    first = stop
                    continue
                self._count += 1
                self._last = start - first
                self.largest = max(self.largest, stop - start)
        except CorruptBatch:
            if not self._count:
                raise
        if records and not self._count:
            raise CorruptBatch(f"asked for offset {offset}, the broker gave {_describe(records[first:])}")
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
        """Access to the last batch takes constant time, to any other one linear time."""
        if self._count and index in (-1, self._count - 1):  # a tuple, not a set: a slice is unhashable
            return _batch(self._records[self._last :])
        return list(self)[index]


def _describe(rest: memoryview) -> str:
    """Describe bytes that have no complete batch, for an error text."""
    if not rest:
        return "only batches before it"
    if len(rest) < _LENGTH.size:
        return f"{len(rest)} bytes, too few for a batch"
    base_offset, length = _LENGTH.unpack_from(rest)
    present = len(rest) - _LENGTH_END
    return f"a batch at offset {base_offset} that says it has {length} bytes, of which {present} are there"
