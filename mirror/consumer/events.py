"""What the consumer's application thread asks for: one small class per event (seed 001)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.topics import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from mirror.consumer.core import ConsumerCore


class PollEvent(CompletableEvent[list[Fetched]]):
    """Everything fetched, or nothing when time is up."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("poll", deadline_ms, timeout_ms)
        self._core: ConsumerCore | None = None

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Take what is there, or wait."""
        del now
        self._core = core
        core.wait_for_records(self)

    def expire(self) -> None:
        """Time is up: what the last network poll brought, else nothing; never an error."""
        self.complete(self._core.positions.take() if self._core is not None else [])


class PositionEvent(CompletableEvent[int]):
    """The next offset that a poll returns, once it is known."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"position of {tp}", deadline_ms, timeout_ms)
        self._tp = tp
        self._core: ConsumerCore | None = None

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Known, or being looked up."""
        del now
        self._core = core
        core.wait_for_position(self)

    def answered(self, core: ConsumerCore) -> bool:
        """Answer where that is possible by now."""
        position = core.positions.get(self._tp)
        if position is not None and position.consumed is not None:
            self.complete(position.consumed)
        elif position is not None and position.stopped and position.error is not None:
            self.fail(position.error)
        return self.future.done()

    def expire(self) -> None:
        """Time is up: with what stood in the way."""
        if self._core is not None and not self.answered(self._core):
            self.last_error = self._core.last_error(self._tp)
        super().expire()


class LastErrorEvent(CompletableEvent[KafkaError | None]):
    """Why a partition is not being read, as far as is known; None while it is."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"last error of {tp}", deadline_ms, timeout_ms)
        self._tp = tp

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Known at once."""
        del now
        self.complete(core.last_error(self._tp))


class ConsumedEvent(CompletableEvent[dict[TopicPartition, OffsetAndMetadata]]):
    """All known positions: what ``commit_sync`` without offsets commits."""

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("positions", deadline_ms, timeout_ms)

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Known at once."""
        del now
        known = ((tp, p.consumed, p.consumed_epoch) for tp, p in core.positions)
        self.complete({tp: OffsetAndMetadata(offset, epoch) for tp, offset, epoch in known if offset is not None})


class AssignEvent(Event):
    """From now on these partitions and no others."""

    def __init__(self, tps: Collection[TopicPartition]) -> None:
        self._tps = tps

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        core.positions.assign(self._tps)
        core.metadata.want({tp.topic for tp in self._tps})


class SeekEvent(Event):
    """Go on at an offset, with the leader epoch of the record before it where that is known."""

    def __init__(self, tp: TopicPartition, offset: int, leader_epoch: int | None) -> None:
        self._tp = tp
        self._offset = offset
        self._leader_epoch = leader_epoch

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        core.positions.seek(self._tp, self._offset, self._leader_epoch)


class ResetEvent(Event):
    """Go on at the log's start or end, as partition -> EARLIEST or LATEST."""

    def __init__(self, times: Mapping[TopicPartition, int]) -> None:
        self._times = times

    def apply(self, core: ConsumerCore, now: int) -> None:
        """The look-up begins at once."""
        del now
        for tp, time in self._times.items():
            core.positions.reset(tp, time)


class PauseEvent(Event):
    """Stop (or go on) fetching some partitions; their positions stay."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self._tps = tps
        self._paused = paused

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        core.positions.pause(self._tps, paused=self._paused)
