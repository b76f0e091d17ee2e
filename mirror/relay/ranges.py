"""What is to be copied and what came of it: the values that travel between planner, tasks and results."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One source partition's ``[start, end)`` to copy, as the planner saw it.

    The task that copies it checks ``start`` against the progress on the target: the plan is a record, not the truth.
    """

    flow: str
    topic: str
    target_topic: str
    partition: int
    start: int
    end: int
    source_cluster_id: str
    topic_id: str


class Outcome(enum.StrEnum):
    """How a range ended (design: "Expiry and isolation")."""

    COMPLETE = "complete"
    EXPIRED = "expired"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    FENCED = "fenced"


@dataclass(slots=True, kw_only=True)
class RangeResult:
    """What one attempt at a range did: it copied ``[start, end)``.

    A first batch that begins before ``start`` was copied whole, with the records before it.

    ``records``, ``batches`` and ``bytes`` (on the wire, headers included) count what the target acknowledged;
    ``seconds`` is the attempt's wall time; ``error`` is one line, or None for a complete range.
    """

    flow: str
    topic: str
    target_topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    batches: int = 0
    bytes: int = 0
    seconds: float = 0.0
    outcome: Outcome = Outcome.UNFINISHED
    error: str | None = None
    skipped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begun(
        cls, one: Range, start: int, outcome: Outcome = Outcome.UNFINISHED, error: str | None = None
    ) -> RangeResult:
        """The result of a range of which nothing is copied (yet), from ``start`` on."""
        return cls(
            flow=one.flow,
            topic=one.topic,
            target_topic=one.target_topic,
            partition=one.partition,
            start=start,
            end=start,
            outcome=outcome,
            error=error,
        )
