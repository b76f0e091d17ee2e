"""The events that the consumer's application thread sends to the network thread: one small class for each request."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Protocol

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

    def forget_poll(self, event: PollEvent) -> None:
        """Return the records that ``event`` was completed with: its sender never received them."""
        ...

    def wait_for_position(self, event: PositionEvent) -> None:
        """Complete ``event`` as soon as its partition has a position."""
        ...

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """The error that keeps ``tp`` from being read now, if there is one."""
        ...

    def wake(self) -> None:
        """Complete the pending poll, or the next one, without waiting."""
        ...


class PollEvent(CompletableEvent[list[Fetched]]):
    """What was fetched, ``max_bytes`` of it at most (None: all), or nothing when time is up.

    ``taken`` is what it was answered with; ``woken`` whether that was because of a wake.
    """

    def __init__(self, deadline_ms: int, timeout_ms: int, max_bytes: int | None = None) -> None:
        super().__init__("poll", deadline_ms, timeout_ms)
        self.taken: list[Taken] = []
        self.woken = False
        self.max_bytes = max_bytes
        self._core: ConsumerActions | None = None

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Take what is there, or wait."""
        del now
        self._core = core
        core.wait_for_records(self)

    def answer(self, taken: list[Taken]) -> None:
        """Answer with these."""
        self.taken = taken
        self.complete([one.fetched for one in taken])

    def expire(self) -> None:
        """Time is up: what the last network poll brought, else nothing; never an error."""
        self.answer(self._core.positions.take(self.max_bytes) if self._core is not None else [])


class PollInterruptedEvent(Event):
    """A poll's sender left before it had the answer, by Ctrl-C say: as if it had never asked."""

    def __init__(self, poll: PollEvent) -> None:
        self._poll = poll

    def apply(self, core: ConsumerActions, now: int) -> None:
        """At once."""
        del now
        core.forget_poll(self._poll)


class WakeEvent(Event):
    """The poll that waits, else the next one, is not to wait any longer. For the loop: the core may be gone.

    ``under_way`` is True from when it is queued until it is applied: any more of them would say the same.
    """

    def __init__(self, core: ConsumerActions) -> None:
        self.under_way = False
        self._core = core

    def apply(self, core: object, now: int) -> None:
        """At once. First the flag: whoever still saw it set has its turn with this one."""
        del core, now
        self.under_way = False
        self._core.wake()


class PositionEvent(CompletableEvent[int]):
    """The next offset that a poll returns, once it is known."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"position of {tp}", deadline_ms, timeout_ms)
        self.tp = tp
        self._core: ConsumerActions | None = None

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Known, or being looked up."""
        del now
        self._core = core
        core.wait_for_position(self)

    def answered(self, core: ConsumerActions) -> bool:
        """Answer where that is possible by now."""
        position = core.positions.get(self.tp)
        if position is not None and position.consumed is not None:
            self.complete(position.consumed)
        elif position is not None and position.stopped and position.error is not None:
            self.fail(position.error)
        return self.future.done()

    def expire(self) -> None:
        """Time is up: with what stood in the way."""
        if self._core is not None and not self.answered(self._core):
            self.last_error = self._core.last_error(self.tp)
        super().expire()


class LastErrorEvent(CompletableEvent[KafkaError | None]):
    """Why a partition is not being read, as far as is known; None while it is."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"last error of {tp}", deadline_ms, timeout_ms)
        self._tp = tp

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Known at once."""
        del now
        self.complete(core.last_error(self._tp))


class LastResponseEvent(CompletableEvent[dict[TopicPartition, LastResponse]]):
    """What brokers last answered for each partition that they ever answered for."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("what was heard", deadline_ms, timeout_ms)

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Known at once."""
        del now
        self.complete({tp: LastResponse(p.heard_ms, p.end) for tp, p in core.positions if p.heard_ms is not None})


class ConsumedEvent(CompletableEvent[dict[TopicPartition, OffsetAndMetadata]]):
    """All known positions: what ``commit_sync`` without offsets commits."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("positions", deadline_ms, timeout_ms)

    def apply(self, core: ConsumerActions, now: int) -> None:
        """Known at once."""
        del now
        known = ((tp, p.consumed, p.consumed_epoch) for tp, p in core.positions)
        self.complete({tp: OffsetAndMetadata(offset, epoch) for tp, offset, epoch in known if offset is not None})


class AssignEvent(Event):
    """From now on these partitions and no others; new ones begin ``paused``."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool = False) -> None:
        self._tps = tps
        self._paused = paused

    def apply(self, core: ConsumerActions, now: int) -> None:
        """At once."""
        del now
        core.positions.assign(self._tps, paused=self._paused)
        core.metadata.want({tp.topic for tp in self._tps})


class SeekEvent(Event):
    """Go on at an offset, with the leader epoch of the record before it and the topic's id where these are known."""

    def __init__(
        self, tp: TopicPartition, offset: int, leader_epoch: int | None, topic_id: uuid.UUID | None = None
    ) -> None:
        self._tp = tp
        self._offset = offset
        self._leader_epoch = leader_epoch
        self._topic_id = topic_id

    def apply(self, core: ConsumerActions, now: int) -> None:
        """At once."""
        del now
        core.positions.seek(self._tp, self._offset, self._leader_epoch)
        if self._leader_epoch is not None:
            core.metadata.saw(self._tp, self._leader_epoch, self._topic_id)
        if self._topic_id is not None:
            core.positions.expect(self._tp, self._topic_id, core.metadata.next_request)


class ResetEvent(Event):
    """Go on at the log's start or end, as partition -> EARLIEST or LATEST."""

    def __init__(self, times: Mapping[TopicPartition, int]) -> None:
        self._times = times

    def apply(self, core: ConsumerActions, now: int) -> None:
        """The look-up begins at once."""
        del now
        for tp, time in self._times.items():
            core.positions.reset(tp, time)


class PauseEvent(Event):
    """Stop (or go on) fetching some partitions; their positions stay."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self._tps = tps
        self._paused = paused

    def apply(self, core: ConsumerActions, now: int) -> None:
        """At once."""
        del now
        core.positions.pause(self._tps, paused=self._paused)
