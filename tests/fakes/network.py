"""``mirror.cluster.requests.Network`` without sockets: real sessions, fake brokers, a clock that jumps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from mirror.cluster.connection.connections import ConnectAttempt, ConnectionStates
from mirror.cluster.connection.session import BrokerSession, disconnected
from mirror.cluster.requests import Lane, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import Broker
from mirror.errors import ClientClosed, KafkaError
from mirror.timing import FOREVER_MS, deadline
from mirror.wire.versions import BrokerVersions
from tests.fakes.cluster import FakeCluster
from tests.fakes.connection import ServerConnection


@dataclass(slots=True)
class _Link:
    """One connection, from "not opened yet" to "connected"; ``connected_at_ms`` FOREVER_MS: it will never be."""

    node: int
    lane: Lane
    address: tuple[str, int]
    session: BrokerSession
    attempt: ConnectAttempt
    server: ServerConnection | None = None
    connected_at_ms: int = 0
    setup_deadline_ms: int = 0
    channel: int = 0
    connected: bool = False
    ready: bool = False


class FakeNetwork:
    """One connection per (broker, lane, channel), as ``SelectorNetwork``. ``horizon_ms``: a poll never waits beyond it.

    ``split`` bounds the bytes that arrive in one go: answers come in pieces. ``attempts`` are the times of connecting.
    """

    def __init__(self, cluster: FakeCluster, settings: ClusterSettings, rng: random.Random) -> None:
        self.horizon_ms = FOREVER_MS
        self.split = 1 << 30
        self.attempts: list[int] = []
        self.changes = 0
        self._features = BrokerVersions()
        self._cluster = cluster
        self._clock = cluster.clock
        self._settings = settings
        self._states = ConnectionStates(settings, rng)
        self._bootstrap = {-1 - index: address for index, address in enumerate(settings.bootstrap)}
        self._brokers: Mapping[int, Broker] = {}
        self._links: dict[tuple[int, Lane, int], _Link] = {}

    # --- what the loop asks for

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        if brokers is self._brokers:
            return
        self._brokers = brokers
        for link in list(self._links.values()):
            broker = brokers.get(link.node)
            moved = broker is not None and (broker.host, broker.port) != link.address
            if moved or (link.node < 0 and not link.session.load and brokers):
                self._drop(link, disconnected(link.session.label, "the broker has moved"), self._clock.now())

    def send(self, request: Request, now: int) -> None:
        node = self._least_loaded(now) if request.node is None else request.node
        self._link(node, request.lane, request.channel).session.send(request, now)

    def ready(self, node: int, lane: Lane, now: int, channel: int = 0) -> bool:
        return self._link(node, lane, channel).session.sends_at_once(now)

    def stands(self, node: int, lane: Lane, channel: int) -> bool:
        return (node, lane, channel) in self._links

    def throttled(self, node: int, now: int) -> bool:
        return any(link.node == node and link.session.throttled_until_ms > now for link in self._links.values())

    def finalized_feature(self, name: str) -> int:
        return self._features.finalized(name)

    def trouble(self, node: int) -> KafkaError | None:
        return self._states.error(node)

    def forget(self, channel: int) -> None:
        for link in [one for key, one in self._links.items() if key[2] == channel]:
            self._drop(link, ClientClosed(f"{link.session.label}: closed"), self._clock.now())

    def _link(self, node: int, lane: Lane, channel: int = 0) -> _Link:
        key = (node, lane, channel)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._new_link(node, lane)
            link.channel = channel
        return link

    def _new_link(self, node: int, lane: Lane) -> _Link:
        broker = self._brokers.get(node)
        address = (broker.host, broker.port) if broker else self._bootstrap.get(node, self._settings.bootstrap[0])
        label = f"broker {node} at {address[0]}:{address[1]}"
        session = BrokerSession(label, self._settings.client_id, self._settings.request_timeout_ms)
        return _Link(node, lane, address, session, self._states.begin(node))

    def _least_loaded(self, now: int) -> int:
        def session_of(node: int) -> BrokerSession | None:
            link = self._links.get((node, Lane.CONTROL, 0))
            return None if link is None else link.session

        return self._states.least_busy(self._brokers, self._bootstrap, session_of, now)

    # --- time and bytes

    def poll(self, timeout_ms: int) -> None:
        """Move bytes; where none can move, jump to the next moment at which something happens."""
        until = min(deadline(self._clock.now(), timeout_ms), self.horizon_ms)
        while not self._turn(self._clock.now()):
            now = self._clock.now()
            if now >= until:
                return
            then = min(until, self._next_ms(now))
            session_due = min((deadline(now, one.session.wait_ms(now)) for one in self._links.values()), default=then)
            assert then < FOREVER_MS, "nothing can happen any more: a real loop would wait here for ever"
            self._clock.jump_to(max(then, now + 1))
            if self._clock.now() >= session_due:
                # As the real one, which returns when its wait is over: a throttled connection may be ready again.
                self._turn(self._clock.now())
                return

    def _turn(self, now: int) -> bool:
        """Whether anything happened."""
        happened = self._cluster.run_due(now)
        for link in list(self._links.values()):
            try:
                happened = self._serve(link, now) or happened
            except KafkaError as error:
                self._fail(link, error, now)
                happened = True
        for link in list(self._links.values()):
            happened = self._expire(link, now) or happened
        for link in self._links.values():
            self._note(link, now)
        return happened

    def _note(self, link: _Link, now: int) -> None:
        was_ready, link.ready = link.ready, link.session.sends_at_once(now)
        versions = link.session.versions
        if link.ready and not was_ready:
            self.changes += 1
            if versions is not None and versions.features_epoch > self._features.features_epoch:
                self._features = versions

    def _serve(self, link: _Link, now: int) -> bool:
        if link.server is None:
            return self._states.wait_ms(link.node, now) == 0 and self._open(link, now)
        happened = False
        if not link.connected:
            if now < link.connected_at_ms:
                return False
            link.connected = happened = True
            link.session.start(now)
        link.session.advance(now)
        outgoing = link.session.outgoing
        while outgoing:
            link.server.receive(outgoing.popleft(), now)
            happened = True
        link.server.step(now)
        happened = self._deliver(link, link.server, now) or happened
        if link.server.closed and not link.server.outbox:
            raise disconnected(link.session.label, "the broker closed the connection")
        return happened

    def _open(self, link: _Link, now: int) -> bool:
        link.attempt = self._states.begin(link.node)
        link.setup_deadline_ms = deadline(now, self._states.setup_timeout_ms(link.node))
        self.attempts.append(now)
        broker = self._cluster.broker_at(link.address)
        if broker is None or not broker.up:
            raise disconnected(link.session.label, "connection refused")
        link.server = ServerConnection(self._cluster, broker)
        link.connected_at_ms = FOREVER_MS if broker.connect_ms is None else now + broker.connect_ms
        return True

    def _deliver(self, link: _Link, server: ServerConnection, now: int) -> bool:
        left = min(self.split, len(server.outbox))
        happened = left > 0
        while left:
            buffer = link.session.buffer()
            count = min(left, len(buffer))
            buffer[:count] = server.outbox[:count]
            del server.outbox[:count]
            left -= count
            link.session.received(count, now)
        if happened and link.session.ready:
            self._states.answered(link.attempt)
        return happened

    def _expire(self, link: _Link, now: int) -> bool:
        session = link.session
        due = session.wait_ms(now) == 0
        if session.expire(now):
            self._fail(link, disconnected(session.label, session.why_overdue()), now)
        elif link.server is not None and not link.connected and link.setup_deadline_ms <= now:
            self._fail(link, disconnected(session.label, "no connection within the setup timeout"), now)
        elif self._idle_until_ms(link) <= now:
            self._drop(link, disconnected(session.label, "idle"), now)
        else:
            return due
        return True

    def _idle_until_ms(self, link: _Link) -> int:
        idle = link.connected and not link.session.load
        return deadline(link.session.last_used_ms, self._settings.connections_max_idle_ms) if idle else FOREVER_MS

    def _next_ms(self, now: int) -> int:
        times = [FOREVER_MS if (due := self._cluster.next_due_ms()) is None else due]
        for link in self._links.values():
            times.append(deadline(now, link.session.wait_ms(now)))
            if link.server is None:
                times.append(now + self._states.wait_ms(link.node, now))
            elif not link.connected:
                times += [link.setup_deadline_ms, link.connected_at_ms]
            else:
                times += [link.server.due_ms(), self._idle_until_ms(link)]
        return min(times)

    def _drop(self, link: _Link, error: KafkaError, now: int) -> None:
        """Close a connection that did nothing wrong."""
        self._links.pop((link.node, link.lane, link.channel), None)
        self.changes += 1
        if link.server is not None:
            link.server.abandon()
        link.session.fail(error, now)

    def _fail(self, link: _Link, error: KafkaError, now: int) -> None:
        """Close a connection that broke."""
        self._states.failed(link.attempt, now, error)
        self._drop(link, error, now)

    def close(self) -> None:
        for link in list(self._links.values()):
            self._drop(link, ClientClosed(f"{link.session.label}: closed"), self._clock.now())
