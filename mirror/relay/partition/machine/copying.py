"""Copies the range in one attempt that is open: reads and sends, and asks the source if it has nothing. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.errors import CorruptBatch, LogTruncated, OffsetOutOfRange
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.across_attempts.commit_recorder import CommitRecorder
from mirror.relay.partition.across_attempts.copy_parts import CopyParts
from mirror.relay.partition.attempts.attempt import CopyAttempt
from mirror.relay.partition.attempts.outbox import CommitCounts
from mirror.relay.partition.attempts.owner import Advance
from mirror.relay.partition.expiries import DeliveryFailure, TargetShrank, unreadable
from mirror.relay.partition.machine.opening import Opening
from mirror.relay.partition.states import CopyEvent
from mirror.relay.partition.waiting import result_of
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
    """What one attempt copies, once it is opened. Each place at which it begins to read has a :class:`CopyAttempt`."""

    def __init__(self, parts: CopyParts, commits: CommitRecorder, opening: Opening, writer: TargetWriter) -> None:
        """``opening`` has opened ``writer``, and found out where the attempt begins."""
        opened = opening.opened
        assert opened is not None  # noqa: S101 - it has found out
        self.attempt: CopyAttempt | None = None
        """What reads now; None while the source is checked. Network threads read it, too."""
        self.end = AttemptEnd()
        """How the attempt ends, once it does."""
        self._parts: Final = parts
        self._commits: Final = commits
        self._opening: Final = opening
        self._writer: Final = writer
        self._required_at_first: Final = opened.commit_required
        self._from = opened.progress
        """Where to read next."""
        self._commit_required = opened.commit_required
        self._carried = CommitCounts()
        """What the next commit counts, beside what is sent until then."""
        self._loss = opened.loss
        """What the target has lost, while the attempt has not found the position behind what still stands."""
        if opened.loss is not None and opened.loss.kind is LossKind.RECREATED:
            self._loss, commits.mended = None, (opened.loss, opened.progress.offset)

    @property
    def _current(self) -> CopyAttempt:
        assert self.attempt is not None  # noqa: S101 - there is one while the source is read
        return self.attempt

    def due_ms(self, now: int) -> int:
        """When it is to be observed next if nothing happens before."""
        return FOREVER_MS if self.attempt is None else self.attempt.due_ms(now)

    def _goes_on_at(self, progress: Progress, *, commit_required: bool) -> None:
        self._from, self._commit_required = progress, commit_required

    # --- read and send

    def read(self, now: int) -> None:
        """Read from where the attempt is now."""
        parts, progress = self._parts, self._from
        parts.recorder.set_topic_id(progress.topic_id)
        parts.anchors.begin_at(progress)
        again = self._commits.mended is not None
        rest = parts.indexing.begin_at(progress, again=again, atomic=self._writer.atomic)
        parts.context.keep_segments(parts.copy, rest)
        self.attempt = CopyAttempt(
            parts.copy,
            self._commits,
            parts.context,
            self._writer,
            parts.reader,
            parts.choice,
            progress,
            commit_required=self._commit_required,
            loss=self._loss,
            now=now,
        )
        self.attempt.outbox.counts.add_all(self._carried)
        self._carried = CommitCounts()
        self._commits.begin(self.attempt, self._writer)
        if not (parts.reader.ended or parts.retry.winding_up):
            parts.context.read_from(parts.copy, progress.offset, progress.leader_epoch, parts.recorder.topic_id)

    def advance(self, now: int) -> CopyEvent | None:
        """Make all the progress that is possible without waiting; return what happens.

        Raises StartChanged if another attempt has changed the progress, MirrorError for what else ends the attempt.
        """
        parts, attempt = self._parts, self._current
        shrank = parts.target_check.update(attempt, self._writer, now, ended=parts.reader.ended)
        advanced = shrank or attempt.advance(now)
        if attempt.acquired:
            self.note_acquisition()  # at once: requests in doubt are executed within their timeout from now on
        if isinstance(advanced, TargetShrank):
            parts.target_check.tracker.regression = attempt.outbox.regression
            return self._ends(AttemptEnd(None, advanced.reason))
        if isinstance(advanced, DeliveryFailure):
            self.note_acquisition()
            committed, waits_since_ms = attempt.commits.committed.offset, attempt.commits.uncommitted_since_ms
            outcome = parts.failures.delivery_outcome(advanced, committed=committed, committing_ms=now - waits_since_ms)
            return self._ends(AttemptEnd(outcome, str(advanced.error)))
        if advanced is Advance.MOVES:
            return self._move()
        if advanced is Advance.CHANGES_WAY:
            return self._ends(AttemptEnd(changes_way=True))
        return self._on_advanced(now, copied=advanced is Advance.COPIED)

    def note_acquisition(self) -> None:
        """Note the fencing requests of an attempt that has acquired its partition, or ends."""
        self._opening.note_acquisition(acquired=self._writer.acquired)

    def _ends(self, end: AttemptEnd) -> CopyEvent:
        self.end = end
        return CopyEvent.ATTEMPT_ENDED

    def _on_advanced(self, now: int, *, copied: bool) -> CopyEvent | None:
        """Decide whether the attempt goes on; ``copied``: everything is copied and committed."""
        parts, attempt = self._parts, self._current
        reader, committed = parts.reader, attempt.commits.committed
        if reader.ended:
            parts.context.stop_reading(parts.copy)
        if parts.retry.trouble is not None and reader.caught_up and attempt.is_complete:
            parts.retry.trouble = None
        corrupt = copied and isinstance(reader.error, CorruptBatch)
        if copied and reader.error is None:
            return self._ends(AttemptEnd(AttemptOutcome(Outcome.COMPLETE)))
        # It waits for its answers: the next copy of the partition then begins at an exact position.
        if parts.retry.winding_up and attempt.outbox.empty and attempt.nothing_to_commit and (corrupt or not copied):
            complete = parts.copy.range.open_ended and not attempt.waits_to_send
            return self._ends(AttemptEnd(parts.retry.outcome_now(complete=complete)))
        if copied and isinstance(reader.error, (OffsetOutOfRange, LogTruncated)):
            return CopyEvent.SOURCE_SILENT
        if corrupt and (parts.gap_check.may_refetch(committed.offset) or self._puts_aside(committed.offset)):
            self._goes_on_at(committed, commit_required=False)
            return CopyEvent.BATCH_DAMAGED
        if copied and reader.error is not None:
            raise unreadable(as_mirror_error(reader.error), parts.copy.source, committed.offset)
        return CopyEvent.SOURCE_SILENT if attempt.source_stalled(now) else None

    def _puts_aside(self, offset: int) -> bool:
        """Whether the damaged batch behind ``offset`` goes aside, when it is read once more."""
        parts = self._parts
        return parts.policy.on_corrupt == "aside" and parts.reader.pipeline.remedies.put_aside_damaged(offset)

    def _move(self) -> CopyEvent:
        """Go on behind what earlier attempts have appended, and count that with the first commit."""
        parts, found = self._parts, self._current.found
        assert found is not None  # noqa: S101 - the attempt has found it
        parts.target_check.tracker.on_committed(found.progress.target)
        parts.recorder.begin_at(found.progress)
        if found.loss is not None:
            self._loss, self._commits.mended = None, (found.loss, found.progress.offset)
            parts.recorder.resume_behind_loss(found.progress.offset)
        self._goes_on_at(found.progress, commit_required=True)
        self._carried.add_totals(found.appended)
        return CopyEvent.POSITION_FOUND

    # --- gaps

    def check_source(self, now: int) -> None:
        """Ask the source why it does not return what comes next: it has said so, or has been silent for too long."""
        parts, attempt = self._parts, self.attempt
        self.attempt = None
        parts.gap_check.begin(stalled=attempt is not None and attempt.source_stalled(now))
        parts.context.stop_reading(parts.copy)
        parts.call.begin(parts.context.source_state(parts.copy.source, parts.recorder.copied_topic_id))

    def take_source(self) -> CopyEvent | None:
        """Return what follows once the source has answered. Raises MirrorError if nothing explains its silence."""
        parts = self._parts
        future = parts.call.pop_done()
        if future is None:
            return None
        state: SourceState = result_of(future)
        recorder, gap_check = parts.recorder, parts.gap_check
        assert recorder.progress is not None  # noqa: S101 - reading begins at it
        progress = replace(recorder.progress, topic_id=recorder.copied_topic_id)
        acquired = self._writer.acquired and self._loss is None
        if not acquired and gap_check.needs_exact(progress, state):
            self._goes_on_at(progress, commit_required=True)  # which acquires it, and finds what was appended
            return CopyEvent.SOURCE_CHECKED
        gap = gap_check.evaluate(progress, state)
        if gap is None:
            self._goes_on_at(progress, commit_required=self._required_at_first)
            return CopyEvent.SOURCE_CHECKED
        recorder.set_topic_id(state.topic_id)
        recorder.on_gap(gap.kind, gap.lost)
        parts.indexing.skip_gap(gap)
        if gap.leaves_copied_log:
            recorder.begin_generation()
        if gap.resume < gap.offset and None in {progress.leader_epoch, state.leader_epoch}:
            recorder.begin_series()  # without epochs it would not be noticed that an anchor is of the former log
        resumed = self._commits.progress_at(gap.resume, state.leader_epoch)
        self._goes_on_at(resumed, commit_required=True)
        self._carried.gaps[gap.kind] += gap.lost
        return CopyEvent.SOURCE_CHECKED
