"""Copies the range in one attempt that is open: reads and sends, and asks the source if it has nothing. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.errors import CorruptBatch, LogTruncated, OffsetOutOfRange
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.attempts.owner import Advance
from mirror.relay.partition.expiries import DeliveryFailed, TargetShrank, unreadable
from mirror.relay.partition.machine.opening import Opened, Opening
from mirror.relay.partition.parts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.parts.commit_recorder import CommitRecorder
from mirror.relay.partition.parts.copy_parts import CopyParts
from mirror.relay.partition.states import CopyState, result_of
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.target_loss import LossKind
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.partition.writers.target_writer import TargetWriter


class AttemptEnd(NamedTuple):
    """How an attempt ends; ``outcome`` and ``reason`` as in :meth:`.retry.RetryController.on_attempt_ended`."""

    outcome: AttemptOutcome | None = None
    reason: str = ""
    changes_way: bool = False
    """Whether the same attempt continues the other way."""


class Copying:
    """The states COPYING and CHECKING_SOURCE of one attempt: :meth:`begin`, then :meth:`step` until it returns an end.

    Each place at which it begins to read has a :class:`CopyAttempt`.
    """

    def __init__(
        self, parts: CopyParts, commits: CommitRecorder, opening: Opening, writer: TargetWriter, opened: Opened
    ) -> None:
        """``opening`` has opened ``writer``, and found out what is ``opened``."""
        self.state = CopyState.COPYING
        self.last: CopyAttempt | None = None
        """What reads, or has read before the source was checked."""
        self._parts: Final = parts
        self._commits: Final = commits
        self._opening: Final = opening
        self._writer: Final = writer
        self._opened: Final = opened
        self._loss = opened.loss
        """What the target has lost, while the attempt has not found the position behind what still stands."""

    # --- queries

    @property
    def attempt(self) -> CopyAttempt | None:
        """What reads now; None in the state CHECKING_SOURCE. Network threads read it, too."""
        return self.last if self.state is CopyState.COPYING else None

    @property
    def _current(self) -> CopyAttempt:
        assert self.last is not None  # noqa: S101 - there is one in the state COPYING
        return self.last

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        return FOREVER_MS if self.attempt is None else self.attempt.due_ms(now)

    # --- begin

    def begin(self, now: int) -> None:
        """Begin where the attempt was opened."""
        opened, parts = self._opened, self._parts
        progress = opened.progress
        if opened.loss is not None and opened.loss.kind is LossKind.RECREATED:
            self._loss, self._commits.mended = None, (opened.loss, progress.offset)
        if parts.recorder.is_of_recreated_topic(progress) or progress.offset > parts.reader.end:
            self._check_source()  # behind the planned end: the plan is old, or the source's log was cut back
        else:
            self._read(progress, now, commit_required=opened.commit_required)

    def _read(self, progress: Progress, now: int, *, commit_required: bool) -> None:
        self.state = CopyState.COPYING
        parts = self._parts
        parts.recorder.set_topic_id(progress.topic_id)
        parts.anchors.begin_at(progress)
        again = self._commits.mended is not None
        rest = parts.indexing.begin_at(progress, again=again, atomic=self._writer.atomic)
        parts.context.keep_segments(parts.copy, rest)
        self.last = CopyAttempt(
            parts.copy,
            parts.context,
            self._writer,
            parts.reader,
            parts.choice,
            progress,
            commit_required=commit_required,
            loss=self._loss,
            now=now,
        )
        self._commits.begin(self.last, self._writer)
        if not (parts.reader.ended or parts.copy.winding_up):
            parts.context.read_from(parts.copy, progress.offset, progress.leader_epoch, parts.recorder.topic_id)

    # --- read and send

    def step(self, now: int) -> AttemptEnd | None:
        """Make all the progress that is possible without waiting; return how the attempt ends, if it does.

        Raises StartChanged if another attempt has changed the progress, MirrorError for what else ends the attempt.
        """
        if self.state is CopyState.CHECKING_SOURCE:
            self._step_checking_source(now)
            return None
        advanced = self._advance(now)
        while advanced is Advance.MOVES:
            self._resume_at(now)
            advanced = self._advance(now)
        if isinstance(advanced, AttemptEnd):
            return advanced
        if advanced is Advance.CHANGES_WAY:
            self.note_acquisition()
            return AttemptEnd(changes_way=True)
        return self._on_advanced(now, copied=advanced is Advance.COPIED)

    def _advance(self, now: int) -> Advance | AttemptEnd:
        """Return what follows, or how the attempt has failed."""
        parts, attempt = self._parts, self._current
        try:
            parts.target_check.update(attempt, self._writer, now, ended=parts.reader.ended)
            return attempt.advance(now)
        except TargetShrank as shrank:
            parts.target_check.tracker.regression = attempt.outbox.regression
            return AttemptEnd(None, str(shrank))
        except DeliveryFailed as failure:
            self.note_acquisition()
            committing_ms = now - attempt.commits.uncommitted_since_ms
            outcome = parts.failures.delivery_outcome(
                failure, committed=attempt.commits.committed.offset, committing_ms=committing_ms
            )
            return AttemptEnd(outcome, str(failure))

    def _on_advanced(self, now: int, *, copied: bool) -> AttemptEnd | None:
        """Decide whether the attempt goes on; ``copied``: everything is copied and committed."""
        parts, attempt = self._parts, self._current
        reader, commits = parts.reader, attempt.commits
        if reader.ended:
            parts.context.stop_reading(parts.copy)
        if parts.retry.trouble is not None and reader.caught_up and attempt.is_complete:
            parts.retry.trouble = None
        corrupt = copied and isinstance(reader.error, CorruptBatch)
        if copied and reader.error is None:
            return AttemptEnd(AttemptOutcome(Outcome.COMPLETE))
        # It waits for its answers: the next copy of the partition then begins at an exact position.
        if parts.copy.winding_up and attempt.outbox.empty and attempt.nothing_to_commit and (corrupt or not copied):
            complete = parts.copy.range.open_ended and not attempt.waits_to_send
            return AttemptEnd(parts.retry.outcome_now(complete=complete))
        if copied and isinstance(reader.error, (OffsetOutOfRange, LogTruncated)):
            self._check_source()
        elif corrupt and parts.gap_check.may_refetch(commits.committed.offset):
            self._read(commits.committed, now, commit_required=False)
        elif copied and reader.error is not None:
            raise unreadable(as_mirror_error(reader.error), parts.copy.source, commits.committed.offset)
        elif attempt.source_stalled(now):
            self._check_source(stalled=True)
        return None

    def _resume_at(self, now: int) -> None:
        """Resume behind what earlier attempts have appended, and count it with the first commit."""
        parts, found = self._parts, self._current.found
        assert found is not None  # noqa: S101 - the attempt has found it
        parts.target_check.tracker.on_committed(found.progress.target)
        parts.recorder.begin_at(found.progress)
        if found.loss is not None:
            self._loss, self._commits.mended = None, (found.loss, found.progress.offset)
            parts.recorder.resume_behind_loss(found.progress.offset)
        self._read(found.progress, now, commit_required=True)
        self._current.outbox.counts.add_totals(found.appended)

    # --- gaps

    def _check_source(self, *, stalled: bool = False) -> None:
        parts = self._parts
        self.state = CopyState.CHECKING_SOURCE
        parts.gap_check.begin(stalled=stalled)
        parts.context.stop_reading(parts.copy)
        parts.call.begin(parts.context.source_state(parts.copy))

    def _step_checking_source(self, now: int) -> None:
        parts = self._parts
        future = parts.call.pop_done()
        if future is None:
            return
        state: SourceState = result_of(future)
        recorder, gap_check = parts.recorder, parts.gap_check
        assert recorder.progress is not None  # noqa: S101 - reading begins at it
        progress = replace(recorder.progress, topic_id=parts.copy.copied_topic_id)
        acquired = self._writer.acquired and self._loss is None
        if not acquired and gap_check.needs_exact(progress, state):
            self._read(progress, now, commit_required=True)  # which acquires it, and finds what was appended
            return
        gap = gap_check.evaluate(progress, state)
        if gap is None:
            self._read(progress, now, commit_required=self._opened.commit_required)
            return
        recorder.set_topic_id(state.topic_id)
        recorder.on_gap(gap.kind, gap.lost)
        parts.indexing.skip_gap(gap)
        if gap.leaves_copied_log:
            recorder.begin_generation()
        if gap.resume < gap.offset and None in {progress.leader_epoch, state.leader_epoch}:
            recorder.begin_series()  # without epochs it would not be noticed that an anchor is of the former log
        resumed = self._commits.progress_at(gap.resume, state.leader_epoch)
        self._read(resumed, now, commit_required=True)
        self._current.outbox.counts.gaps[gap.kind] += gap.lost

    # --- the end

    def note_acquisition(self) -> None:
        """Note the fencing requests of an attempt that ends."""
        if (attempt := self.attempt) is not None:
            self._opening.note_acquisition(acquired=attempt.acquired)
