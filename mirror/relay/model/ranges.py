"""What is to be copied and what came of it: the values that travel between planner, tasks and results.

The field names of :class:`Range` and :class:`RangeResult` are JSON keys and columns of the ledger.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.relay.model.timeline import CopyTimeline
from mirror.wire.integers import INT64_MAX

OPEN_END: Final = INT64_MAX
"""The end of a range that is copied until its task is to stop: no log gets that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The source offsets ``[start, end)`` of one partition that a task is to copy, as the planner saw them.

    The task checks ``start`` against the progress on the target: the progress decides, not the plan.
    """

    flow: str
    topic: str
    target_topic: str
    partition: int
    start: int
    end: int
    """:data:`OPEN_END` in a stream."""
    source_cluster_id: str
    topic_id: str
    stuck_since_ms: int | None = None
    """Since when (ms since 1970) the first undelivered batch has waited, when this was planned."""
    sick_since_ms: int | None = None
    """As in :class:`CopyTimeline`, like the next two: they link this trace to the start of the trouble."""
    sick_trace: str = ""
    last_trace: str = ""
    source_end: int = 0
    """The end of the source's log when this range was planned."""
    source_epoch: int | None = None
    """The leader epoch that ``source_end`` was read in; None: the log has none."""
    first: int | None = None
    """Where the flow starts in this partition if there is no progress; None: at ``start``."""

    @property
    def fresh_start(self) -> int:
        """The offset to start at if there is no progress, or none that is valid."""
        return self.start if self.first is None else self.first

    @property
    def open_ended(self) -> bool:
        """Whether the range ends only with its task, or its assignment."""
        return self.end == OPEN_END


class Outcome(enum.StrEnum):
    """How the copy of a range ended.

    An open-ended range is complete if its task ended in good order.
    """

    COMPLETE = "complete"
    EXPIRED = "expired"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    FENCED = "fenced"


TROUBLE: Final = frozenset({Outcome.EXPIRED, Outcome.FAILED, Outcome.FENCED})
"""The outcomes of an attempt that could not do what it was to do."""
SEVERITY: Final = (Outcome.COMPLETE, Outcome.UNFINISHED, Outcome.FENCED, Outcome.EXPIRED, Outcome.FAILED)
"""From the best outcome to the worst; the worst of its partitions is the outcome of a flow."""


class CountBasis(enum.StrEnum):
    """How the counts of a result were determined."""

    RECORDS = "records"
    """The task counted what it committed."""
    OFFSETS = "offsets"
    """The task did not report; the progress on the target shows how many offsets were copied."""
    UNKNOWN = "unknown"
    """Neither the task nor the target reported."""


@dataclass(slots=True, kw_only=True)
class RangeResult:
    """What the copy of a range came to: it copied ``[start, end)``."""

    flow: str
    topic: str
    target_topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    """Committed on the target, as are ``batches`` and ``bytes``."""
    batches: int = 0
    bytes: int = 0
    """On the wire, headers included."""
    seconds: float = 0.0
    """Wall time."""
    outcome: Outcome = Outcome.UNFINISHED
    error: str | None = None
    """One line; None for a complete range."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Source batches that hold nothing to copy, and records that a policy skipped, by reason."""
    deep: dict[str, int] = field(default_factory=dict)
    """Source batches that were re-encoded, by reason."""
    gaps: dict[str, int] = field(default_factory=dict)
    """Source offsets that did not exist, by reason."""
    aside: dict[str, int] = field(default_factory=dict)
    """Records, and batches that cannot be decoded, that went to the aside topic, by reason."""
    expiries: list[dict[str, Any]] = field(default_factory=list)
    """One record for each expiry: :meth:`mirror.errors.DeliveryTimeout.describe`, its offsets and its time."""
    target_losses: list[dict[str, Any]] = field(default_factory=list)
    """What the target has lost of earlier copies, and this one has copied again from its source offset ``start`` on.

    See :meth:`mirror.relay.progress.target_loss.TargetLoss.to_record`.
    """
    retries: int = 0
    """Attempts after the first."""
    failures: dict[str, int] = field(default_factory=dict)
    """Attempts that ended as :data:`TROUBLE`, by their outcome."""
    stuck_since_ms: int | None = None
    """Since when (ms since 1970) the first undelivered batch of an unfinished range has waited."""
    timeline: CopyTimeline | None = None
    """The timeline of the copy; None if nothing was to be done."""
    withheld: dict[str, Any] | None = None
    """The open transaction that keeps source records from being copied, as plain values.

    See :class:`mirror.relay.progress.open_transactions.OpenTransaction`; the driver fills it in.
    """
    counted: CountBasis = CountBasis.RECORDS
    """By offsets, ``batches`` and ``bytes`` are unknown, and ``records`` may include offsets without a record.

    If unknown, ``records``, ``batches``, ``bytes`` and ``end`` are all meaningless.
    """
    way: str = ""
    """The :class:`mirror.relay.model.way.Way` of the last batch; empty at least once, or if none was chosen."""
    way_reason: str = ""
    """Why it went that way, in one clause."""

    @classmethod
    def initial(
        cls, range_: Range, start: int, outcome: Outcome = Outcome.UNFINISHED, error: str | None = None
    ) -> RangeResult:
        """Return the result of a range of which nothing is copied (yet), from ``start``."""
        return cls(
            flow=range_.flow,
            topic=range_.topic,
            target_topic=range_.target_topic,
            partition=range_.partition,
            start=start,
            end=start,
            outcome=outcome,
            error=error,
        )
