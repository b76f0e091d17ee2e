"""A real Zipkin, which gets spans in its own JSON, as OpenTelemetry maps them: it does not accept OTLP."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mirror.sandbox import process
from mirror.sandbox.fetch import fetch, pinned_jars
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.java import find_java
from mirror.sandbox.ports import HOST, free_ports
from tests.polling import eventually
from tests.telemetry.receiver import ReceivedSpan

_HERE: Final = Path(__file__).parent
_VERSION: Final = "3.6.1"
_UP_WITHIN_S: Final = 90.0
_STOP_WITHIN_S: Final = 10.0
_KINDS: Final = {2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}
_EVERYTHING: Final = {"limit": "1000", "lookback": "86400000"}


class Zipkin:
    """A client of the running Zipkin."""

    def __init__(self, port: int) -> None:
        self.url: Final = f"http://{HOST}:{port}/zipkin"
        self._port: Final = port

    def take(self, spans: Iterable[ReceivedSpan]) -> None:
        """Store ``spans``."""
        self._ask("POST", "/api/v2/spans", json.dumps([zipkin_span(span) for span in spans]))

    def traces(self, query: str) -> list[list[dict[str, Any]]]:
        """Return the traces of a tag query, such as ``mirror.topic=orders and mirror.partition=3``."""
        asked = urllib.parse.urlencode({"annotationQuery": query, **_EVERYTHING})
        found: list[list[dict[str, Any]]] = json.loads(self._ask("GET", f"/api/v2/traces?{asked}"))
        return found

    def ready(self) -> bool:
        """Return whether it answers."""
        try:
            self._ask("GET", "/api/v2/services")
        except (OSError, http.client.HTTPException, AssertionError):
            return False
        return True

    def search_page(self, query: str) -> str:
        """Return the address of the page that searches for tags."""
        asked = {"annotationQuery": query, "lookback": "1d", "endTs": str(int(time.time() * 1000)), "limit": "50"}
        return f"{self.url}/?{urllib.parse.urlencode(asked)}"

    def trace_page(self, trace: str) -> str:
        """Return the address of the page of a trace."""
        return f"{self.url}/traces/{trace}"

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=30)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert answer.status < http.client.BAD_REQUEST, said
        return said


def zipkin_span(span: ReceivedSpan) -> dict[str, Any]:
    """Return a span in the form of OpenTelemetry's "SDK exporters: Zipkin"; links have that of its collector."""
    tags = {name: _text(value) for name, value in span.attributes.items()}
    if span.error:
        tags |= {"otel.status_code": "ERROR", "error": span.error}
    for number, (trace, other, about) in enumerate(span.links):
        tags[f"otlp.link.{number}"] = f"{trace}|{other}||{json.dumps(about)}|0"
    zipkins = {
        "traceId": span.trace,
        "id": span.id,
        "name": span.name,
        "timestamp": span.began_ms * 1000,
        "duration": max(1, (span.ended_ms - span.began_ms) * 1000),
        "localEndpoint": {"serviceName": span.resource["service.name"]},
        "tags": tags,
        "annotations": [
            {"timestamp": at_ms * 1000, "value": json.dumps({name: about}) if about else name}
            for name, at_ms, about in span.events
        ],
    }
    zipkins |= {"kind": _KINDS[span.kind]} if span.kind in _KINDS else {}
    return zipkins | ({"parentId": span.parent} if span.parent else {})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def zipkin(folder: Path) -> Iterator[Zipkin]:
    """Run Zipkin, which keeps everything in memory, during the block. Its log is in ``folder``."""
    jars = fetch(
        cache_folder() / f"zipkin-{_VERSION}", ivy=_HERE / "zipkin.xml", pinned=pinned_jars(_HERE / "zipkin.sha256")
    )
    (port,) = free_ports(1)
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-DQUERY_PORT={port}"]
    command: list[str | Path] = [find_java().path, *options, "-jar", jars[0]]
    started = process.launch(command, output=folder / "zipkin.log", outlives_owner=False)
    try:
        found = Zipkin(port)
        eventually(lambda: not started.alive() or found.ready(), within_s=_UP_WITHIN_S, what="Zipkin")
        assert started.alive(), (folder / "zipkin.log").read_text(encoding="utf-8")
        yield found
    finally:
        process.stop([started], _STOP_WITHIN_S)
