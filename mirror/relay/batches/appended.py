"""Finds in the source what a copy has appended to its target, by comparing the records. Pure.

The encoder's batches are not repeated: how small batches are merged depends on when they were fetched. What counts are
the records that a copy writes, in order: those of the batches that are not skipped, within the range, and changed by
the flow. So the source goes through the same decisions as in :class:`~.batch_pipeline.BatchPipeline`, without encoding.
Both sides are read once, and at most one batch of each is held decoded.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.relay.batches.reencode import ReencodeSpec, record_change
from mirror.relay.batches.reencode_decision import IsForeign, codec_of, skip_reason
from mirror.relay.batches.sequence_match import SequenceMatcher
from mirror.relay.model.ranges import OPEN_END
from mirror.wire.decode import Record, records_of
from mirror.wire.header_names import name_bytes
from mirror.wire.legacy import MessageSet
from mirror.wire.records import HEADER_BYTES, AnyBatch, Batch

MAX_SHIFTED_RECORDS: Final = 100_000
"""Of how many of the last records a digest is kept if it is not known which source record is the first: 20 MB."""
_DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">q")


class Unproved(Exception):
    """The position cannot be proved; the text is the reason."""


class Differs(Unproved):
    """The target does not have the records that the source has there, or none that the source still has."""


class NothingExpected(Differs):
    """The target has a record, and the source has no more."""


class SourcePosition(NamedTuple):
    """The offset after a source record, and the leader epoch of the record's batch (-1: not known)."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Shift:
    """How many records may be missing at the beginning of each side, since its log begins later than the progress."""

    source: int = 0
    target: int = 0

    @property
    def possible(self) -> bool:
        """Whether any may be missing."""
        return self.source > 0 or self.target > 0


class ExpectedRecords:
    """The records that a copy writes for the batches of a source partition, from ``start`` up to the offset ``end``."""

    def __init__(
        self,
        fetches: Iterable[Fetched],
        start: int,
        spec: ReencodeSpec,
        end: int = OPEN_END,
        is_foreign: IsForeign | None = None,
    ) -> None:
        """``spec`` has the flow's headers and transform; its limits of timestamps and sizes do not apply here."""
        self._is_foreign: Final = is_foreign
        self._start: Final = start
        self._end: Final = end
        self.max_bytes: Final = spec.max_source_bytes
        """The largest size of a batch, decompressed."""
        self._headers: Final = spec.headers
        # What the flow adds may have been edited since: it is not expected, and may be there.
        self._change: Final = record_change(replace(spec, headers=()))
        self._batches: Final = self._to_copy(fetches)
        self._batch: AnyBatch | None = None
        self._records: Iterator[Record] | None = None
        self._next: Record | None = None
        self.position: SourcePosition | None = None
        """Behind the last record that was taken; None before the first one."""

    # Invariant: The offset index and the search for the exact position leave out the same batches that flows have
    #   written to the source.
    # Test: tests/relay/batches/
    #   test_appended_properties.py::test_batches_that_flows_have_written_to_the_source_are_not_expected_in_the_target
    def _to_copy(self, fetches: Iterable[Fetched]) -> Iterator[AnyBatch]:
        at = self._start
        for fetched in fetches:
            for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
                if not isinstance(batch, MessageSet) and batch.base_offset >= self._end:
                    return
                if batch.next_offset > at:
                    at = batch.next_offset
                    if skip_reason(batch, aborted=aborted, is_foreign=self._is_foreign) is None:
                        yield batch

    def take_same(self, own: Batch) -> int | None:
        """Take a whole source batch if ``own`` has exactly its bytes; return its base offset.

        This needs no decoding. Otherwise nothing is taken, and the records have to be compared.
        """
        if self._change is not None or self._peek_in_batch() is not None:
            return None
        batch = self._peek_batch()
        if not isinstance(batch, Batch) or batch.base_offset < self._start or batch.next_offset > self._end:
            return None
        if not _is_same(batch, own):
            return None
        batch.verify()
        own.verify()
        self._batch = None
        self.position = SourcePosition(batch.next_offset, batch.leader_epoch)
        return int(batch.base_offset)

    def is_next(self, batch: Batch, start: int = 0) -> bool:
        """Whether the first record of ``batch`` from the target offset ``start`` on is the next one.

        Raises CorruptBatch, BatchTooLarge.
        """
        first, wanted = next(_records_from(batch, start, self.max_bytes), None), self._peek()
        if first is None or wanted is None:
            return False
        return not _difference(first, wanted, timestamps=not batch.has_log_append_time)

    @property
    def at_end(self) -> bool:
        """Whether there are no more batches. Decodes nothing: there may be batches without a record."""
        return self._peek_in_batch() is None and self._peek_batch() is None

    @property
    def exhausted(self) -> bool:
        """Whether there are no more records. Reads on; raises CorruptBatch, BatchTooLarge."""
        return self._peek() is None

    def _peek(self) -> Record | None:
        while (record := self._peek_in_batch()) is None:
            batch = self._peek_batch()
            if batch is None:
                return None
            self._records = self._changed(batch)
        return record

    def take_written(self) -> Record | None:
        """Take the next record, with the headers that the flow adds now."""
        record = self.take()
        return record and record._replace(headers=(*record.headers, *self._headers))

    def take(self) -> Record | None:
        """Take the next record, without what the flow adds to its headers; None if the source has no more.

        Its ``offset`` is that in the source.
        """
        record = self._peek()
        if record is None:
            return None
        self._next = None
        if self._batch is not None:
            self.position = SourcePosition(record.offset + 1, self._batch.leader_epoch)
        return record

    def _peek_batch(self) -> AnyBatch | None:
        if self._batch is None:
            self._batch = next(self._batches, None)
        return self._batch

    def _peek_in_batch(self) -> Record | None:
        """Return the next record of the batch that is being decoded; None if it has none, or no batch is."""
        if self._next is None and self._records is not None:
            self._next = next(self._records, None)
            if self._next is None:
                self._records = self._batch = None
        return self._next

    def _changed(self, batch: AnyBatch) -> Iterator[Record]:
        dropped: Counter[str] = Counter()
        for record in records_of(batch, self.max_bytes):
            if not self._start <= record.offset < self._end:
                continue
            changed = record if self._change is None else self._change(record, dropped)
            if changed is not None:
                yield changed._replace(offset=record.offset)


def _is_same(batch: Batch, own: Batch) -> bool:
    if batch.count != own.count or batch.size != own.size or codec_of(batch) != codec_of(own):
        return False
    if not own.has_log_append_time and (batch.has_log_append_time or batch.base_timestamp != own.base_timestamp):
        return False
    return bytes(batch.view[HEADER_BYTES:]) == bytes(own.view[HEADER_BYTES:])


# --- comparison from the progress on


# Invariant: Records are compared, not batches: how small batches are merged depends on when they were fetched, and
#   brokers may recompress.
# Test: tests/relay/batches/
#   test_appended_properties.py::test_position_is_behind_what_was_appended_whatever_the_records_and_batches
def compare(own: Iterable[Batch], start: int, expected: ExpectedRecords) -> None:
    """Take from ``expected`` the records of ``own`` from the target offset ``start`` on. Raises Unproved.

    All must be equal, in the same order, from the first one on. Raises CorruptBatch and BatchTooLarge, too.
    """
    for _ in paired(own, start, expected):
        pass


def paired(own: Iterable[Batch], start: int, expected: ExpectedRecords) -> Iterator[tuple[int, int, int]]:
    """Do what :func:`compare` does, and yield what is equal: a source offset, its target offset, how many follow.

    Raises NothingExpected behind the last expected record.
    """
    for batch in own:
        if batch.base_offset >= start and (source_base := expected.take_same(batch)) is not None:
            yield source_base, batch.base_offset, batch.next_offset - batch.base_offset
            continue
        for record in _records_from(batch, start, expected.max_bytes):
            wanted = expected.take()
            if wanted is None:
                raise NothingExpected(
                    f"the target's record at offset {record.offset} is not in the source, which has no more records"
                )
            difference = _difference(record, wanted, timestamps=not batch.has_log_append_time)
            if difference:
                raise Differs(
                    f"the target's record at offset {record.offset} differs in its {difference} from the source's"
                    f" record at offset {wanted.offset}, as the flow copies it now"
                )
            yield wanted.offset, record.offset, 1


def _records_from(batch: Batch, start: int, max_bytes: int) -> Iterator[Record]:
    return (record for record in records_of(batch, max_bytes) if record.offset >= start)


def _difference(record: Record, wanted: Record, *, timestamps: bool) -> str:
    """Return what differs: null differs from empty, and the order of headers counts.

    ``record`` may have more headers behind those that are ``wanted``: the flow adds some, at that time perhaps others
    than now.
    """
    if record.key != wanted.key:
        return "key"
    if record.value != wanted.value:
        return "value"
    if tuple(record.headers)[: len(wanted.headers)] != tuple(wanted.headers):
        return "headers"
    return "timestamp" if timestamps and record.timestamp_ms != wanted.timestamp_ms else ""


# --- comparison if it is not known which record is the first


# Invariant: A position is proved, or it is an error: where records of a log are missing, exactly one place must be
#   possible.
# Test: tests/relay/batches/
#   test_appended_properties.py::test_a_place_is_right_or_unproved_whatever_is_missing
def find_shifted(
    own: Iterable[Batch],
    start: int,
    expected: ExpectedRecords,
    shift: Shift,
    *,
    timestamps: bool,
    keep: int = MAX_SHIFTED_RECORDS,
    first_is_uncertain: bool = False,
) -> None:
    """Take from ``expected`` up to the last record of ``own``. Raises Unproved unless only one place is possible.

    The first record of ``own`` is the k-th expected one, where k is from ``-shift.source`` to ``shift.target``: each
    missing record had an offset. A place is possible if all records that both sides have there are equal, also if
    these are none. ``timestamps``: whether they are compared, too. At most ``keep`` of the last records are compared.
    ``first_is_uncertain``: the first ones may be in front of the progress, so that only those that continue it count.
    Elsewhere, equal records may be others than the copied ones.
    """
    tail, skipped = _last_digests(own, start, expected.max_bytes, timestamps=timestamps, keep=keep)
    places = _places(tail, expected, range(skipped - shift.source, skipped + shift.target + 1), timestamps=timestamps)
    if len(tail) + skipped <= shift.source:
        reason = (
            f"of the source's offsets behind the progress {shift.source} are gone, and only {len(tail) + skipped}"
            " records were found in the target: the source may have none of them any more"
        )
        raise Unproved(reason) if places else Differs(reason)
    if not places:
        raise Differs("the records in the target are not in what is left of the source, as the flow copies it now")
    if len(places) > 1:
        raise Unproved(
            "the records in the target are equal to the source's in more than one place: which ones were copied cannot"
            " be shown"
        )
    place, position = places[0]
    if first_is_uncertain and (shift.source or place > skipped):
        raise Unproved(
            "the records in the target are equal to some of the source's behind the progress, but may be those of the"
            " transaction that has stored the progress"
        )
    expected.position = position


def _last_digests(
    own: Iterable[Batch], start: int, max_bytes: int, *, timestamps: bool, keep: int
) -> tuple[list[bytes], int]:
    """Return the digests of the last ``keep`` records, and how many there are before these."""
    digests: deque[bytes] = deque(maxlen=keep)
    count = 0
    for batch in own:
        for record in _records_from(batch, start, max_bytes):
            digests.append(digest_of(record, timestamps=timestamps))
            count += 1
    return list(digests), count - len(digests)


def _places(
    tail: list[bytes], expected: ExpectedRecords, places: range, *, timestamps: bool
) -> list[tuple[int, SourcePosition]]:
    """Return the first two of ``places`` that are possible, with the position behind the last record of ``tail``.

    A place is the index of the expected record that the first one of ``tail`` is; below 0, the source lacks some.
    """
    found: list[tuple[int, SourcePosition]] = []
    matcher = SequenceMatcher(tail)
    first = list[bytes]()
    offsets, epochs = array("q"), array("q")
    for index in range(places.stop - 1 + len(tail)):
        record = expected.take_written()
        if record is None or expected.position is None:
            break
        digest = digest_of(record, timestamps=timestamps)
        if index < len(tail):
            first.append(digest)
            offsets.append(expected.position.offset)
            epochs.append(expected.position.leader_epoch)
        place = index - len(tail) + 1
        if matcher.feed(digest) and place in places:
            found.append((place, expected.position))
            if len(found) > 1:
                return found
    if first:
        # The end of the tail that is the beginning of the expected records.
        ends = SequenceMatcher(first)
        for digest in tail:
            ends.feed(digest)
        found += [
            (length - len(tail), SourcePosition(offsets[length - 1], epochs[length - 1]))
            for length in ends.lengths()
            if length < len(tail) and length - len(tail) in places
        ]
    return found


def digest_of(record: Record, *, timestamps: bool) -> bytes:
    """Return a digest of what is compared; a length before each part distinguishes null from empty."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += [name_bytes(name), value]
    digest.update(_LENGTH.pack(len(parts)))
    for part in parts:
        digest.update(_LENGTH.pack(-1 if part is None else len(part)))
        digest.update(part or b"")
    if timestamps:
        digest.update(_LENGTH.pack(record.timestamp_ms))
    return digest.digest()
