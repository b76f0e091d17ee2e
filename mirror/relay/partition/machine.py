"""The copy of one range: a state machine that never waits. Futures and times come in, calls to `CopyContext` go out.

::

    OPENING ──► SETTLING ──► COPYING ◄──► LOOKING (what the source still has)
       ▲        (no progress)    │
       │                         ▼
    RESTING ◄── DROPPING (abort) ──► DONE

Every recovery is the same: drop the way to the target, make another one, which shuts out the old, read the progress,
and go on there. All transitions are here; what decides them is in ``rulings``, ``ending`` and ``looks``.
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
from mirror.errors import (
    CorruptBatch,
    DeliveryPhase,
    FlowError,
    KafkaTimeout,
    LogTruncated,
    MirrorError,
    OffsetOutOfRange,
)
from mirror.relay.batches.trace_parents import TraceParents
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.attempt import CopyAttempt, DeliveryFailed, TargetShrank
from mirror.relay.partition.attempt_outcome import AttemptOutcome, FailureClassifier
from mirror.relay.partition.context import CopyContext
from mirror.relay.partition.delivery_deadline import DeliveryClock
from mirror.relay.partition.expiries import timed_out, unreadable
from mirror.relay.partition.gap_check import SourceGapCheck
from mirror.relay.partition.outbox import CommitCounts
from mirror.relay.partition.pending_call import PendingCall, result_of
from mirror.relay.partition.result_recorder import ResultRecorder
from mirror.relay.partition.retry import RetryController
from mirror.relay.partition.source_reader import SourceReader
from mirror.relay.partition.states import DROP_MS, OF_TARGET, PHASES, WAITED_FOR, CopyState
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookups import StartPosition
from mirror.relay.progress.target_log import Appended, TargetMark, truncated
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits
    from mirror.relay.partition.target_writer import TargetWriter

_DROPPED: Final = frozenset({CopyState.OPENING, CopyState.SETTLING, CopyState.COPYING})
"""Who is told to end at once has nothing to wait for in these; the others end by themselves."""

_log: Final = logging.getLogger(__name__)


class PartitionCopy:
    """Copies one range. Everything happens in :meth:`step`, :meth:`take_in` and :meth:`wind_up`, on one thread."""

    def __init__(
        self,
        one: Range,
        policy: CopyPolicy,
        facts: TargetLimits,
        times: CopyTimeouts,
        batch_size: int,
        site: CopyContext,
        now: int,
    ) -> None:
        self.range: Final = one
        self.source: Final = TopicPartition(one.topic, one.partition)
        self.target: Final = TopicPartition(one.target_topic, one.partition)
        self.account: Final = ResultRecorder(one, site.wall, now, site.watcher)
        self.stage = CopyState.OPENING
        self._times = times
        self._policy = policy
        self._site = site
        self._reading = SourceReader(
            one.end, facts, policy, batch_size, remake=site.remake(self), holdings=site.holdings
        )
        self._appended = Appended()
        self._found: Progress | None = None
        self._later: Future[None] | None = None
        self._comparing: Future[TargetMark | None] | None = None
        self._rulings = FailureClassifier(self.source, self.target, policy, facts, self._reading.feed, site.wall)
        self._clock = DeliveryClock(one.stuck_since_ms, times, site.wall)
        self._looks = SourceGapCheck(one, policy, self._reading, times.stall_ms, partial(site.why_silent, self))
        may_retry = partial(site.may_retry, self)
        self._ending = RetryController(
            one, self.account, self._clock, self._rulings, site.backoff, may_retry, self._waited_for
        )
        self._awaited = PendingCall(site, self)
        self._copying: CopyAttempt | None = None
        self._until_ms = FOREVER_MS
        self._last: Future[None] | None = None
        self._must_commit = False
        self._traces = TraceParents(now)
        self._open(now)

    # --- what the task asks

    @property
    def result(self) -> RangeResult:
        """What it has done; it stands when it is :attr:`done`."""
        return self.account.result

    @property
    def done(self) -> bool:
        """Whether :attr:`result` stands."""
        return self.stage is CopyState.DONE

    @property
    def expired(self) -> bool:
        """Whether it has expired, and nothing of it was committed since."""
        return self._rulings.expiries > 0

    @property
    def wants_more(self) -> bool:
        """Whether it could use more of the source."""
        copying = self._copying
        return copying is not None and self.stage is CopyState.COPYING and copying.wants_more

    @property
    def held(self) -> int:
        """Bytes that it took from the source, and still needs."""
        return self._reading.held

    @property
    def eager(self) -> bool:
        """Whether an acknowledgement should wake the task: something waits for it."""
        copying = self._copying  # asked from network threads, too
        return copying is not None and self.stage is CopyState.COPYING and copying.eager

    @property
    def _now_copying(self) -> CopyAttempt:
        assert self._copying is not None  # noqa: S101 - asked for while COPYING only
        return self._copying

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next, where nothing happens before."""
        copying = self._copying
        if copying is not None and self.stage is CopyState.COPYING:
            return copying.due_ms(now)
        return self._until_ms if self.stage in {CopyState.RESTING, CopyState.DROPPING} else FOREVER_MS

    def heard(self, at_ms: int, end: int | None = None) -> None:
        """The source was asked, and answered that it has nothing new.

        ``end`` is then where it ends: what has waited for its first answer has had nothing to fetch, and was idle.
        """
        if self.stage is CopyState.COPYING and at_ms > self._reading.heard_ms:
            self._reading.heard_ms, self._ending.trouble = at_ms, None
        if end is not None and self.unheard and self._reading.ends_at(end):
            self.account.had_nothing_to_fetch(self._now_copying, self._reading)

    @property
    def unheard(self) -> bool:
        """Whether it reads, and the source has not said yet where it ends."""
        return self.stage is CopyState.COPYING and self._reading.stable_end == FOREVER_MS

    def not_asked(self, now: int) -> None:
        """The source was not asked: its silence says nothing, neither against it nor for it."""
        if self.stage is CopyState.COPYING:
            self._reading.heard_ms = max(now, self._reading.heard_ms)

    def refused(self) -> None:
        """It may not read now: there is no room for what would come."""
        if self.stage is CopyState.COPYING:
            self._now_copying.refused = True

    # --- an attempt begins

    def _open(self, now: int) -> None:
        self.stage = CopyState.OPENING
        self._ending.begins()
        self._opened_ms = now
        self._carrier: TargetWriter = self._site.carrier(self)
        self._copying = None
        self._awaited.begin(self._carrier.open(self._clock.left_ms()))

    # --- steps

    def step(self, now: int) -> None:
        """Go on as far as that is possible."""
        stage = None
        while stage is not self.stage:
            stage = self.stage
            try:
                self._STEPS[stage](self, now)
            except MirrorError as error:
                self._fail(error, now)
            except Exception as error:  # noqa: BLE001 - it is logged, and ends this copy alone
                _log.exception("%s: a bug in its copy; its neighbours go on", self.source)
                self._fail(as_mirror_error(error), now)
        self._tell_phase(now)

    def _tell_phase(self, now: int) -> None:
        copying = self._copying
        if copying is not None and self.stage is CopyState.COPYING:
            self.account.goes_on(copying, self._reading, now)
        elif self.stage is not CopyState.DONE:
            self.account.chronicle.enter(PHASES[self.stage], now)

    def _opening(self, now: int) -> None:
        future = self._awaited.done()
        if future is None:
            return
        error = future.exception()
        in_doubt = self._carrier.fences_in_doubt
        self._rulings.fenced(in_doubt, answered=error is None, patience_ms=self._times.request_ms)
        if isinstance(error, KafkaTimeout):
            self._time_out(DeliveryPhase.FENCING, error, now)
        elif error is not None:
            self._fail(error, now)
        else:
            self._found = found = future.result()
            if found is not None and found.offset >= self.range.end and self._appended.verified is None:
                # Nothing is to be written behind what may be missing, and a leader that is away is no trouble.
                self._appended.verified, self.account.is_kept = found.target, True
                self._begin_at(found, now)
            else:
                self._settle(now)

    def _settle(self, now: int) -> None:
        self.stage = CopyState.SETTLING
        mark = (None if self._found is None else self._found.target) or self._appended.verified
        left_ms = max(1, self._clock.left_ms() - (now - self._opened_ms))
        self._awaited.begin(self._site.settle(self, self._found, mark, left_ms))

    def _settling(self, now: int) -> None:
        future = self._awaited.done()
        if future is None:
            return
        if isinstance(error := future.exception(), KafkaTimeout):
            if self._nothing_was_due:
                self._opened_ms = now
                self._settle(now)  # nobody waits for it: a leader that is away delays nothing
            else:
                self._time_out(DeliveryPhase.METADATA, error, now)
            return
        settled: StartPosition = result_of(future)
        self._appended.verified, self._later, self._comparing = settled.mark, settled.later, None
        if settled.later is not None:
            self._site.watch(self, settled.later)
        if (low := self._appended.take_low()) is not None and settled.progress is not None:
            # What it acknowledged is proof enough, also where its log has grown again meanwhile.
            mark = TargetMark(topic_id="", end=low[1])
            raise truncated(self.range.flow, self.target, mark, low[0], settled.progress)
        if self._found is not None and settled.progress is not None:
            self.account.is_kept = True
            self._begin_at(replace(settled.progress, target=settled.mark), now)
            return
        self.account.target_end = settled.target_end
        # Kept before the first record: who may not keep progress would copy all of it again with each run, and a flow
        # that begins at the end of its source would begin at a later end each time.
        # The log may be cut back, and grow again, before a record of it is read. Below its beginning it cannot.
        epoch = self.range.source_epoch if self.range.anew else None
        begins = settled.progress or self._progress(self.range.anew, epoch)
        self._begin_at(replace(begins, target=settled.mark), now, must_commit=True)

    def _begin_at(self, progress: Progress, now: int, *, must_commit: bool = False) -> None:
        account = self.account
        if account.begins_at(progress) or account.counts(progress):
            # The planner sends a range of nothing where its progress is to be kept anew, before brokers forget it.
            ended = progress.offset >= self._reading.end
            must_commit = must_commit or ended or account.is_to_be_kept_anew(progress, self._policy.renew_ms)
        self._must_commit = must_commit
        if account.is_of_another_topic(progress) or progress.offset > self._reading.end:
            self._look()  # behind the planned end: the plan is old, or the source was cut back
        else:
            self._read(progress, now, must_commit=must_commit)

    def _read(self, progress: Progress, now: int, *, must_commit: bool) -> None:
        self.stage = CopyState.COPYING
        self.account.reads(progress.topic_id)
        self.account.reads_anew(self._copying)
        self._copying = CopyAttempt(
            progress,
            self._carrier,
            self._reading,
            self._times,
            self._clock,
            self._site.window,
            progress_at=self._progress,
            committed=self._committed,
            answered=partial(self._site.answered, self),
            watch=partial(self._site.watch, self),
            wall=self._site.wall,
            must_commit=must_commit,
            who=self,
            now=now,
        )
        self._copying.winding_up = self._ending.winding_up  # it was still opening as the epoch ended
        if not (self._reading.ended or self._ending.winding_up):
            self._site.read_from(self, progress.offset, progress.leader_epoch, self.account.topic_id)

    # --- copying

    def take_in(self, fetched: Fetched, now: int) -> None:
        """The source has given something."""
        if self.stage is not CopyState.COPYING or self._ending.winding_up:
            return
        trace = self._traces.look(fetched, now)  # before: what is not wanted of it is released at once
        if not self._reading.take_in(fetched, now):
            return
        self._now_copying.refused = False
        if trace is not None:
            self.account.chronicle.carried(trace)
        if fetched.error is None:
            self._looks.given()
            self.account.reads(str(fetched.topic_id or ""))
            self._ending.trouble = None
        if self._reading.ended:
            self._site.stop_reading(self)
        self.step(now)

    def _copy(self, now: int) -> None:
        copying, reading = self._now_copying, self._reading
        try:
            self._check_target(now)
            done = copying.turn(now)
        except TargetShrank as shrank:
            self._appended.low = copying.outbox.low
            self._drop(now, None, str(shrank))
            return
        except DeliveryFailed as lost:
            commits = copying.commits
            ruling = self._rulings.lost(lost, copied=commits.known.offset, committing_ms=now - commits.since_ms)
            self._drop(now, ruling, str(lost))
            return
        if reading.ended:
            self._site.stop_reading(self)
        corrupt = done and isinstance(reading.error, CorruptBatch)
        if done and reading.error is None:
            self._drop(now, AttemptOutcome(Outcome.COMPLETE))
        elif copying.winding_up and copying.idle and (corrupt or not done):
            self._drop(now, self._ending.of_epoch(kept=self.range.follows and copying.outbox.empty))
        elif done and isinstance(reading.error, (OffsetOutOfRange, LogTruncated)):
            self._look()
        elif corrupt and self._looks.again(copying.commits.known.offset):
            self._read(copying.commits.known, now, must_commit=False)  # it is committed
        elif done and reading.error is not None:
            raise unreadable(as_mirror_error(reading.error), self.source, copying.commits.known.offset)
        elif copying.silent(now):
            self._look(silent=True)

    def _progress(self, offset: int, leader_epoch: int | None) -> Progress:
        copying = self._copying
        if copying is None:
            return self.account.progress(offset, leader_epoch)
        outbox, producer_id = copying.outbox, self._carrier.producer_id
        if self._carrier.atomic:
            mark = self._appended.at(outbox.expected_end, producer_id, None)
        else:  # of what is under way it says nothing: that may never arrive
            mark = self._appended.at(outbox.known_end, producer_id, outbox.last_batch)
        return replace(self.account.progress(offset, leader_epoch, outbox.sent), target=mark)

    def _target_epoch(self) -> int | None:
        leader = self._site.leader(self)
        return None if leader is None else leader[1]

    def _check_target(self, now: int) -> None:
        """Take in what was asked about the target's log while it is copied into.

        Raises TargetShrank where a new leader lacks what the one before had, FlowError where the notes, now that they
        can be read, say that the target was another topic before, DeliveryTimeout where a commit, or the end, has
        waited for the new leader's answer for too long.
        """
        if self._later is not None and self._later.done():
            later, self._later = self._later, None
            if isinstance(error := later.exception(), FlowError):
                raise error
            if error is not None:
                _log.warning("%s: begun without its note, which could not be read since: %s", self.target, error)
        if self._comparing is not None and self._comparing.done():
            compared, self._comparing = self._comparing, None
            if isinstance(late := compared.exception(), KafkaTimeout):
                self._not_compared(late, now)
            elif not self._appended.compared(result_of(compared)):
                msg = "the target has a new leader, and its log does not reach as far as the last one's"
                raise TargetShrank(msg)
        if self._comparing is None and (mark := self._appended.to_compare(self._target_epoch())) is not None:
            self._comparing = self._site.compare(self, mark, self._times.stall_ms)
            self._site.watch(self, self._comparing)
        # A commit would bring a mark of its own, and hide what the new leader lacks below it.
        self._now_copying.unsure = self._comparing is not None

    def _not_compared(self, error: KafkaTimeout, now: int) -> None:
        commits = self._now_copying.commits
        age_ms = now - commits.since_ms
        if (commits.wanted or self._reading.ended) and age_ms >= self._times.delivery_ms:
            # Where nothing waits for it, a leader that is away is no trouble, and is asked again.
            raise timed_out(self.target, DeliveryPhase.METADATA, error, age_ms=age_ms)

    def _committed(self, tally: CommitCounts) -> None:
        copying, leader = self._now_copying, self._site.leader(self)
        self._appended.committed(copying.commits.known.target)
        self.account.committed(tally, copying, self._reading, atomic=self._carrier.atomic, leader=leader)
        self._site.commits.add(copying.commits.took_ms)
        if self.stage is CopyState.COPYING:
            self._clock.stop()
            self._rulings.committed()

    # --- the end of an attempt

    def _time_out(self, phase: DeliveryPhase, error: KafkaTimeout, now: int) -> None:
        age_ms = self._clock.age_ms(now - self._opened_ms)
        self._fail(timed_out(self.target, phase, error, age_ms=age_ms), now)

    def _fail(self, error: BaseException, now: int) -> None:
        self._drop(now, self._rulings.failed(error), str(error))

    def _drop(self, now: int, after: AttemptOutcome | None, why: str = "") -> None:
        """End this attempt; ``after`` and ``why`` as in :meth:`RetryController.ends`."""
        copying = self._copying if self.stage is CopyState.COPYING else None
        since_ms = self._opened_ms if copying is None else copying.waits_since_ms
        if self.stage is CopyState.LOOKING:
            since_ms = None  # it is the source that is waited for
        self._ending.ends(after, why, None if since_ms is None else now - since_ms)
        self._last = None if copying is None else copying.last_commit(now)
        self.stage = CopyState.DROPPING
        self._site.stop_reading(self)
        if copying is not None:
            copying.end(now)
        self._until_ms = now + DROP_MS
        self._awaited.begin(self._last or self._carrier.drop(DROP_MS))

    def _dropping(self, now: int) -> None:
        if self._awaited.done() is None and now < self._until_ms:
            return
        if self._last is not None:
            tally, _ = self._now_copying.commits.take(now) or (None, None)
            if tally is not None:
                self._committed(tally)
        rest_ms = self._ending.rest_ms()
        if rest_ms is None:
            self._finish(now)
        elif rest_ms == 0:
            self._open(now)
        else:
            self.stage = CopyState.RESTING
            self._until_ms = now + rest_ms

    def _resting(self, now: int) -> None:
        if not self._ending.rests_on:
            self._finish(now)
        elif now >= self._until_ms:
            self._open(now)

    def _finish(self, now: int) -> None:
        self._ending.close(now)
        self.stage = CopyState.DONE

    # --- the end of an epoch

    @property
    def committing(self) -> bool:
        """Whether a commit is under way. Until :meth:`hand_over` no other begins: what was kept is to be counted."""
        if self.stage is not CopyState.COPYING:
            return False
        self._now_copying.commits.hold = True
        return self._now_copying.commits.under_way is not None

    def hand_over(self, now: int) -> RangeResult:
        """What is told of the epoch, which ends now. Who copies goes on, until somebody shuts it out; nobody else does.

        What is copied from now on is told with the progress, for whoever goes on from there.
        """
        if self.stage is not CopyState.COPYING or not self._carrier.atomic:
            self.wind_up(now, at_once=True)
        if self.stage is not CopyState.COPYING:
            return self._ending.so_far(now)
        wall, commit_ms = self._site.wall(), self._times.commit_ms
        return self._ending.hand_over(now, self._now_copying, wall=wall, commit_ms=commit_ms)

    def wind_up(self, now: int, *, at_once: bool) -> None:
        """The epoch ends: what is acknowledged is committed, the rest dropped with its transaction.

        Who has just begun opens in peace: what was copied under the lease of the last epoch is heard of only then.
        ``at_once``: what is not committed by now is dropped.
        """
        if not self._ending.winding_up or at_once:
            self._ending.winding_up = True
            if self._copying is not None:
                self._copying.winding_up, self._copying.commits.hold = True, False
            if self.stage is CopyState.LOOKING or (at_once and self.stage in _DROPPED):
                # An attempt that had not come to its end yet does not make the one before it undone.
                self._drop(now, self._ending.of_epoch(kept=self._nothing_was_due))
        self.step(now)

    def _waited_for(self) -> str:
        phase = self.account.chronicle.phase
        why = self._site.why_no_leader(self) if phase in OF_TARGET else ""
        return f"it waited for {WAITED_FOR[phase]}{why}" if phase in WAITED_FOR else ""

    @property
    def _nothing_was_due(self) -> bool:
        """Whether it has only just begun to follow, and the plan knew of nothing to copy."""
        one = self.range
        opening = self.stage is CopyState.OPENING or (self.stage is CopyState.SETTLING and self._found is not None)
        begins = opening and one.stuck_since_ms is None and not self._rulings.expiries
        return begins and self._ending.trouble is None and one.follows and one.source_end == one.start

    # --- gaps

    def _look(self, *, silent: bool = False) -> None:
        self.stage = CopyState.LOOKING
        self._looks.silent = silent
        self._site.stop_reading(self)
        self._awaited.begin(self._site.look(self))

    def _looking(self, now: int) -> None:
        """The source does not have what comes next: find out why, and whether to go on behind it."""
        future = self._awaited.done()
        if future is None:
            return
        state: SourceState = result_of(future)
        assert self.account.known is not None  # noqa: S101 - reading begins at it
        known = replace(self.account.known, topic_id=self.account.copied_topic)
        gap = self._looks.found(known, state)
        if gap is None:
            self._read(known, now, must_commit=self._must_commit)
            return
        self.account.reads(state.topic_id)
        self.account.passed_over(gap.kind, gap.lost)
        resumed = self._progress(gap.resume, state.leader_epoch)
        self._read(resumed, now, must_commit=True)
        self._now_copying.outbox.tally.gaps[gap.kind] += gap.lost

    _STEPS: ClassVar[dict[CopyState, Callable[[PartitionCopy, int], None]]] = {
        CopyState.OPENING: _opening,
        CopyState.SETTLING: _settling,
        CopyState.COPYING: _copy,
        CopyState.LOOKING: _looking,
        CopyState.DROPPING: _dropping,
        CopyState.RESTING: _resting,
        CopyState.DONE: lambda _copy, _now: None,
    }
