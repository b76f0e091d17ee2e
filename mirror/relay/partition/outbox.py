"""What one copy has sent and not had answered, in order; and what it has written since its last commit. No I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from mirror.errors import KafkaError, NeedsAbort
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.flow_control import InFlightBatch, SendWindow
from mirror.relay.model.ranges import RangeResult
from mirror.relay.progress.committed import NOTHING, ProgressTotals

_LEAST_BYTES: Final = 16 * 1024
"""What a batch under way counts at least: it takes about 4 KB as objects, however small it is."""


@dataclass(slots=True)
class CommitCounts:
    """What was written and is not committed yet."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    deep: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)

    def add(self, piece: OutputBatch) -> None:
        """``piece`` is done with."""
        for counts, more in ((self.skipped, piece.dropped), (self.deep, piece.deep), (self.gaps, piece.gaps)):
            if more:  # it seldom is, and Counter.update is slow
                counts.update(more)
        if piece.batch is not None:
            self.records += piece.count
            self.batches += 1
            self.bytes += piece.batch.size

    def add_all(self, other: CommitCounts) -> None:
        """What ``other`` has, too."""
        self.records += other.records
        self.batches += other.batches
        self.bytes += other.bytes
        self.skipped.update(other.skipped)
        self.deep.update(other.deep)
        self.gaps.update(other.gaps)

    def into(self, result: RangeResult) -> None:
        """It is committed."""
        result.records += self.records
        result.batches += self.batches
        result.bytes += self.bytes
        for counted, told in ((self.skipped, result.skipped), (self.deep, result.deep), (self.gaps, result.gaps)):
            for key, count in counted.items():
                told[str(key)] = told.get(str(key), 0) + count


@dataclass(slots=True, eq=False)
class PendingBatch:
    """What was sent, or (without a ``batch``) needs no sending; ``told`` or ``error`` is what came of it."""

    piece: OutputBatch
    sent_ms: int
    ticket: InFlightBatch | None = None
    told: RecordMetadata | None = None
    error: BaseException | None = None


class Outbox:
    """Steps in the order of the source; ``acked_offset`` is the source offset after the last one acknowledged in order.

    ``target_end`` is the target offset after the last record acknowledged, None before the first; ``known_end`` is how
    far the target's log reaches at least, ``last_batch`` the (producer epoch, base sequence) of the last batch
    acknowledged, and ``low`` an acknowledged offset below the known end, with it. ``sent`` is all that was sent,
    acknowledged or not. ``first_time_ms`` is the time of the first record sent, ``acked_time_ms`` the latest of those
    acknowledged (ms since 1970; None: none yet), ``throttled_ms`` the patience that answers asked for (KIP-219),
    ``waits`` whether the next batch found no room.
    """

    def __init__(
        self, window: SendWindow, start: int, leader_epoch: int | None, who: Hashable, answered: Callable[[bool], None]
    ) -> None:
        """``who`` stands in the window's line; ``answered`` is called on the network thread: whether one failed."""
        self._window = window
        self._who = who
        self._answered_one = answered
        self._steps: deque[PendingBatch] = deque()
        self.sent_offset = self.acked_offset = start
        self.sent_epoch = self.acked_epoch = leader_epoch
        self.target_end: int | None = None
        self.known_end = 0
        self.last_batch: tuple[int, int] | None = None
        self.low: tuple[int, int] | None = None
        self._acknowledged = 0
        self.sent = NOTHING
        self.tally = CommitCounts()
        self.first_time_ms: int | None = None
        self.acked_time_ms: int | None = None
        self.throttled_ms = 0
        self.waits = self._answered = self._failed = False

    def may_send(self, now: int) -> bool:
        """Whether another batch may go: one alone until the first answer, and none behind one that is late.

        Where the window has no room, its line is waited in.
        """
        first = None
        for step in self._steps:
            if (first := step.ticket) is not None:
                break
        if first is not None and (first.aside or not self._answered):
            return False
        self.waits = not self._window.may_send(self._who, now, idle=first is None)
        return not self.waits

    def wait_for_memory(self) -> None:
        """In the window's line: what gives it room gives memory, too."""
        self.waits = True
        self._window.wait(self._who, idle=self.empty)

    @property
    def empty(self) -> bool:
        """Whether everything sent is acknowledged."""
        return not self._steps

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest unacknowledged batch was sent."""
        return self._steps[0].sent_ms if self._steps else None

    def add(self, step: PendingBatch) -> None:
        """``step`` was sent, or needs no sending."""
        piece = step.piece
        if (batch := piece.batch) is not None:
            step.ticket = self._window.sent(max(batch.size, _LEAST_BYTES), step.sent_ms)
            if self.first_time_ms is None:
                self.first_time_ms = batch.base_timestamp
            records, batches, size = self.sent
            self.sent = ProgressTotals(records + piece.count, batches + 1, size + batch.size)
        self._steps.append(step)
        self.sent_offset, self.sent_epoch = piece.next_offset, piece.leader_epoch

    def harvest(self, now: int) -> bool:
        """Take in answers, in order; whether there were any. Stops at a failure: :meth:`loss` tells it."""
        before = len(self._steps)
        while self._steps:
            step = self._steps[0]
            if step.ticket is not None and step.told is None:
                break
            self._steps.popleft()
            self._done(step, now)
        return len(self._steps) != before

    def take_tally(self) -> CommitCounts:
        """What was written so far; it counts anew from here on."""
        tally, self.tally = self.tally, CommitCounts()
        return tally

    def _done(self, step: PendingBatch, now: int) -> None:
        piece = step.piece
        if step.ticket is not None and step.told is not None:
            self._window.acknowledged(step.ticket, step.told.throttle_ms, now)
            self._answered = True
            self.throttled_ms += step.told.throttle_ms
            if piece.batch is not None:
                self.acked_time_ms = max(piece.batch.max_timestamp, self.acked_time_ms or 0)
                self.last_batch = piece.batch.producer_epoch, piece.batch.base_sequence
            self._appended(step.told.base_offset, piece.count)
        self.acked_offset, self.acked_epoch = piece.next_offset, piece.leader_epoch
        self.tally.add(piece)
        if piece.part is not None:
            piece.part.done()

    def _appended(self, base_offset: int, count: int) -> None:
        """``count`` records are in the target's log; at an offset that a duplicate's answer (-1) may not tell."""
        self._acknowledged += count
        if base_offset < 0:
            self.known_end += count
            return
        if base_offset < self.known_end and self.low is None:
            self.low = (base_offset, self.known_end)
        self.target_end = base_offset + count
        self.known_end = max(self.known_end, self.target_end)

    @property
    def expected_end(self) -> int:
        """How far the target's log reaches at least, once all that was sent is acknowledged: in it, records add up."""
        return self.known_end + self.sent.records - self._acknowledged

    def hear(self, step: PendingBatch, outcome: RecordMetadata | KafkaError) -> None:
        """What came of ``step``; on the network thread, maybe before it is added."""
        if isinstance(outcome, RecordMetadata):
            step.told = outcome
        else:
            step.error, self._failed = outcome, True
        self._answered_one(step.error is not None)

    def loss(self) -> tuple[OutputBatch, BaseException] | None:
        """The first failure that tells why; None while nothing failed.

        What fails with a transaction says only that it did: the cause is with another batch.
        """
        if not self._failed:
            return None
        dependent: tuple[OutputBatch, BaseException] | None = None
        for step in self._steps:
            if step.error is None:
                continue
            if not isinstance(step.error, NeedsAbort):
                return step.piece, step.error
            dependent = dependent or (step.piece, step.error.__cause__ or step.error)
        return dependent

    def give_up(self) -> None:
        """Nothing of this is waited for any more."""
        for step in self._steps:
            if step.ticket is not None:
                self._window.let_go(step.ticket)
        self._window.leave(self._who)
        self._steps.clear()
