"""What the status topic has of a flow, by key, and the records that the driver writes there.

::

    StatusFollower ──news──► StatusTable ──► planning (turns, failing since), status, report
    plan, results, obstacles ──turn_records, health_records, obstacle_records──► StatusWriter
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from mirror.alignment.sync_state import SyncState
from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.summary import GroupsSummary
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import PartitionReport, TaskState
from mirror.relay.progress import status_values as values
from mirror.relay.progress.status_topic import STATUS_MS, StatusFollower
from mirror.relay.progress.status_values import (
    RunState,
    StatusKey,
    StatusKind,
    obstacle_key,
    partition_key,
)
from mirror.relay.progress.stored_record import MAX_TEXT, record_of
from mirror.spark.ledger.confirmation import Confirmed
from mirror.spark.ledger.copy_rate import CopyRate
from mirror.spark.ledger.initial_partitions import InitialCount, Selection
from mirror.spark.ledger.partition_health import PartitionHealth, UnhealthyPartitions
from mirror.spark.ledger.topic_obstacles import Obstacle
from mirror.telemetry.evidence import Evidence, LastRehearsal, LastVerification
from mirror.telemetry.task_report import TaskReport

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror.relay.model.ranges import RangeResult
    from mirror.relay.progress.status_topic import StatusNews, StatusRecord
    from mirror.spark.ledger.attempt_results import AttemptResult
    from mirror.spark.ledger.plan import Plan

K = TypeVar("K")
V = TypeVar("V")

_SAME_ERROR_MS: Final = 600_000
"""An error that repeats itself is written again after so long: each is a record."""
ERRORS_KEPT_MS: Final = 7 * 86_400_000
"""The last error of a partition that has recovered is forgotten after so long."""

Records = dict[StatusKey, object | None]
"""Records to write, as dataclasses; None deletes the key."""


class Reported(NamedTuple):
    """A partition's last report, and when it was written (ms since 1970)."""

    report: PartitionReport
    time_ms: int


@dataclass(frozen=True, slots=True)
class Turn:
    """When a source partition was given to a task the last time (ms since 1970)."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of a partition."""

    line: str
    time_ms: int
    """In ms since 1970: the time of an expiry, else when it was reported."""


_PARSED: Final[Mapping[StatusKind, type]] = {
    StatusKind.MEASURED: TaskReport,
    StatusKind.HEALTH: PartitionHealth,
    StatusKind.TURN: Turn,
    StatusKind.ERROR: LastError,
    StatusKind.OBSTACLE: Obstacle,
    StatusKind.INITIAL: InitialCount,
    StatusKind.SELECTION: Selection,
    StatusKind.GROUPS: GroupsSummary,
    StatusKind.SYNC: SyncState,
    StatusKind.RATE: CopyRate,
    StatusKind.CONFIRMED: Confirmed,
    StatusKind.VERIFICATION: LastVerification,
    StatusKind.REHEARSAL: LastRehearsal,
}
"""The values of records that are no :data:`mirror.relay.progress.status_values.StatusValue` yet."""


@dataclass(slots=True)
class StatusTable:
    """The last value of each key."""

    exists: bool = True
    """Whether there is a topic."""
    run: RunState | None = None
    groups: GroupsSummary | None = None
    sync: SyncState | None = None
    rate: CopyRate | None = None
    confirmed: Confirmed | None = None
    verify: LastVerification | None = None
    rehearse: LastRehearsal | None = None
    tasks: dict[int, TaskState] = field(default_factory=dict)
    measured: dict[int, TaskReport] = field(default_factory=dict)
    """By task."""
    partitions: dict[TopicPartition, Reported] = field(default_factory=dict)
    """By target partition."""
    health: dict[TopicPartition, PartitionHealth] = field(default_factory=dict)
    """Of the source partitions that fail."""
    turns: dict[TopicPartition, int] = field(default_factory=dict)
    """When source partitions were given to a task the last time (ms since 1970)."""
    errors: dict[TopicPartition, LastError] = field(default_factory=dict)
    """By source partition, whether it has recovered or not."""
    obstacles: dict[str, Obstacle] = field(default_factory=dict)
    """By source topic."""
    initial: dict[str, int] = field(default_factory=dict)
    """How many partitions a source topic had when the flow began, if its ``start`` is "latest"."""
    selection: Selection | None = None
    """Which topics the flow copied then."""

    @property
    def evidence(self) -> Evidence:
        """The last verification and rehearsal, on any host."""
        return Evidence(self.verify, self.rehearse)

    def copy(self) -> StatusTable:
        """Return a copy, which does not change."""
        found = StatusTable()
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(found, name, dict(value) if isinstance(value, dict) else value)
        return found

    def apply(self, news: StatusNews) -> None:
        """Take in what is new; all of it replaces what was there if it was read again."""
        if news.again:
            empty = StatusTable()
            for name in self.__slots__:
                setattr(self, name, getattr(empty, name))
        self.exists = news.exists
        for record in news.records:
            self._take(*record)

    def put(self, records: Records) -> None:
        """Take in what is written."""
        for key, value in records.items():
            self._take(key, value, 0)

    def _take(self, key: StatusKey, value: Any, time_ms: int) -> None:
        if isinstance(value, Mapping):
            known = {"task": key.number} if key.kind is StatusKind.MEASURED else {}
            value = record_of(_PARSED[key.kind], value, **known)
        match key.kind:
            case StatusKind.TASK:
                _put(self.tasks, key.number, value)
            case StatusKind.MEASURED:
                _put(self.measured, key.number, value)
            case StatusKind.PARTITION:
                _put(self.partitions, key.tp, None if value is None else Reported(value, time_ms))
            case StatusKind.HEALTH:
                _put(self.health, key.tp, value)
            case StatusKind.TURN:
                _put(self.turns, key.tp, None if value is None else value.time_ms)
            case StatusKind.INITIAL:
                _put(self.initial, key.topic, None if value is None else value.partitions)
            case StatusKind.ERROR:
                _put(self.errors, key.tp, value)
            case StatusKind.OBSTACLE:
                _put(self.obstacles, key.topic, value)
            case kind:
                setattr(self, kind.value, value)

    def results(self) -> dict[TopicPartition, tuple[RangeResult, int]]:
        """Return the last result of each source partition, and when it was reported (ms since 1970)."""
        reports = ((report.result, time_ms) for report, time_ms in self.partitions.values())
        return {
            TopicPartition(result.topic, result.partition): (result, time_ms)
            for result, time_ms in reports
            if result.topic
        }

    def failures(self) -> dict[TopicPartition, LastError]:
        """Return the errors of the source partitions that failed the last time."""
        return {
            tp: LastError(result.error, time_ms)
            for tp, (result, time_ms) in self.results().items()
            if result.outcome is Outcome.FAILED and result.error is not None
        }


def _put(table: dict[K, Any], key: K, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


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


def read_reported(target_options: Mapping[str, object], flow: str) -> tuple[StatusTable, list[str]]:
    """Return what runs have reported of the flow, for a command that goes on without it, and a note if it must."""
    try:
        return read_status(target_options, flow, STATUS_MS), []
    except KafkaError as error:
        note = f"what runs have reported cannot be read, so neither rates nor failures are known: {error}"
        return StatusTable(), [note]


def last_error(result: RangeResult, time_ms: int) -> LastError | None:
    """Return the last error of a result that was reported at ``time_ms`` (since 1970); None if it had none."""
    last: dict[str, Any] | None = max(result.expiries, key=lambda expiry: int(expiry["time_ms"]), default=None)
    # An unfinished copy has recovered from its expiries, and waits for something else.
    if result.error is not None and (last is None or result.outcome is Outcome.UNFINISHED):
        return LastError(result.error, time_ms)
    if last is None:
        return None
    # If the copy did not recover from the expiry, `error` describes it in full.
    cause = f": {last['last_error']}" if last.get("last_error") else ""
    line = result.error or f"expired ({last['phase']}, {last['cause']}){cause}"
    return LastError(line, int(last["time_ms"]))


# --- the driver's records


def turn_records(before: Collection[TopicPartition], plan: Plan, time_ms: int) -> Records:
    """Return the records of the partitions that ``plan``, at ``time_ms`` (since 1970), gives to a task.

    Those that had a turn ``before`` and that the plan does not have are not in the flow any more.
    """
    turns = {TopicPartition(one.topic, one.partition) for one in plan.ranges if one.end > one.start}
    known = partitions_of(plan)
    gone: Records = {partition_key(StatusKind.TURN, tp): None for tp in before if tp not in known}
    return gone | {partition_key(StatusKind.TURN, tp): Turn(time_ms) for tp in turns}


def partitions_of(plan: Plan) -> dict[TopicPartition, TopicPartition]:
    """Return the target partition of each source partition that ``plan`` has."""
    found = {
        TopicPartition(one.topic, one.partition): TopicPartition(one.target_topic, one.partition) for one in plan.ranges
    }
    return found | {
        TopicPartition(one.topic, one.partition): TopicPartition(one.target_topic, one.partition)
        for one in plan.results_without_task
    }


def outdated_records(table: StatusTable, plan: Plan, run: str, time_ms: int) -> Records:
    """Return what deletes the reports of earlier runs' tasks, and of partitions that the flow does not have any more.

    Also old errors. ``plan`` is the first one of ``run``, none of whose tasks has reported yet; it is made at
    ``time_ms`` (since 1970).
    """
    partitions = partitions_of(plan)
    targets = set(partitions.values())
    old = [values.task_key(number) for number, task in table.tasks.items() if task.run != run]
    old += [values.measured_key(number) for number, one in table.measured.items() if one.run != run]
    old += [partition_key(StatusKind.PARTITION, tp) for tp in table.partitions if tp not in targets]
    old += [
        partition_key(StatusKind.ERROR, tp)
        for tp, error in table.errors.items()
        if tp not in partitions or time_ms - error.time_ms > ERRORS_KEPT_MS
    ]
    return dict.fromkeys(old)


def error_records(before: Mapping[TopicPartition, LastError], reported: Iterable[StatusRecord]) -> Records:
    """Return the errors that are in reports of partitions and not among the last ones ``before``."""
    found: Records = {}
    for _, report, time_ms in reported:
        result = report.result if isinstance(report, PartitionReport) else None
        error = last_error(result, time_ms) if result is not None and result.topic else None
        if result is None or error is None:
            continue
        tp = TopicPartition(result.topic, result.partition)
        error = LastError(error.line[:MAX_TEXT], error.time_ms)
        last = before.get(tp)
        if (
            last is None
            or (error.line != last.line and error.time_ms > last.time_ms)
            or (error.time_ms - last.time_ms >= _SAME_ERROR_MS)
        ):
            found[partition_key(StatusKind.ERROR, tp)] = error
    return found


def health_records(
    before: UnhealthyPartitions, after: UnhealthyPartitions, plan: Plan, attempts: Iterable[AttemptResult], time_ms: int
) -> Records:
    """Return what has changed of the partitions that fail: those ``after`` the ``attempts`` at ``plan``.

    ``time_ms`` is the time now, since 1970.

    A partition without an attempt, such as one that waits for its turn, goes on failing unless its result is complete.
    One that the plan does not have is not in the flow any more.
    """
    known = partitions_of(plan)
    well = {TopicPartition(one.result.topic, one.result.partition) for one in attempts}
    well |= {
        TopicPartition(one.topic, one.partition) for one in plan.results_without_task if one.outcome is Outcome.COMPLETE
    }
    failing = {tp: _since(health, before.get(tp), time_ms) for tp, health in after.items()}
    changed: Records = {
        partition_key(StatusKind.HEALTH, tp): health for tp, health in failing.items() if before.get(tp) != health
    }
    healed = [tp for tp in before if tp not in after and (tp in well or tp not in known)]
    return changed | {partition_key(StatusKind.HEALTH, tp): None for tp in healed}


def _since(health: PartitionHealth, before: PartitionHealth | None, time_ms: int) -> PartitionHealth:
    """Return ``health`` with the time and the trace in which the trouble began."""
    if before is None:
        return health if health.since_ms is not None else replace(health, since_ms=time_ms)
    return replace(health, since_ms=before.since_ms, trace=before.trace or health.trace)


def obstacle_records(before: Mapping[str, Obstacle], after: Mapping[str, Obstacle]) -> Records:
    """Return what has changed of the source topics that cannot be copied."""
    shown = {topic: Obstacle(one.reason[:MAX_TEXT], one.first_partition) for topic, one in after.items()}
    changed: Records = {obstacle_key(topic): one for topic, one in shown.items() if before.get(topic) != one}
    return changed | {obstacle_key(topic): None for topic in before.keys() - shown.keys()}


def initial_records(table: StatusTable, selection: Selection, counts: Mapping[str, int]) -> Records:
    """Return what has changed of the partitions that may begin at their ends."""
    found: Records = {} if table.selection == selection else {values.SELECTION: selection}
    changed: Records = {
        StatusKey(StatusKind.INITIAL, topic): InitialCount(count)
        for topic, count in counts.items()
        if table.initial.get(topic) != count
    }
    gone: Records = {StatusKey(StatusKind.INITIAL, topic): None for topic in table.initial.keys() - counts.keys()}
    return found | changed | gone
