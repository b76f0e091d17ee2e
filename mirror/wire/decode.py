"""Records out of a batch: for those who want records. Copying passes batches on where it can, without coming here.

The codec is aiokafka's (compiled, kept).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mirror.errors import CorruptBatch
from mirror.wire.decompress import MOST, decompressed
from mirror.wire.legacy import MessageSet
from mirror.wire.records import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, AnyBatch, Batch


class Record(NamedTuple):
    """One record. None and empty are told apart in key, value and header values; ``timestamp_ms`` is since 1970.

    ``offset`` is that of its source, whatever becomes of the record. Header names may repeat.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def replace(self, **changes: Any) -> Record:
        """The same record with other ``key``, ``value``, ``timestamp_ms`` or ``headers`` (pairs, or a mapping).

        Raises TypeError for another name.
        """
        if wrong := sorted(changes.keys() - _CHANGEABLE):
            msg = f"a record has no {', '.join(wrong)} to replace; there are: {', '.join(sorted(_CHANGEABLE))}"
            raise TypeError(msg)
        if "headers" in changes:
            headers = changes["headers"]
            changes["headers"] = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        return self._replace(**changes)


_CHANGEABLE: Final = frozenset({"key", "value", "timestamp_ms", "headers"})


_new: Final = tuple.__new__


def records_of(batch: AnyBatch, most: int = MOST, *, unfolded: Callable[[int], None] | None = None) -> Iterator[Record]:
    """The records of ``batch`` in order; none of a control batch.

    Raises CorruptBatch, and BatchTooLarge for more than ``most`` bytes when decompressed.

    With LogAppendTime all have the broker's time; records of magic 0 have none, which is -1 (``RecordBatch``). One
    record at a time, over the decompressed batch, whose bytes ``unfolded`` is called with before the first. A header's
    key that is no UTF-8 is corrupt, too.
    """
    if batch.is_control:
        return
    batch.verify()
    if isinstance(batch, MessageSet):
        for message in batch.messages(most, unfolded=unfolded):
            yield Record(*message, ())
        return
    # Here and not above: who only copies should not pay for the import (0.14 s in every worker).
    from aiokafka.record.default_records import DefaultRecordBatch

    plain = _plain(batch, most)
    if unfolded is not None:
        unfolded(len(plain))
    least, end = batch.base_offset, batch.next_offset
    try:
        for record in DefaultRecordBatch(plain):
            if not least <= record.offset < end:
                raise ValueError(f"a record has the offset {record.offset}, where {least} to {end - 1} can be")  # noqa: TRY301
            least = record.offset + 1
            # As Record(...) does, but for its keyword handling: a quarter of all that reading a small record costs.
            yield _new(Record, (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)))
    except Exception as error:
        # Whatever it is: the codec has several ways.
        msg = f"the records of the batch at offset {batch.base_offset} cannot be read: {error}"
        raise CorruptBatch(msg) from error


def _plain(batch: Batch, most: int) -> memoryview:
    """The batch's bytes, or those of one like it that is not compressed."""
    codec = batch.attributes & CODEC_MASK
    if not codec:
        return batch.view
    what = f"the batch at offset {batch.base_offset}"
    plain = decompressed(codec, batch.view[HEADER_BYTES:], most, what, room=HEADER_BYTES)
    plain[:HEADER_BYTES] = batch.view[:HEADER_BYTES]
    plain[ATTRIBUTES_AT + 1] &= ~CODEC_MASK & 0xFF
    return plain
