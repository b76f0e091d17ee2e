"""Transports of a connected socket: without encryption (:class:`PlainTransport`), or over TLS (``tls.py``).

A *turn* is one visit of the loop to a connection. What it may receive is bounded, so that a busy connection does not
delay the others.
"""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice
from typing import Final, Protocol

from mirror.wire.messages.base import Segment

_SEGMENTS_PER_CALL: Final = 64
"""Far below the IOV_MAX of the system (1024); more would not make a call cheaper."""
_RECEIVES_PER_TURN: Final = 64


class Transport(Protocol):
    """The transport of a connection. Every method may raise OSError."""

    @property
    def heard(self) -> bool:
        """Whether the other side has sent anything yet."""
        ...

    @property
    def unsent(self) -> bool:
        """Whether bytes of the transport itself wait to be sent."""
        ...

    def handshake(self) -> bool:
        """Continue the handshake; return True once it is done."""
        ...

    def begin_turn(self) -> None:
        """Begin a new turn."""
        ...

    def read_into(self, buffer: memoryview) -> int:
        """Receive; return 0 at the end. Raises BlockingIOError if there is nothing more in this turn."""
        ...

    def write(self, outgoing: deque[Segment]) -> None:
        """Send as much of ``outgoing`` as the socket accepts, and remove it from there."""
        ...


class PlainTransport:
    """The socket without encryption."""

    unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._receives_left = 0
        self.heard = False

    def handshake(self) -> bool:
        """Return True: there is no handshake."""
        return True

    def begin_turn(self) -> None:
        """Begin a new turn."""
        self._receives_left = _RECEIVES_PER_TURN

    def read_into(self, buffer: memoryview) -> int:
        """Receive directly into ``buffer``."""
        if not self._receives_left:
            raise BlockingIOError
        self._receives_left -= 1
        count = self._sock.recv_into(buffer)
        self.heard = True
        return count

    def write(self, outgoing: deque[Segment]) -> None:
        """Send the segments without joining them."""
        while outgoing:
            try:
                sent = self._sock.sendmsg(islice(outgoing, _SEGMENTS_PER_CALL))
            except BlockingIOError:
                return
            while outgoing and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = memoryview(outgoing[0])[sent:]
