"""A listener that is no broker."""

from __future__ import annotations

import socket
import threading


class Listener:
    """Accepts, sends ``greeting`` and then nothing; ``hang_up``: not even that."""

    def __init__(self, greeting: bytes = b"", *, hang_up: bool = False) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._greeting = greeting
        self._hang_up = hang_up
        self._accepted: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def accepted(self) -> int:
        """How many connections there have been."""
        return len(self._accepted)

    @property
    def clients(self) -> list[socket.socket]:
        """Its ends of the connections."""
        return self._accepted

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._accepted.append(client)
            client.sendall(self._greeting)
            if self._hang_up:
                client.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(30)
        for client in self._accepted:
            client.close()
