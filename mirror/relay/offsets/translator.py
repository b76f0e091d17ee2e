"""Translates offsets in both directions: reads the offset index of a flow, and what that lacks in the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from mirror.client import Admin, Consumer, Fetched, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.errors import BatchTooLarge, CorruptBatch, FlowError, KafkaError, LogTruncated, OffsetOutOfRange
from mirror.relay.batches.appended import ExpectedRecords, Unproved
from mirror.relay.batches.reencode import ReencodeSpec, one_at_a_time
from mirror.relay.offsets.copy_count import CopyCount, Offsets, count_copies, count_missed
from mirror.relay.offsets.index import Hole, OffsetIndex, Place, Translation
from mirror.relay.offsets.log_answers import KnownLogs, LogAnswers, LogEnds, LogStarts, TopicIds
from mirror.relay.offsets.log_pairing import pair_last, pair_once
from mirror.relay.offsets.offset_topic import FollowedOffsetTopic, OffsetTopic
from mirror.relay.offsets.runs import span_of
from mirror.relay.offsets.segments import EpochEnds, key_of, segment_of, standing
from mirror.relay.origin.records import LogKey
from mirror.relay.origin.registry import open_origin
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.committed import Beginning, Progress, read_each_progress
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.log_reading import read_log, read_long_log
from mirror.relay.progress.target_log import TargetMark
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.relay.batches.classify import IsForeign
    from mirror.relay.model.policy import CopyPolicy
    from mirror.relay.offsets.runs import Run
    from mirror.relay.offsets.segments import Segment
    from mirror.relay.origin.registry import LocalOrigin
    from mirror.relay.progress.anchors import Anchor

_FETCH_BYTES: Final = 1024 * 1024
_COMPLETION_MS: Final = 5_000
"""How long the index is completed at most; the end of a task waits for it. What is left is completed another time."""
_ANYWHERE: Final = 2**63 - 1
_UNKNOWN: Final = (Unproved, OffsetOutOfRange, LogTruncated, CorruptBatch, BatchTooLarge, FlowError)
"""Errors of reading a hole; a FlowError is that of the flow's transform, which may have been edited."""
_MOST_COMPLETED: Final = 500_000
"""A hole of at most so many source offsets is completed in the index; larger ones only when a reader needs them."""

_MOST_COUNTED: Final = 100_000
"""So many target offsets are read at most to count the records that the source does not have."""

_Translate = Callable[[int], "Translation | Hole"]


def _is_behind(anchor: Anchor, hole: Hole) -> bool:
    return anchor.offset >= hole.end and hole.target_end is not None and anchor.target.end >= hole.target_end


class Unmatched(NamedTuple):
    """Records of the target around a position that are not known as copies. Beyond a limit, offsets are counted."""

    in_front: int
    """Between the last copy in front of the position and the position."""
    behind: int
    """From the position to the next copy, or to the end of the log."""


class PartitionOffsets:
    """The offset index of one partition; what it lacks is read when it is needed."""

    def __init__(
        self,
        index: OffsetIndex,
        fill: Callable[[Hole], list[Run]],
        starts: LogStarts,
        segments: Sequence[Segment] = (),
        count: Callable[[int, int | None], int] = lambda _, __: 0,
    ) -> None:
        """``fill`` finds the runs of a hole in the logs; raises Unproved if they cannot be known.

        ``segments`` are those of the index. ``count`` counts the committed records of the target between two offsets,
        or to its end.
        """
        self.index: Final = index
        self._fill: Final = fill
        self.starts: Final = starts
        self._segments: Final = segments
        self._failure: KafkaError | None = None
        self._count: Final = count
        self.reason = ""
        """Why something is unknown; empty if nothing was looked for in vain."""
        self.is_of_copied_topic = True
        """Whether the source's topic is known as the one that was copied."""
        self.is_of_known_id = True
        """Whether it is by its id; without ids a topic that was made again looks like the former one."""

    def translate(self, offset: int, found: Translation | Hole | None = None) -> Translation:
        """Return the target offset of a source offset; ``found`` is what the index has of it. Raises KafkaError."""
        there, back = self.index.translate, self.index.translate_back
        known = found if isinstance(found, Translation) else self._resolved(there, offset)
        return self._present(known, self.starts.target, there, back)

    def translate_back(self, offset: int) -> Translation:
        """Return the source offset of a target offset. Raises KafkaError."""
        there, back = self.index.translate_back, self.index.translate
        return self._present(self._resolved(there, offset), self.starts.source, there, back)

    def passed(self, offset: int, found: Translation) -> int:
        """Count the records from a source offset on that are not behind its translation: the target has deleted them.

        At most so many, if the logs do not say it exactly. Raises KafkaError.
        """
        if found.offset is None or _is_present(self.index.translate(offset), self.starts.target):
            return 0
        return self.missed(offset, found.offset).records

    def passed_back(self, offset: int, found: Translation) -> int:
        """Return the same of a target offset that was translated back: what the source has deleted."""
        if found.offset is None or _is_present(self.index.translate_back(offset), self.starts.source):
            return 0
        return self.copies(Offsets(end=found.offset), Offsets(start=offset)).records

    @property
    def first_copy_at(self) -> int | None:
        """A target offset in front of which no record is a copy of one that the source has; None if none is known."""
        begin = self.index.begin
        return None if begin is None or begin > self.starts.source else self.index.target_begin

    def unmatched(self, target_offset: int) -> Unmatched:
        """Return what the source does not have around an offset that was translated back. Raises KafkaError."""
        start, end = self.index.gap_around(target_offset)
        in_front = self._count(max(start, self.starts.target), target_offset)
        return Unmatched(in_front, self._count(target_offset, end))

    def copies(self, sources: Offsets, targets: Offsets) -> CopyCount:
        """Count the copies at these offsets of both logs. Raises KafkaError.

        What the index lacks of them is read in the logs, unless it is very much: then it is counted by its offsets.
        """
        for part in list(self.index.parts(sources, targets)):
            if isinstance(part, Hole) and 0 < self._most_in(part, sources, targets) <= _MOST_COUNTED:
                self._resolved(self.index.translate, part.start)
        return count_copies(self.index, sources, targets)

    def missed(self, source_offset: int, target_offset: int) -> CopyCount:
        """Count the records from a source offset on whose only copies are in front of a target offset.

        Raises KafkaError.
        """
        found = self.copies(Offsets(start=source_offset), Offsets(end=target_offset))
        return count_missed(self.index, source_offset, target_offset) if found.records and found.is_exact else found

    def records_between(self, target_start: int, target_end: int | None) -> int:
        """Count the committed records between two offsets of the target, or to its end. Raises KafkaError.

        Very many offsets count as so many records.
        """
        return self._count(max(target_start, self.starts.target), target_end)

    @staticmethod
    def _most_in(hole: Hole, sources: Offsets, targets: Offsets) -> int:
        """Return how many records of a hole may be at these offsets; 0 if none is."""
        target_end = _ANYWHERE if hole.target_end is None else hole.target_end
        both = sources.common(hole.start, hole.end), targets.common(hole.target_start, target_end)
        return hole.end - hole.start if all(both) else 0

    def has_only_copies(self, target_start: int, target_end: int) -> bool:
        """Whether all committed records between two offsets of the target are known as copies. Raises KafkaError."""
        copies = count_copies(self.index, Offsets(), Offsets(target_start, target_end))
        return copies.is_exact and copies.records == self._count(target_start, target_end)

    def _present(self, found: Translation, start: int, there: _Translate, back: _Translate) -> Translation:
        """Return the first offset from ``start`` on for what the log, which begins there now, has deleted.

        A group that is to go on in front of the log's start would be reset, perhaps to the log's end.
        """
        if found.offset is None or found.offset >= start:
            return found
        if found.place in {Place.RECORD, Place.NEXT}:
            first = self._resolved(back, start)
            found = first if first.offset is None else self._resolved(there, first.offset)
            if found.place is Place.RECORD:
                found = found._replace(place=Place.NEXT)
        return found if found.offset is None else found._replace(offset=max(start, found.offset))

    def missing_segments(self, most_offsets: int, timer: Timer) -> list[Segment]:
        """Return what the index lacks between its segments, as far as both logs have it. Raises KafkaError.

        Holes of more than ``most_offsets`` source offsets are left out, and those that are left when ``timer`` expires.
        """
        found: list[Segment] = []
        for hole in self.index.holes():
            if hole.end - hole.start > most_offsets or timer.expired():
                continue
            try:
                spans = span_of(hole.start, hole.end, hole.target_start, self._runs_in(hole))
            except _UNKNOWN as error:
                self.reason = str(error)
            else:
                # The anchor of a segment behind it is of the same logs, and stands.
                behind = [one.end for one in self._segments if _is_behind(one.end, hole)]
                anchor = min(behind, key=lambda one: one.offset)
                found += [segment_of(span, anchor) for span in spans]
        return found

    def _runs_in(self, hole: Hole) -> list[Run]:
        """Read a hole, once: if a log cannot be read now, others would wait for the same timeout. Raises KafkaError."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._fill(hole)
        except _UNKNOWN:
            raise
        except KafkaError as error:
            self._failure = error
            raise

    def _resolved(self, translate: _Translate, offset: int) -> Translation:
        while isinstance(found := translate(offset), Hole):
            try:
                self.index.fill(found, self._runs_in(found))
            except _UNKNOWN as error:
                self.reason = str(error)
                self.index.leave_unknown(found)
        return found


def _is_present(found: Translation | Hole, start: int) -> bool:
    """Whether a log that begins at ``start`` has what the index has found, or that is not known."""
    return isinstance(found, Hole) or found.offset is None or found.offset >= start


class Patience(NamedTuple):
    """How long a reader of many partitions waits for the broker of one, in ms."""

    answer_ms: int
    """For each response about the logs and the progress."""
    stall_ms: int
    """While nothing arrives of a log that is read."""


class OffsetTranslator:
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
        self._spec: Final = ReencodeSpec(
            headers=policy.headers, transform=one_at_a_time(policy.transform) if policy.transform else None
        )
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

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
            if (found := progress.get(target)) is not None and found.topic_id in {"", source_ids.get(source.topic, "")}
        }
        # A run commits no progress of a partition that holds no records.
        empty = clusters.empty({source: target for source, target in readable.items() if target not in progress})
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
        index = OffsetIndex((), -1 if found is None else _ANYWHERE, exactly_once=True)
        offsets = PartitionOffsets(index, _nothing, LogStarts(0, 0))
        offsets.is_of_copied_topic = False
        offsets.reason = (
            f"flow {self._flow} has no progress of {target}"
            if found is None
            else f"{source} is not the topic that was copied (its id was {found.topic_id})"
        )
        return offsets

    def _open(self, logs: KnownLogs, segments: list[Segment]) -> PartitionOffsets:
        progress = logs.progress
        producer_ids = progress.appender_ids | {segment.end.target.producer_id for segment in segments}
        index = OffsetIndex(
            segments,
            min(progress.offset, _source_cut(progress, logs.ends)),
            exactly_once=self._exactly_once,
            beginning=progress.beginning,
            target_end=None if progress.target is None else progress.target.end,
        )
        offsets = PartitionOffsets(
            index,
            lambda hole: self._runs_in(hole, logs, producer_ids - {-1}),
            logs.starts,
            segments,
            lambda start, end: self._count(logs.target, start, end),
        )
        offsets.is_of_known_id = bool(progress.topic_id)
        if index.begin is None:
            offsets.reason = f"there is no offset index of {logs.target} yet"
        return offsets

    # --- what the index lacks

    def _runs_in(self, hole: Hole, logs: KnownLogs, producer_ids: frozenset[int]) -> list[Run]:
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
        if end <= start or end - start > _MOST_COUNTED:
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
    return _ANYWHERE if known is None or known.end_offset < 0 else known.end_offset


_READING: Final = {
    "auto.offset.reset": "none",
    "isolation.level": "read_committed",
    "fetch.max.bytes": _FETCH_BYTES,
    "max.partition.fetch.bytes": _FETCH_BYTES,
}


def _nothing(hole: Hole) -> list[Run]:
    raise Unproved(f"there is nothing to read of {hole}")
