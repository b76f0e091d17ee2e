"""An OpenTelemetry backend that decodes OTLP over HTTP and gRPC with the official protobuf messages."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

_LONGEST_S: Final = 120.0


@dataclass(slots=True)
class ReceivedSpan:
    """A received span. Times are ms since 1970; ``at_s`` is the time of receipt in seconds since 1970."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    began_ms: int
    ended_ms: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    links: list[tuple[str, str, dict[str, Any]]]
    error: str
    resource: dict[str, Any]
    at_s: float


@dataclass(slots=True)
class ReceivedTelemetry:
    """Everything that the receiver has received."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    asked: threading.Event = field(default_factory=threading.Event)

    def traces(self, request: ExportTraceServiceRequest) -> None:
        at_s = time.time()
        for resource in request.resource_spans:
            about = attributes(resource.resource.attributes)
            self.spans += [_got(span, about, at_s) for scope in resource.scope_spans for span in scope.spans]

    def measurements(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = MessageToDict(metric)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _got(span: Any, resource: dict[str, Any], at_s: float) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began_ms=span.start_time_unix_nano // 1_000_000,
        ended_ms=span.end_time_unix_nano // 1_000_000,
        attributes=attributes(span.attributes),
        events=[(one.name, one.time_unix_nano // 1_000_000, attributes(one.attributes)) for one in span.events],
        links=[(one.trace_id.hex(), one.span_id.hex(), attributes(one.attributes)) for one in span.links],
        error=span.status.message,
        resource=resource,
        at_s=at_s,
    )


@contextlib.contextmanager
def http(*, hangs: bool = False) -> Iterator[tuple[str, ReceivedTelemetry]]:
    """Yield a receiver's address and what it receives. If it ``hangs``, it accepts requests without responding."""
    taken, over = ReceivedTelemetry(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # one that keeps connections, as real ones do

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.asked.set()
            if hangs:
                over.wait(_LONGEST_S)
                return
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            if self.path.endswith("/v1/traces"):
                taken.traces(ExportTraceServiceRequest.FromString(body))
            else:
                taken.measurements(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def grpc_server() -> Iterator[tuple[str, ReceivedTelemetry]]:
    """Receive over gRPC."""
    taken = ReceivedTelemetry()

    class Traces(TraceServiceServicer):
        def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - the service's name
            taken.traces(request)
            return ExportTraceServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - the service's name
            taken.measurements(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]  # generated
    add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", taken
    finally:
        server.stop(grace=None).wait()
