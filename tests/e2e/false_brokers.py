"""What may stand at an address instead of a broker of today: an old broker, a web server, somebody silent."""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
from collections.abc import Iterator

_ERROR_UNSUPPORTED_VERSION = 35
_OF_KAFKA_1_0 = ((0, 0, 5), (1, 0, 6), (2, 0, 2), (3, 0, 5), (8, 0, 3), (9, 0, 3), (10, 0, 1), (18, 0, 1), (19, 0, 2))
"""(API key, lowest, highest version) of some of the requests that Apache Kafka 1.0 answers."""
_API_VERSIONS_MAX = 1


class _OldBroker(socketserver.StreamRequestHandler):
    """Answers ApiVersions, in version 0 with an error if it does not know the request's (KIP-511), and nothing else."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", size)[0])
            ranges = b"".join(struct.pack(">hhh", *each) for each in _OF_KAFKA_1_0)
            (version,) = struct.unpack_from(">h", request, 2)
            error = 0 if version <= _API_VERSIONS_MAX else _ERROR_UNSUPPORTED_VERSION
            throttle_time = struct.pack(">i", 0) if version == 1 else b""
            answer = request[4:8] + struct.pack(">hi", error, len(_OF_KAFKA_1_0)) + ranges + throttle_time
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


class _WebServer(socketserver.StreamRequestHandler):
    """Answers what it does not understand as web servers do."""

    def handle(self) -> None:
        self.request.recv(65536)
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


class _Silent(socketserver.StreamRequestHandler):
    """Takes everything and says nothing."""

    def handle(self) -> None:
        while self.request.recv(65536):
            pass


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextlib.contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def old_broker() -> contextlib.AbstractContextManager[str]:
    """The address of a broker of Apache Kafka 1.0."""
    return _serving(_OldBroker)


def web_server() -> contextlib.AbstractContextManager[str]:
    """The address of a web server."""
    return _serving(_WebServer)


def silent_server() -> contextlib.AbstractContextManager[str]:
    """The address of a server that waits for the other side to make sense."""
    return _serving(_Silent)
