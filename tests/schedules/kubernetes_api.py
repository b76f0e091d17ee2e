"""An API server of Kubernetes that accepts what it is sent, and keeps it: Spark's submission needs no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@contextmanager
def api_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield its address, and the objects that it was sent."""
    sent: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _accept(self) -> None:
            found = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            sent.append(found)
            self._answer(201, {**found, "metadata": {**found["metadata"], "uid": f"u{len(sent)}"}})

        do_POST = do_PATCH = do_PUT = _accept  # noqa: N815 - the names that the class below looks for

        def do_GET(self) -> None:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
