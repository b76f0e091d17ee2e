"""Records out of a batch: for those who want records. Copying passes batches on where it can, without coming here.

The codec and the decompression are aiokafka's (compiled, kept).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mirror.errors import CorruptBatch
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch


class Record(NamedTuple):
    """One record. None and empty are told apart in key, value and header values; ``timestamp_ms`` is since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


_new: Final = tuple.__new__


def records_of(batch: AnyBatch) -> Iterator[Record]:
    """The records of ``batch`` in order; none of a control batch. Raises CorruptBatch.

    With LogAppendTime all have the broker's time; records of magic 0 have none, which is -1 (``RecordBatch``). One
    record at a time, over the decompressed batch. A header's key that is no UTF-8 is corrupt, too.
    """
    if batch.is_control:
        return
    batch.verify()
    if isinstance(batch, MessageSet):
        for message in batch.messages():
            yield Record(*message, ())
        return
    # Here and not above: who only copies should not pay for the import (0.14 s in every worker).
    from aiokafka.record.default_records import DefaultRecordBatch

    try:
        for record in DefaultRecordBatch(batch.view):
            # As Record(...) does, but for its keyword handling: a quarter of all that reading a small record costs.
            yield _new(Record, (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)))
    except Exception as error:
        # Whatever it is: each compression library has its own ways (EOFError, zlib.error, cramjam's own).
        msg = f"the records of the batch at offset {batch.base_offset} cannot be read: {error}"
        raise CorruptBatch(msg) from error
