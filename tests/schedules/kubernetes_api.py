"""An API server of Kubernetes that keeps what it is sent: enough for Spark's submission, and for Airflow's operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

Object = dict[str, Any]
CHECKED: Final = "already_checked"
"""The label of pods whose end Airflow has seen; it asks for others only."""


@contextmanager
def api_server(exit_status: int = 0) -> Iterator[tuple[str, list[Object]]]:
    """Yield its address, and the objects that it was sent. Each pod ends with ``exit_status`` at once."""
    server = _Server(exit_status)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, exit_status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exit_status: Final = exit_status
        self.sent: Final = list[Object]()

    def pods(self) -> Iterator[Object]:
        """Each pod, as it has ended."""
        state = {"terminated": {"exitCode": self.exit_status, "reason": "Error" if self.exit_status else "Completed"}}
        for pod in self.sent:
            if pod["kind"] == "Pod":
                (container,) = pod["spec"]["containers"]
                known = {"name": container["name"], "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
                phase = "Failed" if self.exit_status else "Succeeded"
                yield pod | {"status": {"phase": phase, "containerStatuses": [{**known, "state": state}]}}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        found = self._content()
        found["metadata"] |= {"uid": f"u{len(self.server.sent)}", "creationTimestamp": "2026-11-21T06:13:07Z"}
        self.server.sent.append(found)
        self._answer(found, 201)

    def do_PATCH(self) -> None:
        found, pod = self._content(), self._pod()
        if pod is None:
            self.server.sent.append(found)
        else:
            pod["metadata"]["labels"] |= found["metadata"]["labels"]
        self._answer(pod or found)

    def do_DELETE(self) -> None:
        self._answer(self._pod())

    def do_GET(self) -> None:
        kind = self.path.partition("?")[0].rpartition("/")[2]
        pods = [pod for pod in self.server.pods() if CHECKED not in pod["metadata"].get("labels", {})]
        lists = {"pods": ("PodList", pods), "events": ("EventList", [])}
        if kind in lists:
            name, items = lists[kind]
            self._answer({"kind": name, "apiVersion": "v1", "metadata": {}, "items": items})
        elif kind == "log":
            self._answer("")
        elif (pod := self._pod()) is not None:
            self._answer(pod)
        else:
            self._answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)

    def _pod(self) -> Object | None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        return next((pod for pod in self.server.pods() if pod["metadata"]["name"] == name), None)

    def _content(self) -> Object:
        found: Object = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        return found

    def _answer(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""
