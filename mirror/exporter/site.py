"""What the exporter answers over HTTP: ``/metrics``, ``/healthz``, ``/readyz``, and the page at ``/``. Never waits."""

from __future__ import annotations

import math
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.extras import REPORT, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from mirror.exporter.reader import FlowsReader

_KEEP_S: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """An answer."""

    status: HTTPStatus
    text: str
    kind: str = _TEXT


class Site:
    """The application: ``metrics`` answers for Prometheus, all else is from what ``reader`` has read."""

    def __init__(
        self,
        metrics: WSGIApplication,
        reader: FlowsReader,
        page: Callable[[], str],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``page`` returns the page for people, which is kept for :data:`_KEEP_S`."""
        self._lock: Final = threading.Lock()
        self._now_s: Final = now_s
        self._kept, self._until_s = "", -math.inf
        self._metrics: Final = metrics
        self._reader: Final = reader
        self._page: Final = page

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path, method = environ.get("PATH_INFO") or "/", environ["REQUEST_METHOD"]
        if path == "/metrics":
            return self._metrics(environ, start_response)
        if method not in {"GET", "HEAD"}:
            found = Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        else:
            found = self._answer(path)
        body = found.text.encode()
        headers = [
            ("Content-Type", found.kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        start_response(f"{found.status.value} {found.status.phrase}", headers)
        return [body] if method != "HEAD" else []

    def _answer(self, path: str) -> Answer:
        match path:
            case "/":
                return self._for_people()
            case "/healthz":
                return self._healthy()
            case "/readyz":
                return self._ready()
            case _:
                return Answer(HTTPStatus.NOT_FOUND, "there are /, /metrics, /healthz and /readyz\n")

    def _for_people(self) -> Answer:
        if problem := missing(REPORT):
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"the page {problem}\n")
        # Anyone may ask, and the page of 100,000 partitions takes more than a second of CPU time.
        with self._lock:
            if self._now_s() >= self._until_s:
                self._kept = self._page()
                self._until_s = self._now_s() + _KEEP_S
            return Answer(HTTPStatus.OK, self._kept, "text/html; charset=utf-8")

    def _healthy(self) -> Answer:
        """Whether the process works, whatever the clusters do."""
        if late := self._reader.late():
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not read for long: {', '.join(late)}\n")
        return Answer(HTTPStatus.OK, "ok\n")

    def _ready(self) -> Answer:
        """Whether each flow was tried once: what one side knows is shown also while the other one is away."""
        readings = self._reader.readings
        if untried := readings.untried:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not tried yet: {', '.join(untried)}\n")
        clusters = [one for one in readings.clusters if one.answers is False]
        away = [f"cluster {one.name} cannot be read: {one.error}\n" for one in clusters]
        return Answer(HTTPStatus.OK, "".join(away) or "ok\n")
