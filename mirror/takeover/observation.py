"""Finds out whether MirrorMaker 2 still writes: by its positions, by the target's topics, and by its workers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition

_SHOWN: Final = 3


class Observation(NamedTuple):
    """What was seen at one moment."""

    positions: Mapping[TopicPartition, int]
    """Where the logs of the positions' topic end."""
    targets: Mapping[TopicPartition, int]
    """Where the logs of the flow's target partitions end."""
    workers: int
    """How many members the workers' group has, if these run nothing but MirrorMaker 2."""
    workers_error: str | None = None
    """Why that is not known."""


def signs_of_life(before: Observation, after: Observation, group: str) -> list[str]:
    """Return what shows that MirrorMaker 2 still runs, as lines; none if nothing does."""
    lines = []
    if after.workers:
        lines.append(f"{after.workers} of its workers are members of group {group}")
    for what, earlier, later in (
        ("stored positions", before.positions, after.positions),
        ("written to the target", before.targets, after.targets),
    ):
        grown = sorted(tp for tp, end in later.items() if end > earlier.get(tp, end))
        if grown:
            shown = ", ".join(str(tp) for tp in grown[:_SHOWN]) + (", ..." if len(grown) > _SHOWN else "")
            lines.append(f"something has {what} meanwhile: {shown}")
    return lines
