"""What one attempt of one Spark task did to one range: what the sink's tasks answer with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.model.timeline import CopyTimeline

_FIELDS: Final[Mapping[type, tuple[str, ...]]] = {
    kind: tuple(each.name for each in fields(kind)) for kind in (Range, RangeResult, CopyTimeline)
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of one task did to one range. ``traceback`` is that of an error nobody foresaw, or None."""

    task: int
    attempt: int
    result: RangeResult
    traceback: str | None = None


def plain(one: Range | RangeResult | CopyTimeline) -> dict[str, Any]:
    """As plain values, for JSON: many times as fast as ``dataclasses.asdict``, which copies all that is in them."""
    return {name: getattr(one, name) for name in _FIELDS[type(one)]}
