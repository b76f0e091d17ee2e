"""The output of a batch pipeline, and the bytes that it refers to. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.reencode import ReencodeReason
from mirror.wire.records import Batch


@dataclass(slots=True, eq=False)
class BufferRef:
    """A reference count for ``size`` bytes: one partition's part of a fetch, or the output of one re-encoding."""

    size: int
    on_released: Callable[[BufferRef], None]
    fetched: Fetched | None = None
    references: int = 0

    def release(self) -> None:
        """Drop one reference; the last one releases the bytes."""
        self.references -= 1
        if self.references == 0:
            self.on_released(self)


@dataclass(slots=True, eq=False)
class OutputBatch:
    """What to write next, up to source offset ``next_offset``."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    batch: Batch | None = None
    """None if nothing is to be written."""
    buffer: BufferRef | None = None
    """The bytes of ``batch``; None if it has none."""
    reason: ReencodeReason | None = None
    """Why it was re-encoded; None if it is passed on as bytes."""
    count: int = 0
    """The records of ``batch``."""
    received_ms: int = 0
    """As :attr:`mirror.consumer.fetched.Fetched.received_ms`, of the first source batch in it."""
    append_time_ms: int | None = None
    """When the source's broker has appended ``batch``; None if its records have timestamps of their own.

    The batch itself does not say it once it was sent: see :meth:`mirror.wire.records.Batch.patch`.
    """
    jumps: Sequence[int] = ()
    """As :attr:`mirror.relay.batches.reencode.ReencodedBatch.jumps`; empty if the records adjoin in the source."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Batches and records that were left out, by reason."""
    reencoded: dict[str, int] = field(default_factory=dict)
    """Re-encoded source batches that end with this output, by reason."""
    gaps: Counter[str] = field(default_factory=Counter)
    """Offsets before or in it that hold nothing to copy, by reason."""
    tried: frozenset[ReencodeReason] = frozenset()
    """The remedies that were applied to it."""
    aside: Mapping[str, int] = field(default_factory=dict)
    """The number of its records by reason, if ``batch`` goes to the aside topic instead of the target partition."""
