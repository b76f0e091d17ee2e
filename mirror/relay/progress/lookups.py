"""What is asked of the clusters when a copy cannot just go on: was its progress forgotten, what has the source now.

Most of these calls wait, each for ``default.api.timeout.ms`` at most, in threads of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicDescription, TopicPartition
from mirror.cluster.types import Outcomes, V
from mirror.errors import FlowError, KafkaError
from mirror.relay.futures import done, then
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.control import RunControl, control_partition, from_offset
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.progress.target_log import TargetMark, is_other_topic, recreated_error, truncated_error

_Offsets = Outcomes[TopicPartition, OffsetResult]
_DOUBTED_S: Final = 1.0
_ATTEMPTS: Final = 10
_GONE: Final = "gone"
_CHANGED: Final = "changed"


class LogBounds(NamedTuple):
    """From ``first`` to ``end``, open transactions included; ``leader_epoch`` is the last one, None where not told."""

    first: int
    end: int
    leader_epoch: int | None = None


class TargetTopics:
    """What brokers said of the target's topics, all at once."""

    def __init__(self, topics: Mapping[str, TopicDescription]) -> None:
        self._topics: Final = topics

    def topic_id(self, tp: TopicPartition) -> str:
        """The id of the topic of ``tp``; empty where there is none, or it is not told."""
        topic = self._topics.get(tp.topic)
        return "" if topic is None else str(topic.topic_id or "")

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        """The leader epoch of ``tp``; None where it is not told."""
        topic = self._topics.get(tp.topic)
        told = () if topic is None else topic.partitions
        epoch = next((one.leader_epoch for one in told if one.partition == tp.partition), -1)
        return None if epoch < 0 else epoch


class ClusterLookups:
    """Answers for one task's copies; safe to use from several threads."""

    def __init__(
        self,
        flow: str,
        source: Admin,
        target: Admin,
        notes: ProgressTopic,
        targets: Collection[TopicPartition],
        *,
        start_over: bool,
        timeout_ms: int,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``timeout_ms`` is for looking whether a note is still true; the calls of Admin have their own default.

        ``now`` and ``pause`` are in seconds.
        """
        self._flow: Final = flow
        self._timeout_ms: Final = timeout_ms
        self._source: Final = source
        self._target: Final = target
        self._notes: Final = notes
        self._targets: Final = frozenset(targets)
        self._start_over: Final = start_over
        self._now: Final = now
        self._pause: Final = pause
        # By topic: the id that is there in place of the one that was copied, and since when.
        self._doubted: dict[str, tuple[str, float]] = {}

    def source_state(self, tp: TopicPartition, copied_topic: str = "") -> SourceState:
        """What the source has of ``tp``. Raises KafkaError; FlowError where its topic is gone.

        Another topic than ``copied_topic`` (its id), or none, is believed once it has been there for a second: brokers
        learn of a topic one after the other, and its leader knows it before it opens its log.
        """
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._pause(_DOUBTED_S)
            topic, state = self._at_leader(tp)
            if copied_topic in {"", topic}:
                self._doubted.pop(tp.topic, None)
                believed = True
            else:
                believed = self._is_believed(tp.topic, topic)
            if state is not None and believed:
                return state
            if topic == _GONE and believed:
                msg = f"{tp}: the source topic is gone"
                raise FlowError(msg)
        raise FlowError(f"{tp}: its brokers do not agree on which topic {tp.topic!r} is; it is just being made again")

    def _is_believed(self, name: str, topic: str) -> bool:
        """Asked for all of a topic's partitions: the first of them waits for the others."""
        known, since = self._doubted.get(name, ("", 0.0))
        if known != topic:
            self._doubted[name] = topic, self._now()
            return False
        return self._now() - since >= _DOUBTED_S

    def _at_leader(self, tp: TopicPartition) -> tuple[str, SourceState | None]:
        """The topic's id and its state as the partition's leader has them; no state where the topic changed meanwhile.

        Another broker may still know the former topic, whose id would stand beside the offsets of the new one.
        """
        if tp.topic not in self._source.describe_topics([tp.topic]):
            return _GONE, None
        ids = self._source.topic_ids([tp])
        first = self._source.list_offsets({tp: EARLIEST})[tp]
        last = self._source.list_offsets({tp: LATEST}, isolation="read_committed")[tp]
        if tp not in ids or self._source.topic_ids([tp]) != ids:
            return _CHANGED, None
        topic = str(ids[tp] or "")
        # A leader of a log without epochs (formats before version 2) tells its own for the end all the same.
        epoch = last.leader_epoch if first.leader_epoch >= 0 else None
        return topic, SourceState(topic_id=topic, earliest=first.offset, end=last.offset, leader_epoch=epoch)

    # --- of the target, without waiting: a leader that is away takes no thread

    def target_bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[LogBounds]:
        """Where the log of target ``tp`` begins and ends, and in which epoch."""
        first = self._target.list_offsets_async({tp: EARLIEST}, timeout_ms=timeout_ms)
        end = self._target.list_offsets_async({tp: LATEST}, isolation="read_uncommitted", timeout_ms=timeout_ms)

        def both(begins: _Offsets, ends: _Offsets) -> LogBounds:
            epoch = _of(ends, tp).leader_epoch
            return LogBounds(_of(begins, tp).offset, _of(ends, tp).offset, None if epoch < 0 else epoch)

        return then(first, lambda begins: then(end, lambda ends: done(both(begins, ends))))

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        """These topics of the target, all that the task writes to where None, as brokers describe them now."""
        wanted = {tp.topic for tp in self._targets} if topics is None else topics
        found = self._target.describe_topics_async(wanted, timeout_ms)
        return then(found, lambda topics: done(TargetTopics(topics)))

    def epoch_end(self, tp: TopicPartition, leader_epoch: int | None, timeout_ms: int) -> Future[int]:
        """Where target ``tp`` left ``leader_epoch``, -1 where it does not know it; where its log ends, without one."""
        if leader_epoch is None:
            ends = self._target.list_offsets_async({tp: LATEST}, isolation="read_uncommitted", timeout_ms=timeout_ms)
            return then(ends, lambda found: done(_of(found, tp).offset))
        asked = self._target.epoch_ends_async({tp: leader_epoch}, timeout_ms)
        return then(asked, lambda found: done(_of(found, tp)))

    # --- of the target, in a thread that may wait

    def read_progress_records(self, timeout_ms: int | None = None) -> dict[TopicPartition, ProgressRecord]:
        """What is noted of the targets' progress, within ``timeout_ms``. Raises KafkaError."""
        return self._notes.read(self._targets, timeout_ms)

    def resolve_start(
        self,
        tp: TopicPartition,
        log: LogBounds,
        kept: ProgressRecord | None,
        mark: TargetMark | None,
        fresh: TargetMark,
    ) -> StartPosition:
        """There is no progress for target ``tp``: whether it was forgotten, is lost, or never was. Raises KafkaError.

        ``log`` is what its log is now, ``fresh`` the mark of that; ``kept`` is what was noted of it, ``mark`` what the
        copy itself knew of it before.

        A group without members loses its offsets after ``offsets.retention.minutes``, and at once where the topic is
        deleted. Then a note in the progress topic restores it, if nothing was written since. Otherwise a partition that
        is another one, or holds or held anything, is no place to begin: records would be missing, or there twice.
        """
        known = mark or (None if kept is None else _mark_of(kept))
        why = self._made_again(tp, known, kept, fresh)
        if why is None and known is not None and log.end < known.end:
            why = truncated_error(self._flow, tp, known, log.end, None if kept is None else kept.progress)
        if why is None and kept is not None and self._notes.is_current(tp, kept, self._timeout_ms):
            return StartPosition(kept.progress, kept.target_end, _not_before(kept, fresh))
        if why is None and kept is None and log.end == 0:
            return StartPosition(None, 0, fresh)
        if self._start_over:
            return StartPosition(None, log.end, fresh)
        raise why or self._progress_lost(tp, log, kept)

    def check_suspect_log(
        self, tp: TopicPartition, progress: Progress, mark: TargetMark, cut: int, fresh: TargetMark
    ) -> StartPosition:
        """The log of target ``tp`` does not look as ``mark`` says: whether something is missing. Raises KafkaError.

        ``cut`` is where it left the mark's leader epoch (-1: not known), ``fresh`` what holds if nothing is missing.
        """
        if is_other_topic(mark, fresh.topic_id):
            why = recreated_error(self._flow, tp, mark, fresh.topic_id, progress)
        else:
            lost = self._notes.truncated_at(tp, mark, cut, self._timeout_ms)
            if lost is None:
                return StartPosition(progress, mark.end, fresh)
            why = truncated_error(self._flow, tp, mark, lost, progress)
        if not self._start_over:
            raise why
        log = self.target_bounds(tp, self._timeout_ms).result()
        return StartPosition(None, log.end, replace(fresh, end=log.end, leader_epoch=log.leader_epoch))

    def check_recreated(self, tp: TopicPartition, kept: ProgressRecord | None, fresh: TargetMark) -> None:
        """Target ``tp`` was begun as ``fresh``, empty, before its note could be read. Raises FlowError."""
        why = self._made_again(tp, None if kept is None else _mark_of(kept), kept, fresh)
        if why is not None and not self._start_over:
            raise why

    def _made_again(
        self, tp: TopicPartition, known: TargetMark | None, kept: ProgressRecord | None, fresh: TargetMark
    ) -> FlowError | None:
        if known is None:
            return None
        # A log that never held anything is no log that was written to: as long as it is the same, it has an end.
        if is_other_topic(known, fresh.topic_id) or (fresh.end == 0 < known.end and known.topic_id == ""):
            return recreated_error(self._flow, tp, known, fresh.topic_id, None if kept is None else kept.progress)
        return None

    def _progress_lost(self, tp: TopicPartition, log: LogBounds, kept: ProgressRecord | None) -> FlowError:
        first, end = log.first, log.end
        holds = f"holds offsets {first} to {end - 1}" if end > first else f"held records (its log begins at {first})"
        about = "the note of it no longer fits" if kept is not None else "there is no note of it"
        return FlowError(
            f"progress-lost: target {tp} {holds}, but flow {self._flow} has no progress for it, and {about}: it was"
            " idle for longer than the target's offsets.retention.minutes, its offsets were deleted, or others write"
            " there; to copy again from the flow's start, records already there once more, set start-over = true"
        )

    def run_control(self) -> Future[RunControl | None]:
        """What the flow's runs are told just now."""
        group, tp = control_partition(self._flow)
        found = self._target.group_offsets_async(group, [tp], self._timeout_ms)
        return then(found, lambda offsets: done(from_offset(offsets.get(tp))))

    def write_progress_records(
        self, notes: dict[TopicPartition, ProgressRecord], timeout_ms: int
    ) -> dict[TopicPartition, KafkaError]:
        """Note down these; what could not be, with its reason."""
        return self._notes.write(notes, timeout_ms) if notes else {}


def _of(found: Outcomes[TopicPartition, V], tp: TopicPartition) -> V:
    if tp in found.failed:
        raise found.failed[tp]
    return found[tp]


def _mark_of(kept: ProgressRecord) -> TargetMark:
    """What a note says of the target's log; one of version 0.1 does not say which topic's."""
    known = kept.progress.target or TargetMark(topic_id="", end=0)
    if known.end >= kept.target_end:
        return known
    return replace(known, end=kept.target_end, batch=None)  # another one ends there


def _not_before(kept: ProgressRecord, fresh: TargetMark) -> TargetMark:
    """The mark of a log that ends as its note says."""
    known = _mark_of(kept)
    if known.end < fresh.end:
        known = replace(known, end=fresh.end, batch=None)
    return replace(known, topic_id=fresh.topic_id, leader_epoch=fresh.leader_epoch)


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a copy begins: at ``progress``, found or restored, or (None) where its flow does.

    ``target_end`` is the end of its target's log, and ``mark`` what is known of that. Where it begins without the notes
    having been read, ``later`` fails with FlowError as soon as they say that the target did hold something.
    """

    progress: Progress | None
    target_end: int
    mark: TargetMark | None = None
    deferred_check: Future[None] | None = None
