"""Opens one attempt at a partition: fences earlier ones or reads only, and finds out where the copy starts. No I/O.

In transactions an attempt fences when it opens, in its turn: a task limits how many do so at a time. By sequences it
does so once it has something to send (:mod:`.acquisition`); :meth:`Opening.note_acquisition` records these requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.errors import DeliveryPhase, DeliveryTimeout, KafkaTimeout
from mirror.relay.futures import as_mirror_error
from mirror.relay.model.way import Way
from mirror.relay.partition.across_attempts.copy_parts import CopyParts
from mirror.relay.partition.expiries import expiry_error
from mirror.relay.partition.states import CopyEvent
from mirror.relay.partition.waiting import result_of
from mirror.relay.progress.committed import Beginning, Progress

if TYPE_CHECKING:
    from mirror.relay.model.ranges import Range
    from mirror.relay.partition.writers.target_writer import TargetWriter
    from mirror.relay.progress.lookup.lookup_results import StartPosition
    from mirror.relay.progress.target_loss import TargetLoss


def planned_progress(copied: Range, read: Progress | None) -> Progress | None:
    """Return the progress with which the first attempt at ``copied`` may begin, if its task has ``read`` it.

    It is a lower bound, also if the attempt that has committed it has ended: what another attempt has copied since is
    read when this one fences.
    """
    trouble = copied.stuck_since_ms is not None or copied.sick_since_ms is not None
    if read is None or trouble or not copied.open_ended:
        return None
    return replace(read, ended=False)


class Opened(NamedTuple):
    """Where an attempt begins."""

    progress: Progress
    commit_required: bool
    """Whether to commit it before anything is sent."""
    loss: TargetLoss | None = None
    """What the target has lost: then ``progress`` is an anchor, or the flow's start."""


# Invariant: An attempt sends behind the progress that it reads under its fence, whatever the plan said and whatever it
#   began with.
# Test: tests/relay/partition/test_machine.py::test_copy_resumes_at_the_target_s_progress_not_at_the_planned_start
# Test: tests/relay/partition/
#   test_sequences.py::test_the_first_attempt_of_a_quiet_partition_begins_with_the_planned_progress
class Opening:
    """The opening of one attempt, from its creation until it has found where the copy starts: :attr:`opened`."""

    def __init__(
        self,
        parts: CopyParts,
        writer: TargetWriter,
        now: int,
        planned: Progress | None = None,
    ) -> None:
        """``planned``: what :func:`planned_progress` returns, for the first attempt."""
        self.opened: Opened | None = None
        """Where the attempt begins, once that is known."""
        self.began_ms = now
        self._parts: Final = parts
        self._writer: Final = writer
        self._planned: Final = planned
        self._found: Progress | None = None
        self._shrunk_to: int | None = None
        self._acquisition_noted = False
        self._waits = True
        self._begin_in_turn(now)

    @property
    def waiting_since_ms(self) -> int | None:
        """Since when it waits for the target; None before its turn, when no timeout has begun."""
        return None if self._waits else self.began_ms

    def _begin_in_turn(self, now: int) -> None:
        """Open the writer; if that fences, once the task lets it."""
        parts, fences = self._parts, self._writer.way is Way.TRANSACTIONS
        self._waits = fences and not parts.context.may_acquire(parts.copy)
        if self._waits:
            return
        self.began_ms = now
        opened = self._writer.open(parts.context.timeouts.delivery_timeout_ms, self._planned)
        if fences:
            parts.context.on_acquiring(opened)
        parts.call.begin(opened)

    # --- the progress

    def take_progress(self, now: int) -> CopyEvent | None:
        """Return what follows from the progress, once it was read.

        Raises DeliveryTimeout if the target has not answered in time, MirrorError for what else has failed.
        """
        if self._waits:
            self._begin_in_turn(now)
        if self._waits or (future := self._parts.call.pop_done()) is None:
            return None
        error = future.exception()
        if self._writer.way is not Way.SEQUENCES:
            self._note_fences(answered=error is None)
        if isinstance(error, KafkaTimeout):
            raise self._expired(DeliveryPhase.FENCING, error, now)
        if error is not None:
            raise as_mirror_error(error)
        self._found = found = future.result()
        recorder, tracker = self._parts.recorder, self._parts.target_check.tracker
        recorder.on_progress_found(found)
        copied = found is not None and found.offset >= self._parts.copy.range.end
        copied = copied and found.is_of_topic(self._parts.copy.source.topic)
        if found is not None and copied and tracker.verified is None and not self._will_fence(found):
            # No batch will follow what the target's log may lack, and a leader that is away delays nothing.
            tracker.verified, recorder.is_committed = found.target, True
            return self._begin_at(found)
        return CopyEvent.PROGRESS_READ

    def _will_fence(self, found: Progress) -> bool:
        """Whether an attempt with nothing to copy fences: by sequences, to commit its progress again.

        It reads the target's log then, which must be the one that was copied into.
        """
        return self._writer.way is Way.SEQUENCES and self._is_renewed(found)

    def _is_renewed(self, progress: Progress, *, first: bool = True) -> bool:
        """Whether to commit ``progress`` again: brokers may delete it soon, or the range of a first attempt is empty.

        The planner sends an empty range for that.
        """
        parts = self._parts
        ended = first and progress.offset >= parts.reader.end
        return ended or parts.recorder.needs_renewal(progress, parts.policy.renew_ms)

    def _note_fences(self, *, answered: bool) -> None:
        timeout_ms = self._parts.context.timeouts.request_timeout_ms
        in_doubt = self._writer.fences_in_doubt
        self._parts.failures.on_fenced_others(in_doubt, answered=answered, request_timeout_ms=timeout_ms)

    def note_acquisition(self, *, acquired: bool) -> None:
        """Note, once, the fencing requests of a writer by sequences, which fences after it was opened."""
        if self._writer.way is Way.SEQUENCES and not self._acquisition_noted:
            self._acquisition_noted = True
            self._note_fences(answered=acquired)

    # --- the start

    def resolve(self, now: int) -> None:
        """Compare the target's log with the progress, or find out why there is none."""
        parts, found = self._parts, self._found
        mark = (None if found is None else found.target) or parts.target_check.tracker.verified
        self._shrunk_to = parts.target_check.shrunk_to(mark, atomic=self._writer.atomic)
        left_ms = max(1, parts.context.timeouts.delivery_timeout_ms - (now - self.began_ms))
        start = parts.context.resolve_start(
            parts.copy.target,
            found,
            mark,
            left_ms,
            self._shrunk_to,
            source_topic=parts.copy.source.topic,
            continues=found is not None and found is self._planned,
            to_end=self._writer.way is Way.TRANSACTIONS,
        )
        parts.call.begin(start)

    def take_start(self, now: int) -> CopyEvent | None:
        """Return what follows once the start is resolved; as :meth:`take_progress`.

        Raises ProgressChanged, too, if another attempt has changed the progress meanwhile.
        """
        parts = self._parts
        future = parts.call.pop_done()
        if future is None:
            return None
        if isinstance(error := future.exception(), KafkaTimeout):
            raise self._expired(DeliveryPhase.METADATA, error, now)
        start: StartPosition = result_of(future)
        parts.target_check.begin(start, self._shrunk_to)
        if start.progress is not None and start.loss is not None:
            # What an attempt of before commits late is beyond what the target holds now.
            anchored = replace(start.progress, target=start.mark, generation=parts.context.unix_ms())
            return self._begin_at(anchored, commit_required=True, loss=start.loss)
        if self._found is not None and start.progress is not None:
            parts.recorder.is_committed = True
            progress = replace(start.progress, target=start.mark)
            self._writer.note_target_end(progress, start.target_end)
            return self._begin_at(progress)
        parts.recorder.target_end = start.target_end
        # Progress is committed before the first record. A flow that may not commit would copy everything again in each
        # run, and one that begins at its source's end would begin at a later end each time.
        # The planned leader epoch detects a log that is cut back and grows again before a record of it is read. A copy
        # from offset 0 needs none: no log is cut back below that.
        copied = parts.copy.range
        epoch = copied.source_epoch if copied.fresh_start else None
        progress = start.progress or parts.recorder.progress_at(copied.fresh_start, epoch)
        # What an attempt of before commits late must not count for this copy.
        now_ms = parts.context.unix_ms()
        progress = replace(progress, target=start.mark, generation=now_ms)
        if start.progress is not None:
            # It is restored: nothing is behind it yet. Until this attempt fences, an earlier one may append.
            progress = replace(progress, way=Way.SEQUENCES)
            self._writer.note_target_end(progress, None)
        if start.progress is None:
            beginning = None if start.mark is None else Beginning(progress.offset, start.mark.end)
            # An earlier attempt of this copy may have searched a log that is gone.
            progress = replace(progress, series=now_ms, beginning=beginning, searched=None, ended=False)
        return self._begin_at(progress, commit_required=True, loss=start.loss)

    # Invariant: The first progress is committed before the first record: an attempt that dies early never leaves data
    #   without progress.
    # Test: tests/relay/partition/test_machine.py::test_copy_without_progress_commits_its_start_before_the_first_record
    def _begin_at(
        self, progress: Progress, *, commit_required: bool = False, loss: TargetLoss | None = None
    ) -> CopyEvent:
        recorder = self._parts.recorder
        first = recorder.begin_at(progress)
        commit_required = commit_required or self._is_renewed(progress, first=first)
        self.opened = Opened(progress, commit_required, loss)
        # Behind the planned end: the plan is old, or the source's log was cut back.
        missing = recorder.is_of_recreated_topic(progress) or progress.offset > self._parts.reader.end
        return CopyEvent.START_NOT_IN_SOURCE if missing else CopyEvent.START_FOUND

    def _expired(self, phase: DeliveryPhase, error: KafkaTimeout, now: int) -> DeliveryTimeout:
        return expiry_error(self._parts.copy.target, phase, error, age_ms=now - self.began_ms)
