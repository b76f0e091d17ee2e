"""What of an epoch goes on in the next: who did not get through, since when, and where the story is told.

It only informs, and goes through the ledger: losing it only restarts the clock, and the story.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, Range
from mirror.telemetry.traces.ids import epoch_id, partition_id

if TYPE_CHECKING:
    from mirror.spark.ledger.attempts import Attempt

_SICK: Final = frozenset({Outcome.EXPIRED, Outcome.FAILED})


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Of one partition. ``stuck_since_ms``: since when its first undelivered batch waits, None where none does.

    ``since_ms`` is since when no epoch of it has ended well, ``trace`` the trace parent of the first that did not, and
    ``last_trace`` that of the last one. Times are ms since 1970.
    """

    stuck_since_ms: int | None = None
    since_ms: int | None = None
    trace: str = ""
    last_trace: str = ""

    def apply_to(self, one: Range) -> Range:
        """The same range, told of it."""
        return replace(
            one,
            stuck_since_ms=self.stuck_since_ms,
            sick_since_ms=self.since_ms,
            sick_trace=self.trace,
            last_trace=self.last_trace,
        )


UnhealthyPartitions = Mapping[TopicPartition, PartitionHealth]
HEALTHY: Final = PartitionHealth()


def unhealthy_after(attempts: Iterable[Attempt], run: str, epoch: int) -> dict[TopicPartition, PartitionHealth]:
    """By source partition, what ``epoch`` of ``run`` (its folder's name in the ledger) has left."""
    found: dict[TopicPartition, PartitionHealth] = {}
    for each in sorted(attempts, key=lambda attempt: attempt.attempt):
        result = each.result
        tp = TopicPartition(result.topic, result.partition)
        if result.outcome in _SICK or result.stuck_since_ms is not None:
            found[tp] = _sickness(each, run, epoch)
        else:
            found.pop(tp, None)  # a later attempt got through
    return found


def _sickness(each: Attempt, run: str, epoch: int) -> PartitionHealth:
    result, story = each.result, each.result.story
    own = str(partition_id(epoch_id(result.flow, run, epoch), result.topic, result.partition, each.attempt))
    since_ms = first = None
    if story is not None:
        since_ms, first = story.sick_since_ms or result.stuck_since_ms or story.began_ms or None, story.sick_trace
    return PartitionHealth(result.stuck_since_ms, since_ms or result.stuck_since_ms, first or own, own)


def is_unhealthy(one: Range) -> bool:
    """Whether it did not get through the last time."""
    return one.stuck_since_ms is not None or one.sick_since_ms is not None


def with_health(one: Range, sick: UnhealthyPartitions) -> Range:
    """``one``, with what is known of its sickness, or without any."""
    sickness = sick.get(TopicPartition(one.topic, one.partition), HEALTHY)
    known = PartitionHealth(one.stuck_since_ms, one.sick_since_ms, one.sick_trace, one.last_trace)
    return one if sickness == known else sickness.apply_to(one)
