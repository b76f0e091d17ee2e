"""A target's log by hand: the batches of a copy, where they were appended, and the fetches that return them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.relay.readback.comparison import PartitionReadBack
from mirror.relay.readback.written import WrittenBatch
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import CODEC_MASK, HEADER_BYTES, Batch
from tests.fakes.record_batches import batch, build, crc32c, stamped

TARGET = TopicPartition("paris.t", 0)
SOURCE_BEGIN = 500
"""The source offset of the first batch."""


def written(one: Batch, source_start: int, *, follows: bool = True) -> WrittenBatch:
    return WrittenBatch(
        source_start,
        source_start + one.count,
        one.base_offset,
        one.count,
        one.size,
        one.attributes & CODEC_MASK,
        one.base_timestamp,
        crc32c(bytes(one.view[HEADER_BYTES:])),
        follows,
    )


def batches_of(*values: Sequence[bytes], base_offset: int = 0, **header: Any) -> list[Batch]:
    """One batch of each, behind one another."""
    found = list[Batch]()
    for each in values:
        found.append(batch(build(each, base_offset=base_offset, **header)))
        base_offset = found[-1].next_offset
    return found


def committed(batches: Sequence[Batch]) -> list[WrittenBatch]:
    """What the copy remembers of them: the first one begins an attempt."""
    source, found = SOURCE_BEGIN, list[WrittenBatch]()
    for one in batches:
        found.append(written(one, source, follows=bool(found)))
        source += one.count
    return found


def moved(one: Batch, offset: int) -> Batch:
    return batch(stamped(one.view, offset, 3))


def fetch(
    batches: Sequence[Batch], offset: int, *, log_start: int = 0, aborted: tuple[AbortedTransaction, ...] = ()
) -> Fetched:
    found = [one for one in batches if one.next_offset > offset]
    ends = found[-1].next_offset if found else offset
    return Fetched(
        tp=TARGET, offset=offset, next_offset=ends, batches=found, log_start_offset=log_start, aborted=aborted
    )


def read_back(
    sent: Sequence[Batch],
    stored: Sequence[Batch],
    *,
    mode: str = "all",
    compacted: bool = False,
    exactly_once: bool = True,
    log_start: int = 0,
) -> PartitionReadBack:
    """Compare all at once."""
    core = PartitionReadBack(mode, compacted=compacted, exactly_once=exactly_once)
    core.add(committed(sent), 0)
    offset = core.fetch_offset
    assert offset is not None
    core.on_fetched(fetch(stored, offset, log_start=log_start))
    return core
