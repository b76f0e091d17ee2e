"""Encode records into a batch (magic 2), for producing and for deep copying.

The record codec and the compressors are aiokafka's compiled ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mirror.wire.header_names import Headers, names_before, stand_ins
from mirror.wire.integers import INT64_MAX
from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import HEADER_BYTES, Batch

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""``compression.type`` -> codec number in a batch's attributes."""

_ATTRIBUTES_LOW_BYTE: Final = 22
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27
_GZIP_LEVEL: Final = 6
_LZ4_FAST: Final = 1
_ZSTD_LEVEL: Final = 3


class BatchBuilder:
    """Collects the records of one batch. ``limit`` is its size in bytes before compression.

    The limit applies to memory: the compressed size is not estimated.
    """

    __slots__ = ("_add", "_builder", "_names", "_shift", "codec", "count", "limit")

    def __init__(self, codec: str, limit: int) -> None:
        """``codec`` is a key of :data:`CODECS`."""
        # A local import: it takes 0.14 s in every worker, and tasks that only copy batches do not need it.
        from aiokafka.record.default_records import DefaultRecordBatchBuilder

        self.codec: Final = codec
        self.limit: Final = limit
        self.count = 0
        self._shift = 0
        self._names: list[tuple[int, bytes]] = []
        """The names of headers that are not UTF-8, and their places in the batch."""
        # The builder does not compress; build() does. The builder's lz4 is the slow mode, Kafka's default the fast one.
        self._builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=limit,
        )
        self._add: Final[Callable[..., Any]] = self._builder.append

    @staticmethod
    def upper_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Return the largest size in bytes of a batch with only this record, before compression."""
        from aiokafka.record.default_records import DefaultRecordBatchBuilder

        return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, stand_ins(headers)))

    @property
    def size(self) -> int:
        """The current size in bytes, header included, before compression."""
        return int(self._builder.size())

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> bool:
        """Add a record. Return False if it does not fit; the first record always fits.

        ``timestamp_ms`` may be -1 (no timestamp). Raises the record codec's TypeError, ValueError or OverflowError for
        invalid values (a key that is not bytes, a timestamp beyond 64 bits), and then adds nothing.
        """
        if not self.count:
            # To the codec a first timestamp of -1 means "no record yet": all records before the first one with a
            # timestamp would get that timestamp. So all timestamps are increased by 1 here, and build() reverts it.
            self._shift = int(timestamp_ms == NO_TIMESTAMP)
        elif self._shift and timestamp_ms == INT64_MAX:
            return False
        if headers.__class__ is not list:
            headers = list(headers)  # the codec takes no other type
        try:
            added = self._add(self.count, timestamp_ms + self._shift, key, value, headers)
        except UnicodeEncodeError:
            added = self._add(self.count, timestamp_ms + self._shift, key, value, stand_ins(headers))
            if added is not None:
                self._names += names_before(self.size, headers)
        if added is None:
            return False
        self.count += 1
        return True

    def build(self) -> Batch:
        """Return the batch, with base offset 0 and without producer id; the producer patches it. Call it once.

        The batch is not compressed if compression does not make it smaller.
        """
        data: bytearray = self._builder.build()
        for at, name in self._names:
            data[at : at + len(name)] = name
        if self._shift:
            base, latest = _TIMESTAMPS.unpack_from(data, _TIMESTAMPS_AT)
            _TIMESTAMPS.pack_into(data, _TIMESTAMPS_AT, base - self._shift, latest - self._shift)
        if self.codec != "none":
            with memoryview(data) as view:  # one copy: lz4 accepts only bytes
                compressed = _compress(self.codec, bytes(view[HEADER_BYTES:]))
            if len(compressed) < len(data) - HEADER_BYTES:
                data[HEADER_BYTES:] = compressed
                data[_ATTRIBUTES_LOW_BYTE] |= CODECS[self.codec]
        batch = Batch(memoryview(data))
        batch.stamp_crc()
        batch.patch(-1, -1, -1)
        return batch


def _compress(codec: str, records: bytes) -> bytes:
    """Compress with the default levels of Kafka's producer."""
    from aiokafka import codec as codecs

    if codec == "gzip":
        return bytes(codecs.gzip_encode(records, _GZIP_LEVEL))
    if codec == "snappy":
        return bytes(codecs.snappy_encode(records))
    if codec == "lz4":
        return bytes(codecs.lz4_encode(records, _LZ4_FAST))
    return bytes(codecs.zstd_encode(records, _ZSTD_LEVEL))
