"""What is to be copied and what came of it: the values that travel between planner, tasks and results."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.relay.model.timeline import CopyTimeline

OPEN_END: Final = 2**63 - 1
"""The end of a range that is followed until its epoch ends: no log comes so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One source partition's ``[start, end)`` to copy, as the planner saw it.

    The task that copies it checks ``start`` against the progress on the target: the plan is a record, not the truth.
    ``stuck_since_ms`` (ms since 1970) is since when its first undelivered batch has waited, in epochs before this one.
    A stream follows: its ranges end at :data:`OPEN_END`. ``sick_since_ms``, ``sick_trace`` and ``last_trace`` are as in
    ``CopyTimeline``: they tell this epoch's trace where the story of a sick partition began.
    ``source_end`` is where the source's log ended when this was planned, ``source_epoch`` the leader epoch in which it
    did (None: it has none), ``first`` where the flow begins in it without progress (None: at ``start``).
    """

    flow: str
    topic: str
    target_topic: str
    partition: int
    start: int
    end: int
    source_cluster_id: str
    topic_id: str
    stuck_since_ms: int | None = None
    sick_since_ms: int | None = None
    sick_trace: str = ""
    last_trace: str = ""
    source_end: int = 0
    source_epoch: int | None = None
    first: int | None = None

    @property
    def anew(self) -> int:
        """Where its copy begins where there is no progress, or none that counts."""
        return self.start if self.first is None else self.first

    @property
    def follows(self) -> bool:
        """Whether it ends with its epoch only."""
        return self.end == OPEN_END


class Outcome(enum.StrEnum):
    """How a range ended (design: "Expiry and isolation").

    One that is followed is complete where its epoch ended in order.
    """

    COMPLETE = "complete"
    EXPIRED = "expired"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    FENCED = "fenced"


SEVERITY: Final = (Outcome.COMPLETE, Outcome.UNFINISHED, Outcome.FENCED, Outcome.EXPIRED, Outcome.FAILED)
"""The worst last: of many partitions it is what is told of all."""


class Counted(enum.StrEnum):
    """Where a result's figures come from."""

    RECORDS = "records"
    """The task counted what it committed."""
    OFFSETS = "offsets"
    """The task did not answer: the progress on the target says how many offsets lie behind it."""
    UNKNOWN = "unknown"
    """The task did not answer, and neither did the target."""


@dataclass(slots=True, kw_only=True)
class RangeResult:
    """What one attempt at a range did: it copied ``[start, end)``.

    ``records``, ``batches`` and ``bytes`` (on the wire, headers included) count what was committed on the target;
    ``seconds`` is the attempt's wall time; ``error`` is one line, or None for a complete range. ``skipped`` counts
    source batches that hold nothing to copy and records that a policy left out, ``deep`` the batches that were encoded
    anew, ``gaps`` the source offsets that were not there to be copied, each by its reason. ``expiries`` says of each
    expiry what :meth:`mirror.errors.DeliveryTimeout.describe` does, with its offsets and when it was; ``retries``
    counts the attempts after the first. ``stuck_since_ms`` (ms since 1970): since when an unfinished range's first
    undelivered batch has waited. ``story`` is how it went; None where nothing was to be done. ``withheld`` is the open
    transaction of the source that kept records from being copied, as plain values
    (:class:`mirror.relay.progress.open_transactions.OpenTransaction`); the driver fills it in. ``counted`` says what
    ``records`` and ``end`` are worth: by offsets, ``batches`` and ``bytes`` are not known, and ``records`` may include
    offsets that hold no record; where it is unknown, none of the four is.
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
    deep: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    expiries: list[dict[str, Any]] = field(default_factory=list)
    retries: int = 0
    stuck_since_ms: int | None = None
    story: CopyTimeline | None = None
    withheld: dict[str, Any] | None = None
    counted: Counted = Counted.RECORDS

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
