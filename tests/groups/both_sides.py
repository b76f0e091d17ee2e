"""Two logs in memory that feed each other: each has records of its own, and copies of the other side's own ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from mirror.groups.translation.back_logs import BackPartitionLogs
from mirror.groups.translation.both_directions import BothDirectionsPartition
from mirror.groups.translation.logs import PartitionLogs
from mirror.groups.translation.lowest import EndsSeen, kept_ends
from mirror.relay.offsets.extents import Extent
from mirror.relay.offsets.index import Hole, OffsetIndex
from mirror.relay.offsets.log_answers import LogStarts
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.progress.committed import Beginning
from tests.relay.offsets.test_segments import segment

A, B = 0, 1
_EPOCH: Final = 1

Record = tuple[int, int]
"""The side that has produced it, and a number."""


class Copied(NamedTuple):
    """What a flow knows at a commit."""

    progress: int
    extents: tuple[Extent, ...]
    target_end: int
    """Behind its last append."""


_NOTHING: Final = Copied(0, (), 0)


@dataclass
class Flow:
    """Copies the own records of one side to the other."""

    source: int
    beginning: Beginning
    position: int = 0
    extents: list[Extent] = field(default_factory=list)
    target_end: int = 0
    known: Copied = _NOTHING
    indexed: Copied = _NOTHING
    """What of it is in the index."""

    def offsets(
        self, fill: Callable[[Hole], list[Extent]], count: Callable[[int, int | None], int]
    ) -> PartitionOffsets:
        indexed, known = self.indexed, self.known
        segments = [segment(0, indexed.progress, *indexed.extents)] if indexed.extents else []
        index = OffsetIndex(
            segments, known.progress, exactly_once=True, beginning=self.beginning, target_end=known.target_end
        )
        return PartitionOffsets(index, fill, LogStarts(0, 0), count=count)


class BothSides:
    """The logs of both sides, and the flows between them. None is a marker."""

    def __init__(self, before: tuple[int, int]) -> None:
        """``before`` are the own records that both logs have before the flows begin."""
        self.logs: Final[tuple[list[Record | None], list[Record | None]]] = [], []
        self._numbers = 0
        for side, count in enumerate(before):
            self.produce(side, count)
        self.flows: Final = tuple(
            Flow(
                side,
                Beginning(0, len(self.logs[1 - side])),
                target_end=len(self.logs[1 - side]),
                known=Copied(0, (), len(self.logs[1 - side])),
            )
            for side in (A, B)
        )
        self._seen: Final[tuple[list[EndsSeen], list[EndsSeen]]] = [], []

    def produce(self, side: int, count: int) -> None:
        for _ in range(count):
            self._numbers += 1
            self.logs[side].append((side, self._numbers))

    def mark(self, side: int) -> None:
        """A transaction ends on a side."""
        self.logs[side].append(None)

    def copy(self, side: int, offsets: int) -> None:
        """The flow that copies from ``side`` reads so many offsets."""
        flow, target = self.flows[side], self.logs[1 - side]
        for offset in range(flow.position, min(flow.position + offsets, len(self.logs[side]))):
            record = self.logs[side][offset]
            if record is not None and record[0] == side:
                last = flow.extents[-1] if flow.extents else Extent(-1, -1, 0)
                if (last.source + last.length, last.target + last.length) == (offset, len(target)):
                    flow.extents[-1] = last._replace(length=last.length + 1)
                else:
                    flow.extents.append(Extent(offset, len(target), 1))
                target.append(record)
                flow.target_end = len(target)
            flow.position = offset + 1

    def commit(self, side: int, *, index: bool) -> None:
        """The flow that copies from ``side`` commits its progress, and may write its index."""
        flow = self.flows[side]
        flow.known = Copied(flow.position, tuple(flow.extents), flow.target_end)
        if index:
            flow.indexed = flow.known

    def settle(self) -> None:
        """Everything is copied and indexed."""
        for _ in range(2):
            for side in (A, B):
                self.copy(side, len(self.logs[side]))
                self.commit(side, index=True)

    def opened(self, source: int, *, see_ends: bool = True) -> BothDirectionsPartition:
        """What a round knows that brings positions over from ``source``."""
        target = 1 - source
        ahead, back = self.flows[source], self.flows[target]
        latest = EndsSeen(len(self.logs[target]), len(self.logs[source]), _EPOCH) if see_ends else None
        seen = kept_ends(self._seen[source], latest, ahead.known.progress)
        self._seen[source][:] = seen
        return BothDirectionsPartition(
            offsets=ahead.offsets(lambda hole: self._runs_in(ahead, hole), partial(self._count, target)),
            back=BackPartitionLogs(
                offsets=back.offsets(lambda hole: self._runs_in(back, hole), partial(self._count, source))
            ),
            seen=seen if see_ends else [],
            target_end=None if latest is None else latest.target,
        )

    def copied(self, source: int) -> PartitionLogs:
        """What the index of the flow from ``source`` says, if only that one copies."""
        flow = self.flows[source]
        return PartitionLogs(flow.offsets(partial(self._runs_in, flow), partial(self._count, 1 - source)))

    def _count(self, side: int, start: int, end: int | None) -> int:
        return sum(record is not None for record in self.logs[side][start:end])

    @staticmethod
    def _runs_in(flow: Flow, hole: Hole) -> list[Extent]:
        """As found in both logs."""
        found = []
        for extent in flow.known.extents:
            start, end = max(extent.source, hole.start), min(extent.source + extent.length, hole.end)
            if start < end:
                found.append(Extent(start, extent.target + start - extent.source, end - start))
        return found

    def read(self, side: int, offset: int) -> set[Record]:
        """The records in front of an offset."""
        return {record for record in self.logs[side][:offset] if record is not None}

    def from_on(self, side: int, offset: int) -> list[Record]:
        """The records from an offset on."""
        return [record for record in self.logs[side][offset:] if record is not None]
