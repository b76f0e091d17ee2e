"""Observes one flow: reads the progress on the target, the source's offsets, and why partitions cannot be copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, Outcomes, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.relay.batches.topic_config import FOREVER, TopicConfig, readable
from mirror.relay.progress.committed import ProgressStore
from mirror.relay.progress.gaps import Gap, GapKind, find_gap
from mirror.relay.progress.open_transactions import OpenTransaction, update_open_transactions
from mirror.relay.progress.target_log import deleted_text, is_other_topic, recreated_error
from mirror.spark.ledger.obstacles import colliding, too_long
from mirror.spark.planning.open_transactions import high_watermarks, with_producers
from mirror.spark.planning.range_planner import NO_LEADER, NO_LEADER_TEXT, select_topics, source_topic_for
from mirror.spark.planning.source_offsets import first_offsets
from mirror.spark.run_control import RunControlClient
from mirror.telemetry.lag.offset_history import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.observation import Side, Sides
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.control import RunControl
    from mirror.spark.ledger.status_table import StatusTable

_SOURCE_CALL_TIMEOUT_MS: Final = 10_000
"""A leader that does not answer must not keep the status of the others from being shown."""
_START_INTERVAL_MS: Final = 1
"""Log start offsets, and target topics with copies, are read again after so long for each partition: every 10 s for
10,000 partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
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

    def copied_to(self, tp: TopicPartition) -> int | None:
        """Return the source offset from which on nothing of ``tp`` is on the target; None if it is not known."""
        progress = self.progress.get(tp)
        return self.firsts.get(tp) if progress is None or tp in self.lost_copies else progress.offset


class FlowObserver:
    """Observes one flow again and again, and caches what changes rarely.

    These are log start offsets, where the flow ends, and how long the source's topics retain their records.
    """

    def __init__(
        self,
        flow: FlowConfig,
        unix_ms: Callable[[], int],
    ) -> None:
        self._flow: Final = flow
        self._unix_ms: Final = unix_ms
        self._retention_ms: dict[str, int | None] = {}
        self._until: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._starts_ms = 0
        self._copies: dict[str, TopicDescription | None] = {}
        self._copies_ms = 0
        self._withheld: dict[TopicPartition, OpenTransaction] | None = None

    def observe(self, sides: Sides, table: StatusTable) -> Observation:
        """Read both clusters; ``table`` is what runs have reported.

        Raises FlowError if no topic matches, KafkaError if a cluster does not answer.
        """
        source, target, all_topics = sides.source.admin, sides.target.admin, sides.source.topics
        topics = {name: all_topics[name] for name in select_topics(self._flow, all_topics)}
        leaders = {
            TopicPartition(name, partition.partition): partition.leader
            for name, topic in topics.items()
            for partition in topic.partitions
        }
        targets = {tp: TopicPartition(self._flow.target_topic(tp.topic), tp.partition) for tp in leaders}
        obstacles = too_long(self._flow, topics)
        # The progress is read before the ends: so the lag is never too small, and progress after the end shows that
        # the log is not the one that was copied.
        by_target = ProgressStore(target, self._flow.name).read(
            {targets[tp] for tp in leaders if tp.topic not in obstacles}
        )
        run = RunControlClient(target, self._flow.name).read()
        time_ms = self._unix_ms()
        ends, failed = _list_offsets(source, [tp for tp, leader in leaders.items() if leader != NO_LEADER], LATEST)
        starts = self._start_offsets(source, ends, time_ms)
        high = high_watermarks(source, ends, call_timeout_ms=_SOURCE_CALL_TIMEOUT_MS)
        ends = self._bounded(source, ends)
        high = {tp: min(end, self._until.get(tp, end)) for tp, end in high.items()}
        progress = {tp: by_target[targets[tp]] for tp in leaders if targets[tp] in by_target}
        offsets = {
            tp: PartitionOffsets(starts.get(tp), ends.get(tp), progress[tp].offset if tp in progress else None)
            for tp in leaders
        }
        topic_ids = {name: str(topic.topic_id or "") for name, topic in topics.items()}
        gaps = {tp: self._gap(found, topic_ids[tp.topic], offsets[tp], tp) for tp, found in progress.items()}
        lost = self._lost_copies(sides.target, {tp: targets[tp] for tp in progress}, progress, time_ms)
        not_begun = {tp for tp in ends if tp not in progress}
        return Observation(
            time_ms=time_ms,
            run=None if run is None or run.ended else run,
            offsets=offsets,
            progress=progress,
            unanswered={tp: str(failed.get(tp, NO_LEADER_TEXT)) for tp in leaders if tp not in ends},
            gaps={tp: gap for tp, gap in gaps.items() if gap is not None},
            high_watermarks=high,
            withheld=self._open_transactions(source, {tp: (ends[tp], end) for tp, end in high.items()}, time_ms),
            obstacles=self._obstacles(sides.target, {tp: targets[tp] for tp in leaders if tp not in progress}, table),
            lost_copies=lost,
            firsts=self._firsts(source, not_begun | lost.keys(), starts, ends) | _begun(table, not_begun, run),
            leaders=leaders,
            control=run,
        )

    def observe_source(self, side: Side) -> Observation:
        """Observe the source without the target: its ends. Raises what :meth:`observe` does."""
        source, all_topics = side.admin, side.topics
        leaders = {
            TopicPartition(name, partition.partition): partition.leader
            for name in select_topics(self._flow, all_topics)
            for partition in all_topics[name].partitions
        }
        time_ms = self._unix_ms()
        ends, failed = _list_offsets(source, [tp for tp, leader in leaders.items() if leader != NO_LEADER], LATEST)
        starts = self._start_offsets(source, ends, time_ms)
        ends = self._bounded(source, ends)
        return Observation(
            time_ms=time_ms,
            run=None,
            offsets={tp: PartitionOffsets(starts.get(tp), ends.get(tp), None) for tp in leaders},
            progress={},
            unanswered={tp: str(failed.get(tp, NO_LEADER_TEXT)) for tp in leaders if tp not in ends},
            gaps={},
            high_watermarks={},
            withheld={},
            obstacles={},
            leaders=leaders,
        )

    def observe_target(self, side: Side) -> Observation:
        """Observe the target without the source: the progress, and the run. Raises KafkaError."""
        target = side.admin
        sources = {
            TopicPartition(name, partition.partition): TopicPartition(topic, partition.partition)
            for name, described in side.topics.items()
            if (topic := source_topic_for(self._flow, name)) is not None
            for partition in described.partitions
        }
        found = ProgressStore(target, self._flow.name).read(sources.keys())
        run = RunControlClient(target, self._flow.name).read()
        progress = {sources[to]: one for to, one in sorted(found.items())}
        return Observation(
            time_ms=self._unix_ms(),
            run=None if run is None or run.ended else run,
            offsets={tp: PartitionOffsets(None, None, one.offset) for tp, one in progress.items()},
            progress=progress,
            unanswered={},
            gaps={},
            high_watermarks={},
            withheld={},
            obstacles={},
        )

    def retention_ms(self, source: Side, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Return how long the topics retain their records, by name; None: forever, or the permission is missing."""
        unread = [name for name in topics if name not in self._retention_ms]
        if not unread:
            return self._retention_ms
        try:
            found = source.configs(unread)
        except KafkaError:
            return self._retention_ms  # The next observation tries again.
        for name, entries in found.items():
            config = TopicConfig.of(readable(entries))
            self._retention_ms[name] = None if config.retention_ms == FOREVER else config.retention_ms
        refused = [name for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
        self._retention_ms |= dict.fromkeys(refused)
        return self._retention_ms

    def _open_transactions(
        self, source: Admin, stable: Mapping[TopicPartition, tuple[int, int]], time_ms: int
    ) -> dict[TopicPartition, OpenTransaction]:
        """Return the open transactions.

        The first observation looks up all their producers, later ones only those of last stable offsets that did not
        move.
        """
        found = update_open_transactions(self._withheld or {}, stable, time_ms)
        to_look_up = {
            tp: transaction
            for tp, transaction in found.items()
            if self._withheld is None or transaction.since_ms < time_ms
        }
        self._withheld = found | with_producers(source, to_look_up)
        return self._withheld

    def _obstacles(
        self, target: Side, targets: Mapping[TopicPartition, TopicPartition], table: StatusTable
    ) -> dict[TopicPartition, str]:
        """Return why partitions without progress cannot be copied, if their target topic does not exist.

        If brokers refused to create it, the last run has reported their reason.
        """
        flow = self._flow
        obstacles = too_long(flow, {tp.topic for tp in targets})
        existing = target.describe({to.topic for tp, to in targets.items() if tp.topic not in obstacles})
        missing = [
            tp
            for tp, to in targets.items()
            if tp.topic not in obstacles
            and (to.topic not in existing or to.partition >= len(existing[to.topic].partitions))
        ]
        if missing_topics := {tp.topic for tp in missing if targets[tp].topic not in existing}:
            obstacles |= colliding(flow, missing_topics, target.topics.keys())
        found = {tp: table.obstacles[tp.topic].reason for tp in missing if tp.topic in table.obstacles}
        return found | {tp: obstacles[tp.topic].reason for tp in targets if tp.topic in obstacles}

    def _lost_copies(
        self,
        target: Side,
        targets: Mapping[TopicPartition, TopicPartition],
        progress: Mapping[TopicPartition, Progress],
        time_ms: int,
    ) -> dict[TopicPartition, str]:
        """Return why the copies of partitions with progress are not on the target, by the ids of its topics."""
        marks = {tp: mark for tp, found in progress.items() if (mark := found.target) is not None and mark.end > 0}
        if not 0 <= time_ms - self._copies_ms < len(marks) * _START_INTERVAL_MS:
            names = {targets[tp].topic for tp in marks}
            described = target.describe(names) if names else Outcomes({}, {})
            self._copies = dict.fromkeys(names - described.failed.keys()) | described
            self._copies_ms = time_ms
        found: dict[TopicPartition, str] = {}
        for tp, mark in marks.items():
            to, name, offset = targets[tp], self._flow.name, progress[tp].offset
            if to.topic not in self._copies:
                continue  # it could not be described, or has got its first copies since
            topic = self._copies[to.topic]
            topic_id = "" if topic is None else str(topic.topic_id or "")
            if topic is None or to.partition >= len(topic.partitions):
                found[tp] = deleted_text(name, to, mark, offset)
            elif is_other_topic(mark, topic_id):
                found[tp] = str(recreated_error(name, to, mark, topic_id, offset))
        return found

    def _firsts(
        self,
        source: Admin,
        tps: Collection[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return where copies of ``tps`` begin, by the flow's start."""
        earliest = {tp: starts[tp] for tp in tps if tp in starts}

        def look_up(among: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
            return _list_offsets(source, among, timestamp_ms)[0]

        return dict(first_offsets(self._flow, look_up, earliest, {tp: ends[tp] for tp in earliest}))

    def _start_offsets(
        self, source: Admin, ends: Collection[TopicPartition], time_ms: int
    ) -> Mapping[TopicPartition, int]:
        if not 0 <= time_ms - self._starts_ms < len(ends) * _START_INTERVAL_MS:
            self._starts, self._starts_ms = {}, time_ms
        found, _ = _list_offsets(source, [tp for tp in ends if tp not in self._starts], EARLIEST)
        self._starts |= found
        return self._starts

    def _bounded(self, source: Admin, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return ``ends``, no further than where the flow ends.

        The offset of a time is looked up until there is a record of that time; from then on it does not change.
        """
        until = self._flow.end_position
        if until is None:
            return dict(ends)
        if until.timestamp_ms is None:
            self._until = dict.fromkeys(ends, until.offset or 0)
        else:
            found, _ = _list_offsets(source, ends.keys() - self._until.keys(), until.timestamp_ms)
            self._until |= {tp: offset for tp, offset in found.items() if offset >= 0}
        return {tp: min(end, self._until.get(tp, end)) for tp, end in ends.items()}

    def _gap(self, progress: Progress, topic_id: str, offsets: PartitionOffsets, tp: TopicPartition) -> Gap | None:
        """Return the gap that keeps a copy from resuming at ``progress``, or None."""
        if offsets.earliest is None or offsets.end is None:
            return None
        until = self._until.get(tp)
        if until is not None and progress.offset >= until:
            return None  # The flow has come to its end here.
        gap = find_gap(progress, topic_id, offsets.earliest, offsets.end)
        # What is behind a lower bound may be copied: only the task that fences the partition can know.
        unknown = gap is not None and gap.kind is GapKind.RETENTION and not progress.exact
        return None if unknown else gap


def _begun(table: StatusTable, tps: Collection[TopicPartition], run: RunControl | None) -> dict[TopicPartition, int]:
    """Return where the tasks of the ``run`` have begun to copy those of ``tps`` that they have reported.

    What appears while a stream runs is copied from its first record, wherever the flow starts.
    """
    if run is None or run.ended:
        return {}
    results = (report.result for report, _ in table.partitions.values() if report.run == run.run)
    begun = {TopicPartition(one.topic, one.partition): one.start for one in results}
    return {tp: begun[tp] for tp in tps if tp in begun}


def _list_offsets(
    source: Admin, tps: Collection[TopicPartition], spec: int
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, KafkaError]]:
    """Return the offsets of the partitions that answer, and the others' errors. Raises KafkaError if none answers."""
    if not tps:
        return {}, {}
    found = source.list_offsets(dict.fromkeys(tps, spec), partial=True, timeout_ms=_SOURCE_CALL_TIMEOUT_MS)
    if not found:
        raise next(iter(found.failed.values()))
    return {tp: result.offset for tp, result in found.items()}, found.failed
