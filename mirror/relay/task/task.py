"""One task's copies and what they share: one thread that never waits for a single one of them."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.client import Admin, BufferMemory, Consumer, OffsetAndMetadata, Producer, TopicPartition
from mirror.meters import Histogram
from mirror.relay.batches.batch_pipeline import Remake
from mirror.relay.batches.encoder import Encoder
from mirror.relay.batches.reencode import ReencodeResult, ReencodeSpec, load_transform, remaking
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.flow_control import RateLimiter, SendWindow, SourceBudget
from mirror.relay.model.observer import NullObserver, TaskObserver, TaskSnapshot
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.partition.target_writer import AtLeastOnceWriter, ExactlyOnceWriter, TargetWriter
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.control import ControlPoller, RunControl
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.lookups import ClusterLookups, StartPosition
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.progress.start_positions import StartPositions
from mirror.relay.progress.target_log import TargetMark
from mirror.timing import FOREVER_MS, Clock
from mirror.wire.records import AnyBatch

_log: Final = logging.getLogger(__name__)

_LONGEST_WAIT_MS: Final = 1_000
_STEER_ALL_MS: Final = 100
_STEER_SOON_MS: Final = 10
"""How often all copies are asked whether they want to read; those that something happened to are asked at once."""
_INQUIRERS: Final = 4
_NOTES_EVERY_MS: Final = 3_600_000
_HAND_OVER_MS: Final = 500
_HEAR_SOON_MS: Final = 1_000
"""How often brokers' answers are asked for while some of the followed have had none: they may have nothing to fetch."""
_UNFOLDED: Final = 4
"""Times ``buffer.memory`` may one batch be, decompressed: with the default, 1 MB that was a hundred is copied."""
_TOLERABLE: Final = 8
"""An answer may take this part of delivery.timeout.ms before less is put under way."""


HandOver = Callable[[list[RangeResult]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the copies of a task share. ``producer`` is None where each has one of its own."""

    consumer: Consumer
    admin: Admin
    inquiries: ClusterLookups
    target_options: Mapping[str, object]
    memory: BufferMemory
    producer: Producer | None


class Task:
    """The context of all copies of a task (``CopyContext``), and the loop that steps them."""

    def __init__(
        self,
        clients: Clients,
        policy: CopyPolicy,
        times: CopyTimeouts,
        clock: Clock,
        backoff: Backoff,
        *,
        buffer_memory: int,
        part: int,
        watcher: TaskObserver | None = None,
    ) -> None:
        now = clock.now()
        self.wall: Final = clock.unix_ms
        self.watcher: Final[TaskObserver] = watcher or NullObserver()
        self.commits: Final = Histogram()
        self.window: Final = SendWindow(buffer_memory, max(1, times.delivery_ms // _TOLERABLE), now)
        self.holdings: Final = SourceBudget(buffer_memory)
        self.backoff: Final = backoff
        self._clients: Final = clients
        self._policy: Final = policy
        self._times: Final = times
        self._clock: Final = clock
        self._part: Final = part
        self._unfolded: Final = _UNFOLDED * buffer_memory
        self._meter: Final = RateLimiter(policy.max_bytes_per_second, now)
        self._copies: list[PartitionCopy] = []
        self._active: set[PartitionCopy] = set()
        self._due: dict[PartitionCopy, int] = {}
        self._chains: dict[TopicPartition, int] = {}
        self._reading: dict[TopicPartition, PartitionCopy] = {}
        self._seeks: dict[TopicPartition, OffsetAndMetadata] = {}
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._steer_all_at = self._steered_all_at = now
        self._epoch_ends_at = FOREVER_MS if policy.until_ms is None else policy.until_ms
        self._ending = self._told_to_end = self._handed = False
        self._hand_over: HandOver | None = None
        self._handing_ms: int | None = None
        self._listening = ControlPoller(self._ask_orders, policy.run, policy.epoch, now) if policy.run else None
        self._hear_at = now
        # By the clock on the wall, so that a stream's epochs together do it once an hour.
        self._notes_at = now + _NOTES_EVERY_MS - clock.unix_ms() % _NOTES_EVERY_MS
        # Filled by callbacks on network threads; appending and popping are atomic.
        self._touched: deque[PartitionCopy] = deque()
        self._woken = threading.Event()
        self._polling = False
        self._encoder = Encoder(buffer_memory)
        self._inquirers = ThreadPoolExecutor(_INQUIRERS, thread_name_prefix="mirror-inquiry")
        self._settling = StartPositions(clients.inquiries, self._in_a_thread, clock.now)
        self._transform = load_transform(policy.transform) if policy.transform else None

    def close(self) -> None:
        """Nothing more is asked; what is being asked ends with its own time-out."""
        self._encoder.close()
        self._inquirers.shutdown(wait=False, cancel_futures=True)

    def run(
        self,
        ranges: Sequence[Range],
        facts: Mapping[str, TargetLimits],
        batch_size: int,
        hand_over: HandOver | None = None,
    ) -> list[RangeResult]:
        """Until every copy has its result; in the order of ``ranges``.

        ``hand_over`` gets the results when the epoch is over, if that is before all have theirs, and the copies go on
        for ``lease_ms``: until the next epoch's shut them out. It is not called where the epoch was told to end.
        """
        self._hand_over = hand_over if self._policy.lease_ms else None
        self.watcher.begins(self.look_at)
        now = self._clock.now()
        for one in ranges:
            copy = PartitionCopy(one, self._policy, facts[one.target_topic], self._times, batch_size, self, now)
            self._copies.append(copy)
            self._active.add(copy)
        while self._active:
            self._turn(self._clock.now())
        return [copy.result for copy in self._copies]

    def look_at(self) -> TaskSnapshot:
        """How it stands; from any thread."""
        clients = self._clients
        return TaskSnapshot(
            buffer=clients.memory.size - clients.memory.free,
            buffer_size=clients.memory.size,
            in_flight=self.window.under_way,
            held=self.holdings.held,
            networks={"source": clients.consumer.network(), "target": clients.admin.network()},
            commits=self.commits.copy(),
        )

    @property
    def may_be_the_last(self) -> bool:
        """Whether nobody may come after this epoch for long: what it keeps is to be noted now."""
        return self._policy.until_ms is None or self._told_to_end or self._policy.epoch <= 1

    def kept(self) -> dict[TopicPartition, ProgressRecord]:
        """What is to be noted of each target partition, where its end is known."""
        return {copy.target: ProgressRecord(*kept) for copy in self._copies if (kept := copy.account.kept) is not None}

    # --- one turn

    def _turn(self, now: int) -> None:
        stepped = self._step_due(now)
        self._call_waiting(now, stepped)
        self._end_epoch(now)
        self._hear(now)
        for copy in stepped:
            if copy.done:
                self._active.discard(copy)
                self._due.pop(copy, None)
            else:
                self._due[copy] = copy.due_ms(now)
        self._write_notes(now)
        self._steer(now, stepped)
        self._wait(now)

    def _step_due(self, now: int) -> set[PartitionCopy]:
        stepped = {copy for copy, due in self._due.items() if due <= now}
        while self._touched:
            stepped.add(self._touched.popleft())
        stepped &= self._active
        for copy in stepped:
            copy.step(now)
        return stepped

    def _call_waiting(self, now: int, stepped: set[PartitionCopy]) -> None:
        """Those who wait for room, one after the other, each once: who finds no memory waits again."""
        waiting = self.window.awaited
        while waiting and (copy := self.window.call(now)) is not None:
            waiting -= 1
            assert isinstance(copy, PartitionCopy)  # noqa: S101 - nobody else stands in line
            copy.step(now)
            stepped.add(copy)

    def _end_epoch(self, now: int) -> None:
        """When its time comes, or it is told to; and once more when nothing is waited for any longer."""
        if self._listening is not None and not self._ending and (why := self._listening.why_over(now)) is not None:
            _log.info("epoch %d of run %s ends early: %s", self._policy.epoch, self._policy.run, why)
            self._epoch_ends_at, self._told_to_end = self.wall(), True
        if self.wall() < self._epoch_ends_at:
            return
        if self._hand_over is not None and not self._told_to_end:
            self._end_by_hand_over(now, self._hand_over)
            return
        at_once, self._ending = self._ending, True
        patience_ms = min(self._times.request_ms, self._policy.wind_up_ms)
        self._epoch_ends_at = FOREVER_MS if at_once else self.wall() + patience_ms
        for copy in list(self._active):
            copy.wind_up(now, at_once=at_once)
            self._touched.append(copy)

    def _end_by_hand_over(self, now: int, hand_over: HandOver) -> None:
        """As soon as no commit is under way."""
        self._handing_ms = now if self._handing_ms is None else self._handing_ms
        if sum(copy.committing for copy in self._active) and now - self._handing_ms < _HAND_OVER_MS:
            return  # it ends soon, and wakes
        self._hand_over, self._handed = None, True
        hand_over([copy.hand_over(now) for copy in self._copies])
        self._touched.extend(self._active)
        self._epoch_ends_at = self.wall() + self._policy.lease_ms

    def _ask_orders(self) -> Future[RunControl | None]:
        asked = self._clients.inquiries.orders()
        asked.add_done_callback(lambda _: self._wake())
        return asked

    def _hear(self, now: int) -> None:
        """A partition that is followed and has nothing new is not silent: its broker answers."""
        if now < self._hear_at:
            return
        followed = [copy for copy in self._reading.values() if copy.range.follows]
        if followed:
            heard = self._clients.consumer.last_heard()
            for copy in followed:
                if copy.source in heard:
                    copy.heard(*heard[copy.source])
        unheard = any(copy.unheard for copy in followed)
        quarter_ms = max(1, self._times.stall_ms // 4)
        self._hear_at = now + (min(quarter_ms, _HEAR_SOON_MS) if unheard else quarter_ms)

    def _write_notes(self, now: int) -> None:
        if now >= self._notes_at:
            self._notes_at = now + _NOTES_EVERY_MS
            self._inquirers.submit(self._clients.inquiries.keep, self.kept(), self._times.stall_ms)

    def _steer(self, now: int, stepped: set[PartitionCopy]) -> None:
        """Fetch only for copies that can soon send it."""
        consumer = self._clients.consumer
        if self._seeks or self._assigned != self._reading.keys():
            self._paused = (self._paused & self._reading.keys()) | (self._reading.keys() - self._assigned)
            self._assigned = set(self._reading)
            consumer.assign(self._assigned, paused=True)  # or they would be looked up before they are sought
            for tp, place in self._seeks.items():
                consumer.seek(tp, place)
            stepped |= {self._reading[tp] for tp in self._seeks}
            self._seeks.clear()
        if self.holdings.eased:
            # Who was refused room comes before who has just let some go, or these would have all of it, in turns.
            self._steer_all_at = min(self._steer_all_at, self._steered_all_at + _STEER_SOON_MS)
        if now >= self._steer_all_at:
            stepped, self._steered_all_at, self._steer_all_at = self._active, now, now + _STEER_ALL_MS
            self.holdings.ask_all()
        wanted = {copy.source: self._may_read(copy, now) for copy in stepped if copy.source in self._assigned}
        if pause := {tp for tp, wants in wanted.items() if not wants} - self._paused:
            consumer.pause(pause)
            self._paused |= pause
        if resume := {tp for tp, wants in wanted.items() if wants} & self._paused:
            consumer.resume(resume)
            self._paused -= resume

    def _may_read(self, copy: PartitionCopy, now: int) -> bool:
        wants = copy.wants_more
        if wants and not self.holdings.may_take(copy.held, self._part):
            copy.not_asked(now)
            copy.refused()
            return False
        return wants

    def _wait(self, now: int) -> None:
        """Until something happens, or is due. What was touched meanwhile is seen here, or wakes."""
        if self._touched or not self._active:
            return
        blocked_ms = self._meter.wait_ms(now)
        until = min(min(self._due.values(), default=FOREVER_MS), now + _LONGEST_WAIT_MS, self.window.next_ms(now))
        ends_in_ms = max(0, self._epoch_ends_at - self.wall()) if self._handing_ms is None or self._handed else 10
        until = min(until, now + ends_in_ms, self._hear_at)
        if self._listening is not None and not self._ending:
            until = min(until, self._listening.due_ms())
        room = self.holdings.room
        self._polling = not blocked_ms and room > 0 and len(self._paused) < len(self._assigned)
        if self._paused:
            until = min(until, max(now + 1, self._steer_all_at))
        if self.holdings.short and (soon := self._steered_all_at + _STEER_SOON_MS) > now:
            until = min(until, soon)
        if self._woken.is_set() or until <= now:
            self._woken.clear()
            timeout_ms = 0
        else:
            timeout_ms = max(1, min(until - now, blocked_ms or until - now))
        if not self._polling:
            self._woken.wait(timeout_ms / 1000)
            self._woken.clear()
            for copy in self._reading.values():
                copy.not_asked(now)
            return
        fetched = self._clients.consumer.poll(timeout_ms, max_bytes=room)
        self._polling = False
        self._woken.clear()
        now = self._clock.now()
        for one in fetched:
            self._meter.took(one.size, now)
            reader = self._reading.get(one.tp)
            if reader is not None:
                reader.take_in(one, now)
                self._touched.append(reader)

    # --- what copies ask (Site)

    def leader(self, copy: PartitionCopy) -> tuple[int, int] | None:
        """What the network thread has heard."""
        return self._clients.admin.known_leader(copy.target)

    def why_no_leader(self, copy: PartitionCopy) -> str:
        """What the network thread has heard."""
        error = self._clients.admin.why_no_leader(copy.target)
        return f": {error}" if error is not None else ""

    def carrier(self, copy: PartitionCopy) -> TargetWriter:
        """A new way to the target."""
        clients, flow = self._clients, copy.range.flow
        if clients.producer is None:
            return ExactlyOnceWriter(flow, copy.target, clients.target_options, clients.admin, clients.memory)
        chain = self._chains[copy.target] = self._chains.get(copy.target, 0) + 1
        return AtLeastOnceWriter(flow, copy.target, clients.admin, clients.producer, chain)

    def read_from(self, copy: PartitionCopy, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """With the next turn."""
        self._reading[copy.source] = copy
        self._seeks[copy.source] = OffsetAndMetadata(offset, leader_epoch, topic_id=_uuid(topic_id))

    def stop_reading(self, copy: PartitionCopy) -> None:
        """With the next turn."""
        self._reading.pop(copy.source, None)
        self._seeks.pop(copy.source, None)

    def look(self, copy: PartitionCopy) -> Future[SourceState]:
        """In a thread that may wait."""
        source_state = self._clients.inquiries.source_state
        return self._inquirers.submit(lambda: source_state(copy.source, copy.account.copied_topic))

    def _in_a_thread(self, do: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._inquirers.submit(do, *arguments)

    def settle(
        self, copy: PartitionCopy, progress: Progress | None, mark: TargetMark | None, timeout_ms: int
    ) -> Future[StartPosition]:
        """Its target is asked first; what has to wait does so in a thread."""
        return self._settling.settle(copy.target, progress, mark, timeout_ms)

    def compare(self, copy: PartitionCopy, mark: TargetMark, timeout_ms: int) -> Future[TargetMark | None]:
        """Its target is asked."""
        return self._settling.compare(copy.target, mark, timeout_ms)

    def remake(self, copy: PartitionCopy) -> Remake:
        """In the encoder's thread, in turn with the other partitions."""

        def submit(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Future[ReencodeResult]:
            recipe = replace(recipe, transform=self._transform, most=self._unfolded)
            return self._encoder.submit(copy.source, partial(remaking, sources, recipe))

        return submit

    def watch(self, copy: PartitionCopy, future: Future[Any]) -> None:
        """Step ``copy`` when ``future`` is done."""

        def told(_: Future[Any]) -> None:
            self._touched.append(copy)  # before the look at whether anybody sleeps
            self._wake()

        future.add_done_callback(told)

    def answered(self, copy: PartitionCopy, failed: bool) -> None:
        """Step ``copy`` with the next turn; that comes at once where this failed, or somebody waits for an answer."""
        self._touched.append(copy)  # before the look at whether anybody sleeps
        if failed or copy.eager or self.window.awaited or self._short:
            self._wake()

    @property
    def _short(self) -> bool:
        """Whether an acknowledgement gives room to somebody who was refused it, and may be asked again already."""
        return self.holdings.short and self._clock.now() >= self._steered_all_at + _STEER_SOON_MS

    def _wake(self) -> None:
        if not self._woken.is_set():  # it takes a lock to set it
            self._woken.set()
        if self._polling:
            self._clients.consumer.wake()

    def may_retry(self, copy: PartitionCopy) -> bool:
        """As long as healthy ones are being copied, or the epoch goes on: it must not keep the task alive alone."""
        del copy
        if self._policy.until_ms is not None:
            return not (self._ending or self._handed) and self.wall() < self._policy.until_ms
        return any(not other.expired for other in self._active)

    def why_silent(self, copy: PartitionCopy) -> str:
        """What the consumer last heard of the partition."""
        error = self._clients.consumer.last_error(copy.source)
        return f": {error}" if error is not None else ""


def _uuid(topic_id: str) -> uuid.UUID | None:
    """A topic's id as it is kept with the progress; None for what cannot be one."""
    try:
        return uuid.UUID(topic_id)
    except ValueError:
        return None
