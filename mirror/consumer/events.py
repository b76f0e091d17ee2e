"""The events that the consumer's application thread sends to the network thread: one small class for each request."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.metadata import Metadata
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse, Positions, Taken
from mirror.errors import KafkaError


class ConsumerActions(Protocol):
    """What events call on the consumer core, on the network thread."""

    @property
    def positions(self) -> Positions:
        """The position of each assigned partition."""
        ...

    @property
    def metadata(self) -> Metadata:
        """The metadata of the cluster."""
        ...

    def wait_for_records(self, event: PollEvent) -> None:
        """Complete ``event`` as soon as records are there."""
        ...

    def return_unread_poll(self, event: PollEvent) -> None:
        """Return the records that ``event`` was completed with: its sender never received them."""
        ...

    def wait_for_position(self, event: PositionEvent) -> None:
        """Complete ``event`` as soon as its partition has a position."""
        ...

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """The error that keeps ``tp`` from being read now, if there is one."""
        ...

    def wake(self) -> None:
        """End the pending poll or wakeable call, or the next one, without waiting."""
        ...

    def let_wake_end(self, call: CompletableEvent[Any]) -> None:
        """Let a wake end ``call``: one that has come since the last call, too."""
        ...


class PollEvent(CompletableEvent[list[Fetched]]):
    """A poll: fetched records up to ``max_bytes`` (None: all), or none when the timeout expires."""

    def __init__(self, deadline_ms: int, timeout_ms: int, max_bytes: int | None = None) -> None:
        super().__init__("poll", deadline_ms, timeout_ms)
        self.taken: list[Taken] = []
        """The entries that it was completed with."""
        self.woken = False
        """It was completed by a wake."""
        self.max_bytes = max_bytes
        self._core: ConsumerActions | None = None

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Complete with the buffered records, or wait for some."""
        del now
        self._core = core
        core.wait_for_records(self)

    def answer(self, taken: list[Taken]) -> None:
        """Complete with these entries."""
        self.taken = taken
        self.complete([entry.fetched for entry in taken])

    def expire(self) -> None:
        """Complete with the records of the last network poll, if there are any; a poll never fails by its timeout."""
        self.answer(self._core.positions.take(self.max_bytes) if self._core is not None else [])


class PollInterruptedEvent(Event):
    """The sender of a poll was interrupted (Ctrl-C) before it received the records: they are returned to the buffer."""

    def __init__(self, poll: PollEvent) -> None:
        self._poll = poll

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Return the records to the buffer."""
        del now
        core.return_unread_poll(self._poll)


class WakeableEvent(Event):
    """A wake ends the call that follows. Both may be for the loop, so that the consumer's core is named here."""

    def __init__(self, core: ConsumerActions, call: CompletableEvent[Any]) -> None:
        self._core = core
        self._call = call

    def apply(self, core: object, now: int) -> None:
        """Let a wake end it."""
        del core, now
        self._core.let_wake_end(self._call)


class WakeEvent(Event):
    """End the pending poll or wakeable call, or the next one, without waiting.

    It is sent to the loop instead of the core, which may have left it. ``pending`` is True from when the event is
    queued until it is applied: further wakes in between have no effect of their own.
    """

    def __init__(self, core: ConsumerActions) -> None:
        self.pending = False
        self._core = core

    def apply(self, core: object, now: int) -> None:
        """Clear the flag first: a thread that still saw it set relies on this wake."""
        del core, now
        self.pending = False
        self._core.wake()


class PositionEvent(CompletableEvent[int]):
    """The next offset that a poll returns, as soon as it is known."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"position of {tp}", deadline_ms, timeout_ms)
        self.tp = tp
        self._core: ConsumerActions | None = None

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Complete with the position, or wait for its lookup."""
        del now
        self._core = core
        core.wait_for_position(self)

    def try_complete(self, core: ConsumerActions) -> bool:
        """Complete if the position, or an error that stops it, is known; return whether the event is done."""
        position = core.positions.get(self.tp)
        if position is not None and position.consumed is not None:
            self.complete(position.consumed)
        elif position is not None and position.stopped and position.error is not None:
            self.fail(position.error)
        return self.future.done()

    def expire(self) -> None:
        """Fail with the last error of the partition as the cause."""
        if self._core is not None and not self.try_complete(self._core):
            self.last_error = self._core.last_error(self.tp)
        super().expire()


class LastErrorEvent(CompletableEvent[KafkaError | None]):
    """The error that keeps a partition from being fetched; None while there is none."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"last error of {tp}", deadline_ms, timeout_ms)
        self._tp = tp

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Complete with the error."""
        del now
        self.complete(core.last_error(self._tp))


class LastResponseEvent(CompletableEvent[dict[TopicPartition, LastResponse]]):
    """The last response for each partition that had one."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("last responses", deadline_ms, timeout_ms)

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Complete with the responses."""
        del now
        self.complete(
            {
                tp: LastResponse(p.last_response_ms, p.end, p.throttled_until_ms)
                for tp, p in core.positions
                if p.last_response_ms is not None
            }
        )


class ConsumedEvent(CompletableEvent[dict[TopicPartition, OffsetAndMetadata]]):
    """All known positions, which ``commit_sync`` without offsets commits."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("positions", deadline_ms, timeout_ms)

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Complete with the positions."""
        del now
        positions = ((tp, p.consumed, p.consumed_epoch) for tp, p in core.positions)
        self.complete({tp: OffsetAndMetadata(offset, epoch) for tp, offset, epoch in positions if offset is not None})


class AssignEvent(Event):
    """Assign these partitions, which start ``paused``, and no others unless it is ``incremental``."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool = False, incremental: bool = False) -> None:
        self._tps = tps
        self._paused = paused
        self._incremental = incremental

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Assign, and request the metadata of the topics."""
        del now
        assign = core.positions.add if self._incremental else core.positions.assign
        assign(self._tps, paused=self._paused)
        core.metadata.want({tp.topic for tp in self._tps})


class UnassignEvent(Event):
    """Assign these partitions no longer."""

    def __init__(self, tps: Collection[TopicPartition]) -> None:
        self._tps = tps

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Drop their positions, and what was fetched of them."""
        del now
        core.positions.remove(self._tps)


class SeekEvent(Event):
    """Continue at an offset, with the leader epoch of the record before it and the topic id where they are known."""

    def __init__(
        self, tp: TopicPartition, offset: int, leader_epoch: int | None, topic_id: uuid.UUID | None = None
    ) -> None:
        self._tp = tp
        self._offset = offset
        self._leader_epoch = leader_epoch
        self._topic_id = topic_id

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Seek, and record the leader epoch and the topic id."""
        del now
        core.positions.seek(self._tp, self._offset, self._leader_epoch)
        if self._leader_epoch is not None:
            core.metadata.record_epoch_seen(self._tp, self._leader_epoch, self._topic_id)
        if self._topic_id is not None:
            core.positions.expect(self._tp, self._topic_id, core.metadata.next_request)


class ResetEvent(Event):
    """Continue at the start or end of the log, by partition -> EARLIEST or LATEST."""

    def __init__(self, times: Mapping[TopicPartition, int]) -> None:
        self._times = times

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Start the lookups."""
        del now
        for tp, time in self._times.items():
            core.positions.reset(tp, time)


class PauseEvent(Event):
    """Pause (or resume) fetching some partitions; their positions stay."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self._tps = tps
        self._paused = paused

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Pause or resume."""
        del now
        core.positions.pause(self._tps, paused=self._paused)


class LimitPartitionsEvent(Event):
    """Fetch at most so many bytes of each partition at a time."""

    def __init__(self, size: int) -> None:
        self._size = size

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Set the limit, which counts from the next request of each partition on."""
        del now
        core.positions.partition_limit = self._size
