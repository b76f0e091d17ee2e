"""Reads the committed batches of a task's partitions back from the target, beside the copies. Never waits for them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch, KafkaError, LogTruncated, OffsetOutOfRange
from mirror.relay.model.observer import TaskObserver, TaskSnapshot
from mirror.relay.model.timeline import MAX_EVENTS, CopyTimeline, EventName
from mirror.relay.progress.lookup.lookup_results import LogBounds
from mirror.relay.readback.comparison import PartitionReadBack
from mirror.relay.readback.result import MAX_FOUND, Unverified, difference_text
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.model.ranges import Range, RangeResult
    from mirror.relay.readback.written import WrittenBatch

_log: Final = logging.getLogger(__name__)

_POLL_BYTES: Final = 4 * 1024 * 1024
"""So much is compared in one turn of the task's loop at most: 2 ms."""
_EMPTY_POLL_REST_MS: Final = 20
_STALL_MS: Final = 300
"""If nothing arrives for so long, the bounds of the log are read: it may end in front of what is wanted."""
_FETCH_BYTES: Final = 8 * 1024 * 1024
_PARTITION_BYTES: Final = {"all": 1024 * 1024, "sample": 64 * 1024}
"""Of a sample, one batch is wanted; what comes with it is in vain."""
_MAX_PENDING: Final = 50_000
"""So many batches of all partitions of a task wait at most: 12 MB."""
_BOUNDS_TIMEOUT_MS: Final = 10_000


def consumer_options(options: Mapping[str, object], mode: str) -> dict[str, object]:
    """Return the options of the consumer that reads the target back; ``options`` are those of the cluster."""
    return {
        **options,
        "auto.offset.reset": "none",
        "isolation.level": "read_committed",
        "fetch.max.bytes": _FETCH_BYTES,
        "max.partition.fetch.bytes": _PARTITION_BYTES[mode],
    }


class ReadBackConsumer(Protocol):
    """The part of a consumer that is needed."""

    def assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None: ...
    def seek(self, tp: TopicPartition, offset: int) -> None: ...
    def pause(self, tps: Collection[TopicPartition]) -> None: ...
    def resume(self, tps: Collection[TopicPartition]) -> None: ...
    def poll(self, timeout_ms: int, *, max_bytes: int) -> list[Fetched]: ...


@dataclass(slots=True, eq=False)
class _Part:
    """One target partition."""

    core: PartitionReadBack
    position: int | None = None
    """Where the consumer fetches next; None: it has to be sought."""
    fetching: bool = False
    """Whether it is not paused."""
    awaits_bounds: bool = False
    """Whether the bounds of its log are being read."""
    asked_to: int = 0
    """See :meth:`PartitionReadBack.on_bounds`."""
    since_ms: int = 0
    """Since when it waits for a fetch."""
    reported: set[str] = field(default_factory=set)
    """The errors that were logged."""


@dataclass(slots=True, eq=False)
class _Finish:
    """A result that waits for its partition, until a time."""

    tp: TopicPartition
    part: _Part
    result: RangeResult
    until_ms: int
    then: Callable[[], None]


class TargetReadBack:
    """Everything runs on the task's thread, but for the callbacks of lookups."""

    def __init__(
        self,
        consumer: ReadBackConsumer,
        mode: str,
        *,
        exactly_once: bool,
        grace_ms: int,
        bounds: Callable[[TopicPartition, int], Future[LogBounds]],
        unix_ms: Callable[[], int],
    ) -> None:
        """``grace_ms``: how long a result waits for what is still to be read. ``bounds`` reads those of a log."""
        self._consumer: Final = consumer
        self._mode: Final = mode
        self._exactly_once: Final = exactly_once
        self._grace_ms: Final = grace_ms
        self._bounds: Final = bounds
        self._unix_ms: Final = unix_ms
        self._parts: Final = dict[TopicPartition, _Part]()
        self._closed: Final = set[TopicPartition]()
        """Those whose result was asked for."""
        self._is_assigned = True
        """Whether the consumer has exactly the present parts."""
        self._active: Final = set[TopicPartition]()
        """Those that have something to be read, or are still fetched."""
        self._answers: Final = deque[tuple[TopicPartition, _Part, Future[LogBounds]]]()
        self._finishes: Final = list[_Finish]()
        self._next_poll_ms = 0

    # --- the task's side

    def add(self, tp: TopicPartition, written: Sequence[WrittenBatch], now: int, *, compacted: bool) -> None:
        """Read back these batches of ``tp``, which were committed at ``now``."""
        if tp in self._closed:
            return
        part = self._parts.get(tp)
        if part is None:
            part = self._parts[tp] = _Part(self._new_core(compacted=compacted))
            self._is_assigned = False
        part.core.add(written, now)
        self._active.add(tp)
        self._next_poll_ms = min(self._next_poll_ms, now)

    def _new_core(self, *, compacted: bool) -> PartitionReadBack:
        return PartitionReadBack(self._mode, compacted=compacted, exactly_once=self._exactly_once)

    def finish(self, tp: TopicPartition, result: RangeResult, now: int, then: Callable[[], None]) -> None:
        """Complete ``result`` once what was committed by now is read back, and call ``then``."""
        part = self._parts.get(tp)
        if part is None and result.batches:  # an earlier attempt, which was lost, has appended all of them
            part = _Part(self._new_core(compacted=False))
        if part is None or tp in self._closed:
            self._closed.add(tp)
            then()
            return
        self._closed.add(tp)
        self._finishes.append(_Finish(tp, part, result, now + self._grace_ms, then))

    def so_far(self, tp: TopicPartition) -> dict[str, Any] | None:
        """Return what was found in ``tp`` by now, while its copy goes on; None if nothing was read back."""
        part = self._parts.get(tp)
        if part is None:
            return None
        self._take_differences(tp, part.core)
        return part.core.result.to_json()

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Other copies of ``tps`` may follow: complete what waits, and read back nothing more of these."""
        for finish in [each for each in self._finishes if each.tp in tps]:
            self._finishes.remove(finish)
            self._complete_finish(finish)
        for tp in tps:
            self._closed.discard(tp)
            self._active.discard(tp)
            if self._parts.pop(tp, None) is not None:
                self._is_assigned = False

    def end(self, now: Callable[[], int]) -> None:
        """Read until all results are complete. The copies have ended."""
        while self._finishes:
            self._next_poll_ms = at = now()
            self.step(at, _EMPTY_POLL_REST_MS)

    def due_ms(self) -> int:
        """Return when :meth:`step` is wanted next."""
        return self._next_poll_ms if self._active or self._finishes else FOREVER_MS

    def step(self, now: int, wait_ms: int = 0) -> None:
        """Read what there is; with ``wait_ms``, wait for it so long."""
        while self._answers:
            self._on_bounds(*self._answers.popleft())
        if self._active and now >= self._next_poll_ms:
            self._steer(now)
            self._poll(now, wait_ms)
        self._complete(now)

    # --- reading

    def _steer(self, now: int) -> None:
        """Fetch what is wanted, and nothing else."""
        if not self._is_assigned:
            self._consumer.assign(list(self._parts), paused=True)
            self._is_assigned = True
        total = 0
        for tp in list(self._active):
            part = self._parts[tp]
            part.core.leave_out_late(now)
            total += part.core.pending
            if total > _MAX_PENDING:
                part.core.leave_out_all(Unverified.BEHIND)
            self._fetch_next(tp, part, now)

    def _fetch_next(self, tp: TopicPartition, part: _Part, now: int) -> None:
        wanted = part.core.fetch_offset
        if wanted is None:
            if part.fetching:
                self._consumer.pause([tp])
                part.fetching = False
            self._active.discard(tp)
            return
        if part.awaits_bounds:
            return
        if part.position != wanted:
            self._consumer.seek(tp, wanted)
            part.position, part.since_ms = wanted, now
        if not part.fetching:
            self._consumer.resume([tp])
            part.fetching, part.since_ms = True, now
        elif now - part.since_ms >= _STALL_MS:
            self._read_bounds(tp, part, now)

    def _poll(self, now: int, wait_ms: int) -> None:
        if not self._active:
            return
        try:
            fetches = self._consumer.poll(wait_ms, max_bytes=_POLL_BYTES)
        except KafkaError as error:  # of the client, not of a partition; the copies find out by themselves
            for tp in self._active:
                self._on_error(tp, self._parts[tp], error, now)
            return
        for fetched in fetches:
            part = self._parts[fetched.tp]
            if fetched.error is not None:
                self._on_error(fetched.tp, part, fetched.error, now)
            else:
                self._on_fetched(part, fetched, now)
            fetched.release()
        for tp in {fetched.tp for fetched in fetches if fetched.error is None}:
            # Only now: a seek fetches again what else the poll has returned, which would be taken for a repetition.
            self._fetch_next(tp, self._parts[tp], now)
        self._next_poll_ms = now if fetches else now + _EMPTY_POLL_REST_MS

    def _on_fetched(self, part: _Part, fetched: Fetched, now: int) -> None:
        wanted = part.core.fetch_offset
        if wanted is not None and fetched.offset > wanted:
            part.position = None  # it was fetched before the seek: what is in front of it is not missing
        else:
            part.core.on_fetched(fetched)
            part.position, part.since_ms = fetched.next_offset, now

    def _on_error(self, tp: TopicPartition, part: _Part, error: KafkaError, now: int) -> None:
        part.position = None  # it is not fetched again before it is sought
        if isinstance(error, (OffsetOutOfRange, LogTruncated)):
            self._read_bounds(tp, part, now)
            return
        if isinstance(error, CorruptBatch):
            part.core.on_corrupt(str(error))
            return
        self._report(tp, part, error)
        part.core.leave_out_all(Unverified.UNREADABLE)

    def _read_bounds(self, tp: TopicPartition, part: _Part, now: int) -> None:
        part.awaits_bounds, part.asked_to, part.since_ms = True, part.core.committed_end, now
        self._bounds(tp, _BOUNDS_TIMEOUT_MS).add_done_callback(lambda found: self._answers.append((tp, part, found)))

    def _on_bounds(self, tp: TopicPartition, part: _Part, found: Future[LogBounds]) -> None:
        part.awaits_bounds = False
        error = found.exception()
        if error is None:
            bounds = found.result()
            part.core.on_bounds(bounds.first, bounds.end, part.asked_to)
        else:
            self._report(tp, part, error)  # it is fetched once more, until it is too late

    def _report(self, tp: TopicPartition, part: _Part, error: BaseException) -> None:
        if (text := str(error)) not in part.reported:
            part.reported.add(text)
            _log.warning("%s cannot be read back from the target: %s", tp, text)

    # --- results

    def _complete(self, now: int) -> None:
        ended = [each for each in self._finishes if not each.part.core.pending or now >= each.until_ms]
        for finish in ended:
            self._finishes.remove(finish)
            self._complete_finish(finish)

    def _complete_finish(self, finish: _Finish) -> None:
        self._write(finish.tp, finish.part.core, finish.result)
        finish.then()

    def _write(self, tp: TopicPartition, core: PartitionReadBack, result: RangeResult) -> None:
        core.leave_out_all(Unverified.ENDED)
        found = core.result
        if self._mode == "all":
            found.skip(Unverified.BY_EARLIER, result.batches - core.added)
        for record in self._take_differences(tp, core):
            _add_event(record, result.timeline)
        result.read_back = found.to_json()

    def _take_differences(self, tp: TopicPartition, core: PartitionReadBack) -> list[dict[str, Any]]:
        time_ms, found = self._unix_ms(), core.result.found
        records = [difference.to_record(time_ms) for difference in core.take_differences()]
        for record in records:
            _log.error("%s: the target differs from what was committed: %s", tp, difference_text(record))
        found += records
        del found[MAX_FOUND:]
        return records


def _add_event(record: dict[str, Any], timeline: CopyTimeline | None) -> None:
    if timeline is None:
        return
    timeline.events.append({"name": EventName.DIFFERENCE.value, **record})
    if len(timeline.events) > MAX_EVENTS:
        del timeline.events[0]
        timeline.events_left_out += 1


class ReadBackObserver:
    """Passes a result on once it was completed by what was read back."""

    def __init__(self, observer: TaskObserver, read_back: TargetReadBack, now: Callable[[], int]) -> None:
        self._observer: Final = observer
        self._read_back: Final = read_back
        self._now: Final = now

    def task_started(self, take_snapshot: Callable[[], TaskSnapshot]) -> None:
        """Pass it on."""
        self._observer.task_started(take_snapshot)

    def span_ended(self, range_: Range, span: Mapping[str, Any]) -> None:
        """Pass it on."""
        self._observer.span_ended(range_, span)

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        """Pass it on once it is complete."""
        tp = TopicPartition(range_.target_topic, range_.partition)
        self._read_back.finish(tp, result, self._now(), partial(self._observer.range_finished, range_, result))
