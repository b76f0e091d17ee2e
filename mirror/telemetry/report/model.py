"""What a report is made of: the flows of a job, each with one result per partition and its joined story."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirror.relay.model.ranges import Outcome, RangeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReportData:
    """One flow's run. Times are ms since 1970.

    ``ended_ms`` is None while it runs (or where it was killed). ``error`` is why it could not run, in one line.
    ``epochs`` is how many a stream has had so far, and ``covered_epochs`` how many of them the curves and times tell of;
    both are None for a scheduled run. ``trace`` is the id of its trace, a stream's of its last epoch. The partitions'
    counts are those of the whole run; each one's ``story`` is joined over its epochs and attempts
    (:class:`mirror.telemetry.report.history.PartitionHistory`).
    """

    flow: str
    outcome: Outcome
    started_ms: int
    ended_ms: int | None
    error: str | None = None
    epochs: int | None = None
    covered_epochs: int | None = None
    trace: str = ""
    partitions: list[RangeResult] = field(default_factory=list)
