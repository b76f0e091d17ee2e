"""How bytes go through a connected socket: as they are (:class:`PlainTransport`), or over TLS (``runtime.tls``).

A *turn* is one visit of the loop to a connection; what it may receive is bounded, so that one busy connection does not
keep the others waiting.
"""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice
from typing import Final, Protocol

from mirror.wire.messages.base import Segment

_SEGMENTS_PER_CALL: Final = 64
"""Far below the system's IOV_MAX (1024); more would not make a call cheaper."""
_RECEIVES_PER_TURN: Final = 64


class Transport(Protocol):
    """What a connection needs. Every method may raise OSError."""

    @property
    def heard(self) -> bool:
        """Whether the other side has said anything yet."""
        ...

    @property
    def unsent(self) -> bool:
        """Whether bytes of its own wait for the socket to take them."""
        ...

    def handshake(self) -> bool:
        """Go on with the handshake; True once it is done."""
        ...

    def begin_turn(self) -> None:
        """A new turn begins."""
        ...

    def read_into(self, buffer: memoryview) -> int:
        """Receive; 0 at the end. Raises BlockingIOError where there is nothing more in this turn."""
        ...

    def write(self, outgoing: deque[Segment]) -> None:
        """Send as much of ``outgoing`` as the socket takes, and take that off it."""
        ...


class PlainTransport:
    """The socket as it is."""

    unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._receives_left = 0
        self.heard = False

    def handshake(self) -> bool:
        """There is none."""
        return True

    def begin_turn(self) -> None:
        """A new turn begins."""
        self._receives_left = _RECEIVES_PER_TURN

    def read_into(self, buffer: memoryview) -> int:
        """Straight from the system into ``buffer``."""
        if not self._receives_left:
            raise BlockingIOError
        self._receives_left -= 1
        count = self._sock.recv_into(buffer)
        self.heard = True
        return count

    def write(self, outgoing: deque[Segment]) -> None:
        """Segments go out as they are, without being joined."""
        while outgoing:
            try:
                sent = self._sock.sendmsg(islice(outgoing, _SEGMENTS_PER_CALL))
            except BlockingIOError:
                return
            while outgoing and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = memoryview(outgoing[0])[sent:]
