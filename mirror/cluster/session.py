"""One connection's protocol, without the connection: what to send next, what came back, what took too long.

The runtime moves bytes between this and a socket; the tests move them to a fake broker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from mirror.cluster.requests import Request
from mirror.errors import ConnectionFailed, KafkaError, KafkaTimeout, ProtocolError
from mirror.timing import FOREVER_MS, deadline
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.frames import FrameReader
from mirror.wire.messages.base import Segment
from mirror.wire.messages.session import ApiVersionsRequest, ApiVersionsResponse
from mirror.wire.verdicts import UNSUPPORTED_VERSION, broker_error
from mirror.wire.versions import BrokerVersions

SOFTWARE_NAME: Final = "kafka-spark-mirror"
SOFTWARE_VERSION: Final = "0.1.0"
_NEGOTIATION_VERSION: Final = Api.API_VERSIONS.value.low
"""Every broker of the last years knows it; a newer version would only earn a refusal to handle (KIP-511)."""


@dataclass(slots=True, eq=False)
class _InFlight:
    """``request`` None is the session's own negotiation; ``abandoned`` means that its caller has been told already."""

    correlation_id: int
    api: Api
    version: int
    request: Request | None
    caller_deadline: int
    connection_deadline: int
    abandoned: bool = False


class BrokerSession:
    """Frames, correlation ids, version negotiation and timeouts of one connection. ``label`` names it in errors."""

    def __init__(self, label: str, client_id: str, request_timeout_ms: int) -> None:
        self.label = label
        self.versions: BrokerVersions | None = None
        self.outgoing: deque[Segment] = deque()
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._frames = FrameReader()
        self._waiting: deque[tuple[Request, int]] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_id = 0

    @property
    def load(self) -> int:
        """Requests waiting or unanswered."""
        return len(self._waiting) + len(self._in_flight)

    def start(self, now: int) -> None:
        """The connection stands: negotiate versions first."""
        body = ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
        self._write(Api.API_VERSIONS, _NEGOTIATION_VERSION, body, None, FOREVER_MS, now)

    def send(self, request: Request, now: int) -> None:
        """Send ``request`` now, or as soon as the versions are known. Its time runs from here."""
        caller_deadline = deadline(now, request.timeout_ms)
        if self.versions is None:
            self._waiting.append((request, caller_deadline))
        else:
            self._send_versioned(request, caller_deadline, now)

    def _send_versioned(self, request: Request, caller_deadline: int, now: int) -> None:
        assert self.versions is not None  # noqa: S101 - both callers have just looked
        try:
            version = self.versions.pick(request.api)
        except KafkaError as error:
            request.on_failure(type(error)(f"{self.label}: {error}"), now)
            return
        self._write(request.api, version, request.body, request, caller_deadline, now)

    def _write(
        self, api: Api, version: int, body: object, request: Request | None, caller_deadline: int, now: int
    ) -> None:
        self._correlation_id = (self._correlation_id + 1) % 2**31
        segments = codec.encode_request(api, version, self._correlation_id, self._client_id, body)  # type: ignore[arg-type]
        self.outgoing.extend(segments)
        if request is not None:
            request.sent = True
        connection_deadline = deadline(now, self._request_timeout_ms)
        self._in_flight.append(
            _InFlight(self._correlation_id, api, version, request, caller_deadline, connection_deadline)
        )

    def buffer(self) -> memoryview:
        """Where received bytes go."""
        return self._frames.buffer()

    def received(self, count: int, now: int) -> None:
        """``count`` bytes came in. Raises ProtocolError or BrokerError where the connection is no use any more."""
        frame = self._frames.received(count)
        if frame is not None:
            self._answer(frame, now)

    def _answer(self, frame: bytearray, now: int) -> None:
        correlation_id = codec.read_correlation_id(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            msg = f"{self.label}: answer {correlation_id} to no request of ours, or out of order"
            raise ProtocolError(msg)
        sent = self._in_flight.popleft()
        if sent.request is None:
            self._negotiated(frame, now)
            return
        if sent.abandoned:
            return
        try:
            body = codec.decode_response(sent.api, sent.version, frame)
        except ProtocolError as error:
            sent.request.on_failure(ProtocolError(f"{self.label}: {error}"), now)
            raise
        sent.request.on_response(body, now)

    def _negotiated(self, frame: bytearray, now: int) -> None:
        body: ApiVersionsResponse = codec.decode_response(Api.API_VERSIONS, _negotiated_version(frame), frame)
        if body.error_code and body.error_code != UNSUPPORTED_VERSION:
            raise broker_error(body.error_code, f"{self.label}: ApiVersions")
        self.versions = BrokerVersions.of(body)
        waiting, self._waiting = self._waiting, deque()
        for request, caller_deadline in waiting:
            self._send_versioned(request, caller_deadline, now)

    def expire(self, now: int) -> bool:
        """Tell callers whose time is up. True where the connection itself is overdue and must be closed."""
        for sent in self._in_flight:
            if sent.request is not None and not sent.abandoned and sent.caller_deadline <= now:
                sent.abandoned = True
                sent.request.on_failure(self._timed_out(sent.request), now)
        late = [pair for pair in self._waiting if pair[1] <= now]
        if late:
            self._waiting = deque(pair for pair in self._waiting if pair[1] > now)
            for request, _ in late:
                request.on_failure(self._timed_out(request), now)
        return bool(self._in_flight) and self._in_flight[0].connection_deadline <= now

    def _timed_out(self, request: Request) -> KafkaTimeout:
        return KafkaTimeout(f"{self.label}: no answer to {request.api.label} within {request.timeout_ms} ms")

    def wait_ms(self, now: int) -> int:
        """Milliseconds until :meth:`expire` has something to do."""
        times = [pair[1] for pair in self._waiting]
        times += [FOREVER_MS if sent.abandoned else sent.caller_deadline for sent in self._in_flight]
        if self._in_flight:
            times.append(self._in_flight[0].connection_deadline)
        return max(0, min(times, default=FOREVER_MS) - now)

    def fail(self, error: KafkaError, now: int) -> None:
        """The connection is gone: everything on it fails, in order."""
        in_flight, self._in_flight = self._in_flight, deque()
        waiting, self._waiting = self._waiting, deque()
        self.outgoing.clear()
        for sent in in_flight:
            if sent.request is not None and not sent.abandoned:
                sent.request.on_failure(error, now)
        for request, _ in waiting:
            request.on_failure(error, now)


def _negotiated_version(frame: bytearray) -> int:
    """The version of an ApiVersions answer: a broker that knows no version of ours answers in version 0 (KIP-511)."""
    code = codec.peek_int16(frame, 4)
    return 0 if code == UNSUPPORTED_VERSION else _NEGOTIATION_VERSION


def disconnected(label: str, why: str) -> ConnectionFailed:
    """The error for a connection that broke."""
    return ConnectionFailed(f"{label}: {why}")
