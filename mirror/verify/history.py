"""What of the source was found in the target a short while ago, so that a repetition is recognized. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from mirror.errors import MirrorError
from mirror.verify.items import Item, identity
from mirror.wire.decode import Record, records_of
from mirror.wire.records import HEADER_BYTES, Batch

_MAX_ENTRIES: Final = 100_000
_MAX_KEPT_BYTES: Final = 4 * 1024 * 1024


def _key(record: Record, *, timed: bool) -> int:
    return hash((record.key, record.value, record.headers, record.timestamp_ms if timed else None))


class _Recent:
    """The source offsets of the last 100,000 to 200,000 numbers that were added."""

    def __init__(self) -> None:
        # Two generations: to forget one number at a time costs more than to add it.
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def add(self, number: int, offset: int) -> None:
        if len(self._new) >= _MAX_ENTRIES:
            self._new, self._old = {}, self._new
        self._new[number] = offset

    def get(self, number: int) -> int | None:
        found = self._new.get(number)
        return self._old.get(number) if found is None else found


class History:
    """Remembers the last 100,000 batches by their edges, and as many records that were compared one by one.

    Of batches that were compared as bytes, the last 4 MiB are kept, and are decoded once a repetition is asked for.
    """

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes: Final = max_batch_bytes
        self._batches: Final = _Recent()
        self._records: Final = _Recent()
        self._kept: Final = deque[tuple[bytes, bytearray]]()
        self._kept_bytes = 0

    def add_batch(self, batch: Batch, records: bytearray) -> None:
        """Remember a batch of the source, and its ``records`` as bytes."""
        self._batches.add(identity(batch), batch.base_offset)
        self._kept.append((bytes(batch.view[:HEADER_BYTES]), records))
        self._kept_bytes += len(records)
        while self._kept_bytes > _MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])

    def add(self, record: Record, *, timed: bool) -> None:
        """Remember a record of the source, as the flow writes it; not ``timed``, the target's broker set its time."""
        self._records.add(_key(record, timed=timed), record.offset)

    def find(self, item: Item) -> int | None:
        """Return the source offset of a record of the target that was there before; None if it is not known."""
        while self._kept:
            header, records = self._kept.popleft()
            self._decode(Batch(memoryview(bytearray(header) + records)))
        self._kept_bytes = 0
        found = self._records.get(_key(item.record, timed=item.has_time))
        return self._batches.get(item.batch) if found is None else found

    def _decode(self, batch: Batch) -> None:
        try:
            for record in records_of(batch, self._max_batch_bytes):
                for timed in (True, False):
                    self.add(record, timed=timed)
        except MirrorError:
            return  # both sides have it as it is
