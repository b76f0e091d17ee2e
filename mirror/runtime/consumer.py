"""The face of the consumer core."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from mirror.cluster.admin.cluster import ClientInstanceId
from mirror.cluster.admin.topics import DescribeTopics
from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.offset_calls import CommitGroupOffsets, GroupOffsets, ListOffsets
from mirror.cluster.types import (
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
    LastResponseEvent,
    PauseEvent,
    PollEvent,
    PollInterruptedEvent,
    PositionEvent,
    ResetEvent,
    SeekEvent,
    WakeEvent,
)
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, ConfigError, InvalidArgument, KafkaError, NetworkThreadDied, Problem
from mirror.meters import NetworkSnapshot
from mirror.runtime import arguments
from mirror.runtime.memory.buffer_recycling import parts_of
from mirror.runtime.single_user import SingleUser
from mirror.runtime.thread import acquire, leave_and_release

T = TypeVar("T")


def _limit(max_bytes: object) -> int | None:
    if max_bytes is None or (isinstance(max_bytes, int) and max_bytes >= 0):
        return max_bytes
    msg = f"max_bytes must be a number of bytes, 0 or more, not {max_bytes!r}"
    raise InvalidArgument(msg)


class Consumer:
    """Reads assigned partitions as batches (``AsyncKafkaConsumer``, seed 001). For one thread at a time.

    Each timed call takes ``timeout_ms``, else ``default.api.timeout.ms`` holds. It is attempted at least once, its
    deadline is looked at only after a failed attempt, and it raises KafkaTimeout when time is up (``poll`` returns an
    empty list, ``close`` returns). Beyond that: BrokerError or a child where a broker refuses, ClientClosed after
    ``close``, NetworkThreadDied where the network thread is gone, KafkaError where a second thread uses the consumer,
    InvalidArgument before anything is asked where an argument cannot be sent. Partitions may be plain
    ``(topic, number)`` tuples, and collections of them generators.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        settings = ConsumerSettings.parse(options)
        self._settings = settings
        self._thread = acquire(settings.cluster)
        self._core = ConsumerCore(settings, self._thread.loop, parts_of)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._use = SingleUser("Consumer")
        self._instance_id: uuid.UUID | None = None
        self._closed = False
        self._unread: PollEvent | None = None
        self._wake = WakeEvent(self._core)
        self._thread.submit(None, JoinEvent(self._core))

    # --- what to read

    def assign(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Read exactly these partitions; those kept keep their positions.

        New ones begin ``paused``: nothing is looked up or fetched for them before they are sought and resumed.
        """
        wanted = arguments.partitions(tps)
        with self._use:
            self._tell(AssignEvent(wanted, paused=paused))
            self._assigned = frozenset(wanted)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned."""
        return self._assigned

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at ``offset``.

        With a leader epoch it is checked against the log first (KIP-320: LogTruncated). With a topic id nothing is
        read of another topic of the same name (KIP-516: TopicRecreated).
        """
        tp = arguments.partition(tp)
        place = arguments.offset(tp, offset)
        self._tell(SeekEvent(tp, place.offset, place.leader_epoch, place.topic_id), (tp,))

    def seek_to_beginning(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Go on at each log's start (all assigned partitions where none is named)."""
        self._reset(tps, EARLIEST)

    def seek_to_end(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Go on at each log's end: the last stable offset at read_committed."""
        self._reset(tps, LATEST)

    def _reset(self, tps: Iterable[TopicPartition], time: int) -> None:
        named = arguments.partitions(tps)
        with self._use:
            self._tell(ResetEvent(dict.fromkeys(named or self._assigned, time)), named)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning these until :meth:`resume`."""
        named = arguments.partitions(tps)
        self._tell(PauseEvent(named, paused=True), named)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        named = arguments.partitions(tps)
        self._tell(PauseEvent(named, paused=False), named)

    # --- the timed calls

    def poll(self, timeout_ms: int | None = None, *, max_bytes: int | None = None) -> list[Fetched]:
        """What has been fetched, one entry per partition and answer; empty when time is up, or after :meth:`wake`.

        Whole entries of at most ``max_bytes`` together, but at least one where there is one (None: all). Partitions
        take turns; what is left comes first next time, and counts as prefetched until then.
        """
        event = PollEvent(*self._timer(timeout_ms), _limit(max_bytes))
        with self._use:
            self._check_usable()
            self._forget_unread()
            self._unread = event
            answer = self._thread.call(self._core, event)
            self._unread = None
            fetched = list(answer)
            # The event may be watched until its deadline: it must not keep the memory for so long.
            answer.clear()
            event.taken.clear()
            return fetched

    def wake(self) -> None:
        """Have the :meth:`poll` that waits return at once with what there is; where none does, the next one.

        From any thread, callbacks of futures included, but not from a signal handler. Never raises: what became of a
        consumer is told by its poll. Waking it several times before it looks is waking it once.
        """
        if not self._wake.pending:
            try:
                self._wake.pending = True
                self._thread.submit(None, self._wake)
            except (ClientClosed, NetworkThreadDied):
                pass
            except BaseException:
                self._wake.pending = False  # Ctrl-C: otherwise no wake would ever be sent again
                raise

    def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int:
        """The next offset that :meth:`poll` returns; looked up where it is not known yet."""
        tp = arguments.partition(tp)
        return self._ask(PositionEvent(tp, *self._timer(timeout_ms)), (tp,))

    def committed(
        self, tps: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What ``group.id`` has committed; None where nothing. Waits out pending transactions (KIP-447)."""
        named = arguments.partitions(tps)
        found = self._ask(GroupOffsets(self._group(), named, *self._timer(timeout_ms)), to_loop=True)
        return {tp: found.get(tp) for tp in named}

    def commit_sync(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` (the next ones to read) for ``group.id``; without any, the positions of all partitions."""
        timer, given = self._timer(timeout_ms), None if offsets is None else arguments.offsets(offsets)
        wanted = self._ask(ConsumedEvent(*timer)) if given is None else given
        if wanted:
            self._ask(CommitGroupOffsets(self._group(), wanted, *timer), to_loop=True)

    def beginning_offsets(
        self, tps: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition's log."""
        wanted = dict.fromkeys(arguments.partitions(tps), EARLIEST)
        return {tp: found.offset for tp, found in self._offsets(wanted, timeout_ms).items()}

    def end_offsets(self, tps: Iterable[TopicPartition], timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The offset after the last: the last stable offset at read_committed."""
        wanted = dict.fromkeys(arguments.partitions(tps), LATEST)
        return {tp: found.offset for tp, found in self._offsets(wanted, timeout_ms).items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """The first record at or after each time in ms; None where there is none."""
        found = self._offsets(arguments.times(times), timeout_ms)
        return {tp: result if result.offset >= 0 else None for tp, result in found.items()}

    def _offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetResult]:
        deadline_ms, timeout = self._timer(timeout_ms)
        committed = self._settings.read_committed
        call = ListOffsets(times, read_committed=committed, deadline_ms=deadline_ms, timeout_ms=timeout)
        return self._ask(call, to_loop=True)

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> tuple[PartitionDescription, ...]:
        """The topic's partitions; none where it does not exist."""
        call = DescribeTopics((arguments.topic(topic),), *self._timer(timeout_ms))
        found = self._ask(call, to_loop=True)
        return found[topic].partitions if topic in found else ()

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """All topics that may be seen, by name."""
        return self._ask(DescribeTopics(None, *self._timer(timeout_ms)), to_loop=True)

    def client_instance_id(self, timeout_ms: int | None = None) -> uuid.UUID:
        """This client's telemetry id, the same each time (KIP-714). UnsupportedVersion where no broker collects it."""
        timer = self._timer(timeout_ms)
        if self._instance_id is None:
            self._instance_id = self._ask(ClientInstanceId(*timer), to_loop=True)
        return self._instance_id

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """Why ``tp`` is not being read just now (it is retried all the same); None while it is."""
        tp = arguments.partition(tp)
        return self._ask(LastErrorEvent(tp, *self._timer(None)), (tp,))

    def last_heard(self) -> dict[TopicPartition, LastResponse]:
        """When each partition's broker last answered without a refusal, also that it has nothing new; and its end."""
        return self._ask(LastResponseEvent(*self._timer(None)))

    def network(self) -> NetworkSnapshot:
        """What the network thread of this cluster, which all clients of this process share, has done so far."""
        return self._thread.look()

    def close(self, timeout_ms: int | None = None) -> None:
        """End the fetch sessions and leave, within ``timeout_ms``; safe to call again, and with a dead thread."""
        timeout_ms = arguments.timeout(timeout_ms)
        with self._use:
            if self._closed:
                return
            self._closed = True
            leave_and_release(self._thread, LeaveEvent(self._core, *self._thread.timer(timeout_ms)), timeout_ms)

    # --- plumbing

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._thread.timer(arguments.timeout(timeout_ms))

    def _ask(self, event: CompletableEvent[T], about: Collection[TopicPartition] = (), *, to_loop: bool = False) -> T:
        with self._use:
            self._check_usable(about)
            self._forget_unread()
            return self._thread.call(None if to_loop else self._core, event)

    def _tell(self, event: Event, about: Collection[TopicPartition] = ()) -> None:
        with self._use:
            self._check_usable(about)
            self._forget_unread()
            self._thread.submit(self._core, event)

    def _forget_unread(self) -> None:
        """Nothing may be lost of a poll that was cut short (by Ctrl-C, say), nor count as read."""
        if self._unread is not None:
            self._thread.submit(self._core, PollInterruptedEvent(self._unread))
            self._unread = None

    def _check_usable(self, about: Collection[TopicPartition] = ()) -> None:
        """Open, and ``about`` assigned; for who is in ``_use``, or another thread could assign in between."""
        self._check_open()
        missing = sorted(str(tp) for tp in about if tp not in self._assigned)
        if missing:
            msg = f"not assigned to this consumer: {', '.join(missing)}"
            raise KafkaError(msg)

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Consumer is closed"
            raise ClientClosed(msg)

    def _group(self) -> str:
        if not self._settings.group_id:
            raise ConfigError([Problem("", "group.id", "''", "must be set to read or commit offsets")])
        return arguments.text("group.id", self._settings.group_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
