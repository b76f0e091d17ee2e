"""The consumer core, which runs on the network thread (the background thread of ``AsyncKafkaConsumer``). No I/O."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from mirror.backoff import Backoff
from mirror.cluster.events import CompletableEvent, as_kafka_error
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.requests import IDLE, Poll, Request
from mirror.cluster.types import TopicPartition
from mirror.consumer.events import PollEvent, PositionEvent
from mirror.consumer.fetched import PartsOf
from mirror.consumer.fetching import Fetching
from mirror.consumer.offsets import Offsets
from mirror.consumer.positions import Positions
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import KafkaError, Woken
from mirror.timing import FOREVER_MS, remaining


class ConsumerCore:
    """The positions, offset lookups and fetches of one consumer. Used on the network thread only."""

    every_turn = True

    def __init__(self, settings: ConsumerSettings, loop: ClusterLoop, parts_of: PartsOf = lambda _views: ()) -> None:
        cluster = settings.cluster
        backoff = Backoff(cluster.retry_backoff_ms, cluster.retry_backoff_max_ms, loop.rng)
        self.positions = Positions(backoff)
        self.metadata = loop.metadata
        self._offsets = Offsets(settings, loop.metadata, self.positions, loop.calls)
        self._channel = loop.new_channel()
        self._network = loop.network
        self.fetching = Fetching(settings, loop.metadata, self.positions, self._channel, backoff, parts_of)
        self._poll_event: PollEvent | None = None
        self._wakeable: CompletableEvent[Any] | None = None
        self._woken = False
        self._position_events: list[PositionEvent] = []
        self.listening = False
        """Whether a poll would find and change nothing until something arrives, which wakes the loop anyway: each
        response to a poll would otherwise cost two turns. The application's thread reads it once its poll is queued."""
        self._closing: LeaveEvent | None = None
        self._session_closing: list[Request] = []
        self._open_sessions = 0

    def poll(self, now: int) -> Poll:
        """Complete waiting calls, start offset lookups, and return the Fetch requests that are due."""
        self.listening = False
        if self._closing is not None:
            requests, self._session_closing = self._session_closing, []
            return Poll(requests, FOREVER_MS)
        if not self._has_work:
            return IDLE
        self._answer_waiting()
        self._offsets.poll(now)
        fetches = self.fetching.poll(now)
        may_end = self._woken or self.metadata.fatal_error is not None or self.fetching.short_of_room
        self.listening = not (may_end or self.positions.ready)
        return fetches

    @property
    def _has_work(self) -> bool:
        """Whether some partition is assigned or has just been, or some caller waits.

        It is polled in every turn of the loop, also beside a producer that has much to do.
        """
        waits = self._poll_event is not None or bool(self._position_events) or self._offsets.in_progress
        return waits or bool(self.positions) or self.positions.has_changes

    def wait_for_records(self, event: PollEvent) -> None:
        """Complete ``event`` as soon as records are there. If an older poll is pending, complete it with no records."""
        if self._poll_event is not None:
            self._poll_event.complete([])
        self._poll_event = event
        if self._woken:
            self.wake()
        self._answer_waiting()

    def wake(self) -> None:
        """Complete the pending poll with the records that are there, or fail the pending call; else the next one."""
        poll, self._poll_event = self._poll_event, None
        self._woken = False
        if poll is not None and not poll.future.done():
            poll.woken = True
            poll.answer(self.positions.take(poll.max_bytes))
        elif (call := self._wakeable) is not None:
            call.fail(Woken(f"{call.what}: wake() ended it; it may have been done"))
        else:
            self._woken = True

    def let_wake_end(self, call: CompletableEvent[Any]) -> None:
        """Let a wake end ``call``: one that has come since the last call, too (``WakeupTrigger.setActiveTask``)."""
        self._wakeable = call
        call.future.add_done_callback(self._forget_wakeable)
        if self._woken:
            self.wake()

    def _forget_wakeable(self, _: Future[Any]) -> None:
        self._wakeable = None

    def return_unread_poll(self, event: PollEvent) -> None:
        """Keep the records of ``event``, whose sender never received them, and its wake for the next poll."""
        if self._poll_event is event:
            self._poll_event = None
        event.complete([])
        self.positions.put_back_taken(event.taken)
        self._woken = self._woken or event.woken

    def wait_for_position(self, event: PositionEvent) -> None:
        """Complete ``event`` as soon as its partition has a position."""
        if (position := self.positions.get(event.tp)) is not None:
            position.awaited = True
            self.positions.mark_changed(event.tp)
        self._position_events.append(event)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        if self.metadata.fatal_error is not None:
            # Wrong credentials, or brokers that are too old: waiting does not help, and an empty poll would hide it.
            self._fail_waiting(self.metadata.fatal_error)
        if self._poll_event is not None:
            if self._poll_event.future.done():
                self._poll_event = None
            elif taken := self.positions.take(self._poll_event.max_bytes):
                self._poll_event.answer(taken)
                self._poll_event = None
        if self._position_events:
            self._position_events = [event for event in self._position_events if not event.try_complete(self)]

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """The error that keeps ``tp`` from being fetched now; None if none is known."""
        position = self.positions.get(tp)
        if position is not None and position.error is not None:
            return position.error
        if self.metadata.leader(tp) is None:
            return self.metadata.why_unknown(tp)
        return self._offsets.last_error(tp)

    def leave(self, event: LeaveEvent, now: int) -> None:
        """Close: unassign all partitions, close the fetch sessions, then complete ``event``."""
        self.positions.assign(())
        self._offsets.close()
        self._closing = event
        self._session_closing = self.fetching.close_requests(remaining(event.deadline_ms, now), self._session_closed)
        self._open_sessions = len(self._session_closing)
        if not self._open_sessions:
            event.complete(None)

    def on_removed(self) -> None:
        """The consumer has left the loop: close its connections."""
        self._network.forget(self._channel)

    def _session_closed(self) -> None:
        self._open_sessions -= 1
        if not self._open_sessions and self._closing is not None:
            self._closing.complete(None)

    def fail(self, error: BaseException) -> None:
        """The network thread is dying: fail all waiting calls with ``error``."""
        self._fail_waiting(as_kafka_error(error))
        if self._closing is not None:
            self._closing.fail(as_kafka_error(error))

    def _fail_waiting(self, error: KafkaError) -> None:
        for event in (self._poll_event, *self._position_events):
            if event is not None:
                event.fail(error)
