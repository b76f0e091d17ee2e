"""The state machine of a partition's copy: it never waits. Futures and times go in, calls to `CopyContext` come out.

::

    OPENING ──► RESOLVING_PROGRESS ──► COPYING ◄──► CHECKING_SOURCE (what the source still has)
       ▲ ▲                                │
       │ └────────── (at once) ────────┐  ▼
    BACKING_OFF ◄──────────────────── ABORTING ──► DONE

Every recovery is the same: close the writer, open another one, which fences the old one, read the progress, and resume
there. What follows from what is in one table, :mod:`mirror.relay.partition.states`. The stages of an attempt
(``opening``, ``copying``, ``ending``) observe what happens, and do what follows; ``attempt_outcome``, ``retry``,
``gap_check`` and ``target_check`` decide.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mirror.errors import MirrorError
from mirror.relay.futures import as_mirror_error
from mirror.relay.partition.across_attempts.commit_recorder import CommitRecorder
from mirror.relay.partition.across_attempts.copy_parts import CopyParts
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS
from mirror.relay.partition.machine.copying import AttemptEnd, Copying
from mirror.relay.partition.machine.ending import Ending
from mirror.relay.partition.machine.opening import Opening
from mirror.relay.partition.states import (
    FIRST,
    PHASE_OF_STATE,
    CopyAction,
    CopyEvent,
    CopyState,
    following,
)
from mirror.relay.progress.committed import Progress
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter

_ENDING: Final = frozenset({CopyState.ABORTING, CopyState.BACKING_OFF})
"""The states that last no longer than some time."""

_UNRECORDED: Final = frozenset({CopyState.BACKING_OFF, CopyState.DONE})
"""The states in which an error does not become the outcome of an attempt; its writer is closed."""

_log: Final = logging.getLogger(__name__)


class CopyMachine:
    """The state of one copy, and the stages of its present attempt."""

    def __init__(self, parts: CopyParts, planned: Progress | None, now: int) -> None:
        """``planned`` is that with which the first attempt may begin."""
        self._parts: Final = parts
        self._commits: Final = CommitRecorder(parts)
        self._planned = planned
        self._copying: Copying | None = None
        self._opening: Opening
        self._ending: Ending
        self._writer: TargetWriter
        self.state, begin = FIRST
        """What its table says: :mod:`mirror.relay.partition.states`."""
        self._act(begin, now)

    @property
    def attempt(self) -> CopyAttempt | None:
        """What reads and sends now; None if nothing does. Network threads read it, too."""
        copying = self._copying
        return None if copying is None else copying.attempt

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        if self._copying is not None:
            return self._copying.due_ms(now)
        return self._ending.until_ms if self.state in _ENDING else FOREVER_MS

    def release(self) -> None:
        """Free the stages, which refer to the copy; nothing is to be stepped any more.

        If the task has failed before the copy has ended, its writer is closed: an open transaction is aborted.
        """
        if self.state not in _UNRECORDED and not (self.state is CopyState.ABORTING and self._ending.is_closed):
            self._writer.close(ABORT_TIMEOUT_MS)
        self.state, self._copying = CopyState.DONE, None
        self._commits.begin(None, self._writer)  # it and the last attempt refer to each other
        for part in ("_parts", "_commits", "_opening", "_ending", "_writer"):
            self.__dict__.pop(part, None)

    # --- events

    def step(self, now: int) -> None:
        """Make all the progress that is possible without waiting."""
        self._advance(None, now)

    def stop(self, now: int, *, immediately: bool) -> None:
        """End the copy, in order or now, as the table says; nothing more begins."""
        self._advance(CopyEvent.STOP_NOW if immediately else CopyEvent.STOP, now)

    def _advance(self, event: CopyEvent | None, now: int) -> None:
        """Take ``event`` if there is one, and then all that happens without waiting.

        It ends: an error in ABORTING leads to BACKING_OFF, where the next one has the copy wait.
        """
        while True:
            try:
                event = event or self._observe(now)
                if event is None:
                    break
                self.state, action = following(self.state, event)
                event = None
                self._act(action, now)
            except Exception as error:  # noqa: BLE001 - it ends this copy's attempt, and no other copy
                if not isinstance(error, MirrorError) or self.state in _UNRECORDED:
                    source, state = self._parts.copy.source, self.state.value
                    _log.exception("%s: unexpected error while %s; the other partitions continue", source, state)
                self._error, event = as_mirror_error(error), CopyEvent.FAILED
        recorder, attempt = self._parts.recorder, self.attempt
        if attempt is not None:
            recorder.on_step(attempt, self._parts.reader, now)
        elif self.state is not CopyState.DONE:
            recorder.timeline.enter(PHASE_OF_STATE[self.state], now)

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

    def _act(self, action: CopyAction, now: int) -> None:  # noqa: C901 - one case for each
        match action:
            case CopyAction.BEGIN_ATTEMPT:
                self._parts.retry.on_attempt_begun()
                self._open(now)
            case CopyAction.OPEN:
                self._open(now)
            case CopyAction.RESOLVE:
                self._opening.resolve(now)
            case CopyAction.READ:
                self._present.read(now)
            case CopyAction.CHECK_SOURCE:
                self._present.check_source(now)
            case CopyAction.END_ATTEMPT | CopyAction.FAIL_ATTEMPT | CopyAction.STOP_ATTEMPT:
                self._end_attempt(action, now)
            case CopyAction.CLOSE:
                self._ending.close(now)
            case CopyAction.ABANDON:
                failed = self._failed()
                self._parts.retry.on_attempt_ended(failed.outcome, failed.reason, None)
                self._ending.abandon(now)
            case CopyAction.WAIT:
                self._ending.wait(now)
            case CopyAction.PAUSE:
                self._ending.pause(now)
            case CopyAction.FINISH:
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
        self._writer = parts.context.new_writer(parts.copy, parts.way)
        self._commits.begin(None, self._writer)
        if parts.retry.last_failure is not None:
            parts.reader.pipeline.forget_refusals()
        planned, self._planned = self._planned, None  # later attempts read what the first one has committed
        self._opening = Opening(parts, self._writer, now, planned)

    def _end_attempt(self, action: CopyAction, now: int) -> None:
        copying, self._copying = self._copying, None
        attempt = None if copying is None else copying.attempt
        self._ending = Ending(self._parts, self._commits, self._writer, attempt, now)  # abandoned if the rest fails
        if copying is not None:
            copying.note_acquisition()
        if copying is not None and action is CopyAction.END_ATTEMPT:
            end = copying.end
        elif action is CopyAction.STOP_ATTEMPT:
            end = self._stopped(attempt)
        else:
            end = self._failed()
        if not end.changes_way:
            self._parts.retry.on_attempt_ended(end.outcome, end.reason, self._waited_ms(copying, now))
        self._ending.begin(now, changes_way=end.changes_way)

    def _failed(self) -> AttemptEnd:
        return AttemptEnd(self._parts.failures.outcome_of(self._error), str(self._error))

    def _stopped(self, attempt: CopyAttempt | None) -> AttemptEnd:
        # A new leader of the target that does not answer holds up nothing if no commit waits for it.
        complete = attempt is not None and self._parts.copy.range.open_ended and attempt.is_complete
        return AttemptEnd(self._parts.retry.outcome_now(complete=complete))

    def _finish(self, now: int) -> None:
        parts = self._parts
        parts.retry.close(now)  # first: without a final result, what was copied would be reported as unfinished
        parts.context.keep_segments(parts.copy, parts.indexing.take_rest())

    def _waited_ms(self, copying: Copying | None, now: int) -> int | None:
        """Return how long the first undelivered batch of an attempt that ends has waited; None if there is none."""
        if copying is None:
            since_ms = self._opening.waiting_since_ms
        else:  # without an attempt it is the source for which the copy waits
            since_ms = None if copying.attempt is None else copying.attempt.undelivered_since_ms
        return None if since_ms is None else now - since_ms
