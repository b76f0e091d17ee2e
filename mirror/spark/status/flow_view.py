"""The state of a flow for its status and its rehearsal: a view of the observation of its partitions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.relay.batches.topic_config import FOREVER, TopicConfig, readable
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.gaps import Gap, GapKind, find_gap
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.relay.progress.target_log import deleted_text, is_other_topic, recreated_error
from mirror.spark.ledger.topic_obstacles import colliding
from mirror.spark.planning.flow_observation import Needs, observe_flow
from mirror.spark.planning.open_transactions import look_up_withheld
from mirror.spark.planning.range_planner import NO_LEADER, NO_LEADER_TEXT
from mirror.spark.run_control import RunControlClient
from mirror.telemetry.lag.offset_history import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.observation import Side, Sides
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.control_record import RunControl
    from mirror.spark.ledger.status_table import StatusTable
    from mirror.spark.planning.flow_observation import FlowObservation
    from mirror.spark.planning.range_planner import SourcePartition

_CALL_TIMEOUT_MS: Final = 10_000
"""A leader that does not answer must not keep the status of the others from being shown."""
_FAILING: Final = frozenset({Outcome.FAILED, Outcome.EXPIRED})
"""Results that have an error of their own."""
_KEPT_MS: Final = 1
"""Log start offsets, and target topics with copies, are read again after so long for each partition: every 10 s for
10,000 partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowView:
    """The state of a flow at ``time_ms`` (ms since 1970), by source partition."""

    time_ms: int
    run: RunControl | None
    """The run that copies the flow now; None if there is none."""
    offsets: dict[TopicPartition, PartitionOffsets]
    progress: dict[TopicPartition, Progress]
    unanswered: dict[TopicPartition, str]
    """Why the end offset could not be read."""
    gaps: dict[TopicPartition, Gap]
    """The gap that keeps the copy from resuming at its progress."""
    high_watermarks: dict[TopicPartition, int]
    withheld: dict[TopicPartition, OpenTransaction]
    obstacles: dict[TopicPartition, str]
    """Why the target topic is not prepared."""
    lost_copies: dict[TopicPartition, str] = field(default_factory=dict)
    """Why nothing is on the target of what was copied there: its topic was deleted, or deleted and created again."""
    firsts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where a copy begins, by the flow's start, in the partitions of which nothing is on the target."""
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    """The brokers that lead the source's partitions; -1: none."""
    control: RunControl | None = None
    """The control record, also of a run that has ended."""
    away: Mapping[str, str] = field(default_factory=dict)
    """The cluster that does not answer, and its error: nothing is known that takes both clusters."""

    def copied_to(self, tp: TopicPartition) -> int | None:
        """Return the source offset from which on nothing of ``tp`` is on the target; None if it is not known."""
        progress = self.progress.get(tp)
        return self.firsts.get(tp) if progress is None or tp in self.lost_copies else progress.offset


class FlowObserver:
    """Observes one flow again and again, and keeps what changes rarely.

    Some seconds, if it has thousands of partitions: where the source's logs start, and which topics have its copies.
    Always: how long the source's topics retain their records, and where a flow that ends at a time does: once the
    source has deleted the first record of that time, it returns a later one.
    """

    def __init__(self, flow: FlowConfig, unix_ms: Callable[[], int]) -> None:
        self._flow: Final = flow
        self._unix_ms: Final = unix_ms
        self._retention_ms: dict[str, int | None] = {}
        self._until: Final[dict[TopicPartition, int]] = {}
        self._withheld: dict[TopicPartition, OpenTransaction] | None = None
        self._starts: Final[dict[TopicPartition, int]] = {}
        self._copies: Final[dict[str, TopicDescription | None]] = {}
        self._kept_from_ms = 0

    def observe(self, sides: Sides, table: StatusTable) -> FlowView:
        """Read both clusters, or the one that is not away; ``table`` is what runs have reported.

        Raises FlowError if no topic matches, KafkaError if a cluster does not answer that is not known to be away.
        """
        self._forget_late(self._unix_ms())
        needs = Needs(starts=self._starts, call_timeout_ms=_CALL_TIMEOUT_MS)
        seen = self._with_ends(observe_flow(self._flow, sides, needs).heard())
        self._starts.update((one.tp, one.earliest) for one in seen.partitions if one.leader != NO_LEADER)
        of_target = sides.target.away is None
        run = RunControlClient(sides.target.admin, self._flow.name).read() if of_target else None
        time_ms = self._unix_ms()
        self._withheld = look_up_withheld(sides.source, seen.stable_ends(), self._withheld, time_ms)
        progress = {one.tp: seen.progress[one.target_tp] for one in seen.partitions if one.target_tp in seen.progress}
        lost = self._lost_copies(sides.target, seen, progress, table) if not seen.away else {}
        begun = _begun(table, run)
        return FlowView(
            time_ms=time_ms,
            run=None if run is None or run.ended else run,
            offsets={one.tp: _offsets(one, progress.get(one.tp)) for one in seen.partitions},
            progress=progress,
            unanswered={
                one.tp: one.error or NO_LEADER_TEXT
                for one in seen.partitions
                if one.leader == NO_LEADER and sides.source.away is None
            },
            gaps={
                one.tp: gap
                for one in seen.partitions
                if one.tp in progress and (gap := _gap(one, progress[one.tp])) is not None
            },
            high_watermarks={tp: high for tp, (end, high) in seen.stable_ends().items() if high >= end},
            withheld=self._withheld,
            obstacles=self._obstacles(sides.target, seen, table) if not seen.away else {},
            lost_copies=lost,
            firsts={
                one.tp: begun.get(one.tp, one.first) if one.tp not in progress else one.first
                for one in seen.partitions
                if one.leader != NO_LEADER and (one.tp not in progress or one.tp in lost)
            },
            leaders={one.tp: one.leader for one in seen.partitions},
            control=run,
            away={name: " ".join(str(error).split()) for name, error in seen.away.items()},
        )

    def _forget_late(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._kept_from_ms < len(self._starts) * _KEPT_MS:
            self._starts.clear()
            self._copies.clear()
            self._kept_from_ms = now_ms

    def _with_ends(self, seen: FlowObservation) -> FlowObservation:
        for one in seen.partitions:
            if one.until is not None:
                self._until.setdefault(one.tp, one.until)
        partitions = [replace(one, until=self._until.get(one.tp)) for one in seen.partitions]
        return replace(seen, partitions=partitions) if self._until else seen

    def retention_ms(self, source: Side, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Return how long the topics retain their records, by name; None: forever, or the permission is missing."""
        unread = [name for name in topics if name not in self._retention_ms]
        if not unread:
            return self._retention_ms
        try:
            found = source.configs(unread, _CALL_TIMEOUT_MS)
        except KafkaError:
            return self._retention_ms  # The next observation tries again.
        for name, entries in found.items():
            config = TopicConfig.of(readable(entries))
            self._retention_ms[name] = None if config.retention_ms == FOREVER else config.retention_ms
        refused = [name for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
        self._retention_ms |= dict.fromkeys(refused)
        return self._retention_ms

    def _obstacles(self, target: Side, seen: FlowObservation, table: StatusTable) -> dict[TopicPartition, str]:
        """Return why partitions without progress cannot be copied, if their target topic does not exist.

        If brokers refused to create it, the last run has reported their reason.
        """
        without = [one for one in seen.partitions if one.target_tp not in seen.progress]
        nameable = [one for one in without if one.topic not in seen.unnameable]
        existing = target.describe({one.target_topic for one in nameable})
        missing = [one for one in nameable if not _exists(one, existing.get(one.target_topic))]
        obstacles = dict(seen.unnameable)
        if missing_topics := {one.topic for one in missing if one.target_topic not in existing}:
            obstacles |= colliding(self._flow, missing_topics, target.topics.keys())
        found = {one.tp: table.obstacles[one.topic].reason for one in missing if one.topic in table.obstacles}
        return found | {one.tp: obstacles[one.topic].reason for one in without if one.topic in obstacles}

    def _lost_copies(
        self, target: Side, seen: FlowObservation, progress: Mapping[TopicPartition, Progress], table: StatusTable
    ) -> dict[TopicPartition, str]:
        """Return why the copies of partitions are not on the target, by the ids of its topics.

        Brokers delete the progress with its topic: until a run makes that again, reports say what had been copied.
        """
        marks = {tp: mark for tp, found in progress.items() if (mark := found.target) is not None and mark.end > 0}
        marked = [one for one in seen.partitions if one.tp in marks]
        if unread := {one.target_topic for one in marked} - self._copies.keys():
            described = target.describe(unread)
            self._copies.update(dict.fromkeys(unread - described.failed.keys()) | described)
        had_progress = [one for one in seen.partitions if one.tp not in progress and _was_copied(one, table)]
        existing = target.describe({one.target_topic for one in had_progress})
        found = {
            one.tp: deleted_text(self._flow.name, one.target_topic)
            for one in had_progress
            if one.target_topic not in existing and one.target_topic not in existing.failed
        }
        for one in marked:
            if one.target_topic not in self._copies:
                continue  # it could not be described
            topic, mark = self._copies[one.target_topic], marks[one.tp]
            topic_id = "" if topic is None else str(topic.topic_id or "")
            if topic is None:
                found[one.tp] = deleted_text(self._flow.name, one.target_topic)
            elif is_other_topic(mark, topic_id) or not _exists(one, topic):
                found[one.tp] = str(recreated_error(self._flow.name, one.target_topic, mark, topic_id))
        return found


def _was_copied(one: SourcePartition, table: StatusTable) -> bool:
    """Whether a run has reported a copy of the partition that had not failed."""
    reported = table.partitions.get(one.target_tp)
    return reported is not None and reported[0].result.end > 0 and reported[0].result.outcome not in _FAILING


def _exists(one: SourcePartition, topic: TopicDescription | None) -> bool:
    """Whether the target has the partition that ``one`` is copied into."""
    return topic is not None and one.partition < len(topic.partitions)


def _offsets(one: SourcePartition, progress: Progress | None) -> PartitionOffsets:
    answered = one.leader != NO_LEADER
    offset = None if progress is None else progress.offset
    return PartitionOffsets(one.earliest if answered else None, one.stop if answered else None, offset)


def _gap(one: SourcePartition, progress: Progress) -> Gap | None:
    """Return the gap that keeps a copy from resuming at ``progress``, or None."""
    if one.leader == NO_LEADER:
        return None
    if one.until is not None and progress.offset >= one.until:
        return None  # The flow has come to its end here.
    gap = find_gap(progress, one.topic_id, one.earliest, one.stop)
    # What is behind a lower bound may be copied: only the task that fences the partition can know.
    unknown = gap is not None and gap.kind is GapKind.RETENTION and not progress.exact
    return None if unknown else gap


def _begun(table: StatusTable, run: RunControl | None) -> dict[TopicPartition, int]:
    """Return where the tasks of the ``run`` have begun to copy the partitions that they have reported.

    What appears while a stream runs is copied from its first record, wherever the flow starts.
    """
    if run is None or run.ended:
        return {}
    results = (report.result for report, _ in table.partitions.values() if report.run == run.run)
    return {TopicPartition(one.topic, one.partition): one.start for one in results}
