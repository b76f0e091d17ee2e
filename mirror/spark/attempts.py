"""What one attempt of one Spark task did to one range: what the sink's tasks answer with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.relay.ranges import RangeResult


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of one task did to one range. ``traceback`` is that of an error nobody foresaw, or None."""

    task: int
    attempt: int
    result: RangeResult
    traceback: str | None = None
