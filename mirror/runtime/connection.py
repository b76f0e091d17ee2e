"""One TCP connection: moves bytes between a socket and a :class:`BrokerSession`, and decides nothing."""

from __future__ import annotations

import errno
import os
import socket
from itertools import islice
from typing import Final

from mirror.cluster.requests import Lane
from mirror.cluster.session import BrokerSession, disconnected

_SEGMENTS_PER_CALL: Final = 64
"""Far below the system's IOV_MAX (1024); more would not make a call cheaper."""
_RECEIVES_PER_TURN: Final = 64
"""So that one busy connection does not keep the others waiting."""


class Connection:
    """A socket on its way to a broker, or connected. Raises ConnectionFailed when it breaks."""

    def __init__(self, node: int, lane: Lane, address: tuple[str, int], session: BrokerSession) -> None:
        self.node = node
        self.lane = lane
        self.address = address
        self.session = session
        self.sock: socket.socket | None = None
        self.connected = False
        self.setup_deadline_ms = 0

    def open(self) -> None:
        """Begin to connect. The name is looked up here, as ``getaddrinfo`` has no other way than to block."""
        host, port = self.address
        try:
            family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.sock = socket.socket(family, kind, proto)
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self.sock.connect_ex(address)
        except OSError as error:
            self.close()
            raise disconnected(self.session.label, error.strerror or str(error)) from error
        if code not in {0, errno.EINPROGRESS}:
            self.close()
            raise disconnected(self.session.label, os.strerror(code).lower())

    def finish_connect(self, now: int) -> None:
        """The socket became writable: it is connected, or has failed."""
        assert self.sock is not None  # noqa: S101 - registered sockets are open
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise disconnected(self.session.label, os.strerror(code).lower())
        self.connected = True
        self.session.start(now)

    def write(self) -> None:
        """Send what waits, as much as the socket takes: segments go out as they are, without being joined."""
        assert self.sock is not None  # noqa: S101 - as above
        outgoing = self.session.outgoing
        try:
            while outgoing:
                sent = self.sock.sendmsg(islice(outgoing, _SEGMENTS_PER_CALL))
                while outgoing and sent >= len(outgoing[0]):
                    sent -= len(outgoing.popleft())
                if sent:
                    outgoing[0] = memoryview(outgoing[0])[sent:]
        except BlockingIOError:
            return
        except OSError as error:
            raise disconnected(self.session.label, error.strerror or str(error)) from error

    def read(self, now: int) -> bool:
        """Receive what there is, straight to where it belongs. True where an answer's bytes came in."""
        assert self.sock is not None  # noqa: S101 - as above
        try:
            for _ in range(_RECEIVES_PER_TURN):
                count = self.sock.recv_into(self.session.buffer())
                if count == 0:
                    raise disconnected(self.session.label, "the broker closed the connection")
                self.session.received(count, now)
        except BlockingIOError:
            pass
        except OSError as error:
            raise disconnected(self.session.label, error.strerror or str(error)) from error
        return self.session.versions is not None

    def close(self) -> None:
        """Close the socket; safe to call again."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        self.connected = False
