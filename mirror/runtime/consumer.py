"""The public consumer: a thread-safe interface to the consumer core on the network thread."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from mirror.cluster.admin.cluster import ClientInstanceId
from mirror.cluster.admin.topics import DescribeTopics
from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets, GroupOffsets
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.loop import JoinEvent, LeaveEvent
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
    LimitPartitionsEvent,
    PauseEvent,
    PollEvent,
    PollInterruptedEvent,
    PositionEvent,
    ResetEvent,
    SeekEvent,
    UnassignEvent,
    WakeableEvent,
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
    """Reads assigned partitions as batches (``AsyncKafkaConsumer``). For one thread at a time.

    Timed calls accept ``timeout_ms``; the default is ``default.api.timeout.ms``. Each is attempted at least once,
    its deadline is checked only after a failed attempt, and it raises KafkaTimeout when it expires (``poll`` returns
    an empty list, ``close`` returns). Other errors: BrokerError or a subclass if a broker refuses, ClientClosed
    after ``close``, NetworkThreadDied, KafkaError if a second thread uses the consumer, and InvalidArgument, before
    any request, for an argument that cannot be sent. Partitions may be plain ``(topic, number)`` tuples; collections
    may be generators.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """Create a consumer from Kafka's dotted keys. Raises ConfigError."""
        settings = ConsumerSettings.parse(options)
        self._settings = settings
        self.network_thread = acquire(settings.cluster)
        self.core = ConsumerCore(settings, self.network_thread.loop, parts_of)
        """What the network thread runs; neither is for applications."""
        self._assigned: set[TopicPartition] = set()
        self._use = SingleUser("Consumer")
        self._instance_id: uuid.UUID | None = None
        self._closed = False
        self._unread: PollEvent | None = None
        self._wake = WakeEvent(self.core)
        self.network_thread.submit(None, JoinEvent(self.core))

    # --- assignment and positions

    def assign(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Assign exactly these partitions; those that stay keep their positions.

        With ``paused`` new ones start paused: nothing is looked up or fetched before they are sought and resumed.
        """
        wanted = arguments.partitions(tps)
        with self._use:
            self._submit(AssignEvent(wanted, paused=paused))
            self._assigned = set(wanted)

    def incremental_assign(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Assign these partitions, too, as :meth:`assign` does: it costs nothing for those that are assigned."""
        added = arguments.partitions(tps)
        with self._use:
            self._submit(AssignEvent(added, paused=paused, incremental=True))
            self._assigned.update(added)

    def incremental_unassign(self, tps: Iterable[TopicPartition]) -> None:
        """Assign these partitions, which are assigned, no longer: it costs nothing for the others."""
        removed = arguments.partitions(tps)
        with self._use:
            self._submit(UnassignEvent(removed), removed)
            self._assigned.difference_update(removed)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return frozenset(self._assigned)

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at ``offset``: the next :meth:`poll` returns nothing that was fetched before.

        With a leader epoch the position is validated first (KIP-320: LogTruncated). With a topic id nothing is read
        from another topic with the same name (KIP-516: TopicRecreated).
        """
        tp = arguments.partition(tp)
        place = arguments.offset(tp, offset)
        self._submit(SeekEvent(tp, place.offset, place.leader_epoch, place.topic_id), (tp,))

    def seek_to_beginning(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Continue at the start of each log (of all assigned partitions if none is named)."""
        self._reset(tps, EARLIEST)

    def seek_to_end(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Continue at the end of each log: the last stable offset under read_committed."""
        self._reset(tps, LATEST)

    def _reset(self, tps: Iterable[TopicPartition], time: int) -> None:
        named = arguments.partitions(tps)
        with self._use:
            self._submit(ResetEvent(dict.fromkeys(named or self._assigned, time)), named)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning records of these partitions until :meth:`resume`."""
        named = arguments.partitions(tps)
        self._submit(PauseEvent(named, paused=True), named)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Resume these partitions."""
        named = arguments.partitions(tps)
        self._submit(PauseEvent(named, paused=False), named)

    def limit_partitions(self, size: int) -> None:
        """Fetch at most ``size`` bytes of each partition at a time, if that is less than ``max.partition.fetch.bytes``.

        It applies to what is fetched of a partition from its next position on.
        """
        self._submit(LimitPartitionsEvent(size), ())

    # --- timed calls

    def poll(self, timeout_ms: int | None = None, *, max_bytes: int | None = None) -> list[Fetched]:
        """Return fetched batches, one entry for each partition and response; empty after the timeout or :meth:`wake`.

        The entries have at most ``max_bytes`` together, but there is at least one if any is there (None: all).
        Partitions are served in turn. Remaining entries are returned first by the next poll, and count as prefetched
        until then.
        """
        event = PollEvent(*self._timer(timeout_ms), _limit(max_bytes))
        with self._use:
            self._check_usable()
            self._forget_unread()
            self._unread = event
            answer = self.network_thread.call(self.core, event, may_sleep=self._awaits_records)
            self._unread = None
            fetched = list(answer)
            # The event may be tracked until its deadline: it must not keep the memory for so long.
            answer.clear()
            event.taken.clear()
            return fetched

    def wake(self) -> None:
        """End the pending call at once, or otherwise the next one: :meth:`poll` returns the records that are there.

        :meth:`position`, :meth:`committed`, :meth:`commit_sync`, :meth:`partitions_for` and :meth:`list_topics` raise
        Woken, as in Java; other calls are not woken. May be called from any thread, including callbacks of futures, and
        from signal handlers. Never raises: errors of the consumer are raised by its calls. Several wakes before a call
        have the effect of one.
        """
        if not self._wake.pending:
            try:
                self._wake.pending = True
                self.network_thread.submit(None, self._wake)
            except (ClientClosed, NetworkThreadDied):
                pass
            except BaseException:
                self._wake.pending = False  # after Ctrl-C, as no wake would ever be sent again otherwise
                raise

    def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the next offset that :meth:`poll` returns, looking it up if it is unknown."""
        tp = arguments.partition(tp)
        return self._ask_wakeable(PositionEvent(tp, *self._timer(timeout_ms)), (tp,))

    def committed(
        self, tps: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets committed for ``group.id``; None where there is none.

        Waits for pending transactions (KIP-447).
        """
        named = arguments.partitions(tps)
        found = self._ask_wakeable(GroupOffsets(self._group(), named, *self._timer(timeout_ms)), to_loop=True)
        return {tp: found.get(tp) for tp in named}

    def commit_sync(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit ``offsets`` (the next ones to read) for ``group.id``; by default the positions of all partitions."""
        timer, given = self._timer(timeout_ms), None if offsets is None else arguments.offsets(offsets)
        wanted = self._ask(ConsumedEvent(*timer)) if given is None else given
        if wanted:
            self._ask_wakeable(CommitGroupOffsets(self._group(), wanted, *timer), to_loop=True)

    def beginning_offsets(
        self, tps: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        wanted = dict.fromkeys(arguments.partitions(tps), EARLIEST)
        return {tp: found.offset for tp, found in self._offsets(wanted, timeout_ms).items()}

    def end_offsets(self, tps: Iterable[TopicPartition], timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Return the end of each log: the last stable offset under read_committed."""
        wanted = dict.fromkeys(arguments.partitions(tps), LATEST)
        return {tp: found.offset for tp, found in self._offsets(wanted, timeout_ms).items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """Return the first offset at or after each time in ms; None where there is none."""
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
        """Return the partitions of the topic; none if it does not exist."""
        call = DescribeTopics((arguments.topic(topic),), *self._timer(timeout_ms))
        found = self._ask_wakeable(call, to_loop=True)
        return found[topic].partitions if topic in found else ()

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """Return all topics that this client may see, by name."""
        return self._ask_wakeable(DescribeTopics(None, *self._timer(timeout_ms)), to_loop=True)

    def client_instance_id(self, timeout_ms: int | None = None) -> uuid.UUID:
        """Return the telemetry id of this client (KIP-714).

        Raises UnsupportedVersion if no broker collects telemetry.
        """
        timer = self._timer(timeout_ms)
        if self._instance_id is None:
            self._instance_id = self._ask(ClientInstanceId(*timer), to_loop=True)
        return self._instance_id

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """Return the error because of which ``tp`` is not fetched now, though it is retried; None if there is none."""
        tp = arguments.partition(tp)
        return self._ask(LastErrorEvent(tp, *self._timer(None)), (tp,))

    def last_responses(self) -> dict[TopicPartition, LastResponse]:
        """Return when the leader of each partition last answered without an error, and the end of its log."""
        return self._ask(LastResponseEvent(*self._timer(None)))

    def network(self) -> NetworkSnapshot:
        """Return the counts of this cluster's network thread, which all clients of the process share."""
        return self.network_thread.snapshot()

    def close(self, timeout_ms: int | None = None) -> None:
        """Close the fetch sessions, within ``timeout_ms``. May be called again, and after the thread has died."""
        timeout_ms = arguments.timeout(timeout_ms)
        with self._use:
            if self._closed:
                return
            self._closed = True
            leave_and_release(
                self.network_thread, LeaveEvent(self.core, *self.network_thread.timer(timeout_ms)), timeout_ms
            )

    # --- internals

    def _awaits_records(self) -> bool:
        """Whether a poll that is queued needs no turn of the network thread before something arrives."""
        return self.core.listening

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self.network_thread.timer(arguments.timeout(timeout_ms))

    def _ask(
        self,
        event: CompletableEvent[T],
        tps: Collection[TopicPartition] = (),
        *,
        to_loop: bool = False,
        before: Event | None = None,
    ) -> T:
        with self._use:
            self._check_usable(tps)
            self._forget_unread()
            return self.network_thread.call(None if to_loop else self.core, event, before=before)

    def _ask_wakeable(
        self, event: CompletableEvent[T], tps: Collection[TopicPartition] = (), *, to_loop: bool = False
    ) -> T:
        return self._ask(event, tps, to_loop=to_loop, before=WakeableEvent(self.core, event))

    def _submit(self, event: Event, tps: Collection[TopicPartition] = ()) -> None:
        with self._use:
            self._check_usable(tps)
            self._forget_unread()
            self.network_thread.submit(self.core, event)

    def _forget_unread(self) -> None:
        """Return the records of an interrupted poll to the buffer: none may be lost, or counted as read."""
        if self._unread is not None:
            self.network_thread.submit(self.core, PollInterruptedEvent(self._unread))
            self._unread = None

    def _check_usable(self, tps: Collection[TopicPartition] = ()) -> None:
        """Check that it is open and ``tps`` are assigned.

        Within ``_use``, as another thread could assign in between.
        """
        self._check_open()
        missing = sorted(str(tp) for tp in tps if tp not in self._assigned)
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
