"""Records out of a batch: for those who want records. The copy itself passes batches on and never comes here.

The codec and the decompression are aiokafka's (compiled, kept).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mirror.errors import CorruptBatch
from mirror.wire.records import Batch


class Record(NamedTuple):
    """One record. None and empty are told apart in key, value and header values; ``timestamp_ms`` is since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(batch: Batch) -> Iterator[Record]:
    """The records of ``batch`` in order; none of a control batch. Raises CorruptBatch."""
    if batch.is_control:
        return
    # Here and not above: who only copies should not pay for the import (0.14 s in every worker).
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record.default_records import DefaultRecordBatch

    batch.verify()
    try:
        for record in DefaultRecordBatch(batch.view):
            yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
    except (CorruptRecordException, ValueError, RuntimeError, MemoryError) as error:
        msg = f"the records of the batch at offset {batch.base_offset} cannot be read: {error}"
        raise CorruptBatch(msg) from error
