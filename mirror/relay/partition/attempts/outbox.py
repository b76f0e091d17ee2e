"""The batches of one attempt that were sent and not answered, in order, and the counts of the next commit. No I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from mirror.errors import KafkaError, NeedsAbort
from mirror.meters import Histogram
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.byte_limits import InFlightBatch, SendWindow
from mirror.relay.model.ranges import RangeResult
from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.progress.committed import ProgressTotals

_MIN_COUNTED_BYTES: Final = 16 * 1024
"""A batch counts at least this much in the send window: its objects take about 4 KB, however small it is."""


@dataclass(slots=True)
class CommitCounts:
    """The counts of the output batches that are done and not committed yet."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    deep: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)

    def add(self, output: OutputBatch) -> None:
        """Add ``output``, which was acknowledged or did not have to be sent."""
        for counts, more in ((self.skipped, output.dropped), (self.deep, output.reencoded), (self.gaps, output.gaps)):
            if more:  # this is rare, and Counter.update is slow
                counts.update(more)
        if output.aside:
            self.aside.update(output.aside)
        elif output.batch is not None:
            self.records += output.count
            self.batches += 1
            self.bytes += output.batch.size

    def add_all(self, other: CommitCounts) -> None:
        """Add all of ``other``, which was counted before."""
        self.records += other.records
        self.batches += other.batches
        self.bytes += other.bytes
        self.skipped.update(other.skipped)
        self.deep.update(other.deep)
        self.gaps.update(other.gaps)
        self.aside.update(other.aside)

    def add_totals(self, totals: ProgressTotals) -> None:
        """Add what an earlier attempt has written, and no result has counted."""
        self.records += totals.records
        self.batches += totals.batches
        self.bytes += totals.bytes

    def add_to(self, result: RangeResult) -> None:
        """Add these counts, which are committed now, to ``result``."""
        result.records += self.records
        result.batches += self.batches
        result.bytes += self.bytes
        for counts, totals in (
            (self.skipped, result.skipped),
            (self.deep, result.deep),
            (self.gaps, result.gaps),
            (self.aside, result.aside),
        ):
            for key, count in counts.items():
                totals[str(key)] = totals.get(str(key), 0) + count


@dataclass(slots=True, eq=False)
class PendingBatch:
    """An output batch that was sent, or that needs no sending because it has no bytes."""

    output: OutputBatch
    sent_ms: int
    in_flight: InFlightBatch | None = None
    """Its place in the send window; None if it needs no sending."""
    answered_ms: int = 0
    """When the target's acknowledgement came (ms since 1970)."""
    metadata: RecordMetadata | None = None
    error: BaseException | None = None


class Outbox:
    """The batches of one attempt, in source order.

    Producer callbacks call :meth:`on_answer` on the network thread; everything else happens on the task's thread.
    """

    def __init__(
        self,
        window: SendWindow,
        offset: int,
        leader_epoch: int | None,
        log_end: int,
        owner: Hashable,
        on_answered: Callable[[bool], None],
        appends: AppendedExtents,
        latency: Histogram,
        unix_ms: Callable[[], int],
        on_acknowledged: Callable[[OutputBatch, int, int, int], None] | None,
    ) -> None:
        """``owner`` queues in the window; ``on_answered(failed)`` is called on the network thread.

        ``appends`` gets the offsets of what is acknowledged, ``latency`` the time since the source's append.
        ``unix_ms`` returns the time in ms since 1970. ``on_acknowledged`` gets each batch, in order,
        with its target offset, and the times at which it was sent (ms) and answered (ms since 1970).
        """
        self._window = window
        self._owner = owner
        self._on_answered = on_answered
        self._appends = appends
        self._latency: Final = latency
        self._unix_ms: Final = unix_ms
        self._on_acknowledged: Final = on_acknowledged
        self._batches: deque[PendingBatch] = deque()
        self.sent_offset = self.acked_offset = offset
        """The source offsets after the last batch sent, and after the last batch acknowledged in order."""
        self.sent_epoch = self.acked_epoch = leader_epoch
        self.target_end: int | None = None
        """The target offset after the last acknowledged record; None before the first one."""
        self.log_end = log_end
        """The target's log reaches at least to this offset."""
        self.last_batch: tuple[int, int] | None = None
        """(producer epoch, base sequence) of the last acknowledged batch."""
        self.regression: tuple[int, int] | None = None
        """(acknowledged offset, log end before it), if a batch was acknowledged below the log end."""
        self._sent_records = self._acked_records = 0
        self._after_commit = 0
        """The target offset behind the marker of the last transaction that was committed."""
        self.sent_bytes = self.acked_bytes = 0
        """What was sent, acknowledged or not, and what was acknowledged in order."""
        self.counts = CommitCounts()
        self.first_time_ms: int | None = None
        """The timestamp of the first record sent (ms since 1970)."""
        self.acked_time_ms: int | None = None
        """The latest timestamp of the acknowledged records (ms since 1970)."""
        self.throttled_ms = 0
        """The sum of the responses' throttle times (KIP-219) since it was last read."""
        self.waits_for_room = self._answered = self._failed = False

    def may_send(self, now: int) -> bool:
        """Whether another batch may be sent. Queues the owner in the window if that has no room.

        Until the first batch is acknowledged, no second one is sent; and none is sent behind an overtaken batch.
        """
        first = None
        for pending in self._batches:
            if (first := pending.in_flight) is not None:
                break
        if first is not None and (first.overtaken or not self._answered):
            return False
        self.waits_for_room = not self._window.may_send(self._owner, now, idle=first is None)
        return not self.waits_for_room

    def wait_for_memory(self) -> None:
        """Queue in the window: acknowledgements free both the window and buffer.memory."""
        self.waits_for_room = True
        self._window.enqueue(self._owner, idle=self.empty)

    @property
    def empty(self) -> bool:
        """Whether everything sent is acknowledged."""
        return not self._batches

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest unacknowledged batch was sent."""
        return self._batches[0].sent_ms if self._batches else None

    def add(self, pending: PendingBatch) -> None:
        """Append a batch that was sent, or needs no sending."""
        output = pending.output
        if (batch := output.batch) is not None:
            pending.in_flight = self._window.on_sent(max(batch.size, _MIN_COUNTED_BYTES), pending.sent_ms)
            if not output.aside:
                if self.first_time_ms is None:
                    self.first_time_ms = batch.base_timestamp
                self._sent_records += output.count
            self.sent_bytes += batch.size
        self._batches.append(pending)
        self.sent_offset, self.sent_epoch = output.next_offset, output.leader_epoch

    def process_answers(self, now: int) -> None:
        """Remove acknowledged batches in order, up to the first that is unanswered or failed."""
        while self._batches:
            pending = self._batches[0]
            if pending.in_flight is not None and pending.metadata is None:
                return
            self._batches.popleft()
            self._on_done(pending, now)

    def take_counts(self) -> CommitCounts:
        """Return the counts since the last call, and reset them."""
        counts, self.counts = self.counts, CommitCounts()
        return counts

    def _on_done(self, pending: PendingBatch, now: int) -> None:
        output, metadata = pending.output, pending.metadata
        if pending.in_flight is not None and metadata is not None:
            self._window.on_acknowledged(pending.in_flight, metadata.throttle_ms, now)
            self._answered = True
            self.throttled_ms += metadata.throttle_ms
        # Invariant: What goes aside changes nothing of what is known of the target's log.
        # Test: tests/relay/batches/test_aside.py::test_what_goes_aside_is_in_no_offset_of_the_target
        if metadata is not None and not output.aside:
            if output.batch is not None:
                self.acked_time_ms = max(output.batch.max_timestamp, self.acked_time_ms or 0)
                self._measure(output, output.batch.max_timestamp, pending.answered_ms)
                if self._on_acknowledged is not None:
                    self._on_acknowledged(output, metadata.base_offset, pending.sent_ms, pending.answered_ms)
                self.last_batch = output.batch.producer_epoch, output.batch.base_sequence
            self._on_appended(metadata.base_offset, output.count)
            source, target = output.base_offset, metadata.base_offset
            self._appends.append(source, target, output.count, output.jumps, output.next_offset)
        else:
            self._appends.skip_to(output.next_offset)
        self.acked_offset, self.acked_epoch = output.next_offset, output.leader_epoch
        self.counts.add(output)
        if output.batch is not None:
            self.acked_bytes += output.batch.size
        if output.buffer is not None:
            output.buffer.release()

    def _measure(self, output: OutputBatch, appended_ms: int, answered_ms: int) -> None:
        """Count the latency of a batch's records as that of the latest: one observation costs 0.5 us.

        With LogAppendTime all have the time of the source's append; otherwise the producer has set it, as MirrorMaker
        2's `replication-latency-ms` also counts. The clocks of different hosts may make it negative.
        """
        if appended_ms >= 0:
            self._latency.add(max(0, answered_ms - appended_ms), output.count)

    def _on_appended(self, base_offset: int, count: int) -> None:
        """Move the log's end over ``count`` appended records. The answer to a duplicate may have no offset (-1)."""
        self._acked_records += count
        if base_offset < 0:
            self.log_end += count
            return
        if base_offset < self.log_end and self.regression is None:
            self.regression = (base_offset, self.log_end)
        self.target_end = base_offset + count
        self.log_end = max(self.log_end, self.target_end)

    @property
    def exact_end(self) -> int | None:
        """The target offset behind the last acknowledged record; None if a response did not say it, or there is none.

        The response to a duplicate may have no offset.
        """
        return self.target_end if self.target_end == self.log_end else None

    @property
    def expected_end(self) -> int:
        """The least end of the target's log once everything sent is acknowledged: each record takes an offset."""
        unanswered = self._sent_records - self._acked_records
        return max(self.log_end, self._after_commit) + unanswered if unanswered else self.log_end

    def on_transaction_committed(self) -> None:
        """A transaction with all that was sent is committed: its marker is behind it, and takes an offset."""
        if self.target_end is not None:
            self._after_commit = self.target_end + 1

    def on_answer(self, pending: PendingBatch, outcome: RecordMetadata | KafkaError) -> None:
        """Store the outcome of ``pending``. Called on the network thread, possibly before :meth:`add`."""
        if isinstance(outcome, RecordMetadata):
            pending.answered_ms = self._unix_ms()  # the task may process it much later
            pending.metadata = outcome
        else:
            pending.error, self._failed = outcome, True
        self._on_answered(pending.error is not None)

    def first_failure(self) -> tuple[OutputBatch, BaseException] | None:
        """Return the first failed batch with its error; None if no batch failed.

        A batch that failed with its transaction (NeedsAbort) is returned only if no batch has an error of its own.
        """
        if not self._failed:
            return None
        dependent: tuple[OutputBatch, BaseException] | None = None
        for pending in self._batches:
            if pending.error is None:
                continue
            if not isinstance(pending.error, NeedsAbort):
                return pending.output, pending.error
            dependent = dependent or (pending.output, pending.error.__cause__ or pending.error)
        return dependent

    def release(self) -> None:
        """Leave the send window: the attempt is over."""
        for pending in self._batches:
            if pending.in_flight is not None:
                self._window.release(pending.in_flight)
        self._window.dequeue(self._owner)
        self._batches.clear()
