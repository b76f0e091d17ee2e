"""The face of the consumer core."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self, TypeVar

from mirror.cluster.admin_calls import DescribeTopics, ListOffsets
from mirror.cluster.events import CompletableEvent
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.topics import EARLIEST, LATEST, OffsetResult, PartitionDescription, TopicDescription, TopicPartition
from mirror.consumer.core import (
    AssignEvent,
    ConsumerCore,
    LastErrorEvent,
    PauseEvent,
    PollEvent,
    PositionEvent,
    SeekEvent,
)
from mirror.consumer.fetched import Fetched
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, KafkaError
from mirror.runtime.thread import acquire, release

T = TypeVar("T")


class Consumer:
    """Reads assigned partitions as batches. For one thread at a time.

    Each timed call takes ``timeout_ms``, else ``default.api.timeout.ms`` holds; it is attempted at least once, and
    raises KafkaTimeout when time is up (``poll`` returns an empty list instead).
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        settings = ConsumerSettings.parse(options)
        self._read_committed = settings.read_committed
        self._thread = acquire(settings.cluster)
        self._core = ConsumerCore(settings, self._thread.loop)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._closed = False
        self._thread.submit(None, JoinEvent(self._core))

    def _call(self, event: CompletableEvent[T], *, to_loop: bool = False) -> T:
        if self._closed:
            msg = "this Consumer is closed"
            raise ClientClosed(msg)
        return self._thread.call(None if to_loop else self._core, event)

    def _check(self, tps: Collection[TopicPartition]) -> None:
        missing = sorted(str(tp) for tp in tps if tp not in self._assigned)
        if missing:
            msg = f"not assigned to this consumer: {', '.join(missing)}"
            raise KafkaError(msg)

    def assign(self, tps: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those kept keep their positions."""
        self._assigned = frozenset(tps)
        self._thread.submit(self._core, AssignEvent(tuple(self._assigned)))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned."""
        return self._assigned

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. Raises KafkaError where ``tp`` is not assigned."""
        self._check([tp])
        self._thread.submit(self._core, SeekEvent(tp, offset))

    def pause(self, tps: Collection[TopicPartition]) -> None:
        """Stop fetching and returning these until :meth:`resume`."""
        self._check(tps)
        self._thread.submit(self._core, PauseEvent(tuple(tps), paused=True))

    def resume(self, tps: Collection[TopicPartition]) -> None:
        """Go on with these."""
        self._check(tps)
        self._thread.submit(self._core, PauseEvent(tuple(tps), paused=False))

    def poll(self, timeout_ms: int | None = None) -> list[Fetched]:
        """What has been fetched, one entry per partition and answer; empty when time is up."""
        return self._call(PollEvent(*self._thread.timer(timeout_ms)))

    def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int | None:
        """The next offset that :meth:`poll` returns; None before the first seek."""
        self._check([tp])
        return self._call(PositionEvent(tp, *self._thread.timer(timeout_ms)))

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """Why ``tp`` is not being read just now (retried all the same); None while it is."""
        self._check([tp])
        return self._call(LastErrorEvent(tp, *self._thread.timer(None)))

    def beginning_offsets(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition's log."""
        return {tp: found.offset for tp, found in self._offsets(dict.fromkeys(tps, EARLIEST), timeout_ms).items()}

    def end_offsets(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last: the last stable offset at read_committed."""
        return {tp: found.offset for tp, found in self._offsets(dict.fromkeys(tps, LATEST), timeout_ms).items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """The first record at or after each time in ms; None where there is none."""
        found = self._offsets(times, timeout_ms)
        return {tp: result if result.offset >= 0 else None for tp, result in found.items()}

    def _offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetResult]:
        deadline_ms, timeout = self._thread.timer(timeout_ms)
        call = ListOffsets(times, read_committed=self._read_committed, deadline_ms=deadline_ms, timeout_ms=timeout)
        return self._call(call, to_loop=True)

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> tuple[PartitionDescription, ...]:
        """The topic's partitions; none where it does not exist."""
        found = self._call(DescribeTopics((topic,), *self._thread.timer(timeout_ms)), to_loop=True)
        return found[topic].partitions if topic in found else ()

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """All topics that may be seen, by name."""
        return self._call(DescribeTopics(None, *self._thread.timer(timeout_ms)), to_loop=True)

    def close(self, timeout_ms: int | None = None) -> None:
        """Leave; safe to call again."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(None, LeaveEvent(self._core, *self._thread.timer(timeout_ms)))
        finally:
            release(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
