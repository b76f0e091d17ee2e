"""The health of partitions across periods: which did not complete, since when, and in which traces.

It is passed on through the status topic and is for information only: if it is lost, its times and traces start afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, Range
from mirror.telemetry.traces.ids import partition_id, period_id

if TYPE_CHECKING:
    from mirror.spark.ledger.attempt_results import AttemptResult

_UNHEALTHY_OUTCOMES: Final = frozenset({Outcome.EXPIRED, Outcome.FAILED})


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The health of one partition. Times are ms since 1970."""

    stuck_since_ms: int | None = None
    """Since when its first undelivered batch has waited; None if none waits."""
    since_ms: int | None = None
    """Since when none of its periods has completed."""
    trace: str = ""
    """The trace parent of the first period that did not complete."""
    last_trace: str = ""
    """The trace parent of the last period that did not complete."""

    def apply_to(self, range_: Range) -> Range:
        """Return a copy of the range that carries this health record."""
        return replace(
            range_,
            stuck_since_ms=self.stuck_since_ms,
            sick_since_ms=self.since_ms,
            sick_trace=self.trace,
            last_trace=self.last_trace,
        )


UnhealthyPartitions = Mapping[TopicPartition, PartitionHealth]
HEALTHY: Final = PartitionHealth()


def unhealthy_after(attempts: Iterable[AttemptResult], run: str, period: int) -> dict[TopicPartition, PartitionHealth]:
    """Return the unhealthy source partitions after ``period`` of ``run`` (the name of its folder in the ledger)."""
    found: dict[TopicPartition, PartitionHealth] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.attempt):
        result = attempt.result
        tp = TopicPartition(result.topic, result.partition)
        if result.outcome in _UNHEALTHY_OUTCOMES or result.stuck_since_ms is not None:
            found[tp] = _health_after(attempt, run, period)
        else:
            found.pop(tp, None)  # A later attempt completed.
    return found


def _health_after(attempt: AttemptResult, run: str, period: int) -> PartitionHealth:
    result, timeline = attempt.result, attempt.result.timeline
    own_id = partition_id(period_id(result.flow, run, period), result.topic, result.partition, attempt.attempt)
    since_ms = first_trace = None
    if timeline is not None:
        since_ms = timeline.sick_since_ms or result.stuck_since_ms or timeline.began_ms or None
        first_trace = timeline.sick_trace
    own_trace = str(own_id)
    return PartitionHealth(
        result.stuck_since_ms, since_ms or result.stuck_since_ms, first_trace or own_trace, own_trace
    )


def is_unhealthy(range_: Range) -> bool:
    """Return whether the range's partition did not complete the last time."""
    return range_.stuck_since_ms is not None or range_.sick_since_ms is not None


def with_health(range_: Range, unhealthy: UnhealthyPartitions) -> Range:
    """Return the range with its partition's health record in place of the one that it has."""
    health = unhealthy.get(TopicPartition(range_.topic, range_.partition), HEALTHY)
    carried = PartitionHealth(range_.stuck_since_ms, range_.sick_since_ms, range_.sick_trace, range_.last_trace)
    return range_ if health == carried else health.apply_to(range_)
