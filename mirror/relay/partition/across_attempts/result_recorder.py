"""Records what the copy of one range has done: its committed progress, its counts and its timeline. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mirror.cluster.types import TopicPartition
from mirror.errors import FlowError
from mirror.relay.model.ranges import TROUBLE, Outcome, Range, RangeResult
from mirror.relay.model.timeline import CopyPhase, CopyTimeline, EventName, TimelineRecorder
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress, renewal_ms
from mirror.relay.progress.gaps import why_other_source
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.model.observer import TaskObserver
    from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome
    from mirror.relay.partition.attempts.attempt import CopyAttempt
    from mirror.relay.partition.attempts.outbox import CommitCounts, Outbox
    from mirror.relay.partition.attempts.source_reader import SourceReader

MAX_LISTED: Final = 10
"""So many expiries, and losses of the target, are kept of a copy, which may live for months: the latest ones."""


class ResultRecorder:
    """Builds the :class:`RangeResult` of one range."""

    def __init__(self, copied: Range, unix_ms: Callable[[], int], now: int, observer: TaskObserver) -> None:
        self.result: Final = RangeResult.initial(copied, copied.start)
        self.progress: Progress | None = None
        """The target's progress; None before it was read."""
        self.is_committed = False
        """Whether :attr:`progress` is committed."""
        self.target_end: int | None = None
        """The end of the target's log at :attr:`progress`; None if unknown."""
        self._base: Progress | None = None
        self._claimed_ms = 0
        """When the claim of the progress was written, in ms since 1970: only a fence writes another one."""
        self.topic_id = copied.topic_id
        """The id of the source topic that is read; at first the one in the plan."""
        self.timeline = TimelineRecorder(unix_ms, now, partial(observer.span_ended, copied))
        """Of the present period."""
        self._observer: Final = observer
        self._range: Final = copied
        self._unix_ms: Final = unix_ms
        self._began_ms: Final = now

    # --- progress

    @property
    def committed_progress(self) -> tuple[Progress, int] | None:
        """The committed progress and the end of the target's log there, for the progress topic; None if unknown."""
        if self.progress is None or self.target_end is None or not self.is_committed:
            return None
        if self.result.outcome is Outcome.FENCED:
            return None  # the attempt that fenced this one has newer progress
        return self.progress, self.target_end

    def is_renewal_due(self, renew_ms: int) -> bool:
        """Whether to commit the progress again, because it will be ``renew_ms`` old (0: never)."""
        if renew_ms <= 0 or self.progress is None or not self.is_committed:
            return False
        by_sequences = self.progress.way is Way.SEQUENCES
        committed_ms = min(self.progress.time_ms, self._claimed_ms) if by_sequences else self.progress.time_ms
        target = TopicPartition(self._range.target_topic, self._range.partition)
        return self._unix_ms() - committed_ms >= renewal_ms(target, renew_ms)

    def on_progress_found(self, progress: Progress | None) -> None:
        """Record where the first attempt will begin, if it ends before: the plan may be older than ``progress``."""
        if self.progress is None and progress is not None and not self._why_other_source(progress):
            self.result.start = self.result.end = progress.offset

    def begin_at(self, progress: Progress) -> bool:
        """Begin an attempt at ``progress``; return whether it is the first.

        Raises FlowError if the progress is that of another source.
        """
        if other := self._why_other_source(progress):
            raise FlowError(f"{self._range.target_topic}-{self._range.partition}: {other}")
        first = self.progress is None
        if first:
            self.result.start = progress.offset
        self.progress = self._base = progress
        self._claimed_ms = progress.claimed_ms or progress.time_ms
        self.result.end = progress.offset
        return first

    def _why_other_source(self, progress: Progress) -> str:
        copied = self._range
        return why_other_source(progress, copied.source_cluster_id, copied.topic, copied.target_topic)

    def is_of_recreated_topic(self, progress: Progress) -> bool:
        """Whether the topic was deleted and recreated since ``progress``."""
        return bool(progress.topic_id and self.topic_id) and progress.topic_id != self.topic_id

    @property
    def copied_topic_id(self) -> str:
        """The id of the topic that the progress belongs to; if it has none, of the topic that is read."""
        return (self.progress.topic_id if self.progress is not None else "") or self.topic_id

    def set_topic_id(self, topic_id: str) -> None:
        """Store the id of the topic that is read now, for the next progress. An empty id changes nothing."""
        self.topic_id = topic_id or self.topic_id

    # Invariant: Progress is renewed before brokers forget it, by sequences with a fence and even if the lazy progress
    #   is younger.
    # Test: tests/copying/test_sequences.py::test_empty_range_renews_the_claim_before_brokers_forget_it
    # Test: tests/relay/task/
    #   test_jobs_on_fakes.py::test_the_progress_of_an_idle_partition_is_renewed_while_its_task_lives
    # Test: tests/relay/task/test_upkeep.py::test_a_few_are_renewed_at_a_time_and_one_that_takes_long_holds_up_no_other
    def needs_renewal(self, progress: Progress, renew_ms: int) -> bool:
        """Whether to commit ``progress`` again: it is ``renew_ms`` old (0: never)."""
        committed_ms = min(progress.time_ms, progress.claimed_ms or progress.time_ms)
        return renew_ms > 0 and self._unix_ms() - committed_ms >= renew_ms

    def progress_at(self, offset: int, leader_epoch: int | None) -> Progress:
        """Return the progress to commit at ``offset``."""
        return Progress(
            offset=offset,
            leader_epoch=None if leader_epoch is None or leader_epoch < 0 else leader_epoch,
            source_cluster_id=self._range.source_cluster_id,
            topic_id=self.topic_id,
            source_topic=self._range.topic,
            time_ms=self._unix_ms(),
            # The writer replaces the way once it may commit. Until then, what was read is a lower bound or exact.
            way=Way.TRANSACTIONS if self._base is None else self._base.way,
            generation=0 if self._base is None else self._base.generation,
            series=0 if self._base is None else self._base.series,
            beginning=None if self._base is None else self._base.beginning,
            producer_id=-1 if self._base is None else self._base.producer_id,
            earlier_ids=frozenset() if self._base is None else self._base.earlier_ids,
            ended=self._base is not None and self._base.ended,
            searched=None if self._base is None else self._base.searched,
        )

    def on_acquired(self, progress: Progress) -> None:
        """The exact position is that of the progress: ``progress`` says how far the target's log was searched."""
        self._base, self._claimed_ms = progress, progress.time_ms

    # --- while an attempt copies

    def on_committed(
        self,
        counts: CommitCounts,
        attempt: CopyAttempt,
        reader: SourceReader,
        *,
        atomic: bool,
        leader: tuple[int, int] | None,
    ) -> None:
        """Record a commit that succeeded with ``counts``; ``leader`` is the target partition's (node, epoch)."""
        outbox, commits = attempt.outbox, attempt.commits
        counts.add_to(self.result)
        self.progress, self.is_committed = commits.committed, True
        self.result.end = commits.committed.offset
        mark = commits.committed.target
        if outbox.target_end is not None and (atomic or mark is None):
            # The transaction's commit marker follows its records.
            self.target_end = outbox.target_end + int(atomic)
        elif outbox.target_end is not None and mark is not None:
            self.target_end = mark.end  # more may be acknowledged since than this commit says
        timeline = self.timeline
        timeline.leader_observed("source", commits.committed.leader_epoch)
        if leader is not None:
            timeline.leader_observed("target", leader[1], leader[0])
        self._begin_timeline(outbox, reader)
        timeline.committed(
            self.result.end,
            None if reader.last_stable_offset == FOREVER_MS else reader.last_stable_offset,
            records=self.result.records,
            size=self.result.bytes,
            last_ms=outbox.acked_time_ms,
            took_ms=commits.last_duration_ms,
        )

    def on_step(self, attempt: CopyAttempt, reader: SourceReader, now: int) -> None:
        """Record the state of ``attempt`` after a step."""
        outbox, timeline = attempt.outbox, self.timeline
        if not timeline.started:
            self._begin_timeline(outbox, reader)
        elif reader.last_stable_offset != FOREVER_MS:
            timeline.source_end = reader.last_stable_offset
        if outbox.throttled_ms:
            timeline.throttled(outbox.throttled_ms)
            outbox.throttled_ms = 0
        timeline.enter(attempt.phase, now)

    def on_nothing_to_fetch(self, attempt: CopyAttempt, reader: SourceReader) -> None:
        """Record the wait for the source's first response as idle time, because it has no records."""
        self._begin_timeline(attempt.outbox, reader)
        if self.timeline.phase is CopyPhase.FETCHING:
            self.timeline.relabel_phase(CopyPhase.IDLE)

    def _begin_timeline(self, outbox: Outbox, reader: SourceReader) -> None:
        """Begin the timeline once the source has reported its end, and the age of its first record is known."""
        answered = reader.last_stable_offset != FOREVER_MS
        if answered and (outbox.first_time_ms is not None or reader.caught_up) and not self.timeline.started:
            self.timeline.start(self.result.start, reader.last_stable_offset, outbox.first_time_ms)

    def set_way(self, way: Way, reason: str) -> None:
        """Set by which way batches go, and why, in one clause; without a reason, none was chosen yet."""
        if reason:
            self.result.way, self.result.way_reason = way.value, reason

    def on_gap(self, kind: str, offsets: int) -> None:
        """Record a gap in the source that was skipped."""
        self.timeline.add_event(EventName.GAP, kind=kind, offsets=offsets)

    def begin_generation(self) -> None:
        """The copy moves back in the source: earlier lazy progress, which is further, must not count."""
        if self._base is not None:
            self._base = replace(self._base, generation=self._unix_ms())

    def begin_series(self) -> None:
        """The copy moves back in the source: its anchors do not say any more what is in front of them."""
        if self._base is not None:
            self._base = replace(self._base, series=self._unix_ms(), beginning=None)

    def resume_behind_loss(self, offset: int) -> None:
        """The copy resumes at the source ``offset``: what stands behind the anchor, where it began, is not copied."""
        if not self.result.records:
            self.result.start = offset

    def on_target_loss(self, loss: TargetLoss, resumed: int) -> None:
        """Record that the target lost records, and the copy has resumed at the source offset ``resumed``.

        Nothing is recorded if nothing of what was copied is missing.
        """
        record = loss.to_record(resumed, self._unix_ms())
        if loss.kind is LossKind.TRUNCATED and record["start"] >= record["end"]:
            return
        self._list(self.result.target_losses, record)
        self.timeline.add_event(EventName.TARGET_LOSS, **{key: each for key, each in record.items() if key != "time"})

    # --- when an attempt, or the copy, ends

    def on_attempt_ended(self, outcome: AttemptOutcome | None, attempt: int, reason: str) -> None:
        """Record the end of an attempt; a ``reason`` says why it ended early."""
        if outcome is not None and outcome.expiry is not None:
            # An expiry without a batch concerns everything that was still to be copied.
            start = self.result.end
            offsets = {"start": start, "end": start if self._range.open_ended else max(start, self._range.end)}
            self._list(self.result.expiries, {**offsets, **outcome.expiry})
        if outcome is not None and outcome.outcome in TROUBLE:
            failures, name = self.result.failures, outcome.outcome.value
            failures[name] = failures.get(name, 0) + 1
        if outcome is not None and outcome.outcome is Outcome.FENCED:
            self.timeline.add_event(EventName.FENCED, error=outcome.error)
        if reason:
            self.timeline.attempt_ended(attempt, reason)

    def _list(self, records: list[dict[str, Any]], record: dict[str, Any]) -> None:
        records.append(record)
        del records[:-MAX_LISTED]

    def on_retry(self, attempt: int, error: str | None, backoff_ms: int) -> None:
        """Record that another attempt follows in ``backoff_ms``."""
        self.timeline.add_event(EventName.RETRY, attempt=attempt, error=error, backoff_ms=backoff_ms)

    def close(self, now: int, outcome: AttemptOutcome, stuck_since_ms: int | None) -> None:
        """Make the result final."""
        result = self.result
        result.outcome, result.error = outcome.outcome, outcome.error or None
        result.seconds = max(0.001, (now - self._began_ms) / 1000)
        if outcome.outcome is Outcome.UNFINISHED:
            result.stuck_since_ms = stuck_since_ms
        result.timeline = self._timeline(now)
        self._observer.range_finished(self._range, result)

    def result_at(self, now: int, outcome: AttemptOutcome, stuck_since_ms: int | None) -> RangeResult:
        """Return what has come of the copy by ``now``, while it continues; without the timeline."""
        final = self.result
        result = replace(final, skipped=dict(final.skipped), deep=dict(final.deep), gaps=dict(final.gaps))
        result.failures, result.aside = dict(final.failures), dict(final.aside)
        result.expiries, result.target_losses = [*final.expiries], [*final.target_losses]
        result.outcome, result.error = outcome.outcome, outcome.error or None
        result.stuck_since_ms = stuck_since_ms
        result.seconds = max(0.001, (now - self._began_ms) / 1000)
        return result

    def next_timeline(self, now: int) -> CopyTimeline:
        """Return the timeline of the period that ends now, and begin the next one."""
        timeline = self._timeline(now)
        self.timeline = self.timeline.next_period(now)
        return timeline

    def _timeline(self, now: int) -> CopyTimeline:
        timeline, copied = self.timeline.snapshot(now), self._range
        timeline.sick_since_ms, timeline.sick_trace = copied.sick_since_ms, copied.sick_trace
        timeline.last_trace = copied.last_trace
        if timeline.lag_before is None and copied.source_end:
            # The source never answered: the lag is that of the plan.
            timeline.lag_before = max(0, copied.source_end - self.result.start)
            timeline.lag_after = max(0, copied.source_end - self.result.end)
        return timeline
