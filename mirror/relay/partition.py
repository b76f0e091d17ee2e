"""One partition's copy under way: what was fetched, what is sent, what is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import CorruptBatch, DeliveryTimeout, Fenced, FlowError, KafkaError, KafkaTimeout
from mirror.producer.batches import RecordMetadata
from mirror.relay.judge import SKIPPED, Fate, judge
from mirror.relay.progress import Progress
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.wire.records import Batch

Send = Callable[[TopicPartition, Batch], "Future[RecordMetadata]"]


@dataclass(slots=True)
class _Step:
    """One source batch on its way; ``future`` None where nothing had to be sent."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    records: int = 0
    size: int = 0
    future: Future[RecordMetadata] | None = None


@dataclass(slots=True)
class PartitionCopy:
    """Decides for one range; ``send`` delivers a batch. ``share`` bounds its bytes sent and not acknowledged."""

    range: Range
    start: int
    share: int
    send: Send
    target_log_append_time: bool
    now: int
    backlog: deque[tuple[Batch, bool]] = field(default_factory=deque)
    read_offset: int = field(init=False)
    acked_offset: int = field(init=False)
    acked_epoch: int | None = None
    committed_offset: int | None = None
    result: RangeResult = field(init=False)
    done: bool = False
    _steps: deque[_Step] = field(default_factory=deque)
    _unacked: int = 0
    _last: BaseException | None = None  # what ends the reading; what was sent before still counts

    def __post_init__(self) -> None:
        self.read_offset = self.acked_offset = self.start
        self.result = RangeResult.begun(self.range, self.start)

    @property
    def source(self) -> TopicPartition:
        """What is read."""
        return TopicPartition(self.range.topic, self.range.partition)

    @property
    def target(self) -> TopicPartition:
        """What is written."""
        return TopicPartition(self.range.target_topic, self.range.partition)

    @property
    def wants_more(self) -> bool:
        """Whether fetching should go on: the range's end is not read, and what was fetched is nearly sent."""
        return not (self.done or self._last or self.backlog) and self.read_offset < self.range.end

    @property
    def pending(self) -> list[Future[RecordMetadata]]:
        """The oldest unacknowledged send, if any: the next thing worth waiting for."""
        return [step.future for step in self._steps if step.future is not None][:1]

    def take_in(self, fetched: Fetched, now: int) -> None:
        """Batches came in: queue those of the range."""
        if self.done or self._last:
            return
        if fetched.error is not None:
            self._last = fetched.error
            return
        self.now = now
        for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
            if self.read_offset >= self.range.end:
                break
            if batch.base_offset < self.range.end:
                self.backlog.append((batch, aborted))
            self.read_offset = max(self.read_offset, min(batch.next_offset, self.range.end))
        self.push()

    def push(self) -> None:
        """Send from the backlog as far as the share allows."""
        while self.backlog and not self.done and self._unacked < self.share:
            batch, aborted = self.backlog.popleft()
            try:
                self._pass_on(batch, aborted)
            except KafkaTimeout:
                self.backlog.appendleft((batch, aborted))  # no memory at the moment: acknowledgements will free some
                return
            except KafkaError as error:
                self._last = error
                self.backlog.clear()

    def _pass_on(self, batch: Batch, aborted: bool) -> None:
        fate = judge(batch, aborted=aborted, target_log_append_time=self.target_log_append_time)
        step = _Step(batch.base_offset, batch.next_offset, batch.leader_epoch)
        if fate in SKIPPED:
            self.result.skipped[fate] = self.result.skipped.get(fate, 0) + 1
        elif fate is Fate.SHALLOW:
            self._verify(batch)
            step.records, step.size = batch.count, batch.size
            step.future = self.send(self.target, batch)
            self._unacked += batch.size
        else:
            msg = (
                f"{self.source}: the batch at offset {batch.base_offset} needs re-encoding ({fate}), which this version"
                " does not do yet; nothing from there on was copied: leave the topic out by topics-exclude"
            )
            raise KafkaError(msg)
        self._steps.append(step)

    def _verify(self, batch: Batch) -> None:
        try:
            batch.verify()
        except CorruptBatch as error:
            msg = (
                f"{self.source}: {error}; nothing from there on was copied:"
                " mend the source's log, or make another replica the leader"
            )
            raise CorruptBatch(msg) from None

    def harvest(self, now: int) -> None:
        """Take in acknowledgements, in order; then send more, or end."""
        while self._steps and not self.done:
            step = self._steps[0]
            if step.future is not None:
                if not step.future.done():
                    break
                error = step.future.exception()
                if error is not None:
                    self.fail(error, f"{self.source}, the batch at offset {step.base_offset}: ")
                    break
                self._unacked -= step.size
                self.result.records += step.records
                self.result.batches += 1
                self.result.bytes += step.size
            self._steps.popleft()
            self.now = now
            self.acked_offset, self.acked_epoch = step.next_offset, step.leader_epoch
        self.push()
        if self._last and not self._steps and not self.backlog:
            self.fail(self._last)
        if not self.done and not self._steps and not self.backlog and self.read_offset >= self.range.end:
            # The range's end counts as reached also where its last offsets hold nothing.
            self.acked_offset = max(self.acked_offset, self.range.end)
            self._end(Outcome.COMPLETE, None)

    def fail(self, error: BaseException, where: str = "") -> None:
        """Nothing more is sent; what was acknowledged in order before counts. ``where`` begins the error's text."""
        if self.done:
            return
        outcome = Outcome.FAILED
        if isinstance(error, DeliveryTimeout):
            outcome = Outcome.EXPIRED
        elif isinstance(error, Fenced):
            outcome = Outcome.FENCED
        self._end(outcome, where + (str(error) or type(error).__name__))

    def stalled(self, now: int, timeout_ms: int) -> bool:
        """Whether the source has given nothing for ``timeout_ms`` while more is wanted and nothing else is awaited."""
        return self.wants_more and not self._steps and now - self.now >= timeout_ms

    def give_up(self, timeout_ms: int, why: BaseException | None) -> None:
        """Fail because of a source that gave nothing for ``timeout_ms``."""
        reason = f": {why}" if why else ""
        self.fail(FlowError(f"{self.source}: nothing came from the source for {timeout_ms} ms{reason}"))

    def _end(self, outcome: Outcome, error: str | None) -> None:
        self.done = True
        self.backlog.clear()
        self.result.outcome, self.result.error = outcome, error

    def first_progress(self, known: Progress | None) -> Progress:
        """What to commit before anything is copied: ``known`` as it is, or where this copy begins."""
        return known or self._progress()

    def progress(self) -> Progress | None:
        """What to commit, where it is ahead of what was."""
        if self.acked_offset == (self.start if self.committed_offset is None else self.committed_offset):
            return None
        return self._progress()

    def _progress(self) -> Progress:
        return Progress(
            offset=self.acked_offset,
            leader_epoch=self.acked_epoch,
            source_cluster_id=self.range.source_cluster_id,
            topic_id=self.range.topic_id,
        )
