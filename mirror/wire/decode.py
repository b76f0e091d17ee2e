"""Decode the records of a batch. Shallow copying does not need it.

The record codec is aiokafka's compiled one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from mirror.errors import CorruptBatch
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES, decompress
from mirror.wire.header_names import records_with_any_name
from mirror.wire.legacy import MessageSet
from mirror.wire.records import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, AnyBatch, Batch


class Record(NamedTuple):
    """One record. Keys, values and header values may be None, which differs from empty. Header names may repeat.

    In the protocol, the name of a header is bytes. Those that are not UTF-8 are lone surrogates in the str (PEP 383):
    ``name.encode("utf-8", "surrogateescape")`` are the exact bytes of any name.

    ``offset`` is the offset in the source, also if the record is replaced. ``timestamp_ms`` is in ms since 1970.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def replace(self, **changes: Any) -> Record:
        """Return the record with a new ``key``, ``value``, ``timestamp_ms`` or ``headers`` (pairs or a mapping).

        Raises TypeError for any other name.
        """
        if unknown := sorted(changes.keys() - _CHANGEABLE):
            msg = f"a record has no {', '.join(unknown)} to replace; there are: {', '.join(sorted(_CHANGEABLE))}"
            raise TypeError(msg)
        if "headers" in changes:
            headers = changes["headers"]
            changes["headers"] = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        return self._replace(**changes)


class CodedRecord(Protocol):
    """A record as the codec's own object; its ``timestamp`` is :attr:`Record.timestamp_ms`."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """In ms since 1970; -1: none."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


_CHANGEABLE: Final = frozenset({"key", "value", "timestamp_ms", "headers"})


_new: Final = tuple.__new__


def records_of(
    batch: AnyBatch, max_bytes: int = MAX_DECOMPRESSED_BYTES, *, on_decompressed: Callable[[int], None] | None = None
) -> Iterator[Record]:
    """Yield the records of ``batch`` in order. A control batch has none.

    With LogAppendTime, all records have the broker's timestamp. Records of magic 0 have no timestamp, which is -1 here
    (``RecordBatch.NO_TIMESTAMP``). The whole batch is decompressed first, and ``on_decompressed`` is called with its
    size in bytes; then records are decoded as they are consumed.

    Raises CorruptBatch, and BatchTooLarge if the batch has more than ``max_bytes`` when decompressed.
    """
    if isinstance(batch, MessageSet):
        batch.verify()
        for message in batch.messages(max_bytes, on_decompressed=on_decompressed):
            yield Record(*message, ())
        return
    for record in coded_records_of(batch, max_bytes, on_decompressed=on_decompressed):
        # Record(...) also handles keywords, which is a quarter of the cost of decoding a small record.
        yield _new(Record, (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)))


def coded_records_of(
    batch: Batch, max_bytes: int = MAX_DECOMPRESSED_BYTES, *, on_decompressed: Callable[[int], None] | None = None
) -> Iterator[CodedRecord]:
    """Do what :func:`records_of` does, but yield the record codec's objects: to copy these takes less CPU."""
    if batch.is_control:
        return
    batch.verify()
    # A local import: it takes 0.14 s in every worker, and tasks that only copy batches do not need it.
    from aiokafka.record.default_records import DefaultRecordBatch

    decompressed = _decompressed(batch, max_bytes)
    if on_decompressed is not None:
        on_decompressed(len(decompressed))
    min_offset, end = batch.base_offset, batch.next_offset
    records: Iterator[CodedRecord] | None = iter(DefaultRecordBatch(decompressed))
    read = 0
    while records is not None:
        try:
            for record in records:
                offset = record.offset
                if not min_offset <= offset < end:
                    problem = f"a record has the offset {offset}, where {min_offset} to {end - 1} are possible"
                    raise ValueError(problem)  # noqa: TRY301
                min_offset = offset + 1
                read += 1
                yield record
            records = None
        except UnicodeDecodeError:  # of a header's name, which may be any bytes
            records = itertools.islice(records_with_any_name(batch, decompressed), read, None)
        except Exception as error:
            # Any exception: the codec raises several types.
            msg = f"the records of the batch at offset {batch.base_offset} cannot be read: {error}"
            raise CorruptBatch(msg) from error


def _decompressed(batch: Batch, max_bytes: int) -> memoryview:
    """Return the bytes of the batch without compression, header included."""
    codec = batch.attributes & CODEC_MASK
    if not codec:
        return batch.view
    subject = f"the batch at offset {batch.base_offset}"
    out = decompress(codec, batch.view[HEADER_BYTES:], max_bytes, subject, reserve=HEADER_BYTES)
    out[:HEADER_BYTES] = batch.view[:HEADER_BYTES]
    out[ATTRIBUTES_AT + 1] &= ~CODEC_MASK & 0xFF
    return out
