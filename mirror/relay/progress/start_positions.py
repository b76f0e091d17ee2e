"""Where a task's copies begin: what is asked of the target before, side by side, and without a thread for each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.futures import done, or_else, then
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.lookups import ClusterLookups, LogBounds, StartPosition, TargetTopics
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.progress.target_log import TargetMark, is_other_topic

_TOPICS_MS: Final = 500
"""Topics are described once for all copies that begin within this time."""
_FIRST_NOTES_MS: Final = 3_000
"""How long notes may take before a partition that never held anything begins without them."""

Notes = dict[TopicPartition, ProgressRecord]


class _Compared(NamedTuple):
    """``fresh`` is the mark for the present leader, if it ``holds``; ``cut`` is where the log left the mark's epoch."""

    fresh: TargetMark
    cut: int
    holds: bool


class StartPositions:
    """Of one task. ``submit`` has something done in a thread that may wait."""

    def __init__(self, inquiries: ClusterLookups, submit: Callable[..., Future[Any]], now: Callable[[], int]) -> None:
        self._inquiries: Final = inquiries
        self._submit: Final = submit
        self._now: Final = now
        self._begun: Final[set[TopicPartition]] = set()
        self._topics: Future[TargetTopics] | None = None
        self._topics_asked_ms = 0
        self._first_notes: Future[Notes] | None = None
        self._all_notes: Future[Notes] | None = None

    def resolve_start(
        self, tp: TopicPartition, progress: Progress | None, mark: TargetMark | None, timeout_ms: int
    ) -> Future[StartPosition]:
        """As :meth:`mirror.relay.partition.context.CopyContext.settle`."""
        inquiries = self._inquiries
        if tp in self._begun:
            # Something ended its last attempt: a topic that was made again meanwhile was described before that.
            topics = inquiries.target_topics([tp.topic], timeout_ms)
        else:
            topics = self._target_topics(timeout_ms)
        self._begun.add(tp)
        if progress is not None and mark is not None:

            def settled(told: _Compared) -> Future[StartPosition]:
                if told.holds:
                    return done(StartPosition(progress, told.fresh.end, told.fresh))
                return self._submit(inquiries.check_suspect_log, tp, progress, mark, told.cut, told.fresh)

            return then(self._compared(tp, mark, topics, timeout_ms), settled)
        bounds = inquiries.target_bounds(tp, timeout_ms)
        if progress is None:
            self._notes()  # they are read meanwhile

        def begin(known: TargetTopics, log: LogBounds) -> Future[StartPosition]:
            fresh = TargetMark(topic_id=known.topic_id(tp), end=log.end, leader_epoch=log.leader_epoch)
            if progress is not None:
                return done(StartPosition(progress, log.end, fresh))
            return self._without_progress(tp, log, mark, fresh)

        return then(topics, lambda known: then(bounds, lambda log: begin(known, log)))

    def compare(self, tp: TopicPartition, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """As :meth:`mirror.relay.partition.context.CopyContext.compare`."""
        compared = self._compared(tp, mark, self._target_topics(timeout_ms), timeout_ms)
        return then(compared, lambda told: done(told.fresh if told.holds else None))

    def _compared(
        self, tp: TopicPartition, mark: TargetMark, topics: Future[TargetTopics], timeout_ms: int
    ) -> Future[_Compared]:
        def ask(known: TargetTopics) -> Future[_Compared]:
            # The epoch that was described: who answers now leads in this one, or in a later one.
            topic_id, epoch = known.topic_id(tp), known.leader_epoch(tp)
            epoch = mark.leader_epoch if epoch is None else epoch
            fresh = replace(mark, topic_id=topic_id or mark.topic_id, leader_epoch=epoch)
            if is_other_topic(mark, topic_id):
                return done(_Compared(fresh, -1, holds=False))
            ends = self._inquiries.epoch_end(tp, mark.leader_epoch, timeout_ms)
            return then(ends, lambda end: done(_Compared(fresh, end, holds=end >= mark.end)))

        return then(topics, ask)

    # --- without progress

    def _without_progress(
        self, tp: TopicPartition, log: LogBounds, mark: TargetMark | None, fresh: TargetMark
    ) -> Future[StartPosition]:
        settle = self._inquiries.resolve_start
        if log.end > 0 or mark is not None:
            return then(self._notes(), lambda notes: self._submit(settle, tp, log, notes.get(tp), mark, fresh))

        # Nothing was ever in this log. So nothing was forgotten, unless a note speaks of a log before it.
        def begin(notes: Notes | None) -> Future[StartPosition]:
            if notes is not None:
                return self._submit(settle, tp, log, notes.get(tp), mark, fresh)
            return done(StartPosition(None, log.end, fresh, deferred_check=self._checked_later(tp, fresh)))

        first: Future[Notes | None] = then(self._notes_soon(), done)
        return then(or_else(first, KafkaTimeout, lambda: done(None)), begin)

    def _checked_later(self, tp: TopicPartition, fresh: TargetMark) -> Future[None]:
        def check(notes: Notes) -> Future[None]:
            self._inquiries.check_recreated(tp, notes.get(tp), fresh)
            return done(None)

        return then(self._notes_at_last(), check)

    def _notes_at_last(self) -> Future[Notes]:
        """Until they can be read: each attempt waits for as long as a call may."""
        return or_else(self._notes(), KafkaTimeout, self._notes_at_last)

    # --- once for all copies of the task

    def _target_topics(self, timeout_ms: int) -> Future[TargetTopics]:
        now = self._now()
        if self._topics is None or _failed(self._topics) or now - self._topics_asked_ms > _TOPICS_MS:
            self._topics, self._topics_asked_ms = self._inquiries.target_topics(None, timeout_ms), now
        return self._topics

    def _notes_soon(self) -> Future[Notes]:
        first = self._first_notes
        if first is None or (_failed(first) and not isinstance(first.exception(), KafkaTimeout)):
            self._first_notes = first = self._submit(self._inquiries.read_progress_records, _FIRST_NOTES_MS)
        return first

    def _notes(self) -> Future[Notes]:
        """Where they cannot be read, that is waited for together, not by one after the other."""
        if self._all_notes is None or _failed(self._all_notes):
            self._all_notes = or_else(
                self._notes_soon(), KafkaTimeout, lambda: self._submit(self._inquiries.read_progress_records)
            )
        return self._all_notes


def _failed(asked: Future[Any]) -> bool:
    return asked.done() and asked.exception() is not None
