"""Translates offsets in both directions: reads the offset index of a flow, and what that lacks in the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.client import Admin, Consumer, Fetched, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.closing import Closing
from mirror.cluster.settings import ClusterSettings
from mirror.relay.batches.appended import ExpectedRecords, Unproved
from mirror.relay.batches.reencode import ReencodeSpec
from mirror.relay.batches.transforms import transform_of
from mirror.relay.offsets.index import Hole, OffsetIndex
from mirror.relay.offsets.log_answers import KnownLogs, LogAnswers, LogEnds, LogStarts, TopicIds
from mirror.relay.offsets.log_pairing import pair_last, pair_once
from mirror.relay.offsets.offset_topic import FollowedOffsetTopic, OffsetTopic
from mirror.relay.offsets.partition_offsets import MOST_COUNTED, PartitionOffsets
from mirror.relay.offsets.segments import EpochEnds, key_of, standing
from mirror.relay.origin.records import LogKey
from mirror.relay.origin.registry import open_origin
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.committed import Beginning, Progress, read_each_progress
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.log_reading import read_log, read_long_log
from mirror.relay.progress.target_log import TargetMark
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.integers import INT64_MAX

if TYPE_CHECKING:
    from mirror.relay.batches.reencode_decision import IsForeign
    from mirror.relay.model.policy import CopyPolicy
    from mirror.relay.offsets.extents import Extent
    from mirror.relay.offsets.segments import Segment
    from mirror.relay.origin.registry import LocalOrigin

_FETCH_BYTES: Final = 1024 * 1024
_COMPLETION_MS: Final = 5_000
"""How long the index is completed at most; the end of a task waits for it. What is left is completed another time."""
_MOST_COMPLETED: Final = 500_000
"""A hole of at most so many source offsets is completed in the index; larger ones only when a reader needs them."""


class Patience(NamedTuple):
    """How long a reader of many partitions waits for the broker of one, in ms."""

    answer_ms: int
    """For each response about the logs and the progress."""
    stall_ms: int
    """While nothing arrives of a log that is read."""


class OffsetTranslator(Closing):
    """Translates offsets of one flow, for as long as its progress is as it was when a partition was opened.

    Its calls wait for the clusters. Use it in one thread.
    """

    def __init__(
        self,
        flow: str,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        policy: CopyPolicy,
        *,
        timeout_ms: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError, FlowError.

        ``timeout_ms`` limits the reading of the offset topic, and of each part of a log; None: as for other calls. With
        ``patience``, a log is read for as long as something arrives, and of the offset topic only what is new.
        """
        self._patience: Final = patience
        source, target = cluster_options(source_options), cluster_options(target_options)
        default_ms = ClusterSettings.parse(target).default_api_timeout_ms
        self._timeout_ms: Final = default_ms if timeout_ms is None else timeout_ms
        self._flow: Final = flow
        self._exactly_once: Final = policy.exactly_once
        self._spec: Final = ReencodeSpec(headers=policy.headers, transform=transform_of(policy))
        self._topic: Final = OffsetTopic(target, flow)
        self._open_origin: Final = partial(open_origin, flow, source, target, policy, self._timeout_ms)
        self._origin: LocalOrigin | None = None
        self.silent: tuple[frozenset[TopicPartition], frozenset[TopicPartition]] = frozenset(), frozenset()
        """The source and target partitions whose leaders did not answer when partitions were opened last."""
        with ExitStack() as stack:
            self._source: Final = stack.enter_context(Admin(source))
            self._target: Final = stack.enter_context(Admin(target))
            self._source_log: Final = stack.enter_context(Consumer({**source, **_READING}))
            self._target_log: Final = stack.enter_context(Consumer({**target, **_READING}))
            self._stored: OffsetTopic | FollowedOffsetTopic = self._topic
            if patience is not None:
                self._stored = FollowedOffsetTopic(target, flow)
                stack.callback(self._stored.close)
            self._clients: Final = stack.pop_all()

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    def open(
        self, partitions: Mapping[TopicPartition, TopicPartition], topic_ids: TopicIds | None = None
    ) -> Outcomes[TopicPartition, PartitionOffsets]:
        """Return the offsets of these source partitions, whose values are their target partitions. Raises KafkaError.

        ``topic_ids`` are those of their topics, if they are known already.

        Of a partition without progress, or whose topic is not the one that was copied, everything is unknown. Those of
        which something cannot be read now, because a broker does not answer or refuses, are in ``failed``.
        """
        stored_segments = self._stored.read(partitions.values(), self._timeout_ms)
        answer_ms = self._timeout_ms if self._patience is None else self._patience.answer_ms
        progress = read_each_progress(self._target, self._flow, partitions.values(), answer_ms)
        clusters = LogAnswers(self._source, self._target, answer_ms)
        source_ids, target_ids = topic_ids or clusters.topic_ids(partitions)
        readable = {source: target for source, target in partitions.items() if target not in progress.failed}
        failed = {source: progress.failed[tp] for source, tp in partitions.items() if tp in progress.failed}
        copied = {
            source: found
            for source, target in readable.items()
            if (found := progress.get(target)) is not None
            and found.topic_id in {"", source_ids.get(source.topic, "")}
            and found.is_of_topic(source.topic)
        }
        # A run commits no progress of a partition that holds no records.
        uncopied = {
            source: target
            for source, target in readable.items()
            if target not in progress and source.topic in source_ids and target.topic in target_ids
        }
        empty = clusters.empty(uncopied)
        for source, ends in empty.items():
            copied[source] = self._progress_of_empty(ends, source_ids.get(source.topic, ""))
        logs = clusters.logs({source: partitions[source] for source in copied}, copied, stored_segments)
        failed.update(logs.failed)
        self.silent = frozenset(clusters.silent_sources), frozenset(clusters.silent_targets)
        opened: dict[TopicPartition, PartitionOffsets] = {}
        for source, target in readable.items():
            if source not in copied:
                opened[source] = self._without_index(source, target, progress.get(target))
            elif source in logs:
                segments = standing(
                    stored_segments[target],
                    copied[source],
                    logs[source].ends,
                    target_topic_id=target_ids.get(target.topic, ""),
                    exactly_once=self._exactly_once,
                )
                opened[source] = self._open(logs[source], segments)
        return Outcomes(opened, failed)

    def complete(self, partitions: Mapping[TopicPartition, TopicPartition]) -> int:
        """Write to the index what it lacks in front of its last segments; return how many segments. Raises KafkaError.

        Nothing changes in the logs there any more, so it does not matter who copies meanwhile.
        """
        timer = self._timer()
        missing = {
            key_of(partitions[source], segment): segment
            for source, offsets in self.open(partitions).items()
            for segment in offsets.missing_segments(_MOST_COMPLETED, timer)
        }
        for error in self._topic.write(missing, self._timeout_ms).values():
            raise error
        return len(missing)

    def _progress_of_empty(self, ends: LogEnds, topic_id: str) -> Progress:
        """Return the progress of a copy that has nothing to copy: all that was in front of its end is gone."""
        begin = 0 if self._exactly_once else ends.source
        return Progress(
            offset=ends.source,
            leader_epoch=None,
            source_cluster_id="",
            topic_id=topic_id,
            target=TargetMark(topic_id="", end=ends.target),
            beginning=Beginning(begin, ends.target),
        )

    def _without_index(
        self, source: TopicPartition, target: TopicPartition, found: Progress | None
    ) -> PartitionOffsets:
        index = OffsetIndex((), -1 if found is None else INT64_MAX, exactly_once=True)
        offsets = PartitionOffsets(index, _nothing, LogStarts(0, 0))
        offsets.is_of_copied_topic = False
        if found is None:
            offsets.reason = f"flow {self._flow} has no progress of {target}"
        elif found.is_of_topic(source.topic):
            offsets.reason = f"{source} is not the topic that was copied (its id was {found.topic_id})"
        else:
            offsets.reason = f"{target} is a copy of source topic {found.source_topic}, not of {source.topic}"
        return offsets

    def _open(self, logs: KnownLogs, segments: list[Segment]) -> PartitionOffsets:
        progress = logs.progress
        producer_ids = progress.appender_ids | {segment.end.target.producer_id for segment in segments}
        index = OffsetIndex(
            segments,
            min(progress.offset, _source_cut(progress, logs.ends)),
            exactly_once=self._exactly_once,
            beginning=progress.beginning,
            target_end=None if (mark := progress.target) is None else mark.indexed_end(exactly_once=self._exactly_once),
        )
        offsets = PartitionOffsets(
            index,
            lambda hole: self._extents_in(hole, logs, producer_ids - {-1}),
            logs.starts,
            segments,
            lambda start, end: self._count(logs.target, start, end),
        )
        offsets.is_of_known_id = bool(progress.topic_id)
        if index.begin is None:
            offsets.reason = f"there is no offset index of {logs.target} yet"
        return offsets

    # --- what the index lacks

    def _extents_in(self, hole: Hole, logs: KnownLogs, producer_ids: frozenset[int]) -> list[Extent]:
        """Raises Unproved, KafkaError."""
        source_id = stored.topic_id(logs.progress.topic_id)
        limit_ms = self._timeout_ms if self._patience is None else self._patience.stall_ms
        end = self._target_log.end_offsets([logs.target], limit_ms)[logs.target]
        end = end if hole.target_end is None else min(end, hole.target_end)

        is_foreign = self._foreign_finder(LogKey.of(logs.source, logs.progress.topic_id))

        def read_logs() -> tuple[Iterator[Fetched], ExpectedRecords]:
            seek = OffsetAndMetadata(hole.start, topic_id=source_id)
            source = self._read(self._source_log, logs.source, seek, hole.end)
            target = self._read(self._target_log, logs.target, hole.target_start, end)
            return target, ExpectedRecords(source, hole.start, self._spec, hole.end, is_foreign)

        return pair_once(hole, read_logs, producer_ids) if self._exactly_once else pair_last(hole, read_logs)

    def _read(
        self, consumer: Consumer, tp: TopicPartition, start: int | OffsetAndMetadata, end: int
    ) -> Iterator[Fetched]:
        if self._patience is None:
            return read_log(consumer, tp, start, end, self._timer())
        return read_long_log(consumer, tp, start, end, SystemClock(), self._patience.stall_ms)

    def _count(self, target: TopicPartition, start: int, end: int | None) -> int:
        """Count the committed records; if there are very many offsets, return their number. Raises KafkaError."""
        if end is None:
            end = self._target_log.end_offsets([target], self._timeout_ms)[target]
        if end <= start or end - start > MOST_COUNTED:
            return max(0, end - start)
        log = self._read(self._target_log, target, start, end)
        return sum(1 for fetched in log for record in fetched.records() if start <= record.offset < end)

    def _foreign_finder(self, log: LogKey) -> IsForeign | None:
        if self._origin is None and (opened := self._open_origin()) is not None:
            self._origin = self._clients.enter_context(opened)
        return None if self._origin is None else self._origin.finder(log)

    def _timer(self) -> Timer:
        return Timer(SystemClock(), self._timeout_ms)


def complete_index(
    flow: str,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    partitions: Mapping[TopicPartition, TopicPartition],
) -> int:
    """Do what :meth:`OffsetTranslator.complete` does, with clients of its own, and within some seconds."""
    with OffsetTranslator(flow, source_options, target_options, policy, timeout_ms=_COMPLETION_MS) as translator:
        return translator.complete(partitions)


def _source_cut(progress: Progress, ends: EpochEnds) -> int:
    """Return where the source's log was cut back since it was copied; beyond it, there are other records now."""
    known = None if progress.leader_epoch is None else ends.source[progress.leader_epoch]
    return INT64_MAX if known is None or known.end_offset < 0 else known.end_offset


_READING: Final = {
    "auto.offset.reset": "none",
    "isolation.level": "read_committed",
    "fetch.max.bytes": _FETCH_BYTES,
    "max.partition.fetch.bytes": _FETCH_BYTES,
}


def _nothing(hole: Hole) -> list[Extent]:
    raise Unproved(f"there is nothing to read of {hole}")
