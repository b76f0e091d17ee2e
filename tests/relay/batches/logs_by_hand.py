"""Logs of a partition by hand: batches of given records, at given offsets, and fetches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.wire.encode import BatchBuilder
from mirror.wire.legacy import MessageSet
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import LOG_APPEND_TIME, AnyBatch, Batch
from tests.fakes.record_batches import batch as batch_in
from tests.fakes.record_batches import build_marker, crc32c, stamped
from tests.wire.legacy_sets import whole_set

TP = TopicPartition("t", 0)
NO_LIMIT = 2**31 - 1


class Made(NamedTuple):
    """A record without its offset."""

    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int = 5


def batch_at(
    offset: int,
    records: Sequence[Made],
    *,
    codec: str = "none",
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    append_time_ms: int | None = None,
) -> Batch:
    """As a broker keeps it. ``producer`` is (id, epoch, sequence); with ``append_time_ms`` the broker set the times."""
    builder = BatchBuilder(codec, NO_LIMIT)
    for key, value, headers, time_ms in records:
        assert builder.append(key, value, headers, time_ms)
    made = builder.build()
    made.patch(*producer, transactional=transactional)
    kept = stamped(made.view, offset, epoch)
    if append_time_ms is not None:
        kept[22] |= LOG_APPEND_TIME
        kept[35:43] = append_time_ms.to_bytes(8, "big", signed=True)
        kept[17:21] = crc32c(bytes(kept[21:])).to_bytes(4, "big")
    return batch_in(kept)


def marker_at(offset: int, producer_id: int, producer_epoch: int, kind: int, *, epoch: int = 0) -> Batch:
    return batch_in(stamped(build_marker(producer_id, producer_epoch, kind, base_offset=offset), offset, epoch))


def old_set_at(offset: int, records: Sequence[Made], *, magic: int = 1, codec: str = "gzip") -> MessageSet:
    """A message set of an old format, in which there are no headers."""
    made = whole_set(magic, [(one.time_ms, one.key, one.value) for one in records], codec, offset)
    return MessageSet(memoryview(made))


def fetched(*batches: AnyBatch, aborted: Sequence[AbortedTransaction] = ()) -> Fetched:
    return Fetched(
        tp=TP,
        offset=batches[0].base_offset,
        next_offset=batches[-1].next_offset,
        batches=list(batches),
        aborted=tuple(aborted),
    )
