"""The consumer's part of the network thread, and the events that reach it (seed 001)."""

from __future__ import annotations

from collections.abc import Collection

from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.loop import ClusterLoop
from mirror.cluster.requests import Poll
from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.fetching import Fetching
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import KafkaError


class ConsumerCore:
    """Positions and fetches of one consumer. Touched by the network thread only."""

    def __init__(self, settings: ConsumerSettings, loop: ClusterLoop) -> None:
        self.fetching = Fetching(settings, loop.metadata, loop.rng)
        self._waiting: PollEvent | None = None

    def poll(self, now: int) -> Poll:
        """Fetches due, once a waiting application has what there is."""
        self._hand_over()
        return self.fetching.poll(now)

    def wait_for_records(self, event: PollEvent) -> None:
        """Answer ``event`` as soon as anything is there."""
        self._waiting = event
        self._hand_over()

    def _hand_over(self) -> None:
        if self._waiting is None:
            return
        if self._waiting.future.done():
            self._waiting = None
        elif taken := self.fetching.take():
            self._waiting.complete(taken)
            self._waiting = None

    def leave(self) -> None:
        """The consumer closed: an answer under way finds no position and is dropped."""
        self.fetching.assign(())

    def fail(self, error: BaseException) -> None:
        """The network thread is dying."""
        if self._waiting is not None:
            self._waiting.fail(as_kafka_error(error))


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
        self.complete(self._core.fetching.take() if self._core is not None else [])


class PositionEvent(CompletableEvent[int | None]):
    """The next offset that a poll returns; None before the first seek."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"position of {tp}", deadline_ms, timeout_ms)
        self._tp = tp

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Known at once."""
        del now
        self.complete(core.fetching.positions[self._tp].consumed)


class LastErrorEvent(CompletableEvent[KafkaError | None]):
    """Why a partition is not being read, as far as is known; None while it is."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"last error of {tp}", deadline_ms, timeout_ms)
        self._tp = tp

    def apply(self, core: ConsumerCore, now: int) -> None:
        """Known at once."""
        del now
        fetching = core.fetching
        found = fetching.positions[self._tp].last_error
        if found is None and fetching.metadata.leader(self._tp) is None:
            found = fetching.metadata.why_unknown(self._tp)
        self.complete(found)


class AssignEvent(Event):
    """From now on these partitions and no others."""

    def __init__(self, tps: Collection[TopicPartition]) -> None:
        self._tps = tps

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        core.fetching.assign(self._tps)


class SeekEvent(Event):
    """Go on at an offset."""

    def __init__(self, tp: TopicPartition, offset: int) -> None:
        self._tp = tp
        self._offset = offset

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        core.fetching.seek(self._tp, self._offset)


class PauseEvent(Event):
    """Stop (or go on) fetching some partitions; their positions stay."""

    def __init__(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        self._tps = tps
        self._paused = paused

    def apply(self, core: ConsumerCore, now: int) -> None:
        """At once."""
        del now
        for tp in self._tps:
            core.fetching.positions[tp].paused = self._paused
