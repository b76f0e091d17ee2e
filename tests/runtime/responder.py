"""A listener that answers the n-th request of a connection with the n-th thing it was given, and then no more."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence


class Responder:
    """``answers`` may be exchanged for those of later connections; ``connections`` are the sockets accepted."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = answers
        self.connections: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.connections.append(client)
            thread = threading.Thread(target=self._serve, args=(client, self.answers), daemon=True)
            self._threads.append(thread)
            thread.start()

    @staticmethod
    def _serve(client: socket.socket, answers: Sequence[bytes]) -> None:
        left = list(answers)
        try:
            with client.makefile("rb") as stream:
                while size := stream.read(4):
                    stream.read(*struct.unpack(">i", size))
                    if left:
                        client.sendall(left.pop(0))
        except OSError:
            return

    def hang_up(self) -> None:
        """Close every connection."""
        for client in self.connections:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the other end was first

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(30)
        for client in self.connections:
            client.close()
