"""The input of a report: the flows of a run, with one result per partition and its joined timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirror.alignment.sync_state import SyncState
from mirror.groups.summary import GroupsSummary
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.telemetry.evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReportData:
    """One flow of a run. Times are ms since 1970."""

    flow: str
    outcome: Outcome
    started_ms: int
    ended_ms: int | None
    """When the flow ended; None while the run continues, or if it was killed."""
    error: str | None = None
    """Why the flow could not run, in one line."""
    periods: int | None = None
    """The number of a stream's periods so far; None for a batch job."""
    covered_periods: int | None = None
    """How many of these periods the curves and times include."""
    trace: str = ""
    """The id of the run's trace, or of the trace of a stream's last period."""
    groups: GroupsSummary | None = None
    """The consumer groups after the last round; None if the flow does not follow them."""
    sync: SyncState = field(default_factory=SyncState)
    """What else is in step, by kind, and what was left out."""
    index_bytes: int | None = None
    """The size of the offset index on the target at the run's end; None if it is not known."""
    evidence: Evidence = field(default_factory=Evidence)
    """The last verification and rehearsal of the flow."""
    partitions: list[RangeResult] = field(default_factory=list)
    """One result per partition, with the counts of the whole run.

    Its timeline is joined over all periods and attempts
    (:class:`mirror.telemetry.report.history.PartitionHistory`).
    """
