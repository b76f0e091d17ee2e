"""What a copy looks up on the clusters when it cannot simply resume: lost progress, the source's state.

Most of these calls block, for at most ``default.api.timeout.ms`` each, in threads of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, OffsetResult, TopicPartition
from mirror.cluster.types import EpochEndOffset, Outcomes, V
from mirror.errors import FlowError, KafkaError
from mirror.relay.futures import done, then
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.progress.committed import Progress, ProgressChanged, StartChanged, group_of
from mirror.relay.progress.control_record import RunControl, control_partition, from_offset
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookup.lookup_results import LogBounds, StartPosition, TargetTopics
from mirror.relay.progress.lookup.loss_recovery import TargetHealing
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.progress.target_log import TargetMark, is_other_topic, recreated_error, truncated_error
from mirror.relay.progress.target_loss import LossKind, TargetLoss

_Offsets = Outcomes[TopicPartition, OffsetResult]
_CONFIRM_AFTER_S: Final = 1.0
_ATTEMPTS: Final = 10
_DELETED: Final = "deleted"
_CHANGED: Final = "changed"


class ClusterLookups:
    """Lookups for one task's copies; they may be called by several threads."""

    def __init__(
        self,
        flow: str,
        source: Admin,
        target: Admin,
        progress_topic: ProgressTopic,
        targets: Collection[TopicPartition],
        *,
        start_over: bool,
        restart_recreated: bool = False,
        shared: bool = False,
        healing: TargetHealing | None = None,
        timeout_ms: int,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``timeout_ms`` limits comparisons with the target's log; the calls of Admin have a default of their own.

        ``restart_recreated``: a copy begins again if its target topic was made again. ``shared``: others produce into
        the target topics, so that records there do not show that progress was lost. ``healing`` finds where a copy
        continues whose target lost records; None: it fails. ``now`` and ``pause`` are in seconds.
        """
        self._flow: Final = flow
        self._timeout_ms: Final = timeout_ms
        self._source: Final = source
        self._target: Final = target
        self._progress_topic: Final = progress_topic
        self._targets = frozenset(targets)
        self.start_over: Final = start_over
        """Whether a copy begins again that cannot go on."""
        self._restart_recreated: Final = start_over or restart_recreated
        self._shared: Final = shared
        self._healing: Final = healing
        self._now: Final = now
        self._pause: Final = pause
        # By topic name: the unconfirmed id that was found instead of the copied one, and since when.
        self._unconfirmed: dict[str, tuple[str, float]] = {}
        self._unconfirmed_targets: dict[str, tuple[str, float]] = {}

    def add_targets(self, targets: Collection[TopicPartition]) -> None:
        """Add partitions that the task copies from now on."""
        self._targets |= frozenset(targets)
        if self._healing is not None:
            self._healing.add_targets(targets)

    def remove_targets(self, targets: Collection[TopicPartition]) -> None:
        """The task does not copy these partitions any more."""
        self._targets -= frozenset(targets)
        if self._healing is not None:
            self._healing.remove_targets(targets)

    def source_state(self, tp: TopicPartition, copied_topic: str = "") -> SourceState:
        """Return the present state of ``tp`` on the source. Raises KafkaError; FlowError if its topic was deleted.

        Another topic than ``copied_topic`` (its id), or none, is accepted only once it has been there for a second:
        brokers learn about a topic one after the other, and its leader knows it before it opens its log.
        """
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._pause(_CONFIRM_AFTER_S)
            topic, state = self._state_at_leader(tp)
            if copied_topic in {"", topic}:
                self._unconfirmed.pop(tp.topic, None)
                confirmed = True
            else:
                confirmed = self._is_confirmed(self._unconfirmed, tp.topic, topic)
            if state is not None and confirmed:
                return state
            if topic == _DELETED and confirmed:
                msg = f"{tp}: the source topic is gone"
                raise FlowError(msg)
        raise FlowError(f"{tp}: its brokers do not agree on which topic {tp.topic!r} is; it is just being made again")

    def _is_confirmed(self, found: dict[str, tuple[str, float]], name: str, topic: str) -> bool:
        """Whether ``topic`` was ``found`` a second ago, too; all partitions of a topic share that second."""
        unconfirmed, since = found.get(name, ("", 0.0))
        if unconfirmed != topic:
            found[name] = topic, self._now()
            return False
        return self._now() - since >= _CONFIRM_AFTER_S

    def _state_at_leader(self, tp: TopicPartition) -> tuple[str, SourceState | None]:
        """Return the topic's id and its state according to the partition's leader; no state if the topic changed.

        Another broker may still know the former topic: its id would then stand beside the offsets of the new one.
        """
        if tp.topic not in self._source.describe_topics([tp.topic]):
            return _DELETED, None
        ids = self._source.topic_ids([tp])
        first = self._source.list_offsets({tp: EARLIEST})[tp]
        last = self._source.list_offsets({tp: LATEST}, isolation="read_committed")[tp]
        if tp not in ids or self._source.topic_ids([tp]) != ids:
            return _CHANGED, None
        topic = str(ids[tp] or "")
        # For a log without epochs (formats before version 2) a leader still reports its own epoch at the end.
        epoch = last.leader_epoch if first.leader_epoch >= 0 else None
        return topic, SourceState(topic_id=topic, earliest=first.offset, end=last.offset, leader_epoch=epoch)

    # --- the target, without blocking: an unavailable leader occupies no thread

    def target_bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[LogBounds]:
        """Return the bounds of the log of target ``tp``."""
        first = self._target.list_offsets_async({tp: EARLIEST}, timeout_ms=timeout_ms)
        end = self._target.list_offsets_async({tp: LATEST}, isolation="read_uncommitted", timeout_ms=timeout_ms)

        def bounds(firsts: _Offsets, ends: _Offsets) -> LogBounds:
            epoch = _result(ends, tp).leader_epoch
            return LogBounds(_result(firsts, tp).offset, _result(ends, tp).offset, None if epoch < 0 else epoch)

        return then(first, lambda firsts: then(end, lambda ends: done(bounds(firsts, ends))))

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        """Describe these topics of the target, or (None) all that the task writes to."""
        wanted = {tp.topic for tp in self._targets} if topics is None else topics
        found = self._target.describe_topics_async(wanted, timeout_ms)
        return then(found, lambda topics: done(TargetTopics(topics)))

    def log_end(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        """Return the end of the log of target ``tp``, and its leader's epoch; -1 if it is not known."""
        ends = self._target.list_offsets_async({tp: LATEST}, isolation="read_uncommitted", timeout_ms=timeout_ms)

        def of_partition(found: _Offsets) -> Future[tuple[int, int]]:
            end = _result(found, tp)
            return done((end.offset, end.leader_epoch))

        return then(ends, of_partition)

    def epoch_end(self, tp: TopicPartition, leader_epoch: int, timeout_ms: int) -> Future[int]:
        """Return where target ``tp`` left ``leader_epoch``, -1 if it does not know it, or does not say it."""
        epoch_ends = self._target.epoch_ends_async({tp: leader_epoch}, timeout_ms)

        def of_partition(found: Outcomes[TopicPartition, EpochEndOffset | None]) -> Future[int]:
            end = _result(found, tp)
            return done(-1 if end is None else end.end_offset)

        return then(epoch_ends, of_partition)

    # --- the target, in a thread that may block

    def read_progress_records(self, timeout_ms: int | None = None) -> dict[TopicPartition, ProgressRecord]:
        """Return the targets' records in the progress topic, within ``timeout_ms``. Raises KafkaError."""
        return self._progress_topic.read(self._targets, timeout_ms)

    # Invariant: Forgotten progress is restored from the progress record or reported: a copy never starts over silently.
    # Test: tests/copying/test_forgotten.py::test_copy_whose_progress_was_deleted_resumes_at_its_progress_record
    # Test: tests/copying/test_forgotten.py::test_forgotten_copy_resumes_at_its_progress_record
    def resolve_start(
        self,
        tp: TopicPartition,
        log: LogBounds,
        record: ProgressRecord | None,
        mark: TargetMark | None,
        current: TargetMark,
    ) -> StartPosition:
        """Find out whether the missing progress of target ``tp`` was forgotten, is lost, or never existed.

        ``log`` is the target's present log and ``current`` its mark; ``record`` is from the progress topic, and
        ``mark`` is what the copy itself knew before. Raises FlowError if it is lost, KafkaError.

        A group without members loses its offsets after ``offsets.retention.minutes``, and at once if the topic is
        deleted. Then the record restores the progress, if nothing was written since. Otherwise a target partition that
        is another one, or holds or held any records, is no place to start: records would be missing, or duplicated.
        """
        expected = mark or (None if record is None else _mark_of(record))
        if expected is not None and is_other_topic(expected, current.topic_id):
            self._confirm_recreated(tp, current.topic_id)
        error = self._recreated(tp, expected, current)
        if error is None and expected is not None and log.end < expected.end:
            error = truncated_error(self._flow, tp, expected, log.end, _copied_to(record))
        if error is None and record is not None and self._holds_no_records(tp, record.target_end):
            return StartPosition(record.progress, record.target_end, _restored_mark(record, current))
        if error is None and record is None and (self._shared or self._never_held_records(tp, log)):
            return StartPosition(None, log.end, current)
        if self._target.group_offsets(group_of(self._flow, tp), [tp], timeout_ms=self._timeout_ms):
            raise ProgressChanged
        recreated = self._recreated(tp, expected, current) is not None
        if self.start_over or (recreated and self._restart_recreated):
            known = None if record is None else record.progress
            loss = _recreation(self._flow, known, expected) if recreated and expected is not None else None
            return StartPosition(None, log.end, current, loss=loss)
        raise error or self._progress_lost(tp, log, record)

    def _never_held_records(self, tp: TopicPartition, log: LogBounds) -> bool:
        return log.end == 0 or (log.first == 0 and self._holds_no_records(tp, 0))

    def _holds_no_records(self, tp: TopicPartition, offset: int) -> bool:
        return self._progress_topic.holds_no_records(tp, offset, self._timeout_ms)

    def is_committed(self, tp: TopicPartition, mark: TargetMark) -> bool:
        """Whether the log of target ``tp`` has the marker of the transaction of ``mark``. Raises KafkaError."""
        return self._progress_topic.is_committed(tp, mark, self._timeout_ms)

    def check_suspect_log(
        self,
        tp: TopicPartition,
        progress: Progress,
        mark: TargetMark,
        cut: int,
        current: TargetMark,
        shrunk_to: int | None = None,
    ) -> StartPosition:
        """Find out whether records are missing from the log of target ``tp``, which differs from ``mark``.

        ``cut`` is where it left the mark's leader epoch (-1: not known), ``current`` the mark that holds if nothing is
        missing, ``shrunk_to`` an offset at which the log acknowledged a batch although it had reached further. Raises
        FlowError if records are missing and the copy cannot continue, KafkaError.
        """
        if is_other_topic(mark, current.topic_id):
            self._confirm_recreated(tp, current.topic_id)
            error = recreated_error(self._flow, tp.topic, mark, current.topic_id)
            if not self._restart_recreated:
                raise error
            untouched = TargetMark(topic_id=current.topic_id, end=0)
            return self._begin_again(tp, untouched, _recreation(self._flow, progress, mark))
        if shrunk_to is None:
            lost = self._progress_topic.truncated_at(tp, mark, cut, self._timeout_ms)
        else:
            lost, mark = shrunk_to, replace(mark, end=max(mark.end, shrunk_to + 1))
        if lost is None:
            return StartPosition(progress, mark.end, current)
        error = truncated_error(self._flow, tp, mark, lost, progress.offset)
        if self._healing is not None:
            try:
                return self._healing.start_at_anchor(tp, progress, mark, lost, current, self._timeout_ms)
            except FlowError as unhealed:
                error = unhealed
        if not self.start_over:
            raise error
        return self._begin_again(tp, current, None)

    def _confirm_recreated(self, tp: TopicPartition, described: str) -> None:
        """Check that the leader of target ``tp`` has the topic with this id, and had it a second ago.

        A broker that has not yet applied the metadata may still describe a former topic. Raises StartChanged if the
        leader has another topic, KafkaError.
        """
        while True:
            leaders_id = str(self._target.topic_ids([tp], timeout_ms=self._timeout_ms).get(tp) or "")
            if leaders_id != described:
                self._unconfirmed_targets.pop(tp.topic, None)
                raise StartChanged(f"{tp}: a broker described its topic as {described}, its leader as {leaders_id!r}")
            if self._is_confirmed(self._unconfirmed_targets, tp.topic, described):
                return
            self._pause(_CONFIRM_AFTER_S)

    def _begin_again(self, tp: TopicPartition, current: TargetMark, loss: TargetLoss | None) -> StartPosition:
        log = self.target_bounds(tp, self._timeout_ms).result()
        begun = replace(current.ending_at(log.end), leader_epoch=log.leader_epoch)
        return StartPosition(None, log.end, begun, loss=loss)

    def check_recreated(self, tp: TopicPartition, record: ProgressRecord | None, current: TargetMark) -> None:
        """Check that target ``tp`` was not recreated. Raises FlowError.

        For a copy that started at the empty log ``current`` before its record in the progress topic could be read.
        """
        error = self._recreated(tp, None if record is None else _mark_of(record), current)
        if error is not None and not self._restart_recreated:
            raise error

    def _recreated(self, tp: TopicPartition, expected: TargetMark | None, current: TargetMark) -> FlowError | None:
        if expected is None:
            return None
        # A log that never held a record is not the one that was written to: that one keeps its end.
        if is_other_topic(expected, current.topic_id) or (current.end == 0 < expected.end and not expected.topic_id):
            return recreated_error(self._flow, tp.topic, expected, current.topic_id)
        return None

    def _progress_lost(self, tp: TopicPartition, log: LogBounds, record: ProgressRecord | None) -> FlowError:
        first, end = log.first, log.end
        holds = f"holds offsets {first} to {end - 1}" if end > first else f"held records (its log begins at {first})"
        record_state = "has no record of it" if record is None else "has a record of it that no longer fits"
        return FlowError(
            f"progress-lost: target {tp} {holds}, but flow {self._flow} has no progress for it, and the progress topic"
            f" {record_state}: it was idle for longer than the target's offsets.retention.minutes, its offsets were"
            " deleted, others write there, or earlier runs could not commit it (their errors say why, and start-over"
            " does not help before that is mended); to copy again from the flow's start, records already there once"
            " more, set start-over = true"
        )

    def run_control(self) -> Future[RunControl | None]:
        """Return the flow's control record."""
        group, tp = control_partition(self._flow)
        found = self._target.group_offsets_async(group, [tp], self._timeout_ms)
        return then(found, lambda offsets: done(from_offset(offsets.get(tp))))

    def write_progress_records(
        self,
        records: dict[TopicPartition, ProgressRecord],
        timeout_ms: int,
        anchors: dict[AnchorKey, Anchor] | None = None,
    ) -> dict[TopicPartition, KafkaError]:
        """Write these records to the progress topic; return the errors of those that may not have been written."""
        return self._progress_topic.write(records, timeout_ms, anchors)


def _result(found: Outcomes[TopicPartition, V], tp: TopicPartition) -> V:
    if tp in found.failed:
        raise found.failed[tp]
    return found[tp]


def _recreation(flow: str, progress: Progress | None, mark: TargetMark) -> TargetLoss:
    return TargetLoss(flow=flow, kind=LossKind.RECREATED, progress=progress, end=mark.end, cut=0)


def _copied_to(record: ProgressRecord | None) -> int | None:
    return None if record is None else record.progress.offset


def _mark_of(record: ProgressRecord) -> TargetMark:
    """Return the mark of the target's log in a record."""
    mark = record.progress.target or TargetMark(topic_id="", end=0)
    if mark.end >= record.target_end:
        return mark
    return replace(mark, batch=None).ending_at(record.target_end)  # another append ends there


def _restored_mark(record: ProgressRecord, current: TargetMark) -> TargetMark:
    """Return the mark of a log that ends as its record says."""
    mark = _mark_of(record)
    if mark.end < current.end:
        mark = replace(mark, batch=None).ending_at(current.end)
    return replace(mark, topic_id=current.topic_id, leader_epoch=current.leader_epoch)
