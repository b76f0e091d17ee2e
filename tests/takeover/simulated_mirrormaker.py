"""What MirrorMaker 2 leaves in a target partition: it copies, stores offsets late, is killed, and begins again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.takeover.matching import Pair
from mirror.wire.decode import Record


class Attempt(NamedTuple):
    """From one start of MirrorMaker 2 until it is killed."""

    copies: int
    """How many records it copies; it stops early at the end of the source."""
    flushed: int
    """After so many of them it stores its offset; not at all if there are fewer."""
    resent: int = 0
    """So many of its last records are in the target twice: an acknowledgement was lost, and they were sent again."""


@dataclass
class SimulatedMirrorMaker:
    """Without exactly-once support, for one partition."""

    source: list[Record]
    lag_max: int = 3
    """``offset.lag.max``."""
    stored: int = -1
    target: list[Record] = field(default_factory=list)
    syncs: list[Pair] = field(default_factory=list)
    reached: int = 0
    """How many of the source's records have been copied."""

    def run(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._run(attempt)

    def _run(self, attempt: Attempt) -> None:
        ahead = [record for record in self.source if record.offset > self.stored][: attempt.copies]
        last_sync = last_copied = -1
        for count, record in enumerate(ahead, 1):
            copy = self.append(record)
            if last_sync < 0 or copy - (last_sync + 1) >= self.lag_max or record.offset != last_copied + 1:
                self.syncs.append(Pair(record.offset, copy))
                last_sync = copy
            last_copied = record.offset
            if count == attempt.flushed:
                self.stored = record.offset
        if ahead:
            self.reached = max(self.reached, self.source.index(ahead[-1]) + 1)
        for record in ahead[len(ahead) - attempt.resent :] if attempt.resent else ():
            self.append(record)

    def append(self, record: Record) -> int:
        """Return the offset in the target."""
        offset = self.target[-1].offset + 1 if self.target else 0
        self.target.append(record._replace(offset=offset))
        return offset

    @property
    def doubled(self) -> int:
        """How many records are in the target more often than they were copied."""
        return len(self.target) - self.reached
