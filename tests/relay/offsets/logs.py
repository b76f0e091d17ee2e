"""Fills the holes of an offset index from logs in memory, as the translator does from those of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched, without_aborted
from mirror.relay.batches.appended import ExpectedRecords, Unproved
from mirror.relay.batches.reencode import ReencodeSpec
from mirror.relay.offsets.index import Hole, OffsetIndex, Translation
from mirror.relay.offsets.log_pairing import pair_last, pair_once
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import values_of

_TP = TopicPartition("t", 0)


class LogReader:
    """Batches from an offset on, and which transactions were aborted; none in front of ``start``."""

    def __init__(self, batches: Sequence[AnyBatch], aborted: Iterable[tuple[int, int]] = (), start: int = 0) -> None:
        """``aborted`` are (producer id, first offset)."""
        self._batches = batches
        self._aborted = tuple(AbortedTransaction(*one) for one in aborted)
        self._start = start

    @classmethod
    def of(cls, log: PartitionLog) -> LogReader:
        aborted = [(one.producer_id, one.first_offset) for one in log.aborted]
        end = log.last_stable_offset
        return cls([one for one in log.batches() if one.base_offset < end], aborted, log.start_offset)

    def read(self, offset: int) -> list[Fetched]:
        if offset < self._start:
            raise Unproved("the log begins later")
        batches = [one for one in self._batches if one.next_offset > offset]
        return [Fetched(tp=_TP, offset=offset, next_offset=offset, batches=batches, aborted=self._aborted)]

    def records(self) -> dict[int, bytes]:
        """The committed records."""
        return {
            one.base_offset + at: value
            for one, aborted in without_aborted(self._batches, self._aborted)
            if isinstance(one, Batch) and not (one.is_control or aborted)
            for at, value in enumerate(values_of(one.view))
        }


def resolved(
    index: OffsetIndex,
    translate: Callable[[int], Translation | Hole],
    offset: int,
    source: LogReader,
    target: LogReader,
    *,
    exactly_once: bool,
    producer_ids: frozenset[int] = frozenset(),
) -> Translation:
    """Translate ``offset``, and fill holes with what both logs have."""
    while isinstance(hole := translate(offset), Hole):

        def read_logs(hole: Hole = hole) -> tuple[list[Fetched], ExpectedRecords]:
            expected = ExpectedRecords(source.read(hole.start), hole.start, ReencodeSpec(), hole.end)
            return target.read(hole.target_start), expected

        try:
            pairs = pair_once(hole, read_logs, producer_ids) if exactly_once else pair_last(hole, read_logs)
            index.fill(hole, pairs)
        except Unproved:
            index.leave_unknown(hole)
    return hole
