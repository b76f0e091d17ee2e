"""The copy of one range: a state machine that never waits. Futures and times go in, calls to `CopyContext` come out.

::

    OPENING ──► RESOLVING_PROGRESS ──► COPYING ◄──► CHECKING_SOURCE (what the source still has)
       ▲                                  │
       │                                  ▼
    BACKING_OFF ◄──────────────────── ABORTING ──► DONE

Every recovery is the same: close the writer, open another one, which fences the old one, read the progress, and resume
there. All transitions are in this file, except for the one inside ``opening``. ``attempt_outcome``, ``retry``,
``gap_check`` and ``target_check`` decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch, LogTruncated, MirrorError, OffsetOutOfRange
from mirror.relay.batches.trace_parents import TraceParents
from mirror.relay.batches.way_rules import WayChoice, WayRules
from mirror.relay.futures import as_mirror_error, done
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.partition.anchoring import AnchorMaker
from mirror.relay.partition.attempt import CopyAttempt, DeliveryFailed, PositionFound, TargetShrank, WayChanged
from mirror.relay.partition.attempt_outcome import AttemptOutcome, FailureClassifier
from mirror.relay.partition.context import CopyContext
from mirror.relay.partition.continuation import Ceding, Continuation
from mirror.relay.partition.delivery_deadline import DeliveryClock
from mirror.relay.partition.expiries import unreadable
from mirror.relay.partition.gap_check import SourceGapCheck
from mirror.relay.partition.opening import Opening, OpeningParts
from mirror.relay.partition.outbox import CommitCounts
from mirror.relay.partition.result_recorder import ResultRecorder
from mirror.relay.partition.retry import RetryController
from mirror.relay.partition.source_reader import SourceReader
from mirror.relay.partition.states import (
    ABORT_TIMEOUT_MS,
    PHASE_OF_STATE,
    CopyState,
    PendingCall,
    awaited_text,
    result_of,
)
from mirror.relay.partition.target_check import TargetLogCheck
from mirror.relay.progress.committed import Progress, StartChanged
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits
    from mirror.relay.partition.target_writer import TargetWriter

_ENDED_IMMEDIATELY: Final = frozenset({CopyState.OPENING, CopyState.RESOLVING_PROGRESS, CopyState.COPYING})
"""States that an immediate shutdown may leave; the other states end by themselves."""

_log: Final = logging.getLogger(__name__)


class PartitionCopy:
    """Copies one range, on one thread: :meth:`step`, :meth:`on_fetched` and :meth:`wind_up` do everything."""

    def __init__(
        self,
        copied: Range,
        policy: CopyPolicy,
        limits: TargetLimits,
        batch_size: int,
        context: CopyContext,
        now: int,
        rules: WayRules | None = None,
    ) -> None:
        """``rules`` say which way batches go exactly once; None: in transactions."""
        self.range: Final = copied
        self.source: Final = TopicPartition(copied.topic, copied.partition)
        self.target: Final = TopicPartition(copied.target_topic, copied.partition)
        self.recorder: Final = ResultRecorder(copied, context.unix_ms, now, context.observer)
        self.state = CopyState.OPENING
        self._policy = policy
        self._context = context
        self._reader = SourceReader(
            copied.end, limits, policy, batch_size, reencode=context.reencoder(self), budget=context.source_budget
        )
        self._target_check = TargetLogCheck(self, context)
        self._anchors = AnchorMaker(exactly_once=policy.exactly_once)
        self._failures = FailureClassifier(
            self.source, self.target, policy, limits, self._reader.pipeline, context.unix_ms
        )
        self._clock = DeliveryClock(copied.stuck_since_ms, context.timeouts, context.unix_ms)
        source_error = partial(context.source_error, self)
        self._gap_check = SourceGapCheck(copied, policy, self._reader, context.timeouts.stall_ms, source_error)
        may_retry = partial(context.may_retry, self)
        self._retry = RetryController(
            copied, self.recorder, self._clock, self._failures, context.backoff, may_retry, self._awaited_text
        )
        self._call = PendingCall(partial(context.step_when_done, self))
        self._opening_parts: Final = OpeningParts(
            copy=self,
            context=context,
            policy=policy,
            recorder=self.recorder,
            target_check=self._target_check,
            clock=self._clock,
            failures=self._failures,
            reader=self._reader,
            call=self._call,
        )
        self._attempt: CopyAttempt | None = None
        self._loss: TargetLoss | None = None
        """What the target has lost, while the attempt has not found the position behind what still stands."""
        self._mended: tuple[TargetLoss, int] | None = None
        """A loss of the target, and the source offset at which the copy resumed; None once a commit has recorded it."""
        self._final_commit: Future[None] | None = None
        self._commit_required = False
        self._until_ms = FOREVER_MS
        self._traces = TraceParents(now)
        self._choice = WayChoice(rules, self.source) if rules is not None and policy.exactly_once else None
        self._changes_way = False
        self._ceding: Ceding | None = None
        self._open(now)

    # --- queries

    @property
    def result(self) -> RangeResult:
        """The result; final when the copy is :attr:`done`."""
        return self.recorder.result

    @property
    def done(self) -> bool:
        """Whether :attr:`result` is final."""
        return self.state is CopyState.DONE

    @property
    def opening(self) -> bool:
        """Whether an attempt has begun, and does not copy yet."""
        return self.state in {CopyState.OPENING, CopyState.RESOLVING_PROGRESS}

    @property
    def expired(self) -> bool:
        """Whether it has expired, and has committed nothing since."""
        return self._failures.expiries > 0

    @property
    def winding_up(self) -> bool:
        """Whether the epoch ends: nothing more is sent, and what is acknowledged is committed."""
        return self._retry.winding_up

    @property
    def runs_under_lease(self) -> bool:
        """Whether it copies on after its epoch, so that the next one's copy can continue it."""
        return self.recorder.handed_over is not None and not self.winding_up and self._copying is not None

    @property
    def copied_topic_id(self) -> str:
        """The id of the source topic that the progress belongs to; empty if unknown."""
        return self.recorder.copied_topic_id

    @property
    def wants_more(self) -> bool:
        """Whether it can use more of the source."""
        attempt = self._copying
        return attempt is not None and attempt.wants_more

    @property
    def held_bytes(self) -> int:
        """Fetched bytes that it still needs."""
        return self._reader.held_bytes

    @property
    def awaits_acknowledgement(self) -> bool:
        """Whether an acknowledgement should wake the task."""
        attempt = self._copying
        return attempt is not None and attempt.awaits_acknowledgement

    @property
    def awaits_first_response(self) -> bool:
        """Whether it reads, and the source has not reported its end yet."""
        return self.state is CopyState.COPYING and self._reader.last_stable_offset == FOREVER_MS

    @property
    def _copying(self) -> CopyAttempt | None:
        """The present attempt in the state COPYING. Network threads read it, too."""
        return self._attempt if self.state is CopyState.COPYING else None

    @property
    def _current(self) -> CopyAttempt:
        assert self._attempt is not None  # noqa: S101 - there is one in the state COPYING, and while its commit ends
        return self._attempt

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        if (attempt := self._copying) is not None:
            return attempt.due_ms(now) if self._ceding is None else min(attempt.due_ms(now), self._ceding.until_ms)
        return self._until_ms if self.state in {CopyState.BACKING_OFF, CopyState.ABORTING} else FOREVER_MS

    # --- the source's responses

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take a fetch's batches, or its error."""
        if self.state is not CopyState.COPYING or self.winding_up:
            return
        trace = self._traces.sample(fetched, now)  # before the reader, which releases what it does not want
        if not self._reader.on_fetched(fetched, now):
            return
        self._current.budget_exhausted = False
        if trace is not None:
            self.recorder.timeline.add_trace(trace)
        if fetched.error is None:
            self._gap_check.on_fetched()
            self.recorder.set_topic_id(str(fetched.topic_id or ""))
            self._retry.last_failure = None
        if self._reader.ended:
            self._context.stop_reading(self)
        self.step(now)

    def on_source_response(self, at_ms: int, end: int | None = None) -> None:
        """The source answered a fetch at ``at_ms``, and ends at offset ``end`` (None: unknown)."""
        if self.state is CopyState.COPYING and at_ms > self._reader.last_response_ms:
            self._reader.last_response_ms, self._retry.last_failure = at_ms, None
        if end is not None and self.awaits_first_response and self._reader.confirm_end(end):
            self.recorder.on_nothing_to_fetch(self._current, self._reader)
            if self._writer.continues:
                self._context.step_when_done(self, done(None))  # an earlier attempt is to yield

    def on_fetch_skipped(self, now: int) -> None:
        """Nothing is fetched at ``now``: the source cannot be blamed for its silence."""
        if self.state is CopyState.COPYING:
            self._reader.last_response_ms = max(now, self._reader.last_response_ms)

    def on_budget_exhausted(self) -> None:
        """Fetching is paused: the source budget is exhausted."""
        if (attempt := self._copying) is not None:
            attempt.budget_exhausted = True

    # --- steps

    def step(self, now: int) -> None:
        """Make all the progress that is possible without waiting."""
        state = None
        while state is not self.state:
            state = self.state
            try:
                self._STEPS[state](self, now)
            except StartChanged as changed:
                self._end_attempt(now, None, str(changed))
            except MirrorError as error:
                self._fail(error, now)
            except Exception as error:  # noqa: BLE001 - it is logged, and ends this copy, and no other
                _log.exception("%s: unexpected error; this partition's copy fails, the others continue", self.source)
                self._fail(as_mirror_error(error), now)
        if (attempt := self._copying) is not None:
            self.recorder.on_step(attempt, self._reader, now)
        elif self.state is not CopyState.DONE:
            self.recorder.timeline.enter(PHASE_OF_STATE[self.state], now)

    def _open(self, now: int, *, retries: bool = True) -> None:
        """Begin an attempt; unless it ``retries``, it continues the one before, the other way."""
        self.state = CopyState.OPENING
        if retries:
            self._retry.on_attempt_begun()
        self._writer: TargetWriter = self._context.new_writer(self, self._way)
        self._attempt = None
        after_failure = self._failures.expiries > 0 or self._retry.last_failure is not None
        self._opening = Opening(self._opening_parts, self._writer, now, after_failure=after_failure)

    @property
    def _way(self) -> Way | None:
        if self._choice is not None:
            return self._choice.way
        return Way.TRANSACTIONS if self._policy.exactly_once else None

    def _step_opening(self, now: int) -> None:
        opened = self._opening.step(now)
        self.state = self._opening.state
        if opened is None:
            return
        progress, self._commit_required, loss = opened
        self._loss = loss
        if loss is not None and loss.kind is LossKind.RECREATED:
            self._loss, self._mended = None, (loss, progress.offset)
        if self.recorder.is_of_recreated_topic(progress) or progress.offset > self._reader.end:
            self._check_source()  # behind the planned end: the plan is old, or the source's log was cut back
        else:
            self._read(progress, now, commit_required=opened.commit_required)

    def _read(self, progress: Progress, now: int, *, commit_required: bool) -> None:
        self.state = CopyState.COPYING
        self.recorder.set_topic_id(progress.topic_id)
        self.recorder.on_reread(self._attempt)
        self._anchors.begin_at(progress)
        context, reader = self._context, self._reader
        self._attempt = CopyAttempt(
            self,
            context,
            self._writer,
            reader,
            self._clock,
            self._choice,
            progress,
            commit_required=commit_required,
            loss=self._loss,
            now=now,
        )
        if not (reader.ended or self.winding_up):
            context.read_from(self, progress.offset, progress.leader_epoch, self.recorder.topic_id)

    def _step_copying(self, now: int) -> None:
        attempt = self._current
        copied = self._advance(attempt, now)
        if copied is not None:
            if self._ceding is not None:
                self._step_ceding(self._ceding, attempt, now)
            else:
                self._on_advanced(attempt, now, copied=copied)
        elif self._copying not in {None, attempt}:
            self._step_copying(now)  # another attempt copies on

    def _on_advanced(self, attempt: CopyAttempt, now: int, *, copied: bool) -> None:
        """Decide whether the attempt goes on; ``copied``: everything is copied and committed."""
        reader, commits = self._reader, attempt.commits
        if reader.ended:
            self._context.stop_reading(self)
        corrupt = copied and isinstance(reader.error, CorruptBatch)
        if copied and reader.error is None:
            self._end_attempt(now, AttemptOutcome(Outcome.COMPLETE))
        elif self.winding_up and attempt.nothing_to_commit and (corrupt or not copied):
            complete = self.range.open_ended and attempt.outbox.empty and not self._waits_to_send(attempt)
            self._end_attempt(now, self._retry.epoch_outcome(complete=complete))
        elif copied and isinstance(reader.error, (OffsetOutOfRange, LogTruncated)):
            self._check_source()
        elif corrupt and self._gap_check.may_refetch(commits.committed.offset):
            self._read(commits.committed, now, commit_required=False)
        elif copied and reader.error is not None:
            raise unreadable(as_mirror_error(reader.error), self.source, commits.committed.offset)
        elif attempt.source_stalled(now):
            self._check_source(stalled=True)

    def _advance(self, attempt: CopyAttempt, now: int) -> bool | None:
        """Return whether everything is copied and committed; None if the attempt has ended, or continues elsewhere."""
        try:
            self._target_check.update(attempt, self._writer, now, ended=self._reader.ended)
            return attempt.advance(now)
        except PositionFound as position:
            self._resume_at(position.found, now)
        except WayChanged:
            self._changes_way = True
            self._close_attempt(now, attempt)
        except TargetShrank as shrank:
            self._target_check.tracker.regression = attempt.outbox.regression
            self._end_attempt(now, None, str(shrank))
        except DeliveryFailed as failure:
            self._opening.note_acquisition(acquired=attempt.acquired)
            committing_ms = now - attempt.commits.uncommitted_since_ms
            outcome = self._failures.delivery_outcome(
                failure, committed=attempt.commits.committed.offset, committing_ms=committing_ms
            )
            self._end_attempt(now, outcome, str(failure))
        return None

    def _resume_at(self, found: FoundPosition, now: int) -> None:
        """Resume behind what earlier attempts have appended, and count it with the first commit."""
        self._target_check.tracker.on_committed(found.progress.target)
        self.recorder.begin_at(found.progress)
        if found.loss is not None:
            self._loss, self._mended = None, (found.loss, found.progress.offset)
            self.recorder.resume_behind_loss(found.progress.offset)
        self._read(found.progress, now, commit_required=True)
        self._current.outbox.counts.add_totals(found.appended)

    def progress_at(self, offset: int, leader_epoch: int | None) -> Progress:
        """Make the progress to commit at ``offset``, with the mark of the target's log."""
        attempt = self._attempt
        if attempt is None:
            return self.recorder.progress_at(offset, leader_epoch)
        progress = self.recorder.progress_at(offset, leader_epoch, attempt.commits.totals)
        mark = self._target_check.mark(attempt, self._writer)
        count = self._anchors.count_of_commit(self._context.unix_ms(), attempt.outbox.counts.bytes)
        return replace(progress, target=mark, anchor=count)

    def on_acquired(self, progress: Progress) -> None:
        """The present attempt has acquired the partition, and its progress is exact."""
        self.recorder.on_acquired(progress)

    def on_committed(self, counts: CommitCounts) -> None:
        """Record a commit of the present attempt."""
        attempt, leader = self._current, self._context.target_leader(self)
        self._target_check.tracker.on_committed(attempt.commits.committed.target)
        if self._choice is not None:
            self.recorder.set_way(self._choice.way, self._choice.reason)
        self.recorder.on_committed(counts, attempt, self._reader, atomic=self._writer.atomic, leader=leader)
        self._context.commit_durations.add(attempt.commits.last_duration_ms)
        if self._mended is not None:
            (loss, resumed), self._mended = self._mended, None
            self.recorder.on_target_loss(loss, resumed)
        anchor = self._anchors.on_committed(attempt.commits, counts.bytes, self._context.unix_ms())
        if anchor is not None:
            self._context.keep_anchor(self, anchor)
        if self.state is CopyState.COPYING:
            self._clock.stop()
            self._failures.on_committed()

    # --- gaps

    def _check_source(self, *, stalled: bool = False) -> None:
        self.state = CopyState.CHECKING_SOURCE
        self._gap_check.begin(stalled=stalled)
        self._context.stop_reading(self)
        self._call.begin(self._context.source_state(self))

    def _step_checking_source(self, now: int) -> None:
        future = self._call.pop_done()
        if future is None:
            return
        state: SourceState = result_of(future)
        assert self.recorder.progress is not None  # noqa: S101 - reading begins at it
        progress = replace(self.recorder.progress, topic_id=self.copied_topic_id)
        acquired = self._writer.acquired and self._loss is None
        if self._gap_check.needs_exact(progress, state) and not acquired:
            self._read(progress, now, commit_required=True)  # which acquires it, and finds what was appended
            return
        gap = self._gap_check.evaluate(progress, state)
        if gap is None:
            self._read(progress, now, commit_required=self._commit_required)
            return
        self.recorder.set_topic_id(state.topic_id)
        self.recorder.on_gap(gap.kind, gap.lost)
        if gap.resume < gap.offset and None in {progress.leader_epoch, state.leader_epoch}:
            self.recorder.begin_series()  # without epochs it would not be noticed that an anchor is of the former log
        resumed = self.progress_at(gap.resume, state.leader_epoch)
        self._read(resumed, now, commit_required=True)
        self._current.outbox.counts.gaps[gap.kind] += gap.lost

    # --- the end of an attempt

    def _fail(self, error: BaseException, now: int) -> None:
        if (attempt := self._copying) is not None:
            self._opening.note_acquisition(acquired=attempt.acquired)
        self._end_attempt(now, self._failures.outcome_of(error), str(error))

    def _end_attempt(self, now: int, outcome: AttemptOutcome | None, reason: str = "") -> None:
        """End this attempt; ``outcome`` and ``reason`` as in :meth:`RetryController.on_attempt_ended`."""
        attempt = self._copying
        since_ms = self._opening.began_ms if attempt is None else attempt.undelivered_since_ms
        if self.state is CopyState.CHECKING_SOURCE:
            since_ms = None  # it is the source that the copy waits for
        self._retry.on_attempt_ended(outcome, reason, None if since_ms is None else now - since_ms)
        self._close_attempt(now, attempt)

    def _close_attempt(self, now: int, attempt: CopyAttempt | None) -> None:
        self._final_commit = None if attempt is None else attempt.final_commit(now)
        if self._ceding is not None:
            self._ceding.refuse()
            self._ceding = None
        self.state = CopyState.ABORTING
        self._context.stop_reading(self)
        if attempt is not None:
            attempt.end(now)
        self._until_ms = now + ABORT_TIMEOUT_MS
        closed = self._writer.close(ABORT_TIMEOUT_MS)
        self._call.begin(self._final_commit or closed)

    def _step_aborting(self, now: int) -> None:
        if self._call.pop_done() is None and now < self._until_ms:
            return
        if self._final_commit is not None:
            counts, _ = self._current.commits.take_result(now) or (None, None)
            if counts is not None:
                self.on_committed(counts)
        if self._changes_way and not self.winding_up and self.recorder.handed_over is None:
            self._changes_way = False
            self._open(now, retries=False)
            return
        backoff_ms = self._retry.next_backoff_ms()
        if backoff_ms is None:
            self._finish(now)
        elif backoff_ms == 0:
            self._open(now)
        else:
            self.state = CopyState.BACKING_OFF
            self._until_ms = now + backoff_ms

    def _step_backing_off(self, now: int) -> None:
        if not self._retry.keeps_backing_off:
            self._finish(now)
        elif now >= self._until_ms:
            self._open(now)

    def _finish(self, now: int) -> None:
        self._retry.close(now)
        self.state = CopyState.DONE

    # --- the end of an epoch

    def hold_commits(self) -> bool:
        """Begin no commit until :meth:`hand_over`, which counts what is committed; return whether one is in flight."""
        if (attempt := self._copying) is None:
            return False
        attempt.commits.on_hold = True
        return attempt.commits.in_flight is not None

    def hand_over(self, now: int) -> RangeResult:
        """Return the result of the epoch, which ends now.

        A copy in the state COPYING continues, if exactly once, until another attempt fences it. What it copies from now
        on is reported with the progress, and counted by the next epoch.
        """
        # A copy that has not acquired its partition would fence the next epoch's attempt with its first batch.
        if self._copying is None or self._writer.way is None or not self._copying.acquired:
            self.wind_up(now, immediately=True)
        if (attempt := self._copying) is None:
            return self._retry.interim_result(now)
        unix_ms, interval_ms = self._context.unix_ms(), self._context.timeouts.commit_interval_ms
        return self._retry.hand_over(now, attempt, unix_ms=unix_ms, commit_interval_ms=interval_ms)

    def cede(self, answer: Future[Continuation | None], now: int) -> None:
        """Yield the partition to the next epoch's copy in this process, if this one copies on under its lease.

        It sends nothing more. ``answer`` gets the continuation once everything sent is acknowledged; None if the next
        copy has to fence.
        """
        attempt = self._copying
        if attempt is None or not self.runs_under_lease or not attempt.cede():
            answer.set_result(None)
            return
        self._ceding = Ceding(answer, now)
        self._context.stop_reading(self)
        self.step(now)

    def _step_ceding(self, ceding: Ceding, attempt: CopyAttempt, now: int) -> None:
        if attempt.is_quiet:
            outbox = attempt.outbox
            progress = self.progress_at(outbox.acked_offset, outbox.acked_epoch)
            answered = ceding.answer_with(self._writer.yield_to_next(progress))
            self._ceding = None
            self._end_attempt(now, AttemptOutcome(Outcome.FENCED, "the next epoch's copy in this process continues"))
            self._call.begin(answered)
        elif now >= ceding.until_ms:
            self._end_attempt(now, AttemptOutcome(Outcome.FENCED, "the next epoch's copy did not wait any longer"))

    def wind_up(self, now: int, *, immediately: bool) -> None:
        """The epoch ends: commit what is acknowledged, and abort the rest.

        A copy that is still opening completes that first: only then does it learn what was copied under the lease of
        the last epoch. ``immediately``: abort what is not committed by now.
        """
        if not self.winding_up or immediately:
            self._retry.winding_up = True
            if self._attempt is not None:
                self._attempt.commits.on_hold = False
            if self.state is CopyState.CHECKING_SOURCE or (immediately and self.state in _ENDED_IMMEDIATELY):
                # An attempt that has not ended yet does not change how the one before it has ended.
                attempt = self._copying
                # A new leader of the target that does not answer holds up nothing if no commit waits for it.
                if attempt is None:
                    complete = self.opening and self._opening.nothing_was_due
                else:
                    complete = self.range.open_ended and attempt.all_committed and not self._waits_to_send(attempt)
                self._end_attempt(now, self._retry.epoch_outcome(complete=complete))
        self.step(now)

    @staticmethod
    def _waits_to_send(attempt: CopyAttempt) -> bool:
        """Whether something was fetched, and cannot be sent because the partition is not acquired."""
        return not (attempt.acquired or attempt.all_delivered)

    def _awaited_text(self) -> str:
        return awaited_text(self.recorder.timeline.phase, self._context.no_leader_reason(self))

    _STEPS: ClassVar[dict[CopyState, Callable[[PartitionCopy, int], None]]] = {
        CopyState.OPENING: _step_opening,
        CopyState.RESOLVING_PROGRESS: _step_opening,
        CopyState.COPYING: _step_copying,
        CopyState.CHECKING_SOURCE: _step_checking_source,
        CopyState.ABORTING: _step_aborting,
        CopyState.BACKING_OFF: _step_backing_off,
        CopyState.DONE: lambda _copy, _now: None,
    }
