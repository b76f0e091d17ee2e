"""Records into a batch (magic 2): for those who have single records. Copying passes batches on where it can.

The record codec is aiokafka's (compiled, kept), as are the compressors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from mirror.wire.legacy import NO_TIMESTAMP
from mirror.wire.records import HEADER_BYTES, Batch

Headers = Sequence[tuple[str, bytes | None]]

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""``compression.type`` -> the bits in a batch's attributes."""

_ATTRIBUTES_LOW_BYTE: Final = 22
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27
_LATEST: Final = 2**63 - 1
_GZIP_LEVEL: Final = 6
_LZ4_FAST: Final = 1
_ZSTD_LEVEL: Final = 3


class BatchBuilder:
    """Collects records of one batch of ``limit`` bytes before compression, to be compressed with ``codec``.

    The limit is one of memory: how far records will shrink is not guessed.
    """

    __slots__ = ("_add", "_builder", "_shift", "codec", "count", "limit")

    def __init__(self, codec: str, limit: int) -> None:
        """``codec`` is one of :data:`CODECS`."""
        # Here and not above: who only copies should not pay for the import (0.14 s in every worker).
        from aiokafka.record.default_records import DefaultRecordBatchBuilder

        self.codec: Final = codec
        self.limit: Final = limit
        self.count = 0
        self._shift = 0
        # Compressed here and not by it: its lz4 is the slow kind, where Kafka's own default is the fast one.
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
        """The most bytes that a batch with this record alone can have before compression."""
        from aiokafka.record.default_records import DefaultRecordBatchBuilder

        return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, list(headers)))

    @property
    def size(self) -> int:
        """Bytes so far, header included, before compression."""
        return int(self._builder.size())

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> bool:
        """Add a record; False where it does not fit. The first one always does. ``timestamp_ms`` may be -1 (none).

        What the record codec cannot take (a key that is no bytes, a time beyond 64 bits) is its TypeError, ValueError
        or OverflowError, and changes nothing.
        """
        if not self.count:
            # A first time of -1 is the codec's own sign for "no record yet": it would give all those before the first
            # that has a time that one's. So all are moved by one, and moved back in the header.
            self._shift = int(timestamp_ms == NO_TIMESTAMP)
        elif self._shift and timestamp_ms == _LATEST:
            return False
        if self._add(self.count, timestamp_ms + self._shift, key, value, list(headers)) is None:
            return False
        self.count += 1
        return True

    def build(self) -> Batch:
        """The batch, as one that nobody has sent yet: offsets from 0, no producer id; to be patched. Call it once.

        Where compression saves nothing, there is none.
        """
        data: bytearray = self._builder.build()
        if self._shift:
            base, latest = _TIMES.unpack_from(data, _TIMES_AT)
            _TIMES.pack_into(data, _TIMES_AT, base - self._shift, latest - self._shift)
        if self.codec != "none":
            with memoryview(data) as view:  # bytes is all that lz4 takes; one copy
                compressed = _compress(self.codec, bytes(view[HEADER_BYTES:]))
            if len(compressed) < len(data) - HEADER_BYTES:
                data[HEADER_BYTES:] = compressed
                data[_ATTRIBUTES_LOW_BYTE] |= CODECS[self.codec]
        batch = Batch(memoryview(data))
        batch.patch(-1, -1, -1)
        return batch


def _compress(codec: str, records: bytes) -> bytes:
    """With the levels that Kafka's own producer takes where it is told none."""
    from aiokafka import codec as codecs

    if codec == "gzip":
        return bytes(codecs.gzip_encode(records, _GZIP_LEVEL))
    if codec == "snappy":
        return bytes(codecs.snappy_encode(records))
    if codec == "lz4":
        return bytes(codecs.lz4_encode(records, _LZ4_FAST))
    return bytes(codecs.zstd_encode(records, _ZSTD_LEVEL))
