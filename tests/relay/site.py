"""A copy with nothing real around it: a clock, a source and a way to the target that are driven by hand."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mirror.backoff import Backoff
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError
from mirror.meters import Histogram
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.batches.batch_pipeline import Remake
from mirror.relay.batches.reencode import ReencodeResult, ReencodeSpec, reencode
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.flow_control import SendWindow, SourceBudget
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookups import StartPosition
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build, values_of

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
TIMES = CopyTimeouts(delivery_ms=10_000, request_ms=1_000, stall_ms=5_000, commit_ms=1_000, commit_min_ms=20)
MEMORY = 1_000_000
TOPIC_ID = "the-id"


def a_range(
    end: int,
    start: int = 0,
    stuck_since_ms: int | None = None,
    source_epoch: int | None = None,
    first: int | None = None,
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
    )


def progress_at(offset: int, *, cluster: str = "paris", topic_id: str = TOPIC_ID) -> Progress:
    return Progress(offset=offset, leader_epoch=None, source_cluster_id=cluster, topic_id=topic_id)


def made(base: int, count: int = 1, **options: Any) -> Batch:
    """A batch whose records' values are their offsets."""
    return batch(build([b"%d" % n for n in range(base, base + count)], base_offset=base, **options))


@dataclass(slots=True)
class Sent:
    """A batch as it was handed over; like a producer, it was patched meanwhile."""

    values: list[bytes]
    size: int
    created_ms: int | None
    callback: Callback
    answered: bool = False

    def answer(self, outcome: RecordMetadata | KafkaError) -> None:
        assert not self.answered, "told once"
        self.answered = True
        self.callback(outcome)


@dataclass(slots=True)
class Commit:
    progress: Progress
    timeout_ms: int
    sent_before: int
    future: Future[None] = field(default_factory=Future)


class HandCarrier:
    """Nothing is answered but by hand. After ``drop`` nothing more may be asked."""

    def __init__(self, *, atomic: bool) -> None:
        self.atomic = atomic
        self.producer_id = 7
        self.fences_in_doubt = 0
        self.open_timeout_ms: int | None = None
        self.opened: Future[Progress | None] = Future()
        self.sent: list[Sent] = []
        self.commits: list[Commit] = []
        self.dropped: Future[None] | None = None
        self.refuse: Exception | None = None

    def open(self, timeout_ms: int) -> Future[Progress | None]:
        assert self.open_timeout_ms is None, "opened once"
        self.open_timeout_ms = timeout_ms
        return self.opened

    def send(self, batch: Batch, created_ms: int | None, callback: Callback) -> None:
        assert self.dropped is None
        if self.refuse is not None:
            raise self.refuse
        if self.atomic and self.commits:
            assert self.commits[-1].future.done(), "nothing is sent while a transaction ends"
        batch.verify()
        one = Sent(values_of(batch.view), batch.size, created_ms, callback)
        self.sent.append(one)
        batch.patch(7, 0, len(self.sent), transactional=self.atomic)

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        assert self.dropped is None
        assert not self.commits or self.commits[-1].future.done(), "one at a time"
        assert timeout_ms > 0
        self.commits.append(Commit(progress, timeout_ms, len(self.sent)))
        return self.commits[-1].future

    def drop(self, timeout_ms: int) -> Future[None]:
        assert self.dropped is None, "dropped once"
        assert timeout_ms > 0
        self.dropped = Future()
        return self.dropped


class Watching(NullObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[Mapping[str, Any]] = []
        self.results: list[RangeResult] = []

    def passed(self, one: Range, span: Mapping[str, Any]) -> None:
        del one
        self.spans.append(span)

    def done(self, one: Range, result: RangeResult) -> None:
        del one
        self.results.append(result)


class HandSite:
    """The task around one copy: steps it when it asked to be woken."""

    def __init__(self, *, atomic: bool, clock: FakeClock | None = None, memory: int = MEMORY) -> None:
        self.clock = clock or FakeClock()
        self.atomic = atomic
        self.window = SendWindow(memory, TIMES.delivery_ms // 8, self.clock.now())
        self.holdings = SourceBudget(memory)
        self.backoff = Backoff(100, 1_000, random.Random(1))
        self.carriers: list[HandCarrier] = []
        self.reading: tuple[int, int | None] | None = None
        self.reads_topic = ""
        self.looks: list[Future[SourceState]] = []
        self.settles: list[Future[StartPosition]] = []
        self.settled_with: list[tuple[Progress | None, TargetMark | None]] = []
        self.compares: list[tuple[TargetMark, Future[TargetMark | None]]] = []
        self.makings: list[tuple[Sequence[AnyBatch], ReencodeSpec, Future[ReencodeResult]]] = []
        self.encodes_by_hand = False
        self.neighbours_are_healthy = False
        self.silence = ""
        self.touched: list[PartitionCopy] = []
        self.watcher = Watching()
        self.commits = Histogram()
        self.leads: tuple[int, int] | None = None
        self.no_leader = ""

    def wall(self) -> int:
        return self.clock.unix_ms()

    def why_no_leader(self, copy: PartitionCopy) -> str:
        del copy
        return self.no_leader

    def leader(self, copy: PartitionCopy) -> tuple[int, int] | None:
        del copy
        return self.leads

    def carrier(self, copy: PartitionCopy) -> HandCarrier:
        del copy
        self.carriers.append(HandCarrier(atomic=self.atomic))
        return self.carriers[-1]

    def read_from(self, copy: PartitionCopy, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        del copy
        self.reading = (offset, leader_epoch)
        self.reads_topic = topic_id

    def stop_reading(self, copy: PartitionCopy) -> None:
        del copy
        self.reading = None

    def look(self, copy: PartitionCopy) -> Future[SourceState]:
        del copy
        self.looks.append(Future())
        return self.looks[-1]

    def settle(
        self, copy: PartitionCopy, progress: Progress | None, mark: TargetMark | None, timeout_ms: int
    ) -> Future[StartPosition]:
        del copy, timeout_ms
        self.settled_with.append((progress, mark))
        self.settles.append(Future())
        return self.settles[-1]

    def compare(self, copy: PartitionCopy, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        del copy, timeout_ms
        self.compares.append((mark, Future()))
        return self.compares[-1][1]

    def remake(self, copy: PartitionCopy) -> Remake:
        del copy

        def submit(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Future[ReencodeResult]:
            future: Future[ReencodeResult] = Future()
            self.makings.append((sources, recipe, future))
            if not self.encodes_by_hand:
                self.encode()
            return future

        return submit

    def encode(self) -> None:
        """Do what was asked last of the encoder."""
        sources, recipe, future = self.makings[-1]
        try:
            future.set_result(reencode(sources, recipe))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)

    def watch(self, copy: PartitionCopy, future: Future[Any]) -> None:
        future.add_done_callback(lambda _: self.touched.append(copy))

    def answered(self, copy: PartitionCopy, failed: bool) -> None:
        del failed
        self.touched.append(copy)

    def may_retry(self, copy: PartitionCopy) -> bool:
        del copy
        return self.neighbours_are_healthy

    def why_silent(self, copy: PartitionCopy) -> str:
        del copy
        return self.silence

    def settle_down(self) -> None:
        """Step until nothing more happens by itself."""
        for _ in range(10_000):
            if self.touched:
                self.touched.pop(0).step(self.clock.now())
            elif (who := self.window.call(self.clock.now())) is not None:
                assert isinstance(who, PartitionCopy)
                who.step(self.clock.now())
            else:
                return
        raise AssertionError("it goes on for ever without anything happening")


class _Part:
    held = 0

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Run:
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
        batch_size: int = 1,
        memory: int = MEMORY,
        clock: FakeClock | None = None,
        **policy: Any,
    ) -> None:
        self.site = HandSite(atomic=atomic, clock=clock, memory=memory)
        self.clock = self.site.clock
        self.parts: list[_Part] = []
        self.copy = PartitionCopy(
            a_range(end, start, stuck_since_ms, source_epoch, first),
            CopyPolicy(exactly_once=atomic, **policy),
            facts or TargetLimits(),
            TIMES,
            batch_size,
            self.site,
            self.clock.now(),
        )

    @property
    def carrier(self) -> HandCarrier:
        """Of the attempt now."""
        return self.site.carriers[-1]

    @property
    def result(self) -> RangeResult:
        assert self.copy.done
        return self.copy.result

    @property
    def sent(self) -> list[list[bytes]]:
        return [one.values for one in self.carrier.sent]

    def opened(self, offset: int = 0, **about: str) -> Run:
        """The fence is through, and found progress at ``offset``."""
        return self.opened_with(progress_at(offset, **about))

    def opened_with(self, progress: Progress | None) -> Run:
        self.found(progress)
        if progress is None or self.copy.stage is not CopyState.SETTLING:
            return self
        return self.settled(progress, mark=progress.target)

    def found(self, progress: Progress | None) -> Run:
        """The fence is through; what the target has is still to be asked."""
        self.carrier.opened.set_result(progress)
        self.site.settle_down()
        return self

    def settled(self, progress: Progress | None = None, target_end: int = 0, **about: Any) -> Run:
        self.site.settles[-1].set_result(StartPosition(progress, target_end, **about))
        self.site.settle_down()
        return self

    def fetch(
        self,
        *batches: AnyBatch,
        aborted: tuple[AbortedTransaction, ...] = (),
        stable_end: int = 10**9,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        """The source gives these at the place where it is read; ``stable_end`` is its last stable offset."""
        at = self.copy._reading.at
        size = sum(one.size for one in batches)
        self.parts.append(_Part())
        self._take_in(
            Fetched(
                tp=SOURCE,
                offset=at,
                next_offset=batches[-1].next_offset if batches else at,
                batches=list(batches),
                aborted=aborted,
                size=size,
                held=size,
                last_stable_offset=stable_end,
                topic_id=topic_id,
                part=self.parts[-1],
            )
        )

    def fetch_fails(self, error: KafkaError) -> None:
        at = self.copy._reading.at
        self._take_in(Fetched(tp=SOURCE, offset=at, next_offset=at, error=error))

    def _take_in(self, fetched: Fetched) -> None:
        self.copy.take_in(fetched, self.clock.now())
        self.site.settle_down()

    def ack(self, *which: int, throttle_ms: int = 0) -> None:
        """These are in the log; without numbers, all that is not answered."""
        unanswered = [n for n, one in enumerate(self.carrier.sent) if not one.answered]
        for number in which or unanswered:
            base_offset = 1_000 + sum(len(one.values) for one in self.carrier.sent[:number])
            metadata = RecordMetadata(TARGET, base_offset, 0, throttle_ms)
            self.carrier.sent[number].answer(metadata)
        self.site.settle_down()

    def ack_all(self) -> None:
        """Until nothing more is sent."""
        while any(not one.answered for one in self.carrier.sent):
            self.ack()

    def fail(self, which: int, error: KafkaError) -> None:
        self.carrier.sent[which].answer(error)
        self.site.settle_down()

    def commit(self, error: KafkaError | None = None) -> Progress:
        """Answer the one that is under way."""
        last = self.carrier.commits[-1]
        if error is None:
            last.future.set_result(None)
        else:
            last.future.set_exception(error)
        self.site.settle_down()
        return last.progress

    @property
    def committing(self) -> int | None:
        """The offset of the commit under way."""
        commits = self.carrier.commits
        return commits[-1].progress.offset if commits and not commits[-1].future.done() else None

    def dropped(self) -> None:
        """The transaction is aborted."""
        assert self.carrier.dropped is not None
        self.carrier.dropped.set_result(None)
        self.site.settle_down()

    def rest(self) -> int:
        """Until the next attempt; how long that was."""
        assert self.copy.stage is CopyState.RESTING
        began = self.clock.now()
        self.advance(self.copy.due_ms(began) - began)
        return self.clock.now() - began

    def looked(
        self, *, earliest: int = 0, end: int = 1_000, topic_id: str = TOPIC_ID, leader_epoch: int | None = None
    ) -> None:
        """The source was asked what it still has."""
        assert self.copy.stage is CopyState.LOOKING
        assert self.site.reading is None
        state = SourceState(topic_id=topic_id, earliest=earliest, end=end, leader_epoch=leader_epoch)
        self.site.looks[-1].set_result(state)
        self.site.settle_down()

    def advance(self, ms: int) -> None:
        """Time passes, and what is due on the way is done."""
        until = self.clock.now() + ms
        while (due := self._due_ms()) <= until:
            assert due > self.clock.now(), "overdue, and nothing is done about it"
            self.clock.jump_to(due)
            self.copy.step(self.clock.now())
            self.site.settle_down()
        if self.clock.now() < until:
            self.clock.jump_to(until)

    def _due_ms(self) -> int:
        now = self.clock.now()
        return min(self.copy.due_ms(now), self.site.window.next_ms(now))

    def ends(self, outcome: Outcome) -> RangeResult:
        """It is dropped, and has this result; nothing is held any more."""
        if self.copy.stage is CopyState.DROPPING:
            self.dropped()
        assert self.result.outcome is outcome, self.result.error
        self.holds_nothing()
        assert self.site.reading is None
        return self.result

    def holds_nothing(self) -> None:
        assert (self.copy.held, self.site.holdings.room) == (0, self.site.holdings._limit)
        assert not self.site.window.awaited
        assert not self.site.window._out
        assert all(part.released <= 1 for part in self.parts)
