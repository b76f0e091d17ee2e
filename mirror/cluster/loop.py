"""The loop of the network thread, without the thread: one cluster and all its clients (AsyncKafkaConsumer design)."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from mirror.cluster.calls.offset_commits import OffsetCommits
from mirror.cluster.calls.routed_calls import Calls, ClusterView
from mirror.cluster.connection.pools import SLOW_AFTER_MS, ConnectionPool
from mirror.cluster.coordinators import Coordinators
from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.metadata import Metadata
from mirror.cluster.reaper import CompletableEventReaper
from mirror.cluster.requests import Lane, Network, Poll, RequestManager
from mirror.cluster.scheduler import Scheduler
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import Broker
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS, Clock, remaining

_BATCH_LIMIT: Final = 10_000
"""Events drained in one turn, so that a flood of them does not delay the network."""


class ClientCore(Protocol):
    """The core of a consumer or producer in the loop."""

    @property
    def every_turn(self) -> bool:
        """True: polled in every turn. False: polled only for the reasons that :meth:`ClusterLoop.touch` lists.

        Hundreds of cores share a loop: one that returned FOREVER_MS and has no requests in flight costs nothing.
        """
        ...

    def poll(self, now: int) -> Poll:
        """Return the requests due at ``now``, and expire what is overdue."""
        ...

    def leave(self, event: LeaveEvent, now: int) -> None:
        """Close, then complete ``event``."""
        ...

    def on_removed(self) -> None:
        """Release what is left, such as connections, after the client was closed."""
        ...

    def fail(self, error: BaseException) -> None:
        """Fail all waiting calls with ``error``, as the network thread is dying."""
        ...


class ClusterLoop:
    """The state of one cluster, used on the network thread only.

    Application threads only append to ``events``, which the loop drains (both are atomic on a deque).
    """

    def __init__(self, settings: ClusterSettings, network: Network, clock: Clock, rng: random.Random) -> None:
        self.metadata = Metadata(settings, rng)
        self.coordinators = Coordinators(settings, rng)
        self.view = ClusterView(self.metadata, self.coordinators)
        self.calls = Calls(settings, self.view, rng)
        self.offset_commits = OffsetCommits(settings, self.view, rng)
        self.settings = settings
        self.rng = rng
        self.events: deque[tuple[Any, Event]] = deque()
        self.departed: deque[ClientCore] = deque()
        self.network = network
        self._clock = clock
        self.reaper = CompletableEventReaper()
        self._scheduler: Scheduler[ClientCore] = Scheduler()
        self._channels = itertools.count(1)
        self._brokers: Mapping[int, Broker] = {}
        self._seen = self._changes()
        self._freed = 0
        self.produce_pool = self._pool(Lane.PRODUCE)
        self.coordinator_pool = self._pool(Lane.COORDINATOR)
        self._pools = (self.produce_pool, self.coordinator_pool)

    def _pool(self, lane: Lane) -> ConnectionPool:
        size = self.settings.connections_per_broker
        return ConnectionPool(self.network, lane, size, self.new_channel, SLOW_AFTER_MS)

    @property
    def cores(self) -> list[ClientCore]:
        """The cores in the loop."""
        return self._scheduler.cores

    def join(self, core: ClientCore) -> None:
        """Add ``core`` from the next turn on."""
        self._scheduler.join(core)

    def touch(self, core: ClientCore) -> None:
        """Poll ``core`` in the next turn, for a reason that the loop does not observe; on the network thread only.

        The loop observes: an event for the core, the end of a request that its poll returned, the end of the wait that
        its poll returned, room on a connection after a pool had none; and for all cores, changes of metadata,
        coordinators or connections.
        """
        self._scheduler.touch(core)

    def run_once(self) -> None:
        """Drain events, poll the managers, poll the network, and only then expire.

        An exception here is a bug: the thread that runs this fails every caller with it.
        """
        self._drain(self._clock.now())
        self.network.poll(self._send_due(self._clock.now()))
        self.reaper.reap_expired_and_completed(self._clock.now())
        self._remove_departed()

    def _remove_departed(self) -> None:
        """Remove the cores whose clients are closed."""
        while self.departed:
            core = self.departed.popleft()
            self._scheduler.leave(core)
            core.on_removed()

    # Invariant: Each consumer fetches on connections of its own: the long poll of one would delay every Fetch behind
    #   it.
    # Test: tests/consumer/test_review.py::test_one_consumers_long_poll_does_not_stand_before_anothers
    def new_channel(self) -> int:
        """Return a number for connections that one client has for itself."""
        return next(self._channels)

    def _drain(self, now: int) -> None:
        for _ in range(min(len(self.events), _BATCH_LIMIT)):
            core, event = self.events.popleft()
            if isinstance(event, CompletableEvent):
                self.reaper.add(event)
            if core is not None:
                self._scheduler.touch(core)
            try:
                event.apply(self if core is None else core, now)
            except KafkaError as error:
                if not isinstance(event, CompletableEvent):
                    raise
                event.fail(error)

    def _send_due(self, now: int) -> int:
        wait = self.reaper.wait_ms(now)
        self._observe_changes()
        # Cores first, as they begin calls; then calls, as they need metadata and coordinators.
        for core in self._scheduler.due_cores(now):
            wait = min(wait, self._poll_core(core, now))
        managers: tuple[RequestManager, ...] = (self.calls, self.offset_commits, self.metadata, self.coordinators)
        for manager in managers:
            requests, manager_wait = manager.poll(now)
            wait = min(wait, manager_wait)
            for request in requests:
                self.network.send(request, now)
        for pool in self._pools:
            wait = min(wait, pool.update_slow(now))
        if self._scheduler.pending or self.departed or self._seen != self._changes() or self._freed != self._rooms():
            return 0  # polling one core gave others a reason, or a core has left
        if self.events:
            return 0  # asked last: the sender of one may have relied on what a core said before it was polled
        return min(wait, remaining(self._scheduler.next_ms(), now))

    def _observe_changes(self) -> None:
        """Apply changes of the brokers, and touch the cores that shared changes concern."""
        if self.metadata.brokers is not self._brokers:
            self._brokers = self.metadata.brokers
            self.network.set_brokers(self._brokers)
            # A removed broker gets no more requests, so that no failure would show that its groups have moved.
            self.coordinators.retain(self._brokers)
            for pool in self._pools:
                pool.retain(self._brokers)
        if (seen := self._changes()) != self._seen:
            self._seen = seen
            self._scheduler.touch_all()
        if (freed := self._rooms()) != self._freed:
            self._freed = freed
            self._scheduler.touch_refused()

    def _changes(self) -> tuple[int, int, int]:
        return self.metadata.changes, self.coordinators.changes, self.network.changes

    def _rooms(self) -> int:
        return self.produce_pool.freed + self.coordinator_pool.freed

    def _poll_core(self, core: ClientCore, now: int) -> int:
        """Poll ``core``; return ms until its next poll if the scheduler does not keep that."""
        refusals = self.produce_pool.refusals + self.coordinator_pool.refusals
        poll = core.poll(now)
        if self.produce_pool.refusals + self.coordinator_pool.refusals != refusals:
            self._scheduler.refused(core)
        for request in poll.requests:
            self._scheduler.watch(core, request)
            self.network.send(request, now)
        if core.every_turn:
            return poll.wait_ms
        self._scheduler.polled(core, now, poll.wait_ms)
        return FOREVER_MS

    def fail(self, error: BaseException) -> None:
        """Fail all callers with ``error``, as the loop ends."""
        queued = [event for _, event in self.events]
        self.events.clear()
        for core in list(self.cores):
            core.fail(error)
        self.reaper.reap_incomplete(queued, as_kafka_error(error))


class JoinEvent(Event):
    """Add the core of a new client to the loop."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def apply(self, core: ClusterLoop, now: int) -> None:
        """Add it."""
        del now
        core.join(self._core)


class LeaveEvent(CompletableEvent[None]):
    """Close a client, and remove its core from the loop."""

    def __init__(self, core: ClientCore, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("close", deadline_ms, timeout_ms)
        self._core = core

    def apply(self, core: ClusterLoop, now: int) -> None:
        """Let the core close; it is removed when that is done, or when the timeout expires."""
        leaving = self._core
        self.future.add_done_callback(lambda _: core.departed.append(leaving))  # without a reference to this event
        core.touch(leaving)
        leaving.leave(self, now)

    def expire(self) -> None:
        """Complete: a timeout does not fail a close."""
        self.complete(None)
