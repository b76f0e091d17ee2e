"""The network thread's loop, without the thread: ``run_once`` of one cluster and all its clients (seed 001)."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any, Final, Protocol

from mirror.cluster.calls import Calls, ClusterView
from mirror.cluster.coordinators import Coordinators
from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.metadata import Metadata
from mirror.cluster.reaper import CompletableEventReaper
from mirror.cluster.requests import Network, Poll, RequestManager
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError
from mirror.timing import Clock

_BATCH_LIMIT: Final = 10_000
"""Events drained in one turn: a flood of them must not keep the network from its work."""


class ClientCore(Protocol):
    """A consumer's or producer's part of the loop."""

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
        self.cores: list[ClientCore] = []
        self.leaving: list[tuple[ClientCore, LeaveEvent]] = []
        self.network = network
        self._clock = clock
        self._reaper = CompletableEventReaper()
        self._channels = itertools.count(1)

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
        gone = [core for core, event in self.leaving if event.future.done()]
        if gone:
            self.leaving = [(core, event) for core, event in self.leaving if not event.future.done()]
            self.cores = [core for core in self.cores if core not in gone]
            for core in gone:
                core.gone()

    def new_channel(self) -> int:
        """A number for the connections that one client has for itself."""
        return next(self._channels)

    def _drain(self, now: int) -> None:
        for _ in range(min(len(self.events), _BATCH_LIMIT)):
            core, event = self.events.popleft()
            if isinstance(event, CompletableEvent):
                self._reaper.add(event)
            try:
                event.apply(self if core is None else core, now)
            except KafkaError as error:
                if not isinstance(event, CompletableEvent):
                    raise
                event.fail(error)

    def _send_due(self, now: int) -> int:
        wait = 0 if self.events else self._reaper.wait_ms(now)
        self.network.set_brokers(self.metadata.brokers)
        # Cores first: the look-ups they begin are calls. Then calls: what they miss, metadata and coordinators ask for.
        managers: list[RequestManager] = [*self.cores, self.calls, self.metadata, self.coordinators]
        for manager in managers:
            requests, next_ms = manager.poll(now)
            wait = min(wait, next_ms)
            for request in requests:
                self.network.send(request, now)
        return wait

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
        core.cores.append(self._core)


class LeaveEvent(CompletableEvent[None]):
    """A client closes: nothing of it stays in the loop."""

    def __init__(self, core: ClientCore, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("close", deadline_ms, timeout_ms)
        self._core = core

    def apply(self, core: ClusterLoop, now: int) -> None:
        """The core takes its leave, and is gone when that is done, or when time is up."""
        core.leaving.append((self._core, self))
        self._core.leave(self, now)

    def expire(self) -> None:
        """Time is up: closing is no failure."""
        self.complete(None)
