"""Observes one flow: reads the progress on the target, the source's offsets, and why partitions cannot be copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, Admin, ConfigResource, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.relay.batches.topic_config import FOREVER, TopicConfig, readable
from mirror.relay.progress.committed import ProgressStore
from mirror.relay.progress.gaps import Gap, GapKind, find_gap
from mirror.relay.progress.open_transactions import OpenTransaction, update_open_transactions
from mirror.spark.ledger.obstacles import colliding, too_long
from mirror.spark.planning.open_transactions import high_watermarks, with_producers
from mirror.spark.planning.range_planner import NO_LEADER, NO_LEADER_TEXT, select_topics
from mirror.spark.run_control import RunControlClient
from mirror.telemetry.lag.offset_history import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.control import RunControl
    from mirror.spark.ledger.last_errors import LastErrors

_SOURCE_CALL_TIMEOUT_MS: Final = 10_000
"""A leader that does not answer must not keep the status of the others from being shown."""
_START_INTERVAL_MS: Final = 1
"""Log start offsets are read again after so long for each partition: every 10 s for 10,000 partitions."""


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
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    """The brokers that lead the source's partitions; -1: none."""


class FlowObserver:
    """Observes one flow again and again, and caches what changes rarely.

    These are log start offsets, where the flow ends, and how long the source's topics retain their records.
    """

    def __init__(self, flow: FlowConfig, last_errors: LastErrors | None, unix_ms: Callable[[], int]) -> None:
        """``last_errors`` reads the ledger of the flow's runs; None: it is not read."""
        self._flow: Final = flow
        self._last_errors: Final = last_errors
        self._unix_ms: Final = unix_ms
        self._retention_ms: dict[str, int | None] = {}
        self._until: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._starts_ms = 0
        self._withheld: dict[TopicPartition, OpenTransaction] | None = None

    def observe(self, source: Admin, target: Admin) -> Observation:
        """Read both clusters. Raises FlowError if no topic matches, KafkaError if a cluster does not answer."""
        all_topics = source.list_topics()
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
        return Observation(
            time_ms=time_ms,
            run=None if run is None or run.ended else run,
            offsets=offsets,
            progress=progress,
            unanswered={tp: str(failed.get(tp, NO_LEADER_TEXT)) for tp in leaders if tp not in ends},
            gaps={tp: gap for tp, gap in gaps.items() if gap is not None},
            high_watermarks=high,
            withheld=self._open_transactions(source, {tp: (ends[tp], end) for tp, end in high.items()}, time_ms),
            obstacles=self._obstacles(target, {tp: targets[tp] for tp in leaders if tp not in progress}),
            leaders=leaders,
        )

    def retention_ms(self, source: Admin, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Return how long the topics retain their records, by name; None: forever, or the permission is missing."""
        unread = [ConfigResource.topic(name) for name in topics if name not in self._retention_ms]
        if not unread:
            return self._retention_ms
        try:
            found = source.describe_configs(unread, partial=True, timeout_ms=_SOURCE_CALL_TIMEOUT_MS)
        except KafkaError:
            return self._retention_ms  # The next observation tries again.
        for resource, entries in found.items():
            config = TopicConfig.of(readable(entries))
            self._retention_ms[resource.name] = None if config.retention_ms == FOREVER else config.retention_ms
        refused = [resource.name for resource, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
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

    def _obstacles(self, target: Admin, targets: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, str]:
        """Return why partitions without progress cannot be copied, if their target topic does not exist.

        If brokers refused to create it, their reason is in the ledger of the last run.
        """
        flow = self._flow
        obstacles = too_long(flow, {tp.topic for tp in targets})
        existing = target.describe_topics(
            {to.topic for tp, to in targets.items() if tp.topic not in obstacles}, partial=True
        )
        missing = [
            tp
            for tp, to in targets.items()
            if tp.topic not in obstacles
            and (to.topic not in existing or to.partition >= len(existing[to.topic].partitions))
        ]
        if missing_topics := {tp.topic for tp in missing if targets[tp].topic not in existing}:
            obstacles |= colliding(flow, missing_topics, target.list_topics().keys())
        last = self._last_errors.targets() if missing and self._last_errors is not None else None
        refused = {} if last is None else last.obstacles
        found = {tp: refused[tp.topic].reason for tp in missing if tp.topic in refused}
        return found | {tp: obstacles[tp.topic].reason for tp in targets if tp.topic in obstacles}

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
