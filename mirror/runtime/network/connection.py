"""A connection: moves bytes between a socket and a :class:`BrokerSession`, which makes all decisions.

It looks up the addresses of its host, tries them in order, and does the TLS handshake, without blocking.
"""

from __future__ import annotations

import enum
import errno
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future

from mirror.causes import ADVERTISED, CONNECTIONS
from mirror.cluster.connection.connections import ConnectAttempt
from mirror.cluster.connection.negotiation import Suspicion
from mirror.cluster.connection.session import CLOSED_IN_HANDSHAKE, BrokerSession, disconnected
from mirror.cluster.requests import Lane
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from mirror.runtime.network.background import Resolver, SocketAddress
from mirror.runtime.network.tls import explain
from mirror.runtime.network.transport import PlainTransport, Transport
from mirror.timing import FOREVER_MS, deadline

WrapSocket = Callable[[socket.socket, str], Transport]
"""Creates the transport of a connected socket to a host."""


class ConnectionStage(enum.Enum):
    """The stage of a connection."""

    IDLE = "not begun"
    RESOLVING = "looking the name up"
    CONNECTING = "connecting"
    HANDSHAKING = "in the TLS handshake"
    CONNECTED = "connected"


class Connection:
    """A socket that is connecting, or connected. Its methods raise KafkaError when it breaks.

    ``ready``, ``watched`` and ``attempt`` belong to the network: whether requests could be sent at its last check, the
    selector's events of ``sock``, and the attempt that failures are counted for.
    """

    def __init__(
        self,
        lane: Lane,
        address: tuple[str, int],
        session: BrokerSession,
        wrap: WrapSocket | None,
        attempt: ConnectAttempt,
    ) -> None:
        self.node = attempt.node
        self.attempt = attempt
        self.lane = lane
        self.address = address
        self.session = session
        self.channel = 0
        self.ready = False
        self.watched = 0
        self.stage = ConnectionStage.IDLE
        self.sock: socket.socket | None = None
        self.setup_deadline_ms = FOREVER_MS
        self._wrap = wrap
        self._lookup: Future[list[SocketAddress]] | None = None
        self._addresses: list[SocketAddress] = []
        self.tried: SocketAddress | None = None
        """The address to which it connects, or is connected."""
        self._transport: Transport | None = None

    # --- connecting

    def begin(self, resolver: Resolver, setup_deadline_ms: int) -> None:
        """Look up the host; :meth:`connect` continues once that is :meth:`resolved`."""
        self.stage = ConnectionStage.RESOLVING
        self.setup_deadline_ms = setup_deadline_ms
        self._lookup = resolver.look_up(*self.address)

    @property
    def resolved(self) -> bool:
        """Whether :meth:`connect` can be called."""
        return self.stage is ConnectionStage.RESOLVING and self._lookup is not None and self._lookup.done()

    def take_addresses(self, resolver: Resolver) -> None:
        """Use the result of the lookup. Raises ConnectionFailed."""
        assert self._lookup is not None  # noqa: S101 - it is resolved
        try:
            self._addresses = resolver.in_order(*self.address, self._lookup.result())
        except OSError as error:
            raise self.unreachable(f"the name was not found: {_text(error)}") from error
        if not self._addresses:
            raise disconnected(self.session.label, "the name has no address")

    def connect(self) -> None:
        """Start to connect to the next address (KIP-302). Raises ConnectionFailed if none is left."""
        while True:
            self.close_socket()
            self.tried = family, address = self._addresses.pop(0)
            try:
                self.sock = socket.socket(family, socket.SOCK_STREAM)
                self.sock.setblocking(False)
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = self.sock.connect_ex(address)
            except OverflowError:  # an invalid port
                code, reason = errno.EINVAL, os.strerror(errno.EINVAL).lower()
            except OSError as error:
                code, reason = error.errno or errno.EIO, _text(error)
            else:
                reason = os.strerror(code).lower()
            if code in {0, errno.EINPROGRESS}:
                self.stage = ConnectionStage.CONNECTING
                return
            if not self._addresses:
                self.close_socket()  # a socket that is not closed is one that the selector knows
                raise self.unreachable(reason)

    def unreachable(self, why: str) -> ConnectionFailed:
        """Return the error of a server to which there is no connection.

        That a broker has advertised another address than a reachable one shows only while it never was reached.
        """
        advertised = self.node >= 0 and not self.session.known_broker
        return disconnected(self.session.label, f"{why} ({ADVERTISED.words})" if advertised else why)

    def connect_failed(self) -> str:
        """Return the error of a socket that became writable but is not connected; empty if it is."""
        code = self._open_socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(code).lower() if code else ""

    @property
    def more_addresses(self) -> bool:
        """Whether there is another address to try."""
        return bool(self._addresses)

    def connected(self, now: int) -> None:
        """Start the TLS handshake, or the protocol, on the connected socket."""
        sock = self._open_socket()
        self.stage = ConnectionStage.HANDSHAKING
        self._transport = PlainTransport(sock) if self._wrap is None else self._wrap(sock, self.address[0])
        self.handshake(now)

    def handshake(self, now: int) -> None:
        """Continue the handshake. Raises AuthenticationFailed if a side does not accept the other."""
        try:
            done = self._open_transport().handshake()
        except ssl.SSLEOFError as error:
            raise disconnected(self.session.label, CLOSED_IN_HANDSHAKE) from error
        except ssl.SSLError as error:
            raise AuthenticationFailed(f"{self.session.label}: {explain(error, self.address[0])}") from error
        except OSError as error:
            raise disconnected(self.session.label, f"in the TLS handshake: {_text(error)}") from error
        if done:
            self.stage = ConnectionStage.CONNECTED
            self.setup_deadline_ms = FOREVER_MS
            self.session.start(now)

    # --- connected

    @property
    def wants_write(self) -> bool:
        """Whether there are bytes to send."""
        unsent = self._transport is not None and self._transport.unsent
        return (
            unsent
            or self.stage is ConnectionStage.CONNECTING
            or (self.stage is ConnectionStage.CONNECTED and bool(self.session.outgoing))
        )

    def write(self, now: int) -> None:
        """Send as much as the socket accepts."""
        try:
            self._open_transport().write(self.session.outgoing)
        except OSError as error:
            # What the broker sent before it closed the connection (a TLS alert) says more than the close.
            self.read(now)
            raise self._broken(error) from error

    def read(self, now: int) -> None:
        """Receive what is available, directly into its destination."""
        transport = self._open_transport()
        transport.begin_turn()
        try:
            while True:
                count = transport.read_into(self.session.buffer())
                if count == 0:
                    raise self._closed()
                self.session.received(count, now)
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._broken(error) from error

    def _closed(self) -> KafkaError:
        return disconnected(self.session.label, f"the broker closed the connection{self._too_many()}")

    def _too_many(self) -> str:
        """Return what a close means that comes before the first answer."""
        return f" before its first answer (perhaps {CONNECTIONS.words})" if self.session.versions is None else ""

    def _broken(self, error: OSError) -> KafkaError:
        # TLS 1.3 refuses a client's certificate after the handshake; damaged bytes later on are no refusal.
        if isinstance(error, ssl.SSLError) and self.session.versions is None:
            return AuthenticationFailed(f"{self.session.label}: {explain(error, self.address[0])}")
        return disconnected(self.session.label, f"{_text(error)}{self._too_many()}")

    def idle_deadline_ms(self, max_idle_ms: int) -> int:
        """Return when it is to be closed as idle."""
        if self.stage is not ConnectionStage.CONNECTED or self.session.load:
            return FOREVER_MS
        return deadline(self.session.last_used_ms, max_idle_ms)

    def suspicion(self) -> Suspicion | None:
        """Return what a close at this stage may mean, other than that the broker went away."""
        if self.stage is ConnectionStage.HANDSHAKING and self._transport is not None and not self._transport.heard:
            return Suspicion.NO_TLS
        negotiated = self.stage is ConnectionStage.CONNECTED and self.session.ready
        return (
            Suspicion.WANTS_SASL if negotiated and not self.session.wants_sasl and not self.session.answered else None
        )

    def close_socket(self) -> None:
        """Close the socket. May be called again."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        self._transport = None

    def _open_socket(self) -> socket.socket:
        assert self.sock is not None  # noqa: S101 - registered sockets are open
        return self.sock

    def _open_transport(self) -> Transport:
        assert self._transport is not None  # noqa: S101 - made when the socket was connected
        return self._transport


def _text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
