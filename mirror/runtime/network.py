"""Connections to a cluster's brokers over ``selectors`` (``NetworkClient``)."""

from __future__ import annotations

import random
import selectors
import socket
from collections.abc import Mapping
from typing import Final

from mirror.cluster.connections import ConnectionStates
from mirror.cluster.requests import Lane, Request
from mirror.cluster.session import BrokerSession, disconnected
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.topics import Broker
from mirror.errors import ClientClosed, KafkaError
from mirror.runtime.connection import Connection
from mirror.timing import Clock

_LONGEST_SELECT_S: Final = 3600.0


class SelectorNetwork:
    """One connection per (broker, lane), opened when first needed, opened again after a backoff.

    Bootstrap addresses are nodes with negative ids, used until the first metadata and when no broker answers.
    """

    def __init__(self, settings: ClusterSettings, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._states = ConnectionStates(settings, rng)
        self._bootstrap = {-1 - index: address for index, address in enumerate(settings.bootstrap)}
        self._brokers: Mapping[int, Broker] = {}
        self._connections: dict[tuple[int, Lane], Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)

    # --- what the loop asks for

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Learn addresses; a connection to an address that is no longer the broker's is closed."""
        if brokers is self._brokers:
            return
        self._brokers = brokers
        now = self._clock.now()
        for connection in list(self._connections.values()):
            broker = brokers.get(connection.node)
            moved = broker is not None and (broker.host, broker.port) != connection.address
            unneeded = connection.node < 0 and not connection.session.load
            if moved or (unneeded and brokers):
                self._close(connection, disconnected(connection.session.label, "the broker has moved"), now)

    def send(self, request: Request, now: int) -> None:
        """Put ``request`` on its connection; it waits there until the connection stands."""
        node = self._least_loaded(now) if request.node is None else request.node
        key = (node, request.lane)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = self._new_connection(node, request.lane)
        connection.session.send(request, now)

    def _new_connection(self, node: int, lane: Lane) -> Connection:
        address = self._address(node)
        who = f"broker {node}" if node >= 0 else "bootstrap server"
        label = f"{who} at {address[0]}:{address[1]}"
        session = BrokerSession(label, self._settings.client_id, self._settings.request_timeout_ms)
        return Connection(node, lane, address, session)

    def _address(self, node: int) -> tuple[str, int]:
        broker = self._brokers.get(node)
        # A broker that left between the routing and now: any address will do to fail properly.
        return (broker.host, broker.port) if broker else self._bootstrap.get(node, self._settings.bootstrap[0])

    def _least_loaded(self, now: int) -> int:
        """The node that will answer soonest: connected ones first, the least busy of them."""

        def rank(node: int) -> tuple[int, bool, int]:
            connection = self._connections.get((node, Lane.CONTROL))
            ready = connection is not None and connection.session.versions is not None
            return (self._states.wait_ms(node, now), not ready, connection.session.load if connection else 0)

        nodes = [*self._brokers] or [*self._bootstrap]
        best = min(nodes, key=rank)
        if self._states.wait_ms(best, now) and best >= 0:
            # No broker we know can be reached: those that were configured may still lead to the others.
            best = min([best, *self._bootstrap], key=rank)
        return best

    # --- I/O

    def poll(self, timeout_ms: int) -> None:
        """Connect, send, wait for at most ``timeout_ms``, receive, and tell those whose time is up."""
        now = self._clock.now()
        for connection in list(self._connections.values()):
            self._advance(connection, now)
        timeout_ms = min(timeout_ms, self._wait_ms(now))
        ready = self._selector.select(min(timeout_ms / 1000, _LONGEST_SELECT_S))
        now = self._clock.now()
        for key, mask in ready:
            if key.data is None:
                self._drain_wakeups()
            elif key.data.sock is key.fileobj:
                self._serve(key.data, mask, now)
        self._expire(now)

    def _advance(self, connection: Connection, now: int) -> None:
        try:
            if connection.sock is None:
                if self._states.wait_ms(connection.node, now) == 0:
                    self._open(connection, now)
            elif connection.connected and connection.session.outgoing:
                self._write(connection)
        except KafkaError as error:
            self._close(connection, error, now)

    def _open(self, connection: Connection, now: int) -> None:
        connection.setup_deadline_ms = now + self._states.setup_timeout_ms(connection.node)
        connection.open()
        assert connection.sock is not None  # noqa: S101 - open() raises where it has none
        self._selector.register(connection.sock, selectors.EVENT_WRITE, connection)

    def _serve(self, connection: Connection, mask: int, now: int) -> None:
        try:
            if not connection.connected:
                connection.finish_connect(now)
                self._write(connection)
                return
            if mask & selectors.EVENT_READ and connection.read(now):
                self._states.succeeded(connection.node)
            if connection.sock is not None and connection.session.outgoing:
                self._write(connection)
        except KafkaError as error:
            self._close(connection, error, now)

    def _write(self, connection: Connection) -> None:
        connection.write()
        assert connection.sock is not None  # noqa: S101 - write() raises where it broke
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.session.outgoing else 0)
        if self._selector.get_key(connection.sock).events != events:
            self._selector.modify(connection.sock, events, connection)

    def _expire(self, now: int) -> None:
        for connection in list(self._connections.values()):
            session = connection.session
            overdue = session.expire(now)
            connecting = connection.sock is not None and not connection.connected
            if connecting and connection.setup_deadline_ms <= now:
                self._close(connection, disconnected(session.label, "no connection within the setup timeout"), now)
            elif overdue:
                timeout_ms = self._settings.request_timeout_ms
                self._close(connection, disconnected(session.label, f"silent for {timeout_ms} ms"), now)

    def _wait_ms(self, now: int) -> int:
        times = [int(_LONGEST_SELECT_S * 1000)]
        for connection in self._connections.values():
            times.append(connection.session.wait_ms(now))
            if connection.sock is None:
                times.append(self._states.wait_ms(connection.node, now))
            elif not connection.connected:
                times.append(max(0, connection.setup_deadline_ms - now))
        return min(times)

    def _close(self, connection: Connection, error: KafkaError, now: int) -> None:
        if connection.sock is not None:
            self._selector.unregister(connection.sock)
        connection.close()
        del self._connections[connection.node, connection.lane]
        self._states.failed(connection.node, now)
        connection.session.fail(error, now)

    # --- from other threads, and the end

    def wakeup(self) -> None:
        """Make a poll under way return at once; callable from any thread."""
        try:
            self._wake_out.send(b"\0")
        except BlockingIOError:
            pass  # enough wake-ups are waiting already

    def _drain_wakeups(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close everything; requests not answered fail."""
        now = self._clock.now()
        for connection in list(self._connections.values()):
            self._close(connection, ClientClosed(f"{connection.session.label}: closed"), now)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
