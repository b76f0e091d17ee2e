"""Connections to a cluster's brokers over ``selectors`` (``NetworkClient``)."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
from collections.abc import Mapping
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.connection.connections import ConnectionStates
from mirror.cluster.connection.negotiation import Suspicion
from mirror.cluster.connection.session import BrokerSession, disconnected
from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.cluster.requests import Lane, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import Broker
from mirror.errors import ClientClosed, KafkaError
from mirror.meters import RequestMeters
from mirror.runtime.network.background import Background, Resolver
from mirror.runtime.network.connection import Connection, ConnectionStage
from mirror.runtime.network.credentials import Credentials
from mirror.timing import Clock, deadline, remaining
from mirror.wire.versions import BrokerVersions

_LONGEST_SELECT_S: Final = 3600.0


class SelectorNetwork:
    """One connection for each (broker, lane, channel), opened when it is first needed, and again after a backoff.

    A poll visits the ``active`` connections, which are connecting or have bytes to send, those that received bytes,
    and those whose deadline has come; all others cost nothing. Bootstrap addresses are nodes with negative ids, used
    until the first metadata, and when no broker answers. ``throttled_ms`` is how long each node has throttled this
    client in all (KIP-219); ``meters`` count all requests. ``changes`` rises when a connection has become ready, was
    lost, or is no longer throttled.
    """

    def __init__(self, settings: ClusterSettings, clock: Clock, rng: random.Random) -> None:
        """Create the network. Raises ConfigError if a file of keys or certificates is not usable."""
        self._settings = settings
        self._clock = clock
        self._background = Background(self.wakeup)
        self._resolver = Resolver(self._background)
        retry = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        hosts = [host for host, _ in settings.bootstrap]
        self._credentials = Credentials(
            settings.security, settings.request_timeout_ms, self._background, retry, rng, hosts
        )
        self._states = ConnectionStates(settings, rng)
        self._bootstrap = {-1 - index: address for index, address in enumerate(settings.bootstrap)}
        self._brokers: Mapping[int, Broker] = {}
        self._connections: dict[tuple[int, Lane, int], Connection] = {}
        self._active: dict[Connection, None] = {}
        self._alarms: DeadlineHeap[Connection] = DeadlineHeap()
        self._features = BrokerVersions()
        self._throttled_until: dict[int, int] = {}
        self._known_brokers: set[int] = set()
        self._suspicions: dict[int, Suspicion] = {}
        self._has_answered = False
        """Whether a request was answered: the listener then serves this client as it is, also without a login."""
        self.throttled_ms: dict[int, int] = {}
        self.changes = 0
        self.meters: Final = RequestMeters()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._waking = False
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)

    # --- calls of the loop

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Set the addresses of brokers, and close connections to addresses that are no longer theirs."""
        if brokers is self._brokers:
            return
        self._brokers = brokers
        now = self._clock.now()
        for connection in list(self._connections.values()):
            broker = brokers.get(connection.node)
            moved = broker is not None and (broker.host, broker.port) != connection.address
            unneeded = connection.node < 0 and not connection.session.load
            if moved or (unneeded and brokers):
                self._drop(connection, disconnected(connection.session.label, "the broker has moved"), now)

    def send(self, request: Request, now: int) -> None:
        """Queue ``request`` on its connection, where it waits until that is established."""
        node = self._least_loaded(now) if request.node is None else request.node
        connection = self._connection(node, request.lane, request.channel)
        connection.session.send(request, now)
        self._active[connection] = None
        self._alarms.sooner(connection, deadline(now, request.timeout_ms))

    def ready(self, node: int, lane: Lane, now: int, channel: int = 0) -> bool:
        """Whether a request would be sent now; opens a connection if there is none."""
        return self._connection(node, lane, channel).session.sends_at_once(now)

    def stands(self, node: int, lane: Lane, channel: int) -> bool:
        """Whether this connection is open or being opened; opens none."""
        return (node, lane, channel) in self._connections

    def throttled(self, node: int, now: int) -> bool:
        """Whether ``node`` throttles a connection of this client now (KIP-219)."""
        return self._throttled_until.get(node, 0) > now

    def finalized_feature(self, name: str) -> int:
        """Return the finalized level of the feature ``name`` (KIP-584), the latest that any broker returned; 0.

        Unknown.
        """
        return self._features.finalized(name)

    def trouble(self, node: int) -> KafkaError | None:
        """Return the error of the last connection to ``node``; None once one is established."""
        return self._states.error(node)

    def forget(self, channel: int) -> None:
        """Close the connections of a channel, whose client has left."""
        now = self._clock.now()
        for connection in [one for key, one in self._connections.items() if key[2] == channel]:
            self._drop(connection, ClientClosed(f"{connection.session.label}: closed"), now)

    def _connection(self, node: int, lane: Lane, channel: int = 0) -> Connection:
        key = (node, lane, channel)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = self._new_connection(node, lane)
            connection.channel = channel
            self._active[connection] = None
        return connection

    def _new_connection(self, node: int, lane: Lane) -> Connection:
        address = self._address(node)
        who = f"broker {node}" if node >= 0 else "bootstrap server"
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        label = f"{who} at {host}:{address[1]}"
        settings = self._settings
        suspicion = self._suspicions.pop(node, None)
        session = BrokerSession(
            label, settings.client_id, settings.request_timeout_ms, self._credentials.login_to(address[0]), suspicion
        )
        session.known_broker = node in self._known_brokers
        session.meters = self.meters
        wrap = None if suspicion is Suspicion.NO_TLS else self._credentials.wrap
        return Connection(lane, address, session, wrap, self._states.begin(node))

    def _address(self, node: int) -> tuple[str, int]:
        broker = self._brokers.get(node)
        # The broker has left since the routing: any address serves to fail with an error.
        return (broker.host, broker.port) if broker else self._bootstrap.get(node, self._settings.bootstrap[0])

    def _least_loaded(self, now: int) -> int:
        """Return the least busy node, connected ones first."""

        def session_of(node: int) -> BrokerSession | None:
            connection = self._connections.get((node, Lane.CONTROL, 0))
            return None if connection is None else connection.session

        return self._states.least_busy(self._brokers, self._bootstrap, session_of, now)

    # --- I/O

    def poll(self, timeout_ms: int) -> None:
        """Connect, send, wait for at most ``timeout_ms``, receive, and fail requests that have timed out.

        A part of a response concerns nothing but this network: the rest of it is waited for.
        """
        now = self._clock.now()
        active, self._active = self._active, {}
        for connection in active:
            self._advance(connection, now)
        until_ms = deadline(now, min(timeout_ms, remaining(self._alarms.next_ms(), now)))
        while True:
            only_parts = self._receive(remaining(until_ms, now))
            now = self._clock.now()
            if not only_parts or now >= until_ms:
                break
        for connection in self._alarms.due(now):
            self._expire(connection, now)

    def _receive(self, timeout_ms: int) -> bool:
        """Wait once, and serve what is ready; return whether all that has come are parts of responses."""
        ready = self._selector.select(min(timeout_ms / 1000, _LONGEST_SELECT_S))
        now = self._clock.now()
        only_parts = bool(ready)
        for key, mask in ready:
            if key.data is None:
                self._drain_wakeups()
                only_parts = False
            elif key.data.sock is key.fileobj:
                session, changes = key.data.session, self.changes
                load = session.load if session.ready and mask == selectors.EVENT_READ else 0
                self._serve(key.data, mask, now)
                only_parts = only_parts and 0 < load == session.load and self.changes == changes
        return only_parts

    def _note(self, connection: Connection, now: int) -> None:
        """Update the deadline and the readiness of ``connection`` after an event."""
        session = connection.session
        if connection.stage is not ConnectionStage.CONNECTED or not session.ready:
            self._active[connection] = None
            self._alarms.set(connection, self._due_ms(connection, now))
        else:
            # It may be too early, but never too late, for the requests in flight: _expire() computes the exact time.
            if session.load:
                at_ms = deadline(now, self._settings.request_timeout_ms)
            else:
                at_ms = connection.idle_deadline_ms(self._settings.connections_max_idle_ms)
            if session.throttled_until_ms > now:
                at_ms = min(at_ms, session.throttled_until_ms)
            self._alarms.sooner(connection, at_ms)
        was_ready, connection.ready = connection.ready, session.sends_at_once(now)
        if connection.ready and not was_ready:
            self.changes += 1
            if session.versions is not None and session.versions.features_epoch > self._features.features_epoch:
                self._features = session.versions

    def _advance(self, connection: Connection, now: int) -> None:
        try:
            if connection.stage is ConnectionStage.IDLE and self._states.wait_ms(connection.node, now) == 0:
                connection.attempt = self._states.begin(connection.node)
                setup_ms = self._states.setup_timeout_ms(connection.node)
                connection.begin(self._resolver, deadline(now, setup_ms))
            if connection.resolved:
                connection.take_addresses(self._resolver)
                self._connect(connection)
            if connection.stage is ConnectionStage.CONNECTED:
                connection.session.advance(now)
                if connection.wants_write:
                    self._write(connection)
                    self._watch(connection, writes=connection.wants_write)
        except KafkaError as error:
            self._fail(connection, error, now)
        else:
            self._note(connection, now)

    def _connect(self, connection: Connection) -> None:
        """Connect to the next address."""
        self._forget(connection)
        connection.connect()
        assert connection.sock is not None  # noqa: S101 - connect() raises if there is none
        connection.watched = selectors.EVENT_WRITE
        self._selector.register(connection.sock, connection.watched, connection)

    def _serve(self, connection: Connection, mask: int, now: int) -> None:
        try:
            if connection.stage is ConnectionStage.CONNECTING:
                why = connection.connect_failed()
                if not why:
                    connection.connected(now)
                elif connection.more_addresses:
                    self._connect(connection)
                    return
                else:
                    raise connection.unreachable(why)
            elif connection.stage is ConnectionStage.HANDSHAKING:
                connection.handshake(now)
            elif mask & selectors.EVENT_READ:
                self._read(connection, now)
            writes = connection.wants_write
            if writes and connection.stage is ConnectionStage.CONNECTED:
                self._write(connection)
                writes = connection.wants_write
            self._watch(connection, writes=writes)
        except KafkaError as error:
            self._fail(connection, error, now)
        else:
            self._note(connection, now)

    def _read(self, connection: Connection, now: int) -> None:
        session = connection.session
        before = session.throttled_ms
        try:
            connection.read(now)
        finally:
            if session.throttled_ms != before:
                total = self.throttled_ms.get(connection.node, 0)
                self.throttled_ms[connection.node] = total + session.throttled_ms - before
                until = max(session.throttled_until_ms, self._throttled_until.get(connection.node, 0))
                self._throttled_until[connection.node] = until
        if session.ready:
            self._known_brokers.add(connection.node)
            self._states.answered(connection.attempt)
            self._has_answered |= session.answered

    def _write(self, connection: Connection) -> None:
        """Write what is queued. Raises ConnectionFailed if it has become too old.

        The process may have been suspended since it was queued. Brokers may have forgotten the producer of a batch
        meanwhile, and would append it although another attempt has copied it (KIP-854).
        """
        now, session = self._clock.now(), connection.session
        if session.is_silent(now):
            raise disconnected(session.label, session.why_overdue())
        connection.write(now)

    def _watch(self, connection: Connection, *, writes: bool) -> None:
        """Register the events that the connection waits for; return whether it has bytes to send."""
        if connection.sock is None:
            return
        reading = 0 if connection.stage is ConnectionStage.CONNECTING else selectors.EVENT_READ
        events = reading | (selectors.EVENT_WRITE if writes else 0)
        if connection.watched != events:
            connection.watched = events
            self._selector.modify(connection.sock, events, connection)

    def _expire(self, connection: Connection, now: int) -> None:
        session = connection.session
        overdue = session.expire(now)
        if connection.setup_deadline_ms <= now:
            self._setup_expired(connection, now)
        elif overdue:
            self._fail(connection, disconnected(session.label, session.why_overdue()), now)
        elif connection.idle_deadline_ms(self._settings.connections_max_idle_ms) <= now:
            self._drop(connection, disconnected(session.label, "idle"), now)
        else:
            self._alarms.set(connection, self._due_ms(connection, now))
            self._active[connection] = None  # requests held back by throttling may be sent now
            self._note(connection, now)

    def _setup_expired(self, connection: Connection, now: int) -> None:
        why = f"no connection within the setup timeout (still {connection.stage.value})"
        error = connection.unreachable(why)
        if connection.stage is not ConnectionStage.CONNECTING or not connection.more_addresses:
            self._fail(connection, error, now)
            return
        try:
            connection.setup_deadline_ms = deadline(now, self._states.setup_timeout_ms(connection.node))
            self._connect(connection)
        except KafkaError as failure:
            self._fail(connection, failure, now)

    def _due_ms(self, connection: Connection, now: int) -> int:
        """Return the exact deadline of ``connection``, if no event happens before."""
        session_ms = deadline(now, connection.session.wait_ms(now))
        if connection.stage is ConnectionStage.IDLE:
            return min(session_ms, now + self._states.wait_ms(connection.node, now))
        idle_ms = connection.idle_deadline_ms(self._settings.connections_max_idle_ms)
        return min(session_ms, connection.setup_deadline_ms, idle_ms)

    def _forget(self, connection: Connection) -> None:
        if connection.sock is not None:
            self._selector.unregister(connection.sock)
        connection.close_socket()

    def _drop(self, connection: Connection, error: KafkaError, now: int) -> None:
        """Close a connection that did not fail."""
        self._forget(connection)
        del self._connections[connection.node, connection.lane, connection.channel]
        self._alarms.clear(connection)
        self._active.pop(connection, None)
        self.changes += 1
        connection.session.fail(error, now)

    def _fail(self, connection: Connection, error: KafkaError, now: int) -> None:
        """Close a connection that broke; the next one to its node is delayed by the backoff."""
        self._states.failed(connection.attempt, now, error)
        if connection.tried is not None and connection.session.versions is None:
            self._resolver.avoid(*connection.address, connection.tried)
        suspicion = connection.suspicion()
        if suspicion is Suspicion.WANTS_SASL and self._has_answered:
            suspicion = None  # a request that this broker cannot decode closes the connection, too
        if suspicion is not None:
            self._suspicions[connection.node] = suspicion
        self._drop(connection, error, now)

    # --- from other threads, and the end

    def wakeup(self) -> None:
        """Let a pending poll return at once. May be called from any thread, also after the end."""
        if self._waking:
            return  # woken already by a byte that is not read yet: that wake-up covers later events, too
        self._waking = True
        # Full: enough wake-ups are pending. Closed: there is no loop to be woken.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.recv(4096)
        # Only now: a byte sent in between would be read here, and no other one would be sent. Events that were queued
        # in between are not lost: the loop drains events after this.
        self._waking = False

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        now = self._clock.now()
        for connection in list(self._connections.values()):
            self._drop(connection, ClientClosed(f"{connection.session.label}: closed"), now)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
