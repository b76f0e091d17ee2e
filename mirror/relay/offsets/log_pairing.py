"""Finds in both logs which target offsets the records of a hole in an offset index have. Pure.

The records of the target are compared with those that the copy writes for the source's batches, as in
:mod:`mirror.relay.batches.appended`. What other producers have written between them is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.relay.batches.appended import ExpectedRecords, NothingExpected, Unproved, digest_of, paired
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import Hole
from mirror.wire.decode import records_of
from mirror.wire.records import Batch

MAX_COPIES: Final = 500_000
"""At least once, at most so many records of each side are compared: their digests take 50 bytes each."""

ReadLogs = Callable[[], tuple[Iterable[Fetched], ExpectedRecords]]
"""Begins to read both logs of a hole: the target's fetches, and what the copy writes for the source's."""


def pair_once(hole: Hole, read_logs: ReadLogs, producer_ids: Collection[int]) -> list[Extent]:
    """Return the extents in ``hole`` of a copy exactly once, whose records are in the target once and in order.

    ``producer_ids`` are known to be the copy's. Only if their batches are not all of it, those of others count, too, if
    they begin with the record that is expected there. Raises Unproved, CorruptBatch, BatchTooLarge.
    """
    try:
        return _pair_in_order(hole, *read_logs(), producer_ids, others_count=False)
    except Unproved:
        return _pair_in_order(hole, *read_logs(), producer_ids, others_count=True)


def _pair_in_order(
    hole: Hole,
    target: Iterable[Fetched],
    expected: ExpectedRecords,
    producer_ids: Collection[int],
    *,
    others_count: bool,
) -> list[Extent]:
    def own() -> Iterator[Batch]:
        for batch in _committed(hole, target):
            if expected.at_end:
                return
            if batch.producer_id in producer_ids or (others_count and expected.is_next(batch, hole.target_start)):
                yield batch

    extents: list[Extent] = []
    try:
        for source, at, length in paired(own(), hole.target_start, expected):
            _add(extents, source, at, length)
    except NothingExpected:
        return extents  # the batch goes on behind the hole
    if not expected.exhausted:
        raise Unproved("the target does not have all records that the source has there")
    return extents


def _committed(hole: Hole, target: Iterable[Fetched]) -> Iterator[Batch]:
    at = hole.target_start
    for fetched in target:
        for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
            if hole.target_end is not None and batch.base_offset >= hole.target_end:
                return
            if isinstance(batch, Batch) and batch.next_offset > at:
                at = batch.next_offset
                if not (aborted or batch.is_control) and batch.count > 0:
                    yield batch


def pair_last(hole: Hole, read_logs: ReadLogs) -> list[Extent]:
    """Return the extents in ``hole`` of a copy at least once, which may have repeated records: the last copies count.

    So the comparison goes backwards: the last record of the hole is at its last copy, the one before at the last copy
    in front of that. Raises Unproved, CorruptBatch, BatchTooLarge.
    """
    target, expected = read_logs()
    if expected.exhausted:
        return []
    target_end = OPEN_END if hole.target_end is None else hole.target_end
    copies: list[tuple[int, bytes, bytes]] = []
    timestamps = True
    for batch in _committed(hole, target):
        timestamps = timestamps and not batch.has_log_append_time
        copies += [
            (record.offset, digest_of(record, timestamps=True), digest_of(record, timestamps=False))
            for record in records_of(batch, expected.max_bytes)
            if hole.target_start <= record.offset < target_end
        ]
        if len(copies) > MAX_COPIES:
            raise Unproved(f"the target has more than {MAX_COPIES} records there")
    wanted: list[tuple[int, bytes]] = []
    while (record := expected.take_written()) is not None:
        wanted.append((record.offset, digest_of(record, timestamps=timestamps)))
        if len(wanted) > MAX_COPIES:
            raise Unproved(f"the source has more than {MAX_COPIES} records there")
    found: list[Extent] = []
    for source, digest in reversed(wanted):
        while copies and copies[-1][1 if timestamps else 2] != digest:
            copies.pop()
        if not copies:
            raise Unproved(f"the target does not have the source's record at offset {source} in order")
        found.append(Extent(source, copies.pop()[0], 1))
    extents: list[Extent] = []
    for extent in reversed(found):
        _add(extents, *extent)
    return extents


def _add(extents: list[Extent], source: int, target: int, length: int) -> None:
    if (
        extents
        and extents[-1].source + extents[-1].length == source
        and extents[-1].target + extents[-1].length == target
    ):
        extents[-1] = extents[-1]._replace(length=extents[-1].length + length)
    else:
        extents.append(Extent(source, target, length))
