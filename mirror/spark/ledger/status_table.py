"""What the status topic has of a flow, by key, and the records that the driver writes there.

::

    StatusFollower ──news──► StatusTable ──► planning (turns, failing since), status, report
    plan, results, obstacles ──turn_records, health_records, obstacle_records──► StatusWriter
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from mirror.client import TopicPartition
from mirror.errors import printable
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import PartitionReport, TaskState
from mirror.relay.progress import status_values as values
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.status_topic import StatusFollower, StatusRecord
from mirror.relay.progress.status_values import (
    RunState,
    StatusKey,
    StatusKind,
    StatusValue,
    obstacle_key,
    partition_key,
)
from mirror.spark.ledger.evidence_values import rehearsal_of, verification_of
from mirror.spark.ledger.obstacles import Obstacle
from mirror.spark.ledger.partition_health import PartitionHealth, UnhealthyPartitions
from mirror.telemetry.evidence import Evidence
from mirror.telemetry.traces.ids import SpanId
from mirror.wire.integers import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror.relay.progress.status_topic import StatusNews
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.plan import Plan

K = TypeVar("K")
V = TypeVar("V")

_MAX_REASON: Final = 1_000

Records = dict[StatusKey, Mapping[str, Any] | None]
"""Records to write, as plain values; None deletes the key."""


class Reported(NamedTuple):
    """A partition's last report, and when it was written (ms since 1970)."""

    report: PartitionReport
    time_ms: int


@dataclass(slots=True)
class StatusTable:
    """The last value of each key."""

    exists: bool = True
    """Whether there is a topic."""
    run: RunState | None = None
    tasks: dict[int, TaskState] = field(default_factory=dict)
    partitions: dict[TopicPartition, Reported] = field(default_factory=dict)
    """By target partition."""
    health: dict[TopicPartition, PartitionHealth] = field(default_factory=dict)
    """Of the source partitions that fail."""
    turns: dict[TopicPartition, int] = field(default_factory=dict)
    """When source partitions were given to a task the last time (ms since 1970)."""
    obstacles: dict[str, Obstacle] = field(default_factory=dict)
    """By source topic."""
    evidence: Evidence = field(default_factory=Evidence)

    def apply(self, news: StatusNews) -> None:
        """Take in what is new; all of it replaces what was there if it was read again."""
        if news.again:
            empty = StatusTable()
            for name in self.__slots__:
                setattr(self, name, getattr(empty, name))
        self.exists = news.exists
        for record in news.records:
            self._take(record)

    def put(self, records: Records) -> None:
        """Take in what is written."""
        for key, value in records.items():
            self._take(StatusRecord(key, value, 0))

    def _take(self, record: StatusRecord) -> None:
        key, value = record.key, record.value
        match key.kind:
            case StatusKind.RUN:
                self.run = value if isinstance(value, RunState) else None
            case StatusKind.TASK:
                _put(self.tasks, key.number, value if isinstance(value, TaskState) else None)
            case StatusKind.PARTITION:
                report = Reported(value, record.time_ms) if isinstance(value, PartitionReport) else None
                _put(self.partitions, key.tp, report)
            case StatusKind.HEALTH:
                _put(self.health, key.tp, _parsed(value, _health_of))
            case StatusKind.TURN:
                _put(self.turns, key.tp, _parsed(value, _turn_of))
            case StatusKind.OBSTACLE:
                _put(self.obstacles, key.topic, _parsed(value, _obstacle_of))
            case StatusKind.VERIFICATION:
                self.evidence = replace(self.evidence, verification=_parsed(value, verification_of))
            case StatusKind.REHEARSAL:
                self.evidence = replace(self.evidence, rehearsal=_parsed(value, rehearsal_of))


def _put(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _parsed(value: StatusValue | None, parse: Callable[[Mapping[str, Any]], V | None]) -> V | None:
    return parse(value) if isinstance(value, Mapping) else None


def read_status(target_options: Mapping[str, object], flow: str, timeout_ms: int) -> StatusTable:
    """Read all that the flow's topic has; an empty table if there is no topic. Raises KafkaError."""
    table, follower = StatusTable(), StatusFollower(target_options, flow)
    try:
        news = follower.news(timeout_ms)
    finally:
        follower.close()
    if news.error is not None:
        raise news.error
    table.apply(news)
    return table


# --- the driver's records


def turn_records(before: Collection[TopicPartition], plan: Plan, time_ms: int) -> Records:
    """Return the records of the partitions that ``plan``, at ``time_ms`` (since 1970), gives to a task.

    Those that had a turn ``before`` and that the plan does not have are not in the flow any more.
    """
    turns = {TopicPartition(one.topic, one.partition) for one in plan.ranges if one.end > one.start}
    known = _partitions_of(plan)
    gone: Records = {partition_key(StatusKind.TURN, tp): None for tp in before if tp not in known}
    return gone | {partition_key(StatusKind.TURN, tp): {"ms": time_ms} for tp in turns}


def _partitions_of(plan: Plan) -> dict[TopicPartition, TopicPartition]:
    """Return the target partition of each source partition that ``plan`` has."""
    found = {
        TopicPartition(one.topic, one.partition): TopicPartition(one.target_topic, one.partition) for one in plan.ranges
    }
    return found | {
        TopicPartition(one.topic, one.partition): TopicPartition(one.target_topic, one.partition)
        for one in plan.results_without_task
    }


def outdated_records(table: StatusTable, plan: Plan, run: str) -> Records:
    """Return what deletes the reports of earlier runs' tasks, and of partitions that the flow does not have any more.

    ``plan`` is the first one of ``run``, none of whose tasks has reported yet.
    """
    targets = set(_partitions_of(plan).values())
    old = [values.task_key(number) for number, task in table.tasks.items() if task.run != run]
    return dict.fromkeys(
        [*old, *(partition_key(StatusKind.PARTITION, tp) for tp in table.partitions if tp not in targets)]
    )


def _turn_of(found: Mapping[str, Any]) -> int | None:
    return stored.time_ms(found.get("ms"))


def health_records(
    before: UnhealthyPartitions, after: UnhealthyPartitions, plan: Plan, attempts: Iterable[Attempt], time_ms: int
) -> Records:
    """Return what has changed of the partitions that fail: those ``after`` the ``attempts`` at ``plan``.

    ``time_ms`` is the time now, since 1970.

    A partition without an attempt, such as one that waits for its turn, goes on failing unless its result is complete.
    One that the plan does not have is not in the flow any more.
    """
    known = _partitions_of(plan)
    well = {TopicPartition(one.result.topic, one.result.partition) for one in attempts}
    well |= {
        TopicPartition(one.topic, one.partition) for one in plan.results_without_task if one.outcome is Outcome.COMPLETE
    }
    failing = {tp: _since(health, before.get(tp), time_ms) for tp, health in after.items()}
    changed: Records = {
        partition_key(StatusKind.HEALTH, tp): asdict(health)
        for tp, health in failing.items()
        if before.get(tp) != health
    }
    healed = [tp for tp in before if tp not in after and (tp in well or tp not in known)]
    return changed | {partition_key(StatusKind.HEALTH, tp): None for tp in healed}


def _since(health: PartitionHealth, before: PartitionHealth | None, time_ms: int) -> PartitionHealth:
    """Return ``health`` with the time and the trace in which the trouble began."""
    if before is None:
        return health if health.since_ms is not None else replace(health, since_ms=time_ms)
    return replace(health, since_ms=before.since_ms, trace=before.trace or health.trace)


def _health_of(found: Mapping[str, Any]) -> PartitionHealth | None:
    stuck_since_ms, since_ms = (stored.time_ms(found.get(name)) for name in ("stuck_since_ms", "since_ms"))
    first, last = (SpanId.parse(stored.text(found.get(name))) for name in ("trace", "last_trace"))
    if stuck_since_ms is None and since_ms is None:
        return None
    return PartitionHealth(stuck_since_ms, since_ms, str(first or ""), str(last or ""))


def obstacle_records(before: Mapping[str, Obstacle], after: Mapping[str, Obstacle]) -> Records:
    """Return what has changed of the source topics that cannot be copied."""
    shown = {topic: Obstacle(one.reason[:_MAX_REASON], one.first_partition) for topic, one in after.items()}
    changed: Records = {
        obstacle_key(topic): {"reason": one.reason, "first": one.first_partition}
        for topic, one in shown.items()
        if before.get(topic) != one
    }
    return changed | {obstacle_key(topic): None for topic in before.keys() - shown.keys()}


def _obstacle_of(found: Mapping[str, Any]) -> Obstacle | None:
    reason, first = printable(stored.text(found.get("reason"))), stored.number(found.get("first"), INT32_MAX)
    return Obstacle(reason, first) if reason and first is not None else None
