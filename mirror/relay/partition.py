"""One range's copy: a state machine that never waits. Futures and times come in, calls to its :class:`Site` go out.

::

    OPENING ──► SETTLING ──► COPYING ◄──► LOOKING (what the source still has)
       ▲        (no progress)    │
       │                         ▼
    RESTING ◄── DROPPING (abort) ──► DONE

Every recovery is the same: drop the way to the target, make another one, which shuts out the old, read the progress,
and go on there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import DeliveryPhase, FlowError, KafkaTimeout, LogTruncated, MirrorError, OffsetOutOfRange
from mirror.relay.account import Account
from mirror.relay.copying import Copying, Lost
from mirror.relay.delivery_clock import DeliveryClock
from mirror.relay.expiries import as_mirror_error, corrupt, other_source, timed_out
from mirror.relay.gaps import SourceState
from mirror.relay.outbox import Tally
from mirror.relay.policy import CopyPolicy
from mirror.relay.progress import Progress
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.relay.reading import Reading
from mirror.relay.rulings import Ruling, Rulings
from mirror.relay.site import Settled, Site, Times
from mirror.relay.stages import DROP_MS, EPOCH_ENDED, LOOKS, REST_MS, Stage
from mirror.relay.story import Phase
from mirror.relay.trace_parents import TraceParents
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.carriers import Carrier
    from mirror.relay.facts import TargetFacts

_log: Final = logging.getLogger(__name__)

_PHASES: Final = {
    Stage.OPENING: Phase.FENCING,
    Stage.SETTLING: Phase.SETTLING,
    Stage.LOOKING: Phase.LOOKING,
    Stage.DROPPING: Phase.ABORTING,
    Stage.RESTING: Phase.RESTING,
}
_LATE: Final = 2
"""What waits for so many commit intervals at an epoch's end is stuck: its age goes on in the next."""


class PartitionCopy:
    """Copies one range. Everything happens in :meth:`step`, :meth:`take_in` and :meth:`wind_up`, on one thread."""

    def __init__(
        self, one: Range, policy: CopyPolicy, facts: TargetFacts, times: Times, batch_size: int, site: Site, now: int
    ) -> None:
        self.range: Final = one
        self.source: Final = TopicPartition(one.topic, one.partition)
        self.target: Final = TopicPartition(one.target_topic, one.partition)
        self.account: Final = Account(one, site.wall, now, site.watcher)
        self.stage = Stage.OPENING
        self._times = times
        self._policy = policy
        self._site = site
        self._reading = Reading(one.end, facts, policy, batch_size, remake=site.remake(self), holdings=site.holdings)
        self._rulings = Rulings(self.source, self.target, policy, facts, self._reading.feed, site.wall)
        self._clock = DeliveryClock(one.stuck_since_ms, times, site.wall)
        self._attempts = self._looks = 0
        self._pending: Future[Any] | None = None
        self._copying: Copying | None = None
        self._until_ms = FOREVER_MS
        self._last: Future[None] | None = None
        self._after: Ruling | None = None
        self._why = ""
        self._trouble: Ruling | None = None  # what befell who follows, as long as nothing was heard since
        self._winding_up = self._must_commit = self._asked_why = False
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
        return self.stage is Stage.DONE

    @property
    def expired(self) -> bool:
        """Whether it has expired, and nothing of it was committed since."""
        return self._rulings.expiries > 0

    @property
    def wants_more(self) -> bool:
        """Whether it could use more of the source."""
        return self.stage is Stage.COPYING and self._now_copying.wants_more

    @property
    def held(self) -> int:
        """Bytes that it took from the source, and still needs."""
        return self._reading.held

    @property
    def eager(self) -> bool:
        """Whether an acknowledgement should wake the task: something waits for it."""
        copying = self._copying  # asked from network threads, too
        return copying is not None and self.stage is Stage.COPYING and copying.eager

    @property
    def _now_copying(self) -> Copying:
        assert self._copying is not None  # noqa: S101 - asked for while COPYING only
        return self._copying

    @property
    def kept(self) -> tuple[Progress, int] | None:
        """The committed progress, with the target's end after it, where that is known: for the progress topic."""
        return self.account.kept

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next, where nothing happens before."""
        if self.stage in {Stage.RESTING, Stage.DROPPING}:
            return self._until_ms
        return self._now_copying.due_ms(now) if self.stage is Stage.COPYING else FOREVER_MS

    def heard(self, at_ms: int) -> None:
        """The source was not asked, and its silence tells nothing; or it was, and answered that it has nothing new."""
        if self.stage is Stage.COPYING and at_ms > self._reading.heard_ms:
            self._reading.heard_ms, self._trouble = at_ms, None

    def refused(self) -> None:
        """It may not read now: there is no room for what would come."""
        if self.stage is Stage.COPYING:
            self._now_copying.refused = True

    # --- an attempt begins

    def _open(self, now: int) -> None:
        self.stage = Stage.OPENING
        self._attempts += 1
        self.result.retries = self._attempts - 1
        self._opened_ms = now
        self.account.chronicle.attempts()
        self._carrier: Carrier = self._site.carrier(self)
        self._copying = None
        self._await(self._carrier.open(self._clock.left_ms()))

    def _await(self, future: Future[Any]) -> None:
        self._pending = future
        self._site.watch(self, future)

    def _answered(self) -> Future[Any] | None:
        """What was awaited, once it is done."""
        future = self._pending
        if future is None or not future.done():
            return None
        self._pending = None
        return future

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
        if self.stage is Stage.COPYING:
            self.account.goes_on(self._now_copying, self._reading, now)
        elif self.stage is not Stage.DONE:
            self.account.chronicle.enter(_PHASES[self.stage], now)

    def _opening(self, now: int) -> None:
        future = self._answered()
        if future is None:
            return
        error = future.exception()
        if isinstance(error, KafkaTimeout):
            self._rulings.fencing_unanswered()
            self._time_out(DeliveryPhase.FENCING, error, now)
        elif error is not None:
            self._fail(error, now)
        elif (progress := future.result()) is not None:
            self.account.is_kept = True
            self._begin_at(progress, now)
        else:
            self.stage = Stage.SETTLING
            self._await(self._site.settle(self, max(1, self._clock.left_ms() - (now - self._opened_ms))))

    def _settling(self, now: int) -> None:
        future = self._answered()
        if future is None:
            return
        if isinstance(error := future.exception(), KafkaTimeout):
            self._time_out(DeliveryPhase.METADATA, error, now)
            return
        settled: Settled = _result(future)
        self.account.target_end = settled.target_end
        # Kept before the first record: who may not keep progress would copy all of it again with each run, and a flow
        # that begins at the end of its source would begin at a later end each time.
        self._begin_at(settled.progress or self._progress(self.range.start, None), now, must_commit=True)

    def _begin_at(self, progress: Progress, now: int, *, must_commit: bool = False) -> None:
        one = self.range
        if progress.source_cluster_id not in {"", one.source_cluster_id}:
            raise other_source(one, progress)
        if self.account.begins_at(progress):
            # The planner sends a range of nothing where its progress is to be kept anew, before brokers forget it.
            must_commit = must_commit or progress.offset >= self._reading.end or self._is_old(progress)
        self._must_commit = must_commit
        topic_id = self.account.topic_id
        remade = bool(progress.topic_id and topic_id) and progress.topic_id != topic_id
        if remade or progress.offset > self._reading.end:
            self._look()  # behind the planned end: the plan is old, or the source was cut back
        else:
            self._read(progress, now, must_commit=must_commit)

    def _is_old(self, progress: Progress) -> bool:
        renew_ms = self._policy.renew_ms
        return renew_ms > 0 and self._site.wall() - progress.time_ms >= renew_ms

    def _read(self, progress: Progress, now: int, *, must_commit: bool) -> None:
        self.stage = Stage.COPYING
        self._copying = Copying(
            progress,
            self._carrier,
            self._reading,
            self._times,
            self._clock,
            self._site.window,
            progress_at=self._progress,
            committed=self._committed,
            watch=partial(self._site.watch, self),
            wall=self._site.wall,
            must_commit=must_commit,
            who=self,
            now=now,
        )
        if not self._reading.ended:
            self._site.read_from(self, progress.offset, progress.leader_epoch)

    # --- copying

    def take_in(self, fetched: Fetched, now: int) -> None:
        """The source has given something."""
        if self.stage is not Stage.COPYING or self._winding_up or not self._reading.take_in(fetched, now):
            return
        self._now_copying.refused = False
        if (trace := self._traces.look(fetched, now)) is not None:
            self.account.chronicle.carried(trace)
        if fetched.error is None:
            self._looks, self._trouble = 0, None
        if self._reading.ended:
            self._site.stop_reading(self)
        self.step(now)

    def _copy(self, now: int) -> None:
        copying, reading = self._now_copying, self._reading
        try:
            done = copying.turn(now)
        except Lost as lost:
            commits = copying.commits
            ruling = self._rulings.lost(lost, copied=commits.known.offset, committing_ms=now - commits.since_ms)
            self._drop(now, ruling, str(lost))
            return
        if reading.ended:
            self._site.stop_reading(self)
        if done and reading.error is None:
            self._drop(now, Ruling(Outcome.COMPLETE))
        elif done and isinstance(reading.error, (OffsetOutOfRange, LogTruncated)):
            self._look()
        elif done and reading.error is not None:
            raise corrupt(as_mirror_error(reading.error), str(self.source))
        elif copying.winding_up and copying.idle:
            all_kept = self.range.follows and copying.outbox.empty
            ended = Ruling(Outcome.COMPLETE) if all_kept else Ruling(Outcome.UNFINISHED, EPOCH_ENDED)
            self._drop(now, self._trouble or ended)
        elif copying.silent(now):
            self._asked_why = True
            self._look()

    def _progress(self, offset: int, leader_epoch: int | None) -> Progress:
        if self.account.handed is None:
            return self.account.progress(offset, leader_epoch)
        return self.account.progress(offset, leader_epoch, self._now_copying.outbox.sent)

    def _committed(self, tally: Tally) -> None:
        copying, leader = self._now_copying, self._site.leader(self)
        self.account.committed(tally, copying, self._reading, atomic=self._carrier.atomic, leader=leader)
        self._site.commits.add(copying.commits.took_ms)
        if self.stage is Stage.COPYING:
            self._clock.stop()
            self._rulings.committed()

    # --- the end of an attempt

    def _time_out(self, phase: DeliveryPhase, error: KafkaTimeout, now: int) -> None:
        age_ms = self._clock.age_ms(now - self._opened_ms)
        self._fail(timed_out(self.target, phase, error, age_ms=age_ms), now)

    def _fail(self, error: BaseException, now: int) -> None:
        self._drop(now, self._rulings.failed(error), str(error))

    def _drop(self, now: int, after: Ruling | None, why: str = "") -> None:
        """End this attempt; ``after`` is what became of the copy, None where it is to be begun anew at once.

        ``why`` is what ended it before its time.
        """
        self._after, self._why = after, why
        self.account.ends(after, self._attempts, why)
        if after is not None and after.expiry is not None:
            self._clock.stop()
        copying = self._copying if self.stage is Stage.COPYING else None
        if after is not None and after.outcome is Outcome.UNFINISHED:
            since_ms = self._opened_ms if copying is None else copying.waits_since_ms
            if self.stage is Stage.LOOKING:
                since_ms = None  # it is the source that is waited for
            self._clock.hand_on(None if since_ms is None else now - since_ms)
        self._last = None if copying is None else copying.last_commit(now)
        self.stage = Stage.DROPPING
        self._site.stop_reading(self)
        if copying is not None:
            copying.end(now)
        self._until_ms = now + DROP_MS
        self._await(self._last or self._carrier.drop(DROP_MS))

    def _dropping(self, now: int) -> None:
        if self._answered() is None and now < self._until_ms:
            return
        if self._last is not None:
            tally, _ = self._now_copying.commits.take(now) or (None, None)
            if tally is not None:
                self._committed(tally)
        again = self._after is None and not self._winding_up and self.account.handed is None
        if again and not self._rulings.aborts:
            self._begin_anew(now)
        elif again or (self._may_mend and self._site.may_retry(self)):
            failed = self._after is not None and self._after.outcome is Outcome.FAILED
            self._trouble = self._after if failed else None
            rest_ms = self._site.backoff.after(max(self._rulings.expiries, self._rulings.aborts))
            self.stage = Stage.RESTING
            self._until_ms = now + (REST_MS if failed else rest_ms)
            self._say_retry(self._until_ms - now)
        else:
            self._finish(now)

    def _begin_anew(self, now: int) -> None:
        self._say_retry(0)
        self._open(now)

    def _say_retry(self, backoff_ms: int) -> None:
        self.account.begins_anew(
            self._attempts + 1, self._why if self._after is None else self._after.error, backoff_ms
        )

    @property
    def _may_mend(self) -> bool:
        """Whether it can be tried again: what expired; and who follows, whatever befell it, has the time to wait."""
        outcome = None if self._after is None else self._after.outcome
        return outcome is Outcome.EXPIRED or (outcome is Outcome.FAILED and self.range.follows)

    def _resting(self, now: int) -> None:
        if self._winding_up or (self._after is not None and not self._site.may_retry(self)):
            self._finish(now)
        elif now >= self._until_ms:
            self._open(now)

    def _finish(self, now: int) -> None:
        after = self._after or Ruling(Outcome.UNFINISHED, EPOCH_ENDED)
        self.account.close(now, after, self._clock.since_ms)
        self.stage = Stage.DONE

    @property
    def committing(self) -> bool:
        """Whether a commit is under way. Until :meth:`hand_over` no other begins: what was kept is to be counted."""
        if self.stage is not Stage.COPYING:
            return False
        self._now_copying.commits.hold = True
        return self._now_copying.commits.under_way is not None

    def hand_over(self, now: int) -> RangeResult:
        """What is told of the epoch, which ends now. Who copies goes on, until somebody shuts it out; nobody else does.

        What is copied from now on is told with the progress, for whoever goes on from there.
        """
        if self.stage is not Stage.COPYING or not self._carrier.atomic:
            self.wind_up(now, at_once=True)
        if self.stage is not Stage.COPYING:
            after = self._after or Ruling(Outcome.UNFINISHED, EPOCH_ENDED)
            return self.account.so_far(now, after, self._clock.since_ms)
        copying = self._now_copying
        self.account.handed, copying.commits.hold = copying.commits.kept, False
        waits_ms = 0 if copying.waits_since_ms is None else now - copying.waits_since_ms
        since_ms = None
        after = self._trouble or Ruling(Outcome.COMPLETE)
        if waits_ms > _LATE * self._times.commit_ms:
            after = self._trouble or Ruling(Outcome.UNFINISHED, EPOCH_ENDED)
            since_ms = self._clock.since_ms or self._site.wall() - waits_ms
        return self.account.so_far(now, after, since_ms)

    def wind_up(self, now: int, *, at_once: bool) -> None:
        """The epoch ends: what is acknowledged is committed, the rest dropped with its transaction.

        ``at_once``: what is not committed by now is dropped.
        """
        if not self._winding_up or at_once:
            self._winding_up = True
            if self._copying is not None:
                self._copying.winding_up, self._copying.commits.hold = True, False
            waits = {Stage.OPENING, Stage.SETTLING, Stage.LOOKING} | ({Stage.COPYING} if at_once else set())
            if self.stage in waits:
                self._drop(now, Ruling(Outcome.UNFINISHED, EPOCH_ENDED))
        self.step(now)

    # --- gaps

    def _look(self) -> None:
        self.stage = Stage.LOOKING
        self._site.stop_reading(self)
        self._await(self._site.look(self))

    def _looking(self, now: int) -> None:
        """The source does not have what comes next: find out why, and whether to go on behind it."""
        future = self._answered()
        if future is None:
            return
        state: SourceState = _result(future)
        known = self.account.known
        assert known is not None  # noqa: S101 - reading begins at it
        error = self._reading.error
        planned = min(self._reading.end, state.end) if self.range.follows else self._reading.end
        gap = self._rulings.gap(known, state, error, end=planned, silent=self._asked_why)
        if gap is None and self._asked_why:
            why = self._site.why_silent(self)
            raise FlowError(f"{self.source}: nothing came from the source for {self._times.stall_ms} ms{why}")
        if gap is None:
            self._looks += error is not None
            if self._looks > LOOKS and error is not None:
                raise as_mirror_error(error)
            self._read(known, now, must_commit=self._must_commit)
            return
        self._asked_why = False
        self.account.topic_id = state.topic_id
        self.account.passed_over(gap.kind, gap.lost)
        if not self.range.follows:
            self._reading.end = max(gap.resume, min(self._reading.end, state.end))
        resumed = self._progress(gap.resume, None)
        self._read(resumed, now, must_commit=True)
        self._now_copying.outbox.tally.gaps[gap.kind] += gap.lost

    _STEPS: ClassVar[dict[Stage, Callable[[PartitionCopy, int], None]]] = {
        Stage.OPENING: _opening,
        Stage.SETTLING: _settling,
        Stage.COPYING: _copy,
        Stage.LOOKING: _looking,
        Stage.DROPPING: _dropping,
        Stage.RESTING: _resting,
        Stage.DONE: lambda _copy, _now: None,
    }


def _result(future: Future[Any]) -> Any:
    """Raises MirrorError, whatever went wrong: it ends this copy, not its neighbours."""
    error = future.exception()
    if error is not None:
        raise as_mirror_error(error)
    return future.result()
