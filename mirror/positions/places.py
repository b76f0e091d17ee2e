"""Positions in the source's topics, and what they are on the target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import MAX_NAMES_SHOWN, FlowError
from mirror.relay.offsets.index import Place


class SourcePosition(NamedTuple):
    """The next offset to read of a partition of the source."""

    topic: str
    partition: int
    offset: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class TargetPosition(NamedTuple):
    """What a position is on the target."""

    target: TopicPartition | None
    """None if the flow does not copy the topic."""
    place: Place
    offset: int | None
    """None if it is not known."""
    passed: int = 0
    """So many records from the position on are not behind the offset: the target has deleted them."""
    reason: str = ""
    """Why it is not known."""

    @property
    def problem(self) -> str:
        """Why an engine that continues there does not read just what it has not read; empty if it does."""
        if self.place is Place.NOT_COPIED:
            return f"not copied yet (the copy ends at offset {self.offset} of {self.target})"
        if self.offset is None or self.place is Place.UNKNOWN:
            return f"unknown{f': {self.reason}' if self.reason else ''}"
        if self.passed:
            return f"the target has deleted {self.passed:,} records from there on"
        return ""


Found = Mapping[SourcePosition, TargetPosition]


def problems(positions: Iterable[SourcePosition], found: Found) -> list[str]:
    """Return a line for each of these positions that has no exact offset on the target."""
    return [
        f"{one.topic}-{one.partition} at offset {one.offset}: {problem}"
        for one in sorted(positions)
        if (problem := found[one].problem)
    ]


# Invariant: A position is written for an engine only if it is exact on the target, each of them.
# Test: tests/positions/test_checkpoint.py::test_a_position_that_is_not_exact_is_refused
def check_exact(positions: Iterable[SourcePosition], found: Found) -> None:
    """Raise FlowError that names the positions without an exact offset on the target."""
    if lines := problems(positions, found):
        more = f"; and {len(lines) - MAX_NAMES_SHOWN} more" if len(lines) > MAX_NAMES_SHOWN else ""
        raise FlowError(f"nothing is written: {'; '.join(lines[:MAX_NAMES_SHOWN])}{more}")
