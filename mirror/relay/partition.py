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

import enum
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import (
    CorruptBatch,
    DeliveryPhase,
    DeliveryTimeout,
    Fenced,
    FlowError,
    KafkaTimeout,
    LogTruncated,
    MirrorError,
    NeedsAbort,
    OffsetOutOfRange,
    TransactionExpired,
)
from mirror.relay.commits import Commits
from mirror.relay.delivery_clock import DeliveryClock
from mirror.relay.expiries import as_mirror_error, other_source, timed_out, told
from mirror.relay.feed import Piece
from mirror.relay.gaps import SourceState, classify
from mirror.relay.outbox import Outbox, Tally
from mirror.relay.policy import CopyPolicy
from mirror.relay.progress import Progress
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.relay.reading import Reading
from mirror.relay.refusals import remedy
from mirror.relay.site import Settled, Site, Times
from mirror.timing import FOREVER_MS, deadline

if TYPE_CHECKING:
    from mirror.relay.carriers import Carrier
    from mirror.relay.facts import TargetFacts

DROP_MS: Final = 5_000
"""How long a dropped transaction's abort is waited for; after that its end is left to the next attempt, or to time."""
_EPOCH_ENDED: Final = "the epoch ended before it was complete"
_LOOKS: Final = 3
"""A source that says "not here", and on being asked that nothing is missing, is believed no more often in a row."""


class Stage(enum.Enum):
    """What a copy waits for."""

    OPENING = "opening"
    SETTLING = "settling"
    COPYING = "copying"
    LOOKING = "looking"
    DROPPING = "dropping"
    RESTING = "resting"
    DONE = "done"


class PartitionCopy:
    """Copies one range. Everything happens in :meth:`step`, :meth:`take_in` and :meth:`wind_up`, on one thread."""

    def __init__(
        self, one: Range, policy: CopyPolicy, facts: TargetFacts, times: Times, batch_size: int, site: Site, now: int
    ) -> None:
        self.range: Final = one
        self.source: Final = TopicPartition(one.topic, one.partition)
        self.target: Final = TopicPartition(one.target_topic, one.partition)
        self.result = RangeResult.begun(one, one.start)
        self.stage = Stage.OPENING
        self._policy = policy
        self._facts = facts
        self._times = times
        self._site = site
        self._began_ms = now
        self._reading = Reading(one.end, facts, policy, batch_size, remake=site.remake(self), holdings=site.holdings)
        self._clock = DeliveryClock(one.stuck_since_ms, times, site.wall)
        self._topic_id = one.topic_id
        self._attempts = self._failures = self._looks = 0
        self._target_end: int | None = None
        self._known: Progress | None = None
        self._pending: Future[Any] | None = None
        self._making: Future[Any] | None = None
        self._until_ms = FOREVER_MS
        self._last: Future[None] | None = None
        self._after: tuple[Outcome, str] | None = None
        self._winding_up = False
        self._open(now)

    # --- what the task asks

    @property
    def done(self) -> bool:
        """Whether :attr:`result` stands."""
        return self.stage is Stage.DONE

    @property
    def expired(self) -> bool:
        """Whether it has expired, and nothing of it was committed since."""
        return self._failures > 0

    @property
    def wants_more(self) -> bool:
        """Whether it could use more of the source."""
        may_read = self.stage is Stage.COPYING and not (self._reading.ended or self._winding_up)
        return may_read and self._reading.handed_on and not self._commits.full

    @property
    def held(self) -> int:
        """Bytes that it took from the source, and still needs."""
        return self._reading.held

    @property
    def eager(self) -> bool:
        """Whether an acknowledgement should wake the task: something waits for it."""
        return self.stage is Stage.COPYING and (not self._reading.handed_on or self._reading.ended)

    @property
    def kept(self) -> tuple[Progress, int] | None:
        """The committed progress, with the target's end after it, where that is known: for the progress topic."""
        return None if self._known is None or self._target_end is None else (self._known, self._target_end)

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next, where nothing happens before."""
        if self.stage in {Stage.RESTING, Stage.DROPPING}:
            return self._until_ms
        if self.stage is not Stage.COPYING:
            return FOREVER_MS
        stall = deadline(self._reading.heard_ms, self._times.stall_ms) if self.wants_more else FOREVER_MS
        commit = FOREVER_MS
        if self._commits.wanted and not self._commits.under_way:
            commit = self._commit_due_ms()
            commit = commit if commit > now else FOREVER_MS  # overdue: it waits for something else
        waits_to_send = not (self._reading.handed_on or self._reading.feed.making)
        send = self._site.window.next_ms(now) if waits_to_send else FOREVER_MS
        return min(stall, commit, send)

    def heard(self, now: int) -> None:
        """The source was not asked: its silence tells nothing."""
        if self.stage is Stage.COPYING:
            self._reading.heard_ms = now

    # --- an attempt begins

    def _open(self, now: int) -> None:
        self.stage = Stage.OPENING
        self._attempts += 1
        self.result.retries = self._attempts - 1
        self._opened_ms = now
        self._carrier: Carrier = self._site.carrier(self)
        self._outbox = Outbox(self._site.window, 0, None)
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

    def _opening(self, now: int) -> None:
        future = self._answered()
        if future is None:
            return
        error = future.exception()
        if isinstance(error, KafkaTimeout):
            age_ms = self._clock.age_ms(now - self._opened_ms)
            self._fail(timed_out(self.target, DeliveryPhase.FENCING, error, age_ms=age_ms), now)
        elif error is not None:
            self._fail(error, now)
        elif (progress := future.result()) is not None:
            self._begin_at(progress, now)
        else:
            self.stage = Stage.SETTLING
            self._await(self._site.settle(self))

    def _settling(self, now: int) -> None:
        future = self._answered()
        if future is None:
            return
        settled: Settled = future.result()
        self._target_end = settled.target_end
        # Kept before the first record: who may not keep progress would copy all of it again with each run, and a flow
        # that begins at the end of its source would begin at a later end each time.
        self._begin_at(settled.progress or self._progress(self.range.start, None), now, must_commit=True)

    def _begin_at(self, progress: Progress, now: int, *, must_commit: bool = False) -> None:
        one = self.range
        if progress.source_cluster_id not in {"", one.source_cluster_id}:
            raise other_source(one, progress)
        if self._known is None:
            self.result.start = progress.offset
            # The planner sends a range of nothing where its progress is to be kept anew, before brokers forget it.
            must_commit = must_commit or progress.offset >= self._reading.end
        self._known = progress
        self.result.end = progress.offset
        self._read(progress, now, must_commit=must_commit)
        if progress.topic_id and self._topic_id and progress.topic_id != self._topic_id:
            self._look()

    def _read(self, progress: Progress, now: int, *, must_commit: bool) -> None:
        self.stage = Stage.COPYING
        self._outbox = Outbox(self._site.window, progress.offset, progress.leader_epoch)
        self._commits = Commits(self._carrier, self._outbox, self._times, progress, now)
        self._commits.must = must_commit
        self._reading.begin(progress.offset, now)
        if not self._reading.ended:
            self._site.read_from(self, progress.offset, progress.leader_epoch)

    # --- copying

    def take_in(self, fetched: Fetched, now: int) -> None:
        """The source has given something."""
        if self.stage is not Stage.COPYING or self._winding_up or not self._reading.take_in(fetched, now):
            return
        if fetched.error is None:
            self._looks = 0
        if self._reading.ended:
            self._site.stop_reading(self)
        self.step(now)

    def _copying(self, now: int) -> None:
        self._outbox.harvest(now)
        if (loss := self._outbox.loss()) is not None:
            self._lost(*loss, now)
            return
        self._take_commit(now)
        if self.stage is not Stage.COPYING:
            return
        if not self._winding_up:
            self._push(now)
        if self._commits.wanted and not self._commits.under_way and now >= self._commit_due_ms():
            self._site.watch(self, self._commits.begin(self._progress, now))
        if not (self._commits.wanted or self._commits.under_way):
            self._end_reading(now)
        elif self._winding_up and not self._commits.under_way:
            self._drop(now, (Outcome.UNFINISHED, _EPOCH_ENDED))

    def _push(self, now: int) -> None:
        while not self._commits.full and (piece := self._next_piece()) is not None:
            if not self._send(piece, now):
                return
            self._reading.feed.pop()
        if (making := self._reading.feed.making) is not None and making is not self._making:
            self._making = making
            self._site.watch(self, making)
        reading, outbox = self._reading, self._outbox
        if reading.handed_on and reading.at >= reading.end > outbox.sent_offset:
            # The range's end counts as reached also where its last offsets hold nothing.
            outbox.add(Piece(outbox.sent_offset, reading.end, _epoch(outbox.sent_epoch)), None, now)
        outbox.harvest(now)

    def _next_piece(self) -> Piece | None:
        try:
            return self._reading.feed.next(self._site.wall())
        except MirrorError as error:
            # What comes before it is committed first: then it is told.
            self._reading.fail(_placed(error, self.source))
            self._site.stop_reading(self)
            return None

    def _send(self, piece: Piece, now: int) -> bool:
        """Whether ``piece`` could be handed over."""
        future, size = None, 0
        if piece.batch is not None:
            if not self._outbox.may_send(now):
                return False
            try:
                future = self._carrier.send(piece.batch, self._clock.created_ms())
            except DeliveryTimeout:
                raise
            except KafkaTimeout:
                return False  # no memory at the moment: acknowledgements will free some
            self._site.watch(self, future, urgent=False)
            size = piece.batch.size
        self._commits.sent(size, now)
        self._outbox.add(piece, future, now)
        return True

    def _end_reading(self, now: int) -> None:
        """Everything that came is committed: it is complete, or the source has failed, or gives nothing."""
        reading = self._reading
        if reading.handed_on and self._outbox.empty and reading.error is not None:
            if not isinstance(reading.error, (OffsetOutOfRange, LogTruncated)):
                raise as_mirror_error(reading.error)
            self._look()
        elif reading.handed_on and self._outbox.empty and reading.ended:
            self._drop(now, (Outcome.COMPLETE, ""))
        elif self._winding_up:
            self._drop(now, (Outcome.UNFINISHED, _EPOCH_ENDED))
        elif self.wants_more and now - reading.heard_ms >= self._times.stall_ms:
            why = self._site.why_silent(self)
            raise FlowError(f"{self.source}: nothing came from the source for {self._times.stall_ms} ms{why}")

    # --- committing

    def _progress(self, offset: int, leader_epoch: int | None) -> Progress:
        return Progress(
            offset=offset,
            leader_epoch=leader_epoch if _epoch(leader_epoch) >= 0 else None,
            source_cluster_id=self.range.source_cluster_id,
            topic_id=self._topic_id,
            time_ms=self._site.wall(),
        )

    def _commit_due_ms(self) -> int:
        if self._winding_up:
            return 0 if self._outbox.empty else FOREVER_MS
        reading = self._reading
        return self._commits.due_ms(caught_up=reading.caught_up, ended=reading.handed_on and reading.ended)

    def _take_commit(self, now: int) -> None:
        outcome = self._commits.take(now)
        if outcome is None:
            return
        tally, error = outcome
        if tally is not None:
            self._committed(tally)
            self._clock.stop()
            self._failures = 0
        elif (loss := self._outbox.loss()) is not None:
            self._lost(*loss, now)
        elif not self._carrier.atomic and not (self._reading.ended and self._outbox.empty):
            pass  # kept with the next one
        elif type(error) is KafkaTimeout and self._carrier.atomic:
            phase, age_ms = DeliveryPhase.COMMITTING, now - self._commits.since_ms
            self._fail(timed_out(self.target, phase, error, age_ms=age_ms, may_have_been_written=True), now)
        else:
            cause = (error.__cause__ if isinstance(error, NeedsAbort) else None) or error
            raise FlowError(f"{self.target}: progress was not kept: {cause}") from cause

    def _committed(self, tally: Tally) -> None:
        tally.into(self.result)
        add_to(self.result.gaps, self._reading.feed.gaps)
        self._reading.feed.gaps.clear()
        self._known = self._commits.known
        self.result.end = self._known.offset
        if (end := self._outbox.target_end) is not None:
            # Behind a transaction's records stands its marker.
            self._target_end = end + int(self._carrier.atomic)

    # --- the end of an attempt

    def _lost(self, piece: Piece, error: BaseException, now: int) -> None:
        """A batch was not taken."""
        if isinstance(error, (DeliveryTimeout, Fenced, TransactionExpired)):
            self._fail(error, now, piece)
            return
        reason = remedy(error, piece, self._reading.feed, source=self.source, policy=self._policy, facts=self._facts)
        if reason is not None and piece.base_offset == self._commits.known.offset:
            raise reason
        if reason is not None:
            self._reading.feed.stop_at(piece, reason)  # what comes before it is to be copied all the same
        self._drop(now, None)

    def _fail(self, error: BaseException, now: int, piece: Piece | None = None) -> None:
        if isinstance(error, (DeliveryTimeout, TransactionExpired)):
            self.result.expiries.append(told(error, piece, self._site.wall()))
            self._failures += 1
            self._clock.stop()
            where = f"{self.source}, the batch at offset {piece.base_offset}: " if piece is not None else ""
            self._drop(now, (Outcome.EXPIRED, f"{where}{error}"))
            return
        outcome = Outcome.FENCED if isinstance(error, Fenced) else Outcome.FAILED
        self._drop(now, (outcome, str(error) or type(error).__name__))

    def _drop(self, now: int, after: tuple[Outcome, str] | None) -> None:
        """End this attempt; ``after`` is what became of the copy, None where it is to be begun anew at once."""
        self._after = after
        if after is not None and after[0] is Outcome.UNFINISHED:
            since_ms = self._outbox.oldest_ms if self.stage is Stage.COPYING else self._opened_ms
            self._clock.hand_on(None if since_ms is None else now - since_ms)
        self._last = self._last_commit(now)
        self.stage = Stage.DROPPING
        self._site.stop_reading(self)
        self._outbox.give_up()
        self._reading.begin(0, now)
        self._until_ms = now + DROP_MS
        self._await(self._last or self._carrier.drop(DROP_MS))

    def _last_commit(self, now: int) -> Future[None] | None:
        """What is acknowledged counts, where a commit does not take the rest with it."""
        if self.stage is not Stage.COPYING or self._carrier.atomic:
            return None
        if self._commits.under_way is None and self._outbox.acked_offset > self._commits.known.offset:
            self._commits.begin(self._progress, now)
        return self._commits.under_way

    def _dropping(self, now: int) -> None:
        if self._answered() is None and now < self._until_ms:
            return
        if self._last is not None:
            tally, _ = self._commits.take(now) or (None, None)
            if tally is not None:
                self._committed(tally)
        expired = self._after is not None and self._after[0] is Outcome.EXPIRED
        if self._after is None and not self._winding_up:
            self._open(now)
        elif expired and self._site.may_retry(self):
            self.stage = Stage.RESTING
            self._until_ms = now + self._site.backoff.after(self._failures)
        else:
            self._finish(now)

    def _resting(self, now: int) -> None:
        if not self._site.may_retry(self):
            self._finish(now)
        elif now >= self._until_ms:
            self._open(now)

    def _finish(self, now: int) -> None:
        outcome, text = self._after or (Outcome.UNFINISHED, _EPOCH_ENDED)
        self.result.outcome, self.result.error = outcome, text or None
        self.result.seconds = max(0.001, (now - self._began_ms) / 1000)
        if outcome is Outcome.UNFINISHED:
            self.result.stuck_since_ms = self._clock.since_ms
        self.stage = Stage.DONE

    def wind_up(self, now: int, *, at_once: bool) -> None:
        """The epoch ends: what is acknowledged is committed, the rest dropped with its transaction.

        ``at_once``: what is not committed by now is dropped.
        """
        if not self._winding_up or at_once:
            self._winding_up = True
            waits = {Stage.OPENING, Stage.SETTLING, Stage.LOOKING} | ({Stage.COPYING} if at_once else set())
            if self.stage in waits:
                self._drop(now, (Outcome.UNFINISHED, _EPOCH_ENDED))
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
        state: SourceState = future.result()
        assert self._known is not None  # noqa: S101 - reading begins at it
        error = self._reading.error
        diverging = error.diverging_offset if isinstance(error, LogTruncated) else None
        gap = classify(self._known, state.topic_id, state.earliest, state.end, diverging=diverging)
        if gap is None:
            self._looks += 1
            if self._looks > _LOOKS and error is not None:
                raise as_mirror_error(error)
            self._read(self._known, now, must_commit=False)
            return
        if self._policy.on_gap != "skip":
            raise FlowError(f"{self.source}: {gap}; {gap.advice()}")
        add_to(self.result.gaps, {gap.kind: gap.lost})
        self._topic_id = state.topic_id
        self._reading.end = max(gap.resume, min(self._reading.end, state.end))
        resumed = self._progress(gap.resume, None)
        self._read(resumed, now, must_commit=True)

    _STEPS: ClassVar[dict[Stage, Callable[[PartitionCopy, int], None]]] = {
        Stage.OPENING: _opening,
        Stage.SETTLING: _settling,
        Stage.COPYING: _copying,
        Stage.LOOKING: _looking,
        Stage.DROPPING: _dropping,
        Stage.RESTING: _resting,
        Stage.DONE: lambda _copy, _now: None,
    }


def _placed(error: MirrorError, source: TopicPartition) -> MirrorError:
    if isinstance(error, CorruptBatch):
        advice = "mend the source's log, or make another replica the leader"
        return CorruptBatch(f"{source}: {error}; nothing from there on was copied: {advice}")
    if str(source) in str(error):
        return error
    return FlowError(f"{source}: {error}")


def _epoch(leader_epoch: int | None) -> int:
    return -1 if leader_epoch is None else leader_epoch


def add_to(total: dict[str, int], counted: Mapping[str, int]) -> None:
    """Add up by key; a key that counts nothing is shown all the same."""
    for key, count in counted.items():
        total[str(key)] = total.get(str(key), 0) + count
