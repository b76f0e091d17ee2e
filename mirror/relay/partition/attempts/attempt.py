"""One attempt to copy a range, from where its progress stands: read, send, commit."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mirror.errors import (
    AcknowledgedRecordsLost,
    AuthorizationFailed,
    DeliveryTimeout,
    FlowError,
    KafkaTimeout,
    NeedsAbort,
    OutOfOrderSequence,
    RecordTooLarge,
)
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.model.timeline import CopyPhase
from mirror.relay.model.way import Way
from mirror.relay.partition.attempts.acquisition import Acquisition
from mirror.relay.partition.attempts.commits import Commits
from mirror.relay.partition.attempts.outbox import Outbox, PendingBatch
from mirror.relay.partition.attempts.owner import Advance, AttemptOwner
from mirror.relay.partition.context import CopyContext, CopyHandle
from mirror.relay.partition.expiries import DeliveryFailure, TargetShrank
from mirror.relay.progress.committed import NO_TOTALS, Progress
from mirror.relay.progress.position import FoundPosition
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.exactly_once_way import WayChoice
    from mirror.relay.partition.attempts.source_reader import SourceReader
    from mirror.relay.partition.writers.target_writer import TargetWriter
    from mirror.relay.progress.target_loss import TargetLoss


class CopyAttempt:
    """Copies from ``progress`` on, which is committed, or is to be committed first (``commit_required``)."""

    def __init__(
        self,
        copy: CopyHandle,
        owner: AttemptOwner,
        context: CopyContext,
        writer: TargetWriter,
        reader: SourceReader,
        choice: WayChoice | None,
        progress: Progress,
        *,
        commit_required: bool,
        loss: TargetLoss | None,
        now: int,
    ) -> None:
        """``choice`` chooses the way of each batch; None if there is only one. ``loss`` is to be mended first."""
        log_end = 0 if progress.target is None else progress.target.end
        on_answered = partial(context.on_batch_answered, copy)
        self.outbox: Final = Outbox(
            context.send_window,
            progress.offset,
            progress.leader_epoch,
            log_end,
            copy,
            on_answered,
            owner.appends,
            context.latency,
            context.unix_ms,
            None if context.slow_records is None else partial(context.slow_records.on_acknowledged, copy.range),
        )
        self.commits: Final = Commits(writer, self.outbox, context.timeouts, progress, now, required=commit_required)
        self.found: FoundPosition | None = None
        """Where the copy resumes, if that is not where the attempt has begun."""
        self.budget_exhausted = False
        """Fetching is paused: the source budget has no room."""
        self.comparing_target = False
        """The target's log is being compared: until then, nothing is committed, nor complete."""
        self._copy, self._owner, self._context, self._writer, self._reader = copy, owner, context, writer, reader
        self._timeouts = context.timeouts
        self._choice = choice
        self._changes_way = self._committed_last = False
        ended = progress.ended and writer.way is Way.SEQUENCES
        in_transactions = progress.way is writer.way is Way.TRANSACTIONS
        self._passes: Final = (ended or in_transactions) and not commit_required and loss is None
        self._acquisition = Acquisition(copy, context, writer, progress, loss)
        self._reencoding: Future[Any] | None = None
        reader.begin(progress.offset, now)

    @property
    def wants_more(self) -> bool:
        """Whether it can use more of the source."""
        may_read = not (self._reader.ended or self._owner.winding_up or self.commits.blocks_sending)
        return may_read and self._reader.pipeline.empty

    @property
    def acquired(self) -> bool:
        """Whether the partition is acquired, so that the attempt may send and commit."""
        return self._acquisition.acquired

    @property
    def used_fence_until_ms(self) -> int:
        """Until when it may send under its fence, in ms since 1970, if it has sent anything; otherwise without end."""
        used = self.acquired and bool(self.commits.committed_bytes)
        return self._writer.valid_until_ms if used else FOREVER_MS

    @property
    def phase(self) -> CopyPhase:
        """What the attempt waits for."""
        if self._acquisition.in_progress or self._acquisition.waits:
            return CopyPhase.FENCING
        if self.commits.in_flight is not None:
            return CopyPhase.COMMITTING
        if not self.outbox.empty:
            return CopyPhase.PRODUCING
        if self.comparing_target and self.commits.pending:
            return CopyPhase.RESOLVING_PROGRESS
        if self.outbox.waits_for_room or self.budget_exhausted:
            return CopyPhase.MEMORY
        return CopyPhase.IDLE if self._reader.caught_up else CopyPhase.FETCHING

    @property
    def awaits_acknowledgement(self) -> bool:
        """Whether it needs acknowledgements to send more, or to end."""
        return self._reader.ended or self._owner.winding_up or not self._reader.pipeline.empty

    @property
    def undelivered_since_ms(self) -> int | None:
        """Since when the oldest undelivered batch, or the commit behind the last one, waits; None if nothing does."""
        if self.outbox.oldest_ms is None and self.commits.in_flight is not None:
            return self.commits.uncommitted_since_ms
        return self.outbox.oldest_ms

    @property
    def all_delivered(self) -> bool:
        """Whether everything fetched is in the target's log."""
        return self._reader.pipeline.empty and self.outbox.empty

    @property
    def all_committed(self) -> bool:
        """Whether all that was sent is committed."""
        return self.outbox.empty and self.commits.in_flight is None and not self.commits.pending

    @property
    def nothing_to_commit(self) -> bool:
        """Whether all that is acknowledged is committed, and no commit or comparison is in flight."""
        committable = self.commits.pending and (self._writer.atomic or self.outbox.empty)
        return self.commits.in_flight is None and not (committable or self.comparing_target)

    @property
    def _may_pass(self) -> bool:
        """Whether offsets without anything to send may be committed without a fence: nothing is behind the progress.

        Of two flows that feed each other, each reads the markers of the other one's fences, and would fence for them.
        In transactions the new progress is again what the log is compared with, before anything is sent.
        """
        return self._passes and not (self.acquired or self._acquisition.in_progress)

    @property
    def waits_to_send(self) -> bool:
        """Whether something was fetched, and cannot be sent because the partition is not acquired."""
        return not (self.acquired or self.all_delivered)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left of what was fetched. What was passed without a fence may be passed again."""
        return (self.all_committed or self._may_pass) and not self.waits_to_send

    def due_ms(self, now: int) -> int:
        """When :meth:`advance` is wanted next if nothing happens before; the send window steps a copy that queues."""
        if self._acquisition.in_progress:
            return self._acquisition.expires_ms
        if self.commits.pending:
            commit = self._commit_due_ms() if self._may_commit else FOREVER_MS
            return commit if commit > now else FOREVER_MS  # overdue: it waits for something else
        listens = self._may_stall and self.wants_more
        return self._reader.stalls_at_ms(self._timeouts.stall_ms) if listens else FOREVER_MS

    def advance(self, now: int) -> Advance | DeliveryFailure | TargetShrank:
        """Make all the progress that is possible without waiting; return what follows, or what ends the attempt.

        Raises StartChanged if it has begun where it may not, and MirrorError for what cannot be sent.
        """
        if self._acquisition.in_progress and (found := self._acquisition.take_result(now)) is not None:
            if self._moves_to(found):
                self.found = found
                return Advance.MOVES
            self._begin_at(found, now)
        if not self.wants_more:
            self._reader.last_response_ms = now  # nothing is fetched: the source cannot be blamed for its silence
        self.outbox.process_answers(now)
        if (failure := self._failure() or self._process_commit(now)) is not None:
            return failure
        if self.commits.required:
            self._acquisition.ensure(now, quiet=self._reader.pipeline.empty)
        may_send = not (self._owner.winding_up or self._committed_last)
        if may_send and (refused := self._send_ready(now)) is not None:
            return refused
        if self._changes_way and self._may_change_way:
            return Advance.CHANGES_WAY
        if (shrank := self._shrank()) is not None:  # answers may have arrived while batches were sent
            return shrank
        if self._may_commit and self.commits.pending and now >= self._commit_due_ms():
            self._context.step_when_done(self._copy, self._begin_commit(now))
        done = self._reader.ended and self.all_delivered and (self._owner.winding_up or not self._at_end)
        copied = done and self._is_settled and not self.comparing_target
        return Advance.COPIED if copied else Advance.CONTINUES

    def _moves_to(self, found: FoundPosition) -> bool:
        """Whether the position is not that of the progress."""
        moved = found.progress.offset != self.commits.committed.offset or found.appended != NO_TOTALS
        return moved or found.loss is not None

    def _begin_at(self, found: FoundPosition, now: int) -> None:
        if found.progress.target is not None:
            self.outbox.log_end = max(self.outbox.log_end, found.progress.target.end)
        self._owner.on_acquired(found.progress)
        if self._writer.way is Way.SEQUENCES:
            self.commits.on_searched(now)

    def end_when_committed(self) -> None:
        """Let another attempt begin once everything is committed, unless more is to be sent before."""
        self._changes_way = True

    @property
    def _may_change_way(self) -> bool:
        """Whether all before the next batch is committed, and nothing is awaited.

        Not during an acquisition: a request of it that is still in flight could fence the next attempt.
        """
        waits = self.comparing_target or self._acquisition.in_progress or self._owner.winding_up
        return self.all_committed and not waits

    def source_stalled(self, now: int) -> bool:
        """Whether the source, although polled, has returned nothing for too long."""
        stalled = now >= self._reader.stalls_at_ms(self._timeouts.stall_ms)
        return stalled and self._may_stall and self.wants_more

    @property
    def _may_stall(self) -> bool:
        # The check ends this attempt's reading: what is not committed would be lost, or sent twice.
        return self.outbox.empty and self._is_settled

    @property
    def _is_settled(self) -> bool:
        """Whether the position is known, and all that is acknowledged is committed: it may be read from there again.

        The position that an acquisition in flight finds may be behind it. What is in front of that is in the target.
        """
        return self.commits.in_flight is None and not (self.commits.pending or self._acquisition.in_progress)

    def _shrank(self) -> TargetShrank | None:
        if self.outbox.regression is None:
            return None
        acked, log_end = self.outbox.regression
        return TargetShrank(f"the target acknowledged offset {acked}, where its log had reached to {log_end}")

    # Invariant: Nothing behind an expired or refused batch is committed in its attempt.
    # Test: tests/relay/partition/
    #   test_target_failures.py::test_expired_batch_ends_the_attempt_and_no_later_batch_is_committed
    def _failure(self) -> DeliveryFailure | TargetShrank | None:
        """Return what the answers say that ends the attempt."""
        if (shrank := self._shrank()) is not None or (failed := self.outbox.first_failure()) is None:
            return shrank
        output, error = failed
        if isinstance(error, AcknowledgedRecordsLost):
            self.outbox.regression = error.offset, error.log_end
            return self._shrank()
        return DeliveryFailure(error, output)

    # --- sending

    def _send_ready(self, now: int) -> DeliveryFailure | None:
        pipeline, outbox, unix_ms = self._reader.pipeline, self.outbox, self._context.unix_ms()
        while not self.commits.blocks_sending and (output := self._next_output(unix_ms)) is not None:
            passes = output.batch is None and self._may_pass
            if self._goes_other_way(output, unix_ms, now) or not (passes or self._acquisition.ensure(now)):
                break
            sent = self._send(output, now)
            if isinstance(sent, DeliveryFailure):
                return sent
            if not sent:
                break
            pipeline.pop()
        if pipeline.encoding is not self._reencoding:
            self._reencoding = pipeline.encoding  # None, too: the future would keep its result in memory
            if pipeline.encoding is not None:
                self._context.step_when_done(self._copy, pipeline.encoding)
        if self._at_end and (self._may_pass or self._acquisition.ensure(now, quiet=True)):
            # The end of the range counts as reached even if its last offsets hold no records.
            epoch = -1 if outbox.sent_epoch is None else outbox.sent_epoch
            outbox.add(PendingBatch(OutputBatch(outbox.sent_offset, self._reader.end, epoch), now))
        outbox.process_answers(now)
        return None

    @property
    def _at_end(self) -> bool:
        """Whether nothing is left but offsets without records at the end; those behind an error were not copied."""
        reader = self._reader
        return (
            reader.position >= reader.end > self.outbox.sent_offset and reader.pipeline.empty and reader.error is None
        )

    # Invariant: A change of the way ends the attempt, with everything before it acknowledged and committed.
    # Test: tests/copying/test_sequences.py::test_change_between_the_ways_repeats_and_loses_nothing
    def _goes_other_way(self, output: OutputBatch, unix_ms: int, now: int) -> bool:
        try:
            way = self._writer.way if self._choice is None else self._choice.choose(output, unix_ms, now)
        except FlowError as error:  # the flow allows only the way that the batch must not go
            self._reader.fail(error)
            return True
        # Under a fence that may be forgotten, nothing is sent: another attempt fences again.
        self._changes_way = way is not self._writer.way or (self.acquired and unix_ms >= self._writer.valid_until_ms)
        return self._changes_way

    def _next_output(self, unix_ms: int) -> OutputBatch | None:
        try:
            return self._reader.pipeline.peek(unix_ms)
        except Exception as error:  # noqa: BLE001 - of a codec or transform: it ends this copy, and no other
            # Everything before it is committed first; then the error is raised.
            self._reader.fail(error)
            return None

    def _send(self, output: OutputBatch, now: int) -> bool | DeliveryFailure:
        """Send ``output``; return False if there is no room for it now, and the error of what is never taken."""
        pending, size = PendingBatch(output, now), 0
        if output.batch is not None:
            if not self.outbox.may_send(now):
                return False
            try:
                on_answer = partial(self.outbox.on_answer, pending)
                if output.aside:
                    self._writer.send_aside(output.batch, on_answer)
                else:
                    self._writer.send(output.batch, on_answer, self.outbox.log_end)
            except (DeliveryTimeout, RecordTooLarge) as error:
                return DeliveryFailure(error, output)
            except KafkaTimeout:
                self.outbox.wait_for_memory()
                return False
            size = output.batch.size
        self.commits.on_send(size, now)
        self.outbox.add(pending)  # its answer may have arrived, but is processed on this thread
        return True

    # --- committing

    @property
    def _may_commit(self) -> bool:
        blocked = self.comparing_target or not (self.acquired or self._may_pass)
        return self.commits.in_flight is None and not blocked

    def _begin_commit(self, now: int) -> Future[None]:
        # In transactions, all that was committed is in the progress anyway.
        self._committed_last = self._writer.way is Way.SEQUENCES and self._sends_no_more
        return self.commits.begin(self._owner.progress_at, now, ended=self._committed_last or self._may_pass)

    @property
    def _sends_no_more(self) -> bool:
        """Whether all that was sent is acknowledged, and the attempt will not send more; see ``_committed_last``.

        What follows an error of the source may be read again in the same attempt.
        """
        all_read = self._reader.ended and self._reader.error is None
        return (self.all_delivered and (all_read or self._owner.winding_up)) or (
            self._changes_way and self.outbox.empty
        )

    def _commit_due_ms(self) -> int:
        if self._owner.winding_up:
            return self.commits.repeat_ms if self._writer.atomic or self.outbox.empty else FOREVER_MS
        ended = self._changes_way or (self._reader.ended and self._reader.pipeline.empty)
        return self.commits.due_ms(caught_up=self._reader.caught_up, ended=ended)

    def _process_commit(self, now: int) -> DeliveryFailure | TargetShrank | None:
        """Record a commit that has ended; return what ends the attempt if it cannot be repeated."""
        counts, error = self.commits.take_result(now) or (None, None)
        if counts is not None:
            self._owner.on_committed(counts)
        if error is None:
            return None
        if (failure := self._failure()) is not None:
            return failure
        sent_all = (self._reader.ended and self.all_delivered) or (self._changes_way and self.outbox.empty)
        repeatable = not (self._writer.atomic or self.commits.required or self.commits.blocks_sending or sent_all)
        if isinstance(error, AuthorizationFailed) or not repeatable:
            return DeliveryFailure((error.__cause__ if isinstance(error, NeedsAbort) else None) or error, None)
        return None  # the next commit includes it

    def final_commit(self, now: int) -> Future[None] | None:
        """Commit what is acknowledged when the attempt ends early; None if there is nothing to wait for.

        There is none if a commit would include what is not acknowledged, or if the target's log may lack records that
        were written before.
        """
        blocked = self.comparing_target or not self.acquired
        if self._writer.atomic or blocked or self.outbox.regression is not None or self._is_out_of_order:
            return None
        ends = self._writer.way is Way.SEQUENCES and self.outbox.empty
        uncommitted = self.outbox.acked_offset > self.commits.committed.offset
        if self.commits.in_flight is None and (uncommitted or (ends and not self.commits.committed.ended)):
            self.commits.begin(self._owner.progress_at, now, ended=ends)
        return None if self.commits.in_flight is None else self.commits.in_flight.future

    @property
    def commits_rest(self) -> bool:
        """Whether records were acknowledged behind the commit in flight, and need another :meth:`final_commit`.

        At least once, the next attempt would otherwise repeat them. By sequences, the log says that they are there.
        """
        commit = self.commits.in_flight
        return self._writer.way is None and commit is not None and self.outbox.acked_offset > commit.progress.offset

    @property
    def _is_out_of_order(self) -> bool:
        """Whether the leader lacks a batch before one that was sent: acknowledged ones may be lost."""
        failure = self.outbox.first_failure()
        return failure is not None and isinstance(failure[1], OutOfOrderSequence)

    def end(self, now: int) -> None:
        """Release everything that the attempt holds; only its :meth:`final_commit` continues."""
        self.outbox.release()
        self._reader.begin(0, now)
