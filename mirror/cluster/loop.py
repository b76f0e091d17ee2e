"""The network thread's loop, without the thread: ``run_once`` of one cluster and all its clients (seed 001)."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from mirror.cluster.calls import Calls, ClusterView
from mirror.cluster.coordinators import Coordinators
from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.metadata import Metadata
from mirror.cluster.pools import SLOW_AFTER_MS, ConnectionPool
from mirror.cluster.reaper import CompletableEventReaper
from mirror.cluster.requests import Lane, Network, Poll, RequestManager
from mirror.cluster.scheduler import Scheduler
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import Broker
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS, Clock, remaining

_BATCH_LIMIT: Final = 10_000
"""Events drained in one turn: a flood of them must not keep the network from its work."""


class ClientCore(Protocol):
    """A consumer's or producer's part of the loop."""

    @property
    def every_turn(self) -> bool:
        """True: polled in every turn. False: only for a reason, which are those that :meth:`ClusterLoop.touch` names.

        Hundreds of cores share a loop; one that answered FOREVER_MS and has no requests under way then costs nothing.
        """
        ...

    def poll(self, now: int) -> Poll:
        """Requests due at ``now``; also where expired batches are found."""
        ...

    def leave(self, event: LeaveEvent, now: int) -> None:
        """Its client closed: let go of everything, then complete ``event``."""
        ...

    def gone(self) -> None:
        """The client was told: let go of what is left, such as connections."""
        ...

    def fail(self, error: BaseException) -> None:
        """The network thread is dying: whoever waits gets ``error``."""
        ...


class ClusterLoop:
    """Everything of one cluster that the network thread alone touches.

    ``events`` is the one thing that application threads touch: they append, this drains (both atomic on a deque).
    """

    def __init__(self, settings: ClusterSettings, network: Network, clock: Clock, rng: random.Random) -> None:
        self.metadata = Metadata(settings, rng)
        self.coordinators = Coordinators(settings, rng)
        self.view = ClusterView(self.metadata, self.coordinators)
        self.calls = Calls(settings, self.view, rng)
        self.settings = settings
        self.rng = rng
        self.events: deque[tuple[Any, Event]] = deque()
        self.departed: deque[ClientCore] = deque()
        self.network = network
        self._clock = clock
        self._reaper = CompletableEventReaper()
        self._turns: Scheduler[ClientCore] = Scheduler()
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
        """All that take part."""
        return self._turns.cores

    def join(self, core: ClientCore) -> None:
        """``core`` takes part from the next turn on."""
        self._turns.join(core)

    def touch(self, core: ClientCore) -> None:
        """Poll ``core`` in the next turn, for a reason that the loop cannot see; on the network thread only.

        It sees: an event for the core, the end of one of the requests that its poll returned, the end of the wait that
        its poll announced, room on a connection after a pool had none; and for all cores, what changed in metadata,
        coordinators or connections.
        """
        self._turns.touch(core)

    def run_once(self) -> None:
        """Drain events, poll the managers, poll the network, and only then reap.

        Raises whatever a bug raises: the thread that runs this fails every caller with it.
        """
        self._drain(self._clock.now())
        self.network.poll(self._send_due(self._clock.now()))
        self._reaper.reap_expired_and_completed(self._clock.now())
        self._let_go()

    def _let_go(self) -> None:
        """Cores whose clients are told that they are closed take no part in the next turn."""
        while self.departed:
            core = self.departed.popleft()
            self._turns.leave(core)
            core.gone()

    def new_channel(self) -> int:
        """A number for the connections that one client has for itself."""
        return next(self._channels)

    def _drain(self, now: int) -> None:
        for _ in range(min(len(self.events), _BATCH_LIMIT)):
            core, event = self.events.popleft()
            if isinstance(event, CompletableEvent):
                self._reaper.add(event)
            if core is not None:
                self._turns.touch(core)
            try:
                event.apply(self if core is None else core, now)
            except KafkaError as error:
                if not isinstance(event, CompletableEvent):
                    raise
                event.fail(error)

    def _send_due(self, now: int) -> int:
        wait = 0 if self.events else self._reaper.wait_ms(now)
        self._notice()
        # Cores first: the look-ups they begin are calls. Then calls: what they miss, metadata and coordinators ask for.
        for core in self._turns.take(now):
            wait = min(wait, self._poll_core(core, now))
        managers: tuple[RequestManager, ...] = (self.calls, self.metadata, self.coordinators)
        for manager in managers:
            requests, manager_wait = manager.poll(now)
            wait = min(wait, manager_wait)
            for request in requests:
                self.network.send(request, now)
        for pool in self._pools:
            wait = min(wait, pool.look(now))
        if self._turns.pending or self.departed or self._seen != self._changes() or self._freed != self._rooms():
            return 0  # what was done for one core is a reason for others, and who has left is not kept waiting
        return min(wait, remaining(self._turns.next_ms(), now))

    def _notice(self) -> None:
        """Find out for whom this turn is, and what is known of the brokers."""
        if self.metadata.brokers is not self._brokers:
            self._brokers = self.metadata.brokers
            self.network.set_brokers(self._brokers)
            # Who is gone gets no more requests, whose failure would tell that somebody else coordinates now.
            self.coordinators.retain(self._brokers)
            for pool in self._pools:
                pool.retain(self._brokers)
        if (seen := self._changes()) != self._seen:
            self._seen = seen
            self._turns.touch_all()
        if (freed := self._rooms()) != self._freed:
            self._freed = freed
            self._turns.touch_refused()

    def _changes(self) -> tuple[int, int, int]:
        return self.metadata.changes, self.coordinators.changes, self.network.changes

    def _rooms(self) -> int:
        return self.produce_pool.freed + self.coordinator_pool.freed

    def _poll_core(self, core: ClientCore, now: int) -> int:
        """Milliseconds until it must be asked again, as far as that is not kept in its alarm."""
        refusals = self.produce_pool.refusals + self.coordinator_pool.refusals
        poll = core.poll(now)
        if self.produce_pool.refusals + self.coordinator_pool.refusals != refusals:
            self._turns.refused(core)
        for request in poll.requests:
            self._turns.watch(core, request)
            self.network.send(request, now)
        if core.every_turn:
            return poll.wait_ms
        self._turns.polled(core, now, poll.wait_ms)
        return FOREVER_MS

    def fail(self, error: BaseException) -> None:
        """The loop ends: every caller, tracked or queued, gets ``error``."""
        queued = [event for _, event in self.events]
        self.events.clear()
        for core in list(self.cores):
            core.fail(error)
        self._reaper.reap_incomplete(queued, as_kafka_error(error))


class JoinEvent(Event):
    """A new client's core enters the loop."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def apply(self, core: ClusterLoop, now: int) -> None:
        """At once."""
        del now
        core.join(self._core)


class LeaveEvent(CompletableEvent[None]):
    """A client closes: nothing of it stays in the loop."""

    def __init__(self, core: ClientCore, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("close", deadline_ms, timeout_ms)
        self._core = core

    def apply(self, core: ClusterLoop, now: int) -> None:
        """The core takes its leave, and is gone when that is done, or when time is up."""
        self.future.add_done_callback(lambda _: core.departed.append(self._core))
        core.touch(self._core)
        self._core.leave(self, now)

    def expire(self) -> None:
        """Time is up: closing is no failure."""
        self.complete(None)
