"""The face of the consumer core."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self, TypeVar

from mirror.cluster.admin_calls import ClientInstanceId, CommitGroupOffsets, DescribeTopics, GroupOffsets, ListOffsets
from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.topics import (
    EARLIEST,
    LATEST,
    OffsetAndMetadata,
    OffsetResult,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from mirror.consumer.core import ConsumerCore
from mirror.consumer.events import (
    AssignEvent,
    ConsumedEvent,
    LastErrorEvent,
    PauseEvent,
    PollEvent,
    PositionEvent,
    ResetEvent,
    SeekEvent,
)
from mirror.consumer.fetched import Fetched
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, ConfigError, KafkaError, NetworkThreadDied, Problem
from mirror.runtime.single_user import SingleUser
from mirror.runtime.thread import STUCK_MS, acquire, release

T = TypeVar("T")


class Consumer:
    """Reads assigned partitions as batches (``AsyncKafkaConsumer``, seed 001). For one thread at a time.

    Each timed call takes ``timeout_ms``, else ``default.api.timeout.ms`` holds. It is attempted at least once, its
    deadline is looked at only after a failed attempt, and it raises KafkaTimeout when time is up (``poll`` returns an
    empty list, ``close`` returns). Beyond that: BrokerError or a child where a broker refuses, ClientClosed after
    ``close``, NetworkThreadDied where the network thread is gone, KafkaError where a second thread uses the consumer.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        settings = ConsumerSettings.parse(options)
        self._settings = settings
        self._thread = acquire(settings.cluster)
        self._core = ConsumerCore(settings, self._thread.loop)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._use = SingleUser("Consumer")
        self._instance_id: uuid.UUID | None = None
        self._closed = False
        self._thread.submit(None, JoinEvent(self._core))

    # --- what to read

    def assign(self, tps: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those kept keep their positions."""
        self._assigned = frozenset(tps)
        self._tell(AssignEvent(tuple(self._assigned)))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned."""
        return self._assigned

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at ``offset``; with a leader epoch it is checked against the log first (KIP-320: LogTruncated)."""
        self._check([tp])
        if isinstance(offset, OffsetAndMetadata):
            self._tell(SeekEvent(tp, offset.offset, offset.leader_epoch))
        else:
            self._tell(SeekEvent(tp, offset, None))

    def seek_to_beginning(self, tps: Collection[TopicPartition] = ()) -> None:
        """Go on at each log's start (all assigned partitions where none is named)."""
        self._reset(tps, EARLIEST)

    def seek_to_end(self, tps: Collection[TopicPartition] = ()) -> None:
        """Go on at each log's end: the last stable offset at read_committed."""
        self._reset(tps, LATEST)

    def _reset(self, tps: Collection[TopicPartition], time: int) -> None:
        self._check(tps)
        self._tell(ResetEvent(dict.fromkeys(tps or self._assigned, time)))

    def pause(self, tps: Collection[TopicPartition]) -> None:
        """Stop fetching and returning these until :meth:`resume`."""
        self._check(tps)
        self._tell(PauseEvent(tuple(tps), paused=True))

    def resume(self, tps: Collection[TopicPartition]) -> None:
        """Go on with these."""
        self._check(tps)
        self._tell(PauseEvent(tuple(tps), paused=False))

    def _check(self, tps: Collection[TopicPartition]) -> None:
        missing = sorted(str(tp) for tp in tps if tp not in self._assigned)
        if missing:
            msg = f"not assigned to this consumer: {', '.join(missing)}"
            raise KafkaError(msg)

    # --- the timed calls

    def poll(self, timeout_ms: int | None = None) -> list[Fetched]:
        """What has been fetched, one entry per partition and answer; empty when time is up."""
        return self._ask(PollEvent(*self._thread.timer(timeout_ms)))

    def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int:
        """The next offset that :meth:`poll` returns; looked up where it is not known yet."""
        self._check([tp])
        return self._ask(PositionEvent(tp, *self._thread.timer(timeout_ms)))

    def committed(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What ``group.id`` has committed; None where nothing. Waits out pending transactions (KIP-447)."""
        found = self._ask(GroupOffsets(self._group(), tps, *self._thread.timer(timeout_ms)), to_loop=True)
        return {tp: found.get(tp) for tp in tps}

    def commit_sync(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` (the next ones to read) for ``group.id``; without any, the positions of all partitions."""
        timer = self._thread.timer(timeout_ms)
        wanted = self._ask(ConsumedEvent(*timer)) if offsets is None else offsets
        full = {tp: o if isinstance(o, OffsetAndMetadata) else OffsetAndMetadata(o) for tp, o in wanted.items()}
        if full:
            self._ask(CommitGroupOffsets(self._group(), full, *timer), to_loop=True)

    def beginning_offsets(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition's log."""
        return {tp: found.offset for tp, found in self._offsets(dict.fromkeys(tps, EARLIEST), timeout_ms).items()}

    def end_offsets(self, tps: Collection[TopicPartition], timeout_ms: int | None = None) -> dict[TopicPartition, int]:
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
        committed = self._settings.read_committed
        call = ListOffsets(times, read_committed=committed, deadline_ms=deadline_ms, timeout_ms=timeout)
        return self._ask(call, to_loop=True)

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> tuple[PartitionDescription, ...]:
        """The topic's partitions; none where it does not exist."""
        found = self._ask(DescribeTopics((topic,), *self._thread.timer(timeout_ms)), to_loop=True)
        return found[topic].partitions if topic in found else ()

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """All topics that may be seen, by name."""
        return self._ask(DescribeTopics(None, *self._thread.timer(timeout_ms)), to_loop=True)

    def client_instance_id(self, timeout_ms: int | None = None) -> uuid.UUID:
        """This client's telemetry id, the same each time (KIP-714). UnsupportedVersion where no broker collects it."""
        if self._instance_id is None:
            self._instance_id = self._ask(ClientInstanceId(*self._thread.timer(timeout_ms)), to_loop=True)
        return self._instance_id

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """Why ``tp`` is not being read just now (it is retried all the same); None while it is."""
        self._check([tp])
        return self._ask(LastErrorEvent(tp, *self._thread.timer(None)))

    def close(self, timeout_ms: int | None = None) -> None:
        """End the fetch sessions and leave, within ``timeout_ms``; safe to call again, and with a dead thread."""
        with self._use:
            if self._closed:
                return
            self._closed = True
            timer = self._thread.timer(timeout_ms)
            try:
                # Whoever closes does not wait for a stuck thread for much longer than the time that was given.
                self._thread.call(None, LeaveEvent(self._core, *timer), max(1_000, min(timer[1], STUCK_MS)))
            except NetworkThreadDied:
                pass  # nothing of this consumer is left there; the next other call says what happened
            finally:
                release(self._thread)

    # --- plumbing

    def _ask(self, event: CompletableEvent[T], *, to_loop: bool = False) -> T:
        with self._use:
            self._check_open()
            return self._thread.call(None if to_loop else self._core, event)

    def _tell(self, event: Event) -> None:
        with self._use:
            self._check_open()
            self._thread.submit(self._core, event)

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Consumer is closed"
            raise ClientClosed(msg)

    def _group(self) -> str:
        if not self._settings.group_id:
            raise ConfigError([Problem("", "group.id", "''", "must be set to read or commit offsets")])
        return self._settings.group_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
