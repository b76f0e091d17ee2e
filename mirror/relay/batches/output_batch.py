"""What a feed hands on, and whose bytes it stands on. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mirror.consumer.fetched import Fetched
from mirror.relay.batches.reencode import Reason
from mirror.wire.records import Batch


@dataclass(slots=True, eq=False)
class BufferRef:
    """``size`` bytes that belong together: what one fetch brought of a partition, or one encoding made.

    ``left`` counts who still needs them; the last one to be done with them gives them back.
    """

    size: int
    on_released: Callable[[BufferRef], None]
    fetched: Fetched | None = None
    references: int = 0

    def release(self) -> None:
        """One of them is done."""
        self.references -= 1
        if self.references == 0:
            self.on_released(self)


@dataclass(slots=True, eq=False)
class OutputBatch:
    """What is to be written next, up to source offset ``next_offset``.

    ``batch``, of ``count`` records, is None where nothing is to be written. ``part`` is where its bytes are, None where
    it has none; ``reason`` why it was encoded anew, ``tried`` the remedies that were applied to it. ``dropped`` counts
    what was left out in it, ``deep`` the source batches that were encoded anew and end with it, ``gaps`` the offsets
    before or in it that held nothing to copy.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    batch: Batch | None = None
    buffer: BufferRef | None = None
    reason: Reason | None = None
    count: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    reencoded: dict[str, int] = field(default_factory=dict)
    gaps: Counter[str] = field(default_factory=Counter)
    tried: frozenset[Reason] = frozenset()
