"""The copy of one range: a state machine that never waits. Futures and times go in, calls to `CopyContext` come out.

::

    OPENING ──► RESOLVING_PROGRESS ──► COPYING ◄──► CHECKING_SOURCE (what the source still has)
       ▲                                  │
       │                                  ▼
    BACKING_OFF ◄──────────────────── ABORTING ──► DONE

Every recovery is the same: close the writer, open another one, which fences the old one, read the progress, and resume
there. What follows from what is in one table, :mod:`mirror.relay.partition.states`. The stages of an attempt
(``opening``, ``copying``, ``ending``) observe what happens, and do what follows; ``attempt_outcome``, ``retry``,
``gap_check`` and ``target_check`` decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.errors import MirrorError
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.trace_parents import TraceParents
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.context import CopyContext
from mirror.relay.partition.machine.copying import AttemptEnd, Copying
from mirror.relay.partition.machine.ending import Ending
from mirror.relay.partition.machine.opening import Opening, planned_progress
from mirror.relay.partition.parts.commit_recorder import CommitRecorder
from mirror.relay.partition.parts.copy_parts import make_parts
from mirror.relay.partition.states import (
    FIRST,
    PHASE_OF_STATE,
    CopyAction,
    CopyEvent,
    CopyState,
    UnknownEvent,
    following,
)
from mirror.relay.progress.committed import Progress
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits
    from mirror.relay.partition.writers.target_writer import TargetWriter

_ENDING: Final = frozenset({CopyState.ABORTING, CopyState.BACKING_OFF})
"""The states that last no longer than some time."""

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
        progress: Progress | None = None,
    ) -> None:
        """``rules`` say which way batches go exactly once; None: in transactions. ``progress`` was read before."""
        self.range: Final = copied
        self.source: Final = TopicPartition(copied.topic, copied.partition)
        self.target: Final = TopicPartition(copied.target_topic, copied.partition)
        self._context: Final = context
        self._parts: Final = make_parts(self, policy, limits, batch_size, context, now, rules)
        self.recorder: Final = self._parts.recorder
        self._reader: Final = self._parts.reader
        self._retry: Final = self._parts.retry
        self._commits: Final = CommitRecorder(self._parts)
        self._traces: Final = TraceParents(now)
        self._planned = planned_progress(copied, progress)
        self._copying: Copying | None = None
        self._opening: Opening
        self._ending: Ending
        self._writer: TargetWriter
        self.state, begin = FIRST
        """What its table says: :mod:`mirror.relay.partition.states`."""
        self._act(begin, now)

    # --- queries

    @property
    def result(self) -> RangeResult:
        """The result; final when the copy is :attr:`done`."""
        return self.recorder.result

    def result_at(self, now: int) -> RangeResult:
        """Return what has come of the copy by ``now``; without the timeline, unless it is :attr:`done`."""
        if self.done:
            return self.result
        return self._retry.result_at(now, self._attempt, self._context.timeouts.commit_interval_ms)

    @property
    def failing(self) -> bool:
        """Whether its last attempt has failed, and none has committed or caught up since."""
        return self._retry.trouble is not None

    @property
    def done(self) -> bool:
        """Whether :attr:`result` is final."""
        return self.state is CopyState.DONE

    @property
    def expired(self) -> bool:
        """Whether it has expired, and has committed nothing since."""
        return self._parts.failures.expiries > 0

    @property
    def winding_up(self) -> bool:
        """Whether it is to end: nothing more is sent, and what is acknowledged is committed."""
        return self._retry.winding_up

    @property
    def wants_more(self) -> bool:
        """Whether it can use more of the source."""
        attempt = self._attempt
        return attempt is not None and attempt.wants_more

    @property
    def held_bytes(self) -> int:
        """Fetched bytes that it still needs."""
        return self._reader.held_bytes

    @property
    def awaits_acknowledgement(self) -> bool:
        """Whether an acknowledgement should wake the task."""
        attempt = self._attempt
        return attempt is not None and attempt.awaits_acknowledgement

    @property
    def awaits_first_response(self) -> bool:
        """Whether it reads, and the source has not reported its end yet."""
        return self._attempt is not None and self._reader.last_stable_offset == FOREVER_MS

    @property
    def _attempt(self) -> CopyAttempt | None:
        """What reads and sends now; None if nothing does. Network threads read it, too."""
        copying = self._copying
        return None if copying is None else copying.attempt

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        if self._copying is not None:
            return self._copying.due_ms(now)
        return self._ending.until_ms if self.state in _ENDING else FOREVER_MS

    def release(self) -> None:
        """Free what it holds, once its result and its progress were taken. It must not be stepped any more.

        It refers to its parts, and they to it: without this they would be freed by a collection only, which stops all
        threads. Callbacks of requests in flight may still call it.
        """
        self.state, self._copying = CopyState.DONE, None
        for part in ("_context", "_parts", "_reader", "_retry", "_commits", "_opening", "_ending", "_writer"):
            self.__dict__.pop(part, None)

    # --- the source's responses

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take a fetch's batches, or its error."""
        if (attempt := self._attempt) is None or self.winding_up:
            return
        trace = self._traces.sample(fetched, now)  # before the reader, which releases what it does not want
        self._reader.on_fetched(fetched, now)
        attempt.budget_exhausted = False
        if trace is not None:
            self.recorder.timeline.add_trace(trace)
        if self._reader.error is None:
            self._parts.gap_check.on_fetched()
            self.recorder.set_topic_id(str(fetched.topic_id or ""))
            self._retry.last_failure = None
        if self._reader.ended:
            self._context.stop_reading(self)
        self.step(now)

    def on_source_response(self, response: LastResponse, now: int) -> None:
        """This is the last response of the source's broker.

        A source that throttles the client has not stalled (KIP-219), nor has a followed one that has nothing new.
        """
        attempt, reader = self._attempt, self._reader
        if attempt is None:
            return
        if not self.range.open_ended:
            if response.throttled_until_ms > 0:
                reader.on_throttled(response.throttled_until_ms, now)
            return
        if response.at_ms > reader.last_response_ms:
            reader.last_response_ms, self._retry.last_failure = response.at_ms, None
        if response.end is not None and self.awaits_first_response and reader.confirm_end(response.end):
            self.recorder.on_nothing_to_fetch(attempt, reader)

    def on_fetch_skipped(self, now: int, *, budget_exhausted: bool = False) -> None:
        """Nothing is fetched at ``now``: the source cannot be blamed for its silence."""
        if (attempt := self._attempt) is not None:
            self._reader.last_response_ms = max(now, self._reader.last_response_ms)
            attempt.budget_exhausted = attempt.budget_exhausted or budget_exhausted

    # --- steps

    def step(self, now: int) -> None:
        """Make all the progress that is possible without waiting."""
        happens = True
        while happens:
            try:
                event = self._observe(now)
                happens = event is not None
                if event is not None:
                    self._take(event, now)
            except UnknownEvent:
                raise
            except MirrorError as error:
                self._fail(error, now)
            except Exception as error:  # noqa: BLE001 - it is logged, and ends this copy, and no other
                _log.exception("%s: unexpected error; this partition's copy fails, the others continue", self.source)
                self._fail(as_mirror_error(error), now)
        if (attempt := self._attempt) is not None:
            self.recorder.on_step(attempt, self._reader, now)
        elif not self.done:
            self.recorder.timeline.enter(PHASE_OF_STATE[self.state], now)

    def wind_up(self, now: int, *, immediately: bool) -> None:
        """End in order: commit what is acknowledged, and abort the rest; ``immediately``: what is not committed by now.

        A copy that is still opening completes that first: only then does it know whether anything was to be copied.
        """
        self._retry.winding_up = True
        self._take(CopyEvent.STOP_NOW if immediately else CopyEvent.STOP, now)
        self.step(now)

    def _take(self, event: CopyEvent, now: int) -> None:
        """Go on to what follows from ``event``. Raises UnknownEvent if it cannot happen now."""
        self.state, action = following(self.state, event)
        self._act(action, now)

    def _fail(self, error: BaseException, now: int) -> None:
        self._error = error
        self._take(CopyEvent.FAILED, now)

    def _observe(self, now: int) -> CopyEvent | None:  # noqa: PLR0911 - one for each state
        """Return what happens in the present state; None: nothing yet."""
        match self.state:
            case CopyState.COPYING:
                return self._present.advance(now)
            case CopyState.OPENING:
                return self._opening.take_progress(now)
            case CopyState.RESOLVING_PROGRESS:
                return self._opening.take_start(now)
            case CopyState.CHECKING_SOURCE:
                return self._present.take_source()
            case CopyState.ABORTING:
                return self._ending.take_end(now)
            case CopyState.BACKING_OFF:
                return self._ending.take_backoff(now)
            case CopyState.DONE:
                return None

    def _act(self, action: CopyAction, now: int) -> None:  # noqa: C901, PLR0912 - one case for each
        match action:
            case CopyAction.BEGIN_ATTEMPT:
                self._retry.on_attempt_begun()
                self._open(now)
            case CopyAction.OPEN:
                self._open(now)
            case CopyAction.RESOLVE:
                self._opening.resolve(now)
            case CopyAction.READ:
                self._present.read(now)
            case CopyAction.CHECK_SOURCE:
                self._present.check_source(now)
            case CopyAction.END_ATTEMPT:
                self._end_attempt(self._present.end, now)
            case CopyAction.FAIL_ATTEMPT:
                self._end_attempt(self._failed(), now)
            case CopyAction.STOP_ATTEMPT:
                self._end_attempt(self._stopped(), now)
            case CopyAction.CLOSE:
                self._ending.close(now)
            case CopyAction.WAIT:
                self._ending.wait(now)
            case CopyAction.FINISH:
                self._finish(now)
            case CopyAction.FAIL:
                self._retry.on_attempt_ended(*self._failed()[:2], None)
                self._finish(now)
            case CopyAction.GO_ON:
                pass

    @property
    def _present(self) -> Copying:
        """What the present attempt copies, from when it is opened to its end."""
        if self._copying is None:
            self._copying = Copying(self._parts, self._commits, self._opening, self._writer)
        return self._copying

    # --- what is done

    def _open(self, now: int) -> None:
        parts = self._parts
        self._writer = self._context.new_writer(self, parts.way)
        self._commits.begin(None, self._writer)
        if self._retry.last_failure is not None:
            self._reader.pipeline.forget_refusals()
        planned, self._planned = self._planned, None  # later attempts read what the first one has committed
        self._opening = Opening(parts, self._writer, now, planned)

    def _failed(self) -> AttemptEnd:
        if self._copying is not None:
            self._copying.note_acquisition()
        return AttemptEnd(self._parts.failures.outcome_of(self._error), str(self._error))

    def _stopped(self) -> AttemptEnd:
        # A new leader of the target that does not answer holds up nothing if no commit waits for it.
        attempt = self._attempt
        complete = attempt is not None and self.range.open_ended and attempt.is_complete
        return AttemptEnd(self._retry.outcome_now(complete=complete))

    def _end_attempt(self, end: AttemptEnd, now: int) -> None:
        copying, self._copying = self._copying, None
        attempt = None if copying is None else copying.attempt
        if copying is not None:
            copying.note_acquisition()
        if not end.changes_way:
            self._retry.on_attempt_ended(end.outcome, end.reason, self._waited_ms(copying, now))
        self._ending = Ending(self._parts, self._commits, self._writer, attempt, now, changes_way=end.changes_way)

    def _finish(self, now: int) -> None:
        self._context.keep_segments(self, self._parts.indexing.take_rest())
        self._retry.close(now)

    def _waited_ms(self, copying: Copying | None, now: int) -> int | None:
        """Return how long the first undelivered batch of an attempt that ends has waited; None if there is none."""
        if copying is None:
            since_ms = self._opening.waiting_since_ms
        else:  # without an attempt it is the source for which the copy waits
            since_ms = None if copying.attempt is None else copying.attempt.undelivered_since_ms
        return None if since_ms is None else now - since_ms

    # --- while it lives long

    def forget_refusals(self) -> None:
        """Let what a refusal reaches begin small again."""
        self._reader.pipeline.remedies.forget_reach()

    def set_rules(self, limits: TargetLimits, rules: WayRules | None) -> None:
        """Copy by these rules from now on."""
        self._reader.pipeline.set_limits(limits)
        if self._parts.choice is not None and rules is not None:
            self._parts.choice.set_rules(rules)

    @property
    def renewal_due(self) -> bool:
        """Whether brokers may forget the progress soon, or the fence under which something was sent serves no longer.

        The next record would wait for another fence. A partition that has nothing to copy needs none until then.
        """
        attempt = self._attempt
        fence_ended = attempt is not None and attempt.used_fence_until_ms <= self._context.unix_ms()
        return fence_ended or self.recorder.is_renewal_due(self._parts.policy.renew_ms)

    def renew(self) -> bool:
        """Begin another attempt with the next step if :attr:`renewal_due`; return whether.

        It commits the progress again. By sequences only a fence writes the claim, and only a new attempt fences. An
        attempt that has more to send goes on, and is asked again later.
        """
        attempt = self._attempt
        if attempt is None or not self.renewal_due:
            return False
        attempt.end_when_committed()
        return True
