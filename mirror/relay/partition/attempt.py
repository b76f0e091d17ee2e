"""One attempt at a range, from the source's first answer to its end: read, send, commit."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mirror.errors import DeliveryTimeout, KafkaTimeout, NeedsAbort, RecordTooLarge
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.model.timeline import CopyPhase
from mirror.relay.partition.commits import Commits, ProgressAt
from mirror.relay.partition.outbox import CommitCounts, Outbox, PendingBatch
from mirror.relay.progress.committed import Progress
from mirror.timing import FOREVER_MS, deadline

if TYPE_CHECKING:
    from mirror.relay.flow_control import SendWindow
    from mirror.relay.model.policy import CopyTimeouts
    from mirror.relay.partition.delivery_deadline import DeliveryClock
    from mirror.relay.partition.source_reader import SourceReader
    from mirror.relay.partition.target_writer import TargetWriter


class DeliveryFailed(Exception):
    """A batch was not taken (``piece``), or a commit (None)."""

    def __init__(self, error: BaseException, piece: OutputBatch | None) -> None:
        super().__init__(str(error))
        self.error: Final = error
        self.piece: Final = piece


class TargetShrank(Exception):
    """A batch was acknowledged at an offset that the target's log had passed before: it is another log, or was cut."""


class CopyAttempt:
    """Goes on at ``progress``, which is committed, or (``must_commit``) is to be, before anything else.

    ``committed`` hears of what each commit took with it, ``answered`` (on the network thread) of each batch's answer:
    whether it was a failure. ``watch`` has the copy stepped when a future is done. ``winding_up``: nothing more is
    sent, what is acknowledged is committed. ``refused``: it may not read, since there is no room for what would come.
    ``unsure``: nothing is committed, nor complete, before the target's log is known to have what was written to it.
    """

    def __init__(
        self,
        progress: Progress,
        carrier: TargetWriter,
        reading: SourceReader,
        times: CopyTimeouts,
        clock: DeliveryClock,
        window: SendWindow,
        *,
        progress_at: ProgressAt,
        committed: Callable[[CommitCounts], None],
        answered: Callable[[bool], None],
        watch: Callable[[Future[Any]], None],
        wall: Callable[[], int],
        must_commit: bool,
        who: Hashable,
        now: int,
    ) -> None:
        self.winding_up = self.refused = self.unsure = False
        self.outbox: Final = Outbox(window, progress.offset, progress.leader_epoch, who, answered)
        self.commits: Final = Commits(carrier, self.outbox, times, progress, now)
        self.commits.must = must_commit
        self.outbox.known_end = 0 if progress.target is None else progress.target.end
        self._carrier = carrier
        self._reading = reading
        self._times = times
        self._clock = clock
        self._progress_at = progress_at
        self._committed = committed
        self._watch = watch
        self._wall = wall
        self._making: Future[Any] | None = None
        reading.begin(progress.offset, now)

    @property
    def wants_more(self) -> bool:
        """Whether it could use more of the source."""
        may_read = not (self._reading.ended or self.winding_up or self.commits.full)
        return may_read and self._reading.feed.idle

    @property
    def phase(self) -> CopyPhase:
        """What it waits for."""
        if self.commits.under_way is not None:
            return CopyPhase.COMMITTING
        if not self.outbox.empty:
            return CopyPhase.PRODUCING
        if self.outbox.waits or self.refused:
            return CopyPhase.MEMORY
        return CopyPhase.IDLE if self._reading.caught_up else CopyPhase.FETCHING

    @property
    def eager(self) -> bool:
        """Whether it waits for acknowledgements: to send more, or to end."""
        return self._reading.ended or self.winding_up or not self._reading.feed.idle

    @property
    def waits_since_ms(self) -> int | None:
        """Since when the first of what is not delivered waits."""
        if self.outbox.oldest_ms is None and self.commits.under_way is not None:
            return self.commits.since_ms
        return self.outbox.oldest_ms

    @property
    def handed_over(self) -> bool:
        """Whether all that came is in the target's log."""
        return self._reading.feed.idle and self.outbox.empty

    def due_ms(self, now: int) -> int:
        """When :meth:`turn` is wanted next, where nothing happens before; who has no room stands in line for it."""
        if self.commits.wanted:
            free = self.commits.under_way is None and not (self.commits.hold or self.unsure)
            commit = self._commit_due_ms() if free else FOREVER_MS
            return commit if commit > now else FOREVER_MS  # overdue: it waits for something else
        listens = self._quiet and self.wants_more
        return deadline(self._reading.heard_ms, self._times.stall_ms) if listens else FOREVER_MS

    def turn(self, now: int) -> bool:
        """Go on as far as that is possible; True where all that will come is copied and committed.

        Raises Lost, TargetShrank, and MirrorError for what cannot be sent.
        """
        if not self.wants_more:
            self._reading.heard_ms = now  # it was not asked: its silence tells nothing
        self.outbox.harvest(now)
        self._check_low()
        if (loss := self.outbox.loss()) is not None:
            raise DeliveryFailed(loss[1], loss[0])
        if self.commits.under_way is not None:
            self._take_commit(now)
        if not self.winding_up:
            self._push(now)
        self._check_low()  # answers came meanwhile
        free = self.commits.under_way is None and not (self.commits.hold or self.unsure)
        if free and self.commits.wanted and now >= self._commit_due_ms():
            self._watch(self.commits.begin(self._progress_at, now))
        done = self._reading.ended and self.handed_over
        return done and self.commits.under_way is None and not (self.commits.wanted or self.unsure)

    def _check_low(self) -> None:
        if (low := self.outbox.low) is not None:
            msg = f"the target acknowledged offset {low[0]}, where its log had reached to {low[1]}"
            raise TargetShrank(msg)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to be committed of what is acknowledged, nor being so, nor to be compared."""
        can_be_kept = self.commits.wanted and (self._carrier.atomic or self.outbox.empty)
        return self.commits.under_way is None and not (can_be_kept or self.unsure)

    @property
    def _quiet(self) -> bool:
        # What is not committed yet would be lost, or be sent twice, where the source's silence is looked into.
        return self.outbox.empty and self.commits.under_way is None and not self.commits.wanted

    def silent(self, now: int) -> bool:
        """Whether the source, although asked, has given nothing for too long."""
        return now - self._reading.heard_ms >= self._times.stall_ms and self._quiet and self.wants_more

    # --- sending

    def _push(self, now: int) -> None:
        feed, outbox, wall_ms = self._reading.feed, self.outbox, self._wall()
        while not self.commits.full and (piece := self._next_piece(wall_ms)) is not None:
            if not self._send(piece, now):
                break
            feed.pop()
        if feed.making is not self._making:
            self._making = feed.making  # also None: what was made would be kept by its future
            if feed.making is not None:
                self._watch(feed.making)
        at_end = self._reading.at >= self._reading.end > outbox.sent_offset
        if at_end and feed.idle and self._reading.error is None:  # what was cut off behind an error was not copied
            # The range's end counts as reached also where its last offsets hold nothing.
            epoch = -1 if outbox.sent_epoch is None else outbox.sent_epoch
            outbox.add(PendingBatch(OutputBatch(outbox.sent_offset, self._reading.end, epoch), now))
        outbox.harvest(now)

    def _next_piece(self, wall_ms: int) -> OutputBatch | None:
        try:
            return self._reading.feed.next(wall_ms)
        except Exception as error:  # noqa: BLE001 - a codec's, a transform's: it ends this copy, not its neighbours
            # What comes before it is committed first: then it is told.
            self._reading.fail(error)
            return None

    def _send(self, piece: OutputBatch, now: int) -> bool:
        """Whether ``piece`` could be handed over."""
        step, size = PendingBatch(piece, now), 0
        if piece.batch is not None:
            if not self.outbox.may_send(now):
                return False
            try:
                self._carrier.send(piece.batch, self._clock.created_ms(), partial(self.outbox.hear, step))
            except (DeliveryTimeout, RecordTooLarge) as error:
                raise DeliveryFailed(error, piece) from error
            except KafkaTimeout:
                self.outbox.wait_for_memory()
                return False
            size = piece.batch.size
        self.commits.sent(size, now)
        self.outbox.add(step)  # before this thread may act on its answer
        return True

    # --- committing

    def _commit_due_ms(self) -> int:
        if self.winding_up:
            return 0 if self._carrier.atomic or self.outbox.empty else FOREVER_MS
        ended = self._reading.ended and self._reading.feed.idle
        return self.commits.due_ms(caught_up=self._reading.caught_up, ended=ended)

    def _take_commit(self, now: int) -> None:
        tally, error = self.commits.take(now) or (None, None)
        if tally is not None:
            self._committed(tally)
        if error is None:
            return
        if (loss := self.outbox.loss()) is not None:
            raise DeliveryFailed(loss[1], loss[0])
        if self._carrier.atomic or self.commits.must or (self._reading.ended and self.handed_over):
            raise DeliveryFailed((error.__cause__ if isinstance(error, NeedsAbort) else None) or error, None)
        # Otherwise it is kept with the next one.

    def last_commit(self, now: int) -> Future[None] | None:
        """Where the attempt ends early: what is acknowledged counts, if a commit does not take the rest with it.

        It does not where the target's log may lack what was written before.
        """
        if self._carrier.atomic or self.unsure or self.outbox.low is not None:
            return None
        if self.commits.under_way is None and self.outbox.acked_offset > self.commits.known.offset:
            self.commits.begin(self._progress_at, now)
        return None if self.commits.under_way is None else self.commits.under_way.future

    def end(self, now: int) -> None:
        """Nothing of this attempt is waited for any more, but for its :meth:`last_commit`."""
        self.outbox.give_up()
        self._reading.begin(0, now)
