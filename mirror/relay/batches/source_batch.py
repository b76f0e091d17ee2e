"""A source batch that waits in a batch pipeline, and which of them are re-encoded together. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirror.errors import CorruptBatch
from mirror.relay.batches.output_batch import BufferRef
from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.batches.reencode_decision import SkipReason, codec_of, has_bad_timestamp, is_small
from mirror.wire.records import AnyBatch, Batch


@dataclass(slots=True)
class SourceBatch:
    """A source batch in the backlog of a pipeline."""

    batch: AnyBatch
    buffer: BufferRef
    gaps: Mapping[str, int]
    """The missing offsets before and in it, by kind."""
    end: int
    skip: SkipReason | None = None
    reason: ReencodeReason | None = None
    remedies: frozenset[ReencodeReason] = frozenset()
    alone: bool = False
    """Not to be merged with its neighbours."""
    error: CorruptBatch | None = None
    damaged: bool = False
    """It could not be decoded, however often it was fetched: as it is, it goes aside."""

    @property
    def skipped_count(self) -> int:
        """How much is counted if it is skipped: the records of another origin, else one batch."""
        if self.skip is SkipReason.NOT_LOCAL and isinstance(self.batch, Batch):
            return int(self.batch.count)
        return 1


def merges_with(first: SourceBatch, pending: SourceBatch, allowed: tuple[int, int]) -> bool:
    """Whether ``pending`` can be re-encoded together with ``first``, and is worth it."""
    if (
        pending.remedies
        or first.remedies
        or pending.reason is ReencodeReason.TOO_LARGE
        or first.reason is ReencodeReason.TOO_LARGE
    ):
        return False
    if codec_of(pending.batch) != codec_of(first.batch) or has_bad_timestamp(pending.batch, allowed):
        return False
    if first.reason is not None:
        return pending.reason is not None
    return pending.reason is None and is_small(pending.batch)
