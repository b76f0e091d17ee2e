"""Copies the ranges of one task: source consumer, target producer, progress, until each range has its result."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Final

from mirror.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import FlowError, MirrorError
from mirror.producer.settings import ProducerSettings
from mirror.relay.partition import PartitionCopy
from mirror.relay.progress import Progress, ProgressStore
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock

_POLL_MS: Final = 50
"""Longest wait for records while acknowledgements are also awaited."""
_NO_RESET: Final = {"auto.offset.reset": "none"}
"""A gap is reported, never skipped: MirrorMaker's users' first complaint."""
_SMALLEST_SHARE: Final = 1024 * 1024


def copy_ranges(
    ranges: Sequence[Range],
    *,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    commit_interval_ms: int,
) -> list[RangeResult]:
    """Copy all ``ranges`` of one flow; a result for each, in order. Never raises for what a cluster or partition does.

    ``source_options`` are a consumer's, ``target_options`` a producer's dotted keys. Progress is committed every
    ``commit_interval_ms`` and at each range's end, never beyond what the target acknowledged.
    """
    clock = SystemClock()
    started = clock.now()
    try:
        reading = ConsumerSettings.parse(source_options)
        writing = ProducerSettings.parse(target_options)
        known = ClusterSettings.keys()
        shared = {key: value for key, value in target_options.items() if key in known}
        with (
            Admin(shared) as admin,
            Consumer({**source_options, **_NO_RESET}) as consumer,
            Producer(target_options) as producer,
        ):
            task = _Task(ranges, admin, consumer, producer, clock)
            task.begin(writing.buffer_memory)
            task.run(commit_interval_ms, reading.cluster.default_api_timeout_ms)
            results = task.results()
    except MirrorError as error:
        results = [RangeResult.begun(one, one.start, Outcome.FAILED, str(error)) for one in ranges]
    seconds = (clock.now() - started) / 1000
    for result in results:
        result.seconds = result.seconds or seconds
    return results


class _Task:
    """The copies of one task and the clients they share."""

    def __init__(
        self, ranges: Sequence[Range], admin: Admin, consumer: Consumer, producer: Producer, clock: Clock
    ) -> None:
        self._ranges = ranges
        self._consumer = consumer
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._started = clock.now()
        self._store = ProgressStore(admin, ranges[0].flow, ranges[0].source_cluster_id)
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._paused: set[TopicPartition] = set()

    def begin(self, buffer_memory: int) -> None:
        """Find out where each copy really starts: the progress on the target is the truth, the plan a record."""
        targets = [TopicPartition(one.target_topic, one.partition) for one in self._ranges]
        known = self._store.read(targets)
        configs = self._admin.describe_topic_configs({tp.topic for tp in targets})
        share = max(_SMALLEST_SHARE, buffer_memory // (2 * len(targets)))
        for one, tp in zip(self._ranges, targets, strict=True):
            progress = known.get(tp)
            copy = PartitionCopy(
                range=one,
                start=one.start if progress is None else progress.offset,
                share=share,
                # Others wait for this thread, too; and a copy with a hole in it is none.
                send=functools.partial(self._producer.send_batch, block=False, chained=True),
                target_log_append_time=configs[tp.topic].get("message.timestamp.type") == "LogAppendTime",
                now=self._clock.now(),
            )
            self._copies[copy.source] = copy
            if progress is not None and progress.source_cluster_id not in {"", one.source_cluster_id}:
                copy.fail(_other_source(one, progress))
        # Before the first record: who may not keep progress would copy all of it again with each run, and a flow that
        # begins at the end of its source would begin at a later end each time.
        open_ones = {copy.target: copy for copy in self._copies.values() if not copy.done}
        begun = {tp: copy.first_progress(known.get(tp)) for tp, copy in open_ones.items()}
        for tp, error in self._store.write(begun, self._clock.wall()).items():
            open_ones[tp].fail(error)
        self._consumer.assign([copy.source for copy in self._copies.values()])
        for tp, copy in self._copies.items():
            progress = known.get(copy.target)
            # With the last copied batch's epoch the consumer finds out whether the source's log was cut back (KIP-320).
            epoch = None if progress is None else progress.leader_epoch
            self._consumer.seek(tp, OffsetAndMetadata(copy.start, epoch))

    def run(self, commit_interval_ms: int, stall_ms: int) -> None:
        """Until every copy is done."""
        commit_at = self._clock.now() + commit_interval_ms
        while True:
            now = self._clock.now()
            for copy in self._copies.values():
                copy.harvest(now)
            if now >= commit_at or self._all_done():
                self._commit()
                commit_at = self._clock.now() + commit_interval_ms
            if self._all_done():
                return
            self._steer()
            self._await(stall_ms)

    def _all_done(self) -> bool:
        return all(copy.done for copy in self._copies.values())

    def _steer(self) -> None:
        """Fetch only for copies that can soon send it."""
        idle = {tp for tp, copy in self._copies.items() if not copy.wants_more}
        if pause := idle - self._paused:
            self._consumer.pause(pause)
        if resume := self._paused - idle:
            self._consumer.resume(resume)
        self._paused = idle

    def _await(self, stall_ms: int) -> None:
        """Wait for whichever can happen next: records, or an acknowledgement."""
        reading = len(self._paused) < len(self._copies)
        if not reading:
            pending = [future for copy in self._copies.values() for future in copy.pending]
            wait(pending, timeout=_POLL_MS / 1000, return_when=FIRST_COMPLETED)
            return
        fetched = self._consumer.poll(_POLL_MS)
        now = self._clock.now()
        for one in fetched:
            self._copies[one.tp].take_in(one, now)
        if not fetched:
            for tp, copy in self._copies.items():
                # The reason costs a trip to the network thread: asked once, when the time is over.
                if copy.stalled(now, stall_ms):
                    copy.give_up(stall_ms, self._consumer.last_error(tp))

    def _commit(self) -> None:
        """Progress of all copies at once; what was not kept is tried again, and at the end fails the copy."""
        due = {copy.target: (copy, found) for copy in self._copies.values() if (found := copy.progress()) is not None}
        lost = self._store.write({tp: found for tp, (_, found) in due.items()}, self._clock.wall())
        last = self._all_done()
        for tp, (copy, found) in due.items():
            if tp not in lost:
                copy.committed_offset = found.offset
            elif last and copy.result.error is None:
                copy.result.outcome, copy.result.error = Outcome.FAILED, f"progress was not kept: {lost[tp]}"
        for copy in self._copies.values():
            if copy.done and not copy.result.seconds:
                copy.result.seconds = max(0.001, (self._clock.now() - self._started) / 1000)

    def results(self) -> list[RangeResult]:
        """One per range, in order; ``end`` is what the kept progress vouches for."""
        for copy in self._copies.values():
            copy.result.end = copy.start if copy.committed_offset is None else copy.committed_offset
        return [self._copies[TopicPartition(one.topic, one.partition)].result for one in self._ranges]


def _other_source(one: Range, progress: Progress) -> FlowError:
    return FlowError(
        f"{one.target_topic}-{one.partition}: its progress was kept by a flow {one.flow!r} from another source cluster "
        f"({progress.source_cluster_id}, not {one.source_cluster_id}); give one of the two flows another name"
    )
