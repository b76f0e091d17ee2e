"""The copy of one range: a state machine that never waits. Futures and times go in, calls to `CopyContext` come out.

::

    OPENING ──► RESOLVING_PROGRESS ──► COPYING ◄──► CHECKING_SOURCE (what the source still has)
       ▲                                  │
       │                                  ▼
    BACKING_OFF ◄──────────────────── ABORTING ──► DONE

Every recovery is the same: close the writer, open another one, which fences the old one, read the progress, and resume
there. The stages of an attempt (``opening``, ``copying``, ``ending``) contain the transitions inside them; this file
contains those between them. ``attempt_outcome``, ``retry``, ``gap_check`` and ``target_check`` decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import MirrorError
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.trace_parents import TraceParents
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.offsets.runs import AppendedRuns
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.attempts.outbox import CommitCounts
from mirror.relay.partition.context import CopyContext
from mirror.relay.partition.machine.copying import Copying
from mirror.relay.partition.machine.ending import Ending
from mirror.relay.partition.machine.opening import Opening, planned_progress
from mirror.relay.partition.parts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.parts.commit_recorder import CommitRecorder
from mirror.relay.partition.parts.copy_parts import make_parts
from mirror.relay.partition.states import PHASE_OF_STATE, CopyState
from mirror.relay.progress.committed import Progress, StartChanged
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits
    from mirror.relay.partition.writers.target_writer import TargetWriter

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
        self._stage: Opening | Copying | Ending | None = None
        self._planned = planned_progress(copied, progress)
        self._retry.on_attempt_begun()
        self._open(now)

    # --- queries

    @property
    def state(self) -> CopyState:
        """The state; each stage of an attempt changes its own."""
        return CopyState.DONE if self._stage is None else self._stage.state

    @property
    def result(self) -> RangeResult:
        """The result; final when the copy is :attr:`done`."""
        return self.recorder.result

    def result_at(self, now: int) -> RangeResult:
        """Return what has come of the copy by ``now``; without the timeline, unless it is :attr:`done`."""
        if self.done:
            return self.result
        return self._retry.result_at(now, self._copying, self._context.timeouts.commit_interval_ms)

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
    def copied_topic_id(self) -> str:
        """The id of the source topic that the progress belongs to; empty if unknown."""
        return self.recorder.copied_topic_id

    @property
    def read_topic_id(self) -> str:
        """The id of the source topic that is read; empty if unknown."""
        return self.recorder.topic_id

    @property
    def appends(self) -> AppendedRuns:
        """Gathers the offsets of what is acknowledged, over all attempts."""
        return self._parts.indexing.runs

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
        stage = self._stage
        return stage.attempt if isinstance(stage, Copying) else None

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        stage = self._stage
        if isinstance(stage, Copying):
            return stage.due_ms(now)
        return stage.until_ms if isinstance(stage, Ending) else FOREVER_MS

    def release(self) -> None:
        """Free what it holds, once its result and its progress were taken. It must not be stepped any more.

        It refers to its parts, and they to it: without this they would be freed by a collection only, which stops all
        threads. Callbacks of requests in flight may still call it.
        """
        self._stage = None
        for part in ("_context", "_parts", "_reader", "_retry", "_commits", "_opening", "_writer"):
            delattr(self, part)

    # --- the source's responses

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take a fetch's batches, or its error."""
        if (attempt := self._copying) is None or self.winding_up:
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

    def on_source_response(self, at_ms: int, end: int | None = None) -> None:
        """The source answered a fetch at ``at_ms``, and ends at offset ``end`` (None: unknown)."""
        if (attempt := self._copying) is None:
            return
        if at_ms > self._reader.last_response_ms:
            self._reader.last_response_ms, self._retry.last_failure = at_ms, None
        if end is not None and self.awaits_first_response and self._reader.confirm_end(end):
            self.recorder.on_nothing_to_fetch(attempt, self._reader)

    def on_source_throttled(self, until_ms: int, now: int) -> None:
        """The source's broker returns no records before ``until_ms``, as a quota is exceeded (KIP-219)."""
        if self.state is CopyState.COPYING:
            self._reader.on_throttled(until_ms, now)

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
                self._step_stage(now)
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

    def _step_stage(self, now: int) -> None:
        stage = self._stage
        if isinstance(stage, Copying):
            self._step_copying(stage, now)
        elif isinstance(stage, Opening):
            self._step_opening(stage, now)
        elif stage is not None and stage.state is not CopyState.DONE:
            self._step_ending(stage, now)

    # --- transitions

    def _open(self, now: int) -> None:
        """Begin an attempt."""
        parts = self._parts
        self._writer: TargetWriter = self._context.new_writer(self, parts.way)
        self._commits.begin(None, self._writer)
        if self._retry.last_failure is not None:
            self._reader.pipeline.forget_refusals()
        planned, self._planned = self._planned, None  # later attempts read what the first one has committed
        self._stage = self._opening = Opening(parts, self._writer, now, planned)

    def _step_opening(self, opening: Opening, now: int) -> None:
        opened = opening.step(now)
        if opened is not None:
            self._stage = copying = Copying(self._parts, self._commits, opening, self._writer, opened)
            copying.begin(now)

    def _step_copying(self, copying: Copying, now: int) -> None:
        end = copying.step(now)
        if end is None:
            return
        if end.changes_way:
            self._close_attempt(now, changes_way=True)
        else:
            self._end_attempt(now, end.outcome, end.reason)

    def _step_ending(self, ending: Ending, now: int) -> None:
        ending.step(now)
        if ending.state is CopyState.OPENING:
            self._open(now)

    def _fail(self, error: BaseException, now: int) -> None:
        if isinstance(self._stage, Copying):
            self._stage.note_acquisition()
        self._end_attempt(now, self._parts.failures.outcome_of(error), str(error))

    def _end_attempt(self, now: int, outcome: AttemptOutcome | None, reason: str = "") -> None:
        """End this attempt; ``outcome`` and ``reason`` as in :meth:`RetryController.on_attempt_ended`."""
        attempt = self._copying
        since_ms = self._opening.waiting_since_ms if attempt is None else attempt.undelivered_since_ms
        if self.state is CopyState.CHECKING_SOURCE:
            since_ms = None  # it is the source that the copy waits for
        self._retry.on_attempt_ended(outcome, reason, None if since_ms is None else now - since_ms)
        self._close_attempt(now)

    def _close_attempt(self, now: int, *, changes_way: bool = False) -> None:
        self._stage = ending = Ending(self._parts, self._writer, self._copying, now, changes_way=changes_way)
        ending.begin(now)

    # --- commits

    def progress_at(self, offset: int, leader_epoch: int | None) -> Progress:
        """Make the progress to commit at ``offset``, with the mark of the target's log."""
        return self._commits.progress_at(offset, leader_epoch)

    def on_acquired(self, progress: Progress) -> None:
        """The present attempt has acquired the partition, and its progress is exact."""
        self._parts.target_check.tracker.on_committed(progress.target)
        self.recorder.on_acquired(progress)

    def on_committed(self, counts: CommitCounts) -> None:
        """Record a commit of the present attempt."""
        self._commits.on_committed(counts)
        if self.state is CopyState.COPYING:
            self._parts.failures.on_committed()
            self._retry.trouble = None

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
        attempt = self._copying
        fence_ended = attempt is not None and attempt.used_fence_until_ms <= self._context.unix_ms()
        return fence_ended or self.recorder.is_renewal_due(self._parts.policy.renew_ms)

    def renew(self) -> bool:
        """Begin another attempt with the next step if :attr:`renewal_due`; return whether.

        It commits the progress again. By sequences only a fence writes the claim, and only a new attempt fences. An
        attempt that has more to send goes on, and is asked again later.
        """
        attempt = self._copying
        if attempt is None or not self.renewal_due:
            return False
        attempt.end_when_committed()
        return True

    # --- the end

    def wind_up(self, now: int, *, immediately: bool) -> None:
        """End in order: commit what is acknowledged, and abort the rest.

        A copy that is still opening completes that first: only then does it know whether anything was to be copied.
        ``immediately``: abort what is not committed by now.
        """
        if not self.winding_up or immediately:
            self._retry.winding_up = True
            if self.state is CopyState.CHECKING_SOURCE or (immediately and self.state in _ENDED_IMMEDIATELY):
                # An attempt that has not ended yet does not change how the one before it has ended.
                # A new leader of the target that does not answer holds up nothing if no commit waits for it.
                attempt = self._copying
                complete = attempt is not None and self.range.open_ended and attempt.is_complete
                self._end_attempt(now, self._retry.outcome_now(complete=complete))
        self.step(now)
