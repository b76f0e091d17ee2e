"""Finds where a task's copies start: queries the target for all of them concurrently, without a thread for each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.futures import done, or_else, then
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.lookup.lookup_results import LogBounds, StartPosition, TargetTopics
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.progress.target_log import TargetMark, is_other_topic

_TOPICS_MAX_AGE_MS: Final = 500
"""A description of the topics serves all copies that start within this time."""
_FIRST_READ_TIMEOUT_MS: Final = 3_000
"""How long a partition whose log is empty waits for the progress topic before it starts without its record."""

ProgressRecords = dict[TopicPartition, ProgressRecord]


class _Comparison(NamedTuple):
    """The comparison of a mark with the present leader's log."""

    current: TargetMark
    """The mark with the present leader's epoch; valid if ``holds``."""
    cut: int
    """The offset at which the mark's leader epoch ends in that log; -1 if the topic is another one."""
    holds: bool
    log_end: int | None = None
    """The end of that log; None if it was not asked for."""


class StartPositions:
    """The start positions of one task's copies."""

    def __init__(self, lookups: ClusterLookups, submit: Callable[..., Future[Any]], now: Callable[[], int]) -> None:
        """``submit`` runs a call in a thread that may block."""
        self._lookups: Final = lookups
        self._submit: Final = submit
        self._now: Final = now
        self._started: Final[set[TopicPartition]] = set()
        self._added: frozenset[str] = frozenset()
        """The topics of the targets that were added last."""
        self._topics: Final[dict[frozenset[str] | None, tuple[Future[TargetTopics], int]]] = {}
        """By topics (None: all that the task writes to): their last description, and when it was requested."""
        self._first_read: Future[ProgressRecords] | None = None
        self._full_read: Future[ProgressRecords] | None = None

    def add_targets(self, targets: Collection[TopicPartition]) -> None:
        """Find start positions of these partitions, too: what was read of the others does not have them."""
        self._lookups.add_targets(targets)
        self._added = frozenset(tp.topic for tp in targets)
        self.forget()

    def remove_targets(self, targets: Collection[TopicPartition]) -> None:
        """These partitions are not copied any more; they may be added again."""
        self._lookups.remove_targets(targets)
        self._started.difference_update(targets)

    def forget(self) -> None:
        """Free what was read, and the callbacks that refer to the copies which have waited for it."""
        self._topics.clear()
        self._first_read = self._full_read = None

    def resolve_start(
        self,
        tp: TopicPartition,
        progress: Progress | None,
        mark: TargetMark | None,
        timeout_ms: int,
        shrunk_to: int | None = None,
        *,
        source_topic: str,
        continues: bool = False,
        to_end: bool = False,
    ) -> Future[StartPosition]:
        """Find where the copy into ``tp`` starts, given its progress and its last known state of the target's log.

        Where another topic than ``source_topic`` was copied, a flow that starts over begins behind all that is there.

        ``shrunk_to`` is an offset at which the log has acknowledged a batch although it had reached further. A copy
        that ``continues`` asks no leader that was compared before: only a new one may lack records.
        ``to_end``: whether the start position has to have the present end of the target's log.
        """
        lookups = self._lookups
        if tp in self._started:
            # Its last attempt failed: the shared description may be older than a recreated topic.
            topics = lookups.target_topics([tp.topic], timeout_ms)
        else:
            # To describe all topics of the task for each one that is added would cost more than all else.
            topics = self._target_topics(self._added if tp.topic in self._added else None, timeout_ms)
        self._started.add(tp)
        starts_over = progress is not None and not progress.is_of_topic(source_topic) and lookups.start_over
        if progress is not None and mark is not None and not starts_over:
            comparison = self._compare(tp, mark, topics, timeout_ms, continues=continues, to_end=to_end)
            return then(comparison, lambda found: self._check(tp, progress, mark, found, shrunk_to))
        bounds = lookups.target_bounds(tp, timeout_ms)
        if progress is None:
            self._progress_records()  # begin to read them, while the other calls are in flight

        def begin(described: TargetTopics, log: LogBounds) -> Future[StartPosition]:
            current = TargetMark(topic_id=described.topic_id(tp), end=log.end, leader_epoch=log.leader_epoch)
            if progress is not None:
                return done(StartPosition(None if starts_over else progress, log.end, current))
            return self._without_progress(tp, log, mark, current, source_topic)

        return then(topics, lambda described: then(bounds, lambda log: begin(described, log)))

    def _check(
        self, tp: TopicPartition, progress: Progress, mark: TargetMark, found: _Comparison, shrunk_to: int | None
    ) -> Future[StartPosition]:
        current, log_end = found.current, found.log_end
        if log_end is None:
            log_end = current.end
        elif not current.may_precede_appends(log_end):
            current = current.ending_at(current.end)

        def check_log(shrunk_to: int | None) -> Future[StartPosition]:
            check = self._lookups.check_suspect_log
            return then(self._submit(check, tp, progress, mark, found.cut, current, shrunk_to), checked)

        def checked(start: StartPosition) -> Future[StartPosition]:
            is_whole = start.progress is not None and start.loss is None
            return done(replace(start, target_end=log_end) if is_whole else start)

        if found.holds and shrunk_to is None:
            whole = StartPosition(progress, log_end, current)
            if mark.leader_epoch == current.leader_epoch or not mark.may_lack_marker(found.cut):
                return done(whole)
            committed: Future[bool] = self._submit(self._lookups.is_committed, tp, mark)
            # Without its marker, its data is aborted with the producer's next transaction.
            return then(committed, lambda holds: done(whole) if holds else check_log(mark.end - 1))

        return check_log(shrunk_to)

    def compare(self, tp: TopicPartition, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """Compare ``mark`` with the present leader's log; return the mark for it, or None if records are missing."""
        comparison = self._compare(tp, mark, self._target_topics(None, timeout_ms), timeout_ms)
        return then(comparison, lambda found: done(found.current if found.holds else None))

    def _compare(
        self,
        tp: TopicPartition,
        mark: TargetMark,
        topics: Future[TargetTopics],
        timeout_ms: int,
        *,
        continues: bool = False,
        to_end: bool = False,
    ) -> Future[_Comparison]:
        """``to_end``: whether the end of the log is wanted."""

        def compare(described: TargetTopics) -> Future[_Comparison]:
            # Use the described epoch: the leader that answers leads in this epoch, or in a later one.
            topic_id, leads = described.topic_id(tp), described.leader_epoch(tp)
            known = bool(topic_id) and leads is not None
            if continues and known and (topic_id, leads) == (mark.topic_id, mark.leader_epoch):
                return done(_Comparison(mark, mark.end, holds=True))
            epoch = mark.leader_epoch if leads is None else leads
            current = replace(mark, topic_id=topic_id or mark.topic_id, leader_epoch=epoch)
            if is_other_topic(mark, topic_id):
                return done(_Comparison(current, -1, holds=False))

            def compare_epoch(log_end: int | None, leader_epoch: int | None) -> Future[_Comparison]:
                # The description may be older than the leader that has answered.
                epochs = [one for one in (epoch, leader_epoch) if one is not None and one >= 0]
                of_leader = replace(current, leader_epoch=max(epochs, default=None))

                def compared(cut: int) -> Future[_Comparison]:
                    return done(_Comparison(of_leader, cut, cut >= mark.end, log_end if to_end else None))

                if log_end is not None and mark.leader_epoch in {None, leader_epoch}:
                    return compared(log_end)  # a leader's epoch ends at the end of its log
                assert mark.leader_epoch is not None  # noqa: S101 - otherwise the log's end was asked for
                return then(self._lookups.epoch_end(tp, mark.leader_epoch, timeout_ms), compared)

            if not to_end and mark.leader_epoch is not None:
                return compare_epoch(None, None)
            # The leader names its epoch with the end: another one may lead by now than was described.
            return then(self._lookups.log_end(tp, timeout_ms), lambda found: compare_epoch(*found))

        return then(topics, compare)

    # --- without progress

    def _without_progress(
        self, tp: TopicPartition, log: LogBounds, mark: TargetMark | None, current: TargetMark, source_topic: str
    ) -> Future[StartPosition]:
        resolve = self._lookups.resolve_start

        def record_in(records: ProgressRecords) -> ProgressRecord | None:
            found = records.get(tp)
            return found if found is not None and found.progress.is_of_topic(source_topic) else None

        if log.end > 0 or mark is not None:
            return then(
                self._progress_records(),
                lambda records: self._submit(resolve, tp, log, record_in(records), mark, current),
            )

        # This log never held a record, so no progress was lost, unless the progress topic has one of an earlier log.
        def begin(records: ProgressRecords | None) -> Future[StartPosition]:
            if records is not None:
                return self._submit(resolve, tp, log, record_in(records), mark, current)
            checked = self._deferred_check(tp, current, record_in)
            return done(StartPosition(None, log.end, current, deferred_check=checked))

        first: Future[ProgressRecords | None] = then(self._read_first(), done)
        return then(or_else(first, KafkaTimeout, lambda: done(None)), begin)

    def _deferred_check(
        self, tp: TopicPartition, current: TargetMark, record_in: Callable[[ProgressRecords], ProgressRecord | None]
    ) -> Future[None]:
        def check(records: ProgressRecords) -> Future[None]:
            self._lookups.check_recreated(tp, record_in(records), current)
            return done(None)

        return then(self._read_until_success(), check)

    def _read_until_success(self) -> Future[ProgressRecords]:
        """Read the progress topic until that succeeds; each read takes as long as a call may take."""
        return or_else(self._progress_records(), KafkaTimeout, self._read_until_success)

    # --- shared by all copies of the task

    def _target_topics(self, names: frozenset[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        now = self._now()
        last = self._topics.get(names)
        if last is None or _failed(last[0]) or now - last[1] > _TOPICS_MAX_AGE_MS:
            last = self._topics[names] = self._lookups.target_topics(names, timeout_ms), now
        return last[0]

    def _read_first(self) -> Future[ProgressRecords]:
        """Read the progress topic within a short time, once."""
        first = self._first_read
        if first is None or (_failed(first) and not isinstance(first.exception(), KafkaTimeout)):
            self._first_read = first = self._submit(self._lookups.read_progress_records, _FIRST_READ_TIMEOUT_MS)
        return first

    def _progress_records(self) -> Future[ProgressRecords]:
        """Read the progress topic. If it is unavailable, all copies wait for the same call, not one after the other."""
        if self._full_read is None or _failed(self._full_read):
            self._full_read = or_else(
                self._read_first(), KafkaTimeout, lambda: self._submit(self._lookups.read_progress_records)
            )
        return self._full_read


def _failed(future: Future[Any]) -> bool:
    return future.done() and future.exception() is not None
