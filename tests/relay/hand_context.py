"""The context and the target writer of one copy, whose calls are answered by the test."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mirror.backoff import Backoff
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError, KafkaTimeout
from mirror.meters import Histogram
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.batches.batch_pipeline import SubmitReencode
from mirror.relay.batches.reencode import ReencodeResult, ReencodeSpec, reencode
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.slow_records import SlowRecords
from mirror.relay.byte_limits import SendWindow, SourceBudget
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.policy import CopyTimeouts
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.offsets.segments import Segment
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.progress.target_loss import TargetLoss
from mirror.timing import FOREVER_MS
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import values_of

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
TIMES = CopyTimeouts(
    delivery_timeout_ms=10_000,
    request_timeout_ms=1_000,
    stall_ms=5_000,
    commit_interval_ms=1_000,
    commit_min_interval_ms=20,
)
MEMORY = 1_000_000
TOPIC_ID = "the-id"


@dataclass(slots=True)
class SentBatch:
    """A batch as it was sent; afterwards it is patched, as a producer does."""

    values: list[bytes]
    size: int
    callback: Callback
    answered: bool = False

    def answer(self, outcome: RecordMetadata | KafkaError) -> None:
        assert not self.answered, "a batch is answered once"
        self.answered = True
        self.callback(outcome)


@dataclass(slots=True)
class Commit:
    progress: Progress
    timeout_ms: int
    sent_before: int
    future: Future[None] = field(default_factory=Future)


class HandWriter:
    """A target writer whose calls are answered by the test. After ``close`` it accepts no call."""

    def __init__(self, way: Way | None) -> None:
        self.way = way
        self.atomic = way is Way.TRANSACTIONS
        self.acquired = way is not Way.SEQUENCES
        self.acquisitions: list[tuple[Progress, Future[FoundPosition]]] = []
        self.valid_until_ms = FOREVER_MS
        self.losses: list[TargetLoss | None] = []
        self.producer_id = 7
        self.fences_in_doubt = self.advanced_ms = 0
        self.open_timeout_ms: int | None = None
        self.planned: Progress | None = None
        self.opened: Future[Progress | None] = Future()
        self.sent: list[SentBatch] = []
        self.aside: list[SentBatch] = []
        self.commits: list[Commit] = []
        self.closed: Future[None] | None = None
        self.send_error: Exception | None = None

    def open(self, timeout_ms: int, planned: Progress | None = None) -> Future[Progress | None]:
        assert self.open_timeout_ms is None, "a writer is opened once"
        self.open_timeout_ms, self.planned = timeout_ms, planned
        return self.opened

    def note_target_end(self, progress: Progress, log_end: int | None) -> None:
        assert self.closed is None
        if self.way is Way.TRANSACTIONS and progress.target is not None:
            ends_there = log_end is not None and not progress.target.may_precede_appends(log_end)
            self.acquired = self.acquired and ends_there

    def acquire(self, progress: Progress, timeout_ms: int, loss: TargetLoss | None) -> Future[FoundPosition]:
        assert self.closed is None
        assert timeout_ms > 0
        self.losses.append(loss)
        self.acquisitions.append((progress, Future()))
        return self.acquisitions[-1][1]

    def acquire_timeout(self) -> KafkaTimeout:
        return KafkaTimeout("the test does not answer")

    def send(self, batch: Batch, callback: Callback, log_end: int) -> None:
        assert log_end >= 0
        assert self.closed is None
        assert self.acquired
        if self.send_error is not None:
            raise self.send_error
        if self.atomic and self.commits:
            assert self.commits[-1].future.done(), "nothing is sent while a transaction ends"
        batch.verify()
        self.sent.append(SentBatch(values_of(batch.view), batch.size, callback))
        batch.patch(7, 0, len(self.sent), transactional=self.atomic)

    def send_aside(self, batch: Batch, callback: Callback) -> None:
        assert self.way is not Way.SEQUENCES, "by sequences nothing goes aside"
        self.aside.append(SentBatch(values_of(batch.view), batch.size, callback))

    def commit(self, progress: Progress, timeout_ms: int) -> Future[None]:
        assert self.closed is None
        assert self.acquired or progress.ended, "without a fence, nothing but what is exact"
        assert not self.commits or self.commits[-1].future.done(), "commits do not overlap"
        assert timeout_ms > 0
        self.commits.append(Commit(progress, timeout_ms, len(self.sent)))
        return self.commits[-1].future

    def commit_due_ms(self, pending_since_ms: int, interval_ms: int, pending_bytes: int) -> int:
        del pending_bytes
        return pending_since_ms + interval_ms

    def close(self, timeout_ms: int) -> Future[None]:
        assert self.closed is None, "a writer is closed once"
        assert timeout_ms > 0
        self.closed = Future()
        return self.closed


class RecordingObserver(NullObserver):
    """Stores all spans and results."""

    def __init__(self) -> None:
        self.spans: list[Mapping[str, Any]] = []
        self.results: list[RangeResult] = []

    def span_ended(self, one: Range, span: Mapping[str, Any]) -> None:
        del one
        self.spans.append(span)

    def range_finished(self, one: Range, result: RangeResult) -> None:
        del one
        self.results.append(result)


class HandContext:
    """The context of one copy. Lookups are answered by the test; the copy is stepped when it asked to be."""

    def __init__(self, *, clock: FakeClock | None = None, memory: int = MEMORY, acquires: bool = True) -> None:
        self.clock = clock or FakeClock()
        self.timeouts = TIMES
        self.send_window = SendWindow(memory, TIMES.delivery_timeout_ms // 8, self.clock.now())
        self.source_budget = SourceBudget(memory)
        self.backoff = Backoff(100, 1_000, random.Random(1))
        self.acquires = acquires
        self.acquiring: list[Future[Any]] = []
        self.quiet: list[bool] = []
        """Whether each copy that wanted to acquire had no records."""
        self.writers: list[HandWriter] = []
        self.read_position: tuple[int, int | None] | None = None
        """(offset, leader epoch) of the last ``read_from``; None since ``stop_reading``."""
        self.read_topic_id = ""
        self.fetch_offset = 0
        """What a consumer would fetch next."""
        self.source_lookups: list[Future[SourceState]] = []
        self.start_lookups: list[Future[StartPosition]] = []
        self.start_requests: list[tuple[Progress | None, TargetMark | None]] = []
        self.anchors: list[Anchor] = []
        self.segments: list[Segment] = []
        self.start_continues = False
        self.shrunk_to: int | None = None
        self.comparisons: list[tuple[TargetMark, Future[TargetMark | None]]] = []
        self.reencodings: list[tuple[Sequence[AnyBatch], ReencodeSpec, Future[ReencodeResult]]] = []
        self.reencodes_by_hand = False
        self.retries_allowed = self.names_run = False
        self.source_error_text = ""
        self.to_step: list[CopyHandle] = []
        self.observer = RecordingObserver()
        self.slow_records: SlowRecords | None = None
        self.latency = Histogram()
        self.commit_durations = Histogram()
        self.leader: tuple[int, int] | None = None
        self.no_leader_text = ""
        self.is_foreign: IsForeign | None = None

    def unix_ms(self) -> int:
        return self.clock.unix_ms()

    def keep_anchor(self, copy: CopyHandle, anchor: Anchor) -> None:
        del copy
        self.anchors.append(anchor)

    def keep_segments(self, copy: CopyHandle, segments: Sequence[Segment]) -> None:
        del copy
        self.segments += segments

    def no_leader_reason(self, target: TopicPartition) -> str:
        del target
        return self.no_leader_text

    def target_leader(self, target: TopicPartition) -> tuple[int, int] | None:
        del target
        return self.leader

    def new_writer(self, copy: CopyHandle, way: Way | None) -> HandWriter:
        del copy
        self.writers.append(HandWriter(way))
        return self.writers[-1]

    def may_acquire(self, copy: CopyHandle, *, quiet: bool = False) -> bool:
        del copy
        self.quiet.append(quiet)
        return self.acquires

    def on_acquiring(self, call: Future[Any]) -> None:
        self.acquiring.append(call)

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        del copy
        self.read_position = (offset, leader_epoch)
        self.fetch_offset = offset
        self.read_topic_id = topic_id

    def stop_reading(self, copy: CopyHandle) -> None:
        del copy
        self.read_position = None

    def source_state(self, source: TopicPartition, copied_topic: str) -> Future[SourceState]:
        del source, copied_topic
        self.source_lookups.append(Future())
        return self.source_lookups[-1]

    def resolve_start(
        self,
        target: TopicPartition,
        progress: Progress | None,
        mark: TargetMark | None,
        timeout_ms: int,
        shrunk_to: int | None,
        *,
        source_topic: str,
        continues: bool = False,
        to_end: bool = False,
    ) -> Future[StartPosition]:
        del target, timeout_ms, to_end, source_topic
        self.start_continues = continues
        self.shrunk_to = shrunk_to
        self.start_requests.append((progress, mark))
        self.start_lookups.append(Future())
        return self.start_lookups[-1]

    def compare_target(self, target: TopicPartition, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        del target, timeout_ms
        self.comparisons.append((mark, Future()))
        return self.comparisons[-1][1]

    def foreign_finder(self, source: TopicPartition, topic_id: Callable[[], str]) -> IsForeign | None:
        del source, topic_id
        return self.is_foreign

    def reencoder(self, source: TopicPartition) -> SubmitReencode:
        del source

        def submit(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> Future[ReencodeResult]:
            future: Future[ReencodeResult] = Future()
            self.reencodings.append((sources, spec, future))
            if not self.reencodes_by_hand:
                self.reencode()
            return future

        return submit

    def reencode(self) -> None:
        """Carry out the last re-encoding that was requested."""
        sources, spec, future = self.reencodings[-1]
        try:
            future.set_result(reencode(sources, spec))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)

    def step_when_done(self, copy: CopyHandle, future: Future[Any]) -> None:
        future.add_done_callback(lambda _: self.to_step.append(copy))

    def on_batch_answered(self, copy: CopyHandle, failed: bool) -> None:
        del failed
        self.to_step.append(copy)

    def may_retry(self) -> bool:
        return self.retries_allowed

    def may_fence_again(self) -> bool:
        return self.names_run

    def source_error(self, source: TopicPartition) -> str:
        del source
        assert self.read_position is not None, "the consumer knows only the partitions that it reads"
        return self.source_error_text

    def run_until_idle(self) -> None:
        """Step until nothing more happens by itself."""
        for _ in range(10_000):
            if self.to_step:
                self.to_step.pop(0).step(self.clock.now())
            elif (owner := self.send_window.next_sender(self.clock.now())) is not None:
                assert isinstance(owner, PartitionCopy)
                owner.step(self.clock.now())
            else:
                return
        raise AssertionError("the copy is stepped for ever, although nothing happens")
