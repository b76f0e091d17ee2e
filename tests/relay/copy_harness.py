"""Drives one partition's copy by hand: the clock, the source's responses, and every answer of the target."""

from __future__ import annotations

import uuid
from typing import Any

from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.errors import KafkaError
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressTotals
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.position import FoundPosition
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build
from tests.relay.hand_context import MEMORY, SOURCE, TARGET, TOPIC_ID, HandContext, HandWriter


def a_range(
    end: int,
    start: int = 0,
    stuck_since_ms: int | None = None,
    source_epoch: int | None = None,
    first: int | None = None,
    source_end: int = 0,
) -> Range:
    return Range(
        flow="flow",
        topic=SOURCE.topic,
        target_topic=TARGET.topic,
        partition=SOURCE.partition,
        start=start,
        end=end,
        source_cluster_id="paris",
        topic_id=TOPIC_ID,
        stuck_since_ms=stuck_since_ms,
        source_epoch=source_epoch,
        first=first,
        source_end=source_end,
    )


def progress_at(offset: int, *, cluster: str = "paris", topic_id: str = TOPIC_ID, topic: str = "") -> Progress:
    return Progress(offset=offset, leader_epoch=None, source_cluster_id=cluster, topic_id=topic_id, source_topic=topic)


def made(base: int, count: int = 1, **options: Any) -> Batch:
    """Make a batch whose records' values are their offsets."""
    return batch(build([b"%d" % n for n in range(base, base + count)], base_offset=base, **options))


class _FetchedPart:
    held = 0

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class CopyHarness:
    """One copy of ``[start, end)``, from its first attempt to its result."""

    def __init__(
        self,
        end: int,
        *,
        start: int = 0,
        atomic: bool = True,
        facts: TargetLimits | None = None,
        stuck_since_ms: int | None = None,
        source_epoch: int | None = None,
        first: int | None = None,
        source_end: int = 0,
        progress: Progress | None = None,
        batch_size: int = 1,
        memory: int = MEMORY,
        clock: FakeClock | None = None,
        rules: WayRules | None = None,
        acquires: bool = True,
        **policy: Any,
    ) -> None:
        self.context = HandContext(clock=clock, memory=memory, acquires=acquires)
        self.clock = self.context.clock
        self.parts: list[_FetchedPart] = []
        self.copy = PartitionCopy(
            a_range(end, start, stuck_since_ms, source_epoch, first, source_end),
            CopyPolicy(exactly_once=atomic, **policy),
            facts or TargetLimits(),
            batch_size,
            self.context,
            self.clock.now(),
            rules,
            progress,
        )

    @property
    def writer(self) -> HandWriter:
        """The writer of the present attempt."""
        return self.context.writers[-1]

    @property
    def result(self) -> RangeResult:
        assert self.copy.done
        return self.copy.result

    @property
    def sent(self) -> list[list[bytes]]:
        """The values of the batches that the present attempt has sent."""
        return [sent.values for sent in self.writer.sent]

    @property
    def unanswered(self) -> list[int]:
        """The numbers of the batches that were sent and are not answered."""
        return [number for number, sent in enumerate(self.writer.sent) if not sent.answered]

    # --- how an attempt begins

    def opened(self, offset: int = 0, **fields: str) -> CopyHarness:
        """The fence succeeds, and the target's progress is at ``offset``."""
        return self.opened_with(progress_at(offset, **fields))

    def opened_with(self, progress: Progress | None) -> CopyHarness:
        """The fence succeeds, and the target holds all that ``progress`` says."""
        self.found(progress)
        if progress is None or self.copy.state is not CopyState.RESOLVING_PROGRESS:
            return self
        return self.resolved(progress, mark=progress.target)

    def found(self, progress: Progress | None) -> CopyHarness:
        """The fence succeeds; the target's log has not answered yet."""
        self.writer.opened.set_result(progress)
        self.context.run_until_idle()
        return self

    def resolved(self, progress: Progress | None = None, target_end: int = 0, **fields: Any) -> CopyHarness:
        """The start position is resolved."""
        self.context.start_lookups[-1].set_result(StartPosition(progress, target_end, **fields))
        self.context.run_until_idle()
        return self

    def acquired(self, progress: Progress | None = None, appended: ProgressTotals = NO_TOTALS) -> CopyHarness:
        """The fence of the present attempt succeeds; by default, earlier attempts have appended nothing more."""
        resolved, future = self.writer.acquisitions[-1]
        self.writer.acquired = True
        future.set_result(FoundPosition(progress or resolved, appended))
        self.context.run_until_idle()
        return self

    # --- the source

    def fetch(
        self,
        *batches: AnyBatch,
        aborted: tuple[AbortedTransaction, ...] = (),
        stable_end: int = 10**9,
        topic_id: uuid.UUID | None = None,
        offset: int | None = None,
        received_ms: int = 0,
    ) -> None:
        """The source returns these batches at the fetch offset, or at ``offset``; its last stable offset."""
        offset = self.context.fetch_offset if offset is None else offset
        size = sum(given.size for given in batches)
        self.parts.append(_FetchedPart())
        self._on_fetched(
            Fetched(
                tp=SOURCE,
                offset=offset,
                next_offset=batches[-1].next_offset if batches else offset,
                batches=list(batches),
                aborted=aborted,
                size=size,
                held=size,
                last_stable_offset=stable_end,
                topic_id=topic_id,
                received_ms=received_ms,
                part=self.parts[-1],
            )
        )

    def fetch_fails(self, error: KafkaError) -> None:
        offset = self.context.fetch_offset
        self._on_fetched(Fetched(tp=SOURCE, offset=offset, next_offset=offset, error=error))

    def _on_fetched(self, fetched: Fetched) -> None:
        if fetched.offset == self.context.fetch_offset:
            self.context.fetch_offset = fetched.next_offset
        self.copy.on_fetched(fetched, self.clock.now())
        self.context.run_until_idle()

    def source_answers(self) -> None:
        """The source has answered a fetch: it has nothing more."""
        now = self.clock.now()
        self.copy.on_source_response(LastResponse(now, None), now)

    def source_checked(
        self, *, earliest: int = 0, end: int = 1_000, topic_id: str = TOPIC_ID, leader_epoch: int | None = None
    ) -> None:
        """The source reports its id and bounds."""
        assert self.copy.state is CopyState.CHECKING_SOURCE
        assert self.context.read_position is None
        state = SourceState(topic_id=topic_id, earliest=earliest, end=end, leader_epoch=leader_epoch)
        self.context.source_lookups[-1].set_result(state)
        self.context.run_until_idle()

    # --- the target

    def ack(self, *numbers: int, throttle_ms: int = 0, base_offset: int | None = None) -> None:
        """Acknowledge these batches; without numbers, all that are unanswered."""
        for number in numbers or self.unanswered:
            at = 1_000 + sum(len(sent.values) for sent in self.writer.sent[:number])
            metadata = RecordMetadata(TARGET, at if base_offset is None else base_offset, 0, throttle_ms)
            self.writer.sent[number].answer(metadata)
        self.context.run_until_idle()

    def ack_all(self) -> None:
        """Acknowledge until nothing more is sent."""
        while self.unanswered:
            self.ack()

    def fail(self, number: int, error: KafkaError) -> None:
        self.writer.sent[number].answer(error)
        self.context.run_until_idle()

    def commit(self, error: KafkaError | None = None) -> Progress:
        """Answer the commit in flight."""
        last = self.writer.commits[-1]
        if error is None:
            last.future.set_result(None)
        else:
            last.future.set_exception(error)
        self.context.run_until_idle()
        return last.progress

    @property
    def committing(self) -> int | None:
        """The offset of the commit in flight."""
        commits = self.writer.commits
        return commits[-1].progress.offset if commits and not commits[-1].future.done() else None

    def closed(self) -> None:
        """The writer is closed: its transaction is aborted."""
        assert self.writer.closed is not None
        self.writer.closed.set_result(None)
        self.context.run_until_idle()

    # --- time

    def back_off(self) -> int:
        """Let the time until the next attempt pass; return it."""
        assert self.copy.state is CopyState.BACKING_OFF
        began = self.clock.now()
        self.advance(self.copy.due_ms(began) - began)
        return self.clock.now() - began

    def advance(self, ms: int) -> None:
        """Let time pass, and step whenever the copy or the window is due."""
        until = self.clock.now() + ms
        while (due := self._due_ms()) <= until:
            assert due > self.clock.now(), "the copy is overdue, and its step changes nothing"
            self.clock.jump_to(due)
            self.copy.step(self.clock.now())
            self.context.run_until_idle()
        if self.clock.now() < until:
            self.clock.jump_to(until)

    def _due_ms(self) -> int:
        now = self.clock.now()
        return min(self.copy.due_ms(now), self.context.send_window.due_ms(now))

    # --- the end

    def ended_with(self, outcome: Outcome) -> RangeResult:
        """Close the writer; return the result, which has this outcome. Nothing is held any more."""
        if self.copy.state is CopyState.ABORTING:
            self.closed()
        assert self.result.outcome is outcome, self.result.error
        self.assert_nothing_held()
        assert self.context.read_position is None
        return self.result

    def assert_nothing_held(self) -> None:
        assert (self.copy.held_bytes, self.context.source_budget.held) == (0, 0)
        assert not self.context.send_window.waiting_count
        assert self.context.send_window.in_flight_bytes == 0
        assert all(part.released <= 1 for part in self.parts)
