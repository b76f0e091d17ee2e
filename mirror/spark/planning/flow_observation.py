"""Observes the partitions of a flow: where its logs begin and end, and what is committed. All plans are views of this.

::

    1 source: log starts ─► 2 target: progress, and its logs ─► 3 source: ends, high watermarks

If the progress were read after the ends, that of a stream, whose tasks go on, might lie beyond them, as if the log had
been truncated. If it were read before the starts, it might lie before records that retention has deleted since, as if
these had not been copied. What the target has lies in front of the source's end for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicDescription, TopicPartition
from mirror.config.models import FlowConfig
from mirror.config.positions import Position
from mirror.errors import BrokerError, FlowError, KafkaError
from mirror.observation import Side, Sides
from mirror.relay.progress.committed import Progress, read_progress
from mirror.spark.ledger.topic_obstacles import Obstacle, unnameable
from mirror.spark.planning.open_transactions import high_watermarks
from mirror.spark.planning.range_planner import NO_LEADER, SourcePartition, select_topics
from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a view needs of the partitions."""

    topics: Mapping[str, TopicDescription] | None = None
    """The source topics; None: all that the flow copies."""
    is_initial: Callable[[TopicPartition], bool] | None = None
    """Whether the source had a partition when the flow started; None: all. Others are copied from their start."""
    epochs: bool = False
    """Whether a log that ends at its progress is compared with what was copied, by leader epochs."""
    target_logs: bool = False
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Log start offsets of the source that are known, and are not read."""
    call_timeout_ms: int | None = None
    """The time-out of each look-up of offsets; None: that of the cluster's configuration."""


ALL: Final = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLog:
    """A target partition as its cluster has it."""

    start: int = 0
    end: int = 0
    """The last stable offset."""
    high_watermark: int = 0
    topic_id: str = ""
    exists: bool = True
    error: str = ""
    """Why it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowObservation:
    """The partitions of a flow on both sides, as of one reading."""

    topics: Mapping[str, TopicDescription]
    """The source topics."""
    unnameable: Mapping[str, Obstacle]
    """Those whose target topics can have no name."""
    partitions: list[SourcePartition]
    progress: dict[TopicPartition, Progress]
    """By target partition."""
    target_logs: dict[TopicPartition, TargetLog] = field(default_factory=dict)
    """Of all partitions of the target topics, if they are needed."""
    away: Mapping[str, KafkaError | FlowError] = field(default_factory=dict)
    """The cluster that does not answer, by name; of the other one everything is known.

    Without the source, the partitions are those with progress, and have no leaders.
    """
    silent: KafkaError | None = None
    """The error of a leader, if none has answered."""

    def stable_ends(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the last stable offset and the high watermark of each source partition that has answered."""
        return {one.tp: one.stable for one in self.partitions if one.leader != NO_LEADER}

    def heard(self) -> FlowObservation:
        """Return it. Raises KafkaError if no leader of the source has answered."""
        if self.silent is not None:
            raise self.silent
        return self

    def whole(self) -> FlowObservation:
        """Return it. Raises FlowError or KafkaError if a cluster does not answer, or no leader of the source."""
        for error in self.away.values():
            raise error
        return self.heard()


def observe_flow(flow: FlowConfig, sides: Sides, needs: Needs = ALL) -> FlowObservation:
    """Read both sides. A partition without a leader would delay the others by its call's time-out, and is not read.

    A cluster that is known to be away is left out: the result says so, as it does of leaders that do not answer.
    Raises FlowError if no topic matches or both clusters are away, and KafkaError if a cluster does not answer.
    """
    away = sides.away
    if len(away) == len(sides):
        raise next(iter(away.values()))
    if sides.source.away is not None:
        return _without_source(flow, sides)
    topics = needs.topics
    if topics is None:
        listed = sides.source.topics
        topics = {name: listed[name] for name in select_topics(flow, listed)}
    nameless = unnameable(flow, topics)
    source = _SourceReading(flow, topics, sides.source.admin, needs)
    targets = {
        TopicPartition(flow.target_topic(name), one.partition)
        for name, topic in topics.items()
        if name not in nameless
        for one in topic.partitions
    }
    progress = {} if away else read_progress(sides.target.admin, flow.name, targets)
    logs = read_logs(sides.target, targets) if needs.target_logs and not away else {}
    partitions = source.partitions(needs.is_initial)
    if needs.epochs:
        partitions = source.compared(partitions, progress)
    return FlowObservation(
        topics=topics,
        unnameable=nameless,
        partitions=partitions,
        progress=progress,
        target_logs=logs,
        away=away,
        silent=source.silent(),
    )


def _without_source(flow: FlowConfig, sides: Sides) -> FlowObservation:
    sources = {
        TopicPartition(name, partition.partition): topic
        for name, described in sides.target.topics.items()
        if (topic := flow.source_topic(name)) is not None
        for partition in described.partitions
    }
    progress = read_progress(sides.target.admin, flow.name, sources.keys())
    partitions = [
        SourcePartition(
            topic=sources[tp],
            target_topic=tp.topic,
            partition=tp.partition,
            topic_id=one.topic_id,
            leader=NO_LEADER,
            earliest=0,
            end=0,
            first=0,
        )
        for tp, one in sorted(progress.items())
    ]
    return FlowObservation(topics={}, unnameable={}, partitions=partitions, progress=progress, away=sides.away)


# --- the source


class _SourceReading:
    """Reads the source's offsets in two steps: log starts at once, ends in :meth:`partitions`."""

    def __init__(self, flow: FlowConfig, topics: Mapping[str, TopicDescription], source: Admin, needs: Needs) -> None:
        self._flow: Final = flow
        self._partitions: Final = [
            (topic, partition, TopicPartition(topic.name, partition.partition))
            for topic in topics.values()
            for partition in topic.partitions
        ]
        self._with_leader: Final = [tp for _, partition, tp in self._partitions if partition.leader != NO_LEADER]
        self._source: Final = source
        self._call_timeout_ms: Final = needs.call_timeout_ms
        self._failed: Final[dict[TopicPartition, KafkaError]] = {}
        """Those that did not answer once are not asked again."""
        known = needs.starts
        starts = self._results((tp for tp in self._with_leader if tp not in known), EARLIEST)
        self._earliest: Final = {tp: known[tp] for tp in self._with_leader if tp in known} | {
            tp: result.offset for tp, result in starts.items()
        }
        # For the end, the leader of a log without epochs (formats before version 2) reports its own epoch all the same.
        self._have_epochs: Final = {tp for tp, result in starts.items() if result.leader_epoch >= 0}

    def silent(self) -> KafkaError | None:
        """Return the error of one of the leaders if none has answered."""
        return next(iter(self._failed.values()), None) if len(self._failed) == len(self._with_leader) else None

    def partitions(self, is_initial: Callable[[TopicPartition], bool] | None = None) -> list[SourcePartition]:
        """Return all source partitions with their offsets."""
        flow, earliest = self._flow, self._earliest
        last = self._results(self._with_leader, LATEST)
        end = {tp: result.offset for tp, result in last.items()}
        epochs = {tp: result.leader_epoch for tp, result in last.items() if tp in self._have_epochs}
        first = dict(_first_offsets(flow, self._offsets, earliest, end))
        if is_initial is not None and flow.begins_at_end:
            first |= {tp: offset for tp, offset in earliest.items() if not is_initial(tp)}
        until = _until_offsets(self._offsets, self._with_leader, flow.end_position)
        high = high_watermarks(self._source, end, call_timeout_ms=self._call_timeout_ms)
        return [
            SourcePartition(
                topic=topic.name,
                target_topic=flow.target_topic(topic.name),
                partition=partition.partition,
                topic_id=str(topic.topic_id or ""),
                leader=NO_LEADER if error else partition.leader,
                earliest=earliest.get(tp, 0),
                end=end.get(tp, 0),
                first=first.get(tp, 0),
                until=until.get(tp),
                high_watermark=high.get(tp, 0),
                error=str(error or ""),
                leader_epoch=epochs.get(tp),
            )
            for topic, partition, tp in self._partitions
            for error in [self._failed.get(tp)]
        ]

    # Invariant: A source log that was cut back and ends at the progress again is a gap, although there is nothing to
    #   read.
    # Test: tests/spark/planning/
    #   test_flow_observation.py::test_log_that_was_cut_back_and_ends_at_the_progress_again_is_named
    def compared(
        self, partitions: Iterable[SourcePartition], progress: Mapping[TopicPartition, Progress]
    ) -> list[SourcePartition]:
        """Return ``partitions`` with where they diverge from what was copied, of those that end at their ``progress``.

        An unclean election may have cut such a log back, and it has grown again to just there. Nothing is read behind
        the progress then, which would show it. Only another leader epoch than that of the progress is asked about.
        """
        found = {one.tp: one for one in partitions}
        copied: dict[TopicPartition, Progress] = {}
        for tp, one in found.items():
            known = progress.get(one.target_tp)
            if known is None or known.offset != one.end or None in {one.leader_epoch, known.leader_epoch}:
                continue
            if known.leader_epoch != one.leader_epoch and known.topic_id in {"", one.topic_id}:
                copied[tp] = known
        epochs = {tp: known.leader_epoch for tp, known in copied.items() if known.leader_epoch is not None}
        if epochs:
            ends = self._source.epoch_ends_async(epochs, self._call_timeout_ms).result()
            for tp, epoch_end in ends.items():
                if epoch_end is not None and 0 <= epoch_end.end_offset < copied[tp].offset:
                    found[tp] = replace(found[tp], diverging=epoch_end.end_offset)
        return [*found.values()]

    def _offsets(self, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions that answer."""
        return {tp: result.offset for tp, result in self._results(partitions, spec).items()}

    def _results(self, partitions: Iterable[TopicPartition], spec: int) -> Mapping[TopicPartition, OffsetResult]:
        """Return the offsets of the partitions that answer, with leader epochs."""
        specs = {tp: spec for tp in partitions if tp not in self._failed}
        if not specs:
            return {}
        found = self._source.list_offsets(specs, partial=True, timeout_ms=self._call_timeout_ms)
        self._failed.update(found.failed)
        return found


_LookUp = Callable[[Collection[TopicPartition], int], Mapping[TopicPartition, int]]
"""Returns the offsets of a time (ms since 1970; -1: no record is as late) of the partitions that answer."""


# Invariant: A start position that the source has not reached yet is not committed: it would look like a truncated log.
# Test: tests/spark/planning/
#   test_flow_planner.py::test_an_offset_that_the_source_has_not_reached_yet_is_no_start_position
def _first_offsets(
    flow: FlowConfig, look_up: _LookUp, earliest: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Return where partitions without progress begin, by the flow's ``from`` or ``start``.

    A time after the last record stands for the end, and an offset before the log's start for that start.
    """
    position = flow.start_position
    if position is not None and position.offset is not None:
        return {tp: max(position.offset, offset) for tp, offset in earliest.items()}
    timestamp_ms = flow.start_timestamp_ms if position is None else position.timestamp_ms
    if timestamp_ms is None:
        return earliest if flow.start == "earliest" else end
    found = look_up(earliest.keys(), timestamp_ms)
    return {tp: offset if 0 <= offset < end[tp] else end[tp] for tp, offset in found.items() if tp in end}


def _until_offsets(
    look_up: _LookUp, partitions: Collection[TopicPartition], position: Position | None
) -> Mapping[TopicPartition, int]:
    """Return where the flow ends, without partitions that have no record of that time yet."""
    if position is None:
        return {}
    if position.timestamp_ms is None:
        return dict.fromkeys(partitions, position.offset or 0)
    return {tp: offset for tp, offset in look_up(partitions, position.timestamp_ms).items() if offset >= 0}


# --- the target


def read_logs(
    side: Side, wanted: Collection[TopicPartition], timeout_ms: int | None = None
) -> dict[TopicPartition, TargetLog]:
    """Return the logs of the ``wanted`` partitions, and of all others that their topics have.

    ``timeout_ms`` bounds each call; None: the cluster's configuration does. Raises KafkaError.
    """
    topics = side.describe({tp.topic for tp in wanted}, timeout_ms)
    led = {
        TopicPartition(name, one.partition): one.leader != NO_LEADER
        for name, topic in topics.items()
        for one in topic.partitions
    }
    with_leader = [tp for tp, has_leader in led.items() if has_leader]
    read = [
        side.admin.list_offsets(
            dict.fromkeys(with_leader, spec), isolation=isolation, partial=True, timeout_ms=timeout_ms
        )
        for spec, isolation in ((LATEST, "read_committed"), (LATEST, "read_uncommitted"), (EARLIEST, "read_committed"))
    ]
    logs: dict[TopicPartition, TargetLog] = {}
    for tp in {*wanted, *led}:
        if tp not in led:
            error = topics.failed.get(tp.topic)
            logs[tp] = TargetLog(exists=False, error="" if error is None or _is_unknown(error) else str(error))
        elif not led[tp]:
            logs[tp] = TargetLog(error="it has no leader")
        else:
            topic_id = str(topics[tp.topic].topic_id or "")
            failed = next((offsets.failed[tp] for offsets in read if tp in offsets.failed), None)
            if failed is not None:
                logs[tp] = TargetLog(topic_id=topic_id, error=str(failed))
            else:
                end, high, start = (offsets[tp].offset for offsets in read)
                logs[tp] = TargetLog(start=start, end=end, high_watermark=high, topic_id=topic_id)
    return logs


def _is_unknown(error: KafkaError) -> bool:
    """Whether a topic does not exist."""
    return isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION
