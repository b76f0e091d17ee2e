"""Checkpoints that Spark 4.3 wrote, and positions as a flow would find them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.positions.checkpoint import COMMITS, OFFSETS, SOURCES, Checkpoint, last_batch, read_checkpoint
from mirror.positions.places import SourcePosition, TargetPosition
from mirror.relay.offsets.index import Place

CHECKPOINTS: Final = Path(__file__).parent / "checkpoints"
TWO: Final = CHECKPOINTS / "two"
"""Two sources, with offsets of version 1: batches 0 and 1, both committed."""
V2: Final = CHECKPOINTS / "v2"
"""The same with offsets of version 2: batch 0 is committed."""
PLANNED: Final = CHECKPOINTS / "planned"
"""One source, version 2: batch 0 failed before it was committed."""


def moved(positions: Iterable[SourcePosition], by: int = 100) -> dict[SourcePosition, TargetPosition]:
    """Each position at another offset of a topic with a prefix."""
    return {
        one: TargetPosition(TopicPartition(f"a.{one.topic}", one.partition), Place.RECORD, one.offset + by)
        for one in positions
    }


def read(folder: Path) -> Checkpoint:
    """What has positions in a checkpoint on this host."""

    def content(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    def names(part: str) -> list[str]:
        return [one.name for one in (folder / part).iterdir()] if (folder / part).is_dir() else []

    last = last_batch(names(OFFSETS), names(COMMITS), "cp")
    return read_checkpoint("cp", last, content, names(SOURCES))
