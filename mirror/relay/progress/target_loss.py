"""What a target has lost of a copy: acknowledged records, or the whole topic. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirror.relay.progress.committed import Progress


class LossKind(enum.StrEnum):
    """How a target lost what was copied into it."""

    TRUNCATED = "truncated"
    """The log lost acknowledged records; what was behind the loss was sent again."""
    RECREATED = "recreated"
    """The topic was deleted and made again; the copy began again at the flow's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoss:
    """A loss that the copy mends, as its policy allows."""

    flow: str
    kind: LossKind
    progress: Progress | None
    """As it was committed; None if it was lost, too."""
    end: int
    """The target offset up to which the log had reached."""
    cut: int
    """The target offset from which on it was lost."""
    producer_ids: frozenset[int] = frozenset()
    """The producer ids of all that is known to have copied into the log."""

    def to_record(self, resumed: int, unix_ms: int) -> dict[str, Any]:
        """Return the loss as the result of a copy that resumed at the source offset ``resumed`` records it."""
        return {
            "kind": self.kind.value,
            "target_start": self.cut,
            "target_end": self.end,
            "start": resumed,
            "end": resumed if self.progress is None else self.progress.offset,
            "time": unix_ms,
        }


def loss_text(record: Mapping[str, Any]) -> str:
    """Return a clause for people about a record of :meth:`TargetLoss.to_record`."""
    start, end = record.get("start", 0), record.get("end", 0)
    if record.get("kind") == LossKind.RECREATED:
        return f"the target topic was made again: the copy began again at source offset {start}"
    target_start, target_end = record.get("target_start", 0), record.get("target_end", 0)
    return (
        f"the target lost its offsets from {target_start} to {target_end - 1}: the source's offsets from {start} to"
        f" {end - 1} were copied again"
    )
