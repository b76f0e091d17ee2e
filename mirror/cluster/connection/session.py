"""The protocol of one connection, without the socket: frames, authentication, throttling, timeouts. No I/O.

The runtime moves bytes between this and a socket; tests move them to a fake broker.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Any, Final

from mirror.causes import NO_TLS, WANTS_SASL, WANTS_TLS
from mirror.cluster.auth.sasl import Login, SaslExchange, offered
from mirror.cluster.connection import negotiation
from mirror.cluster.connection.negotiation import Suspicion
from mirror.cluster.connection.request_parts import RequestParts
from mirror.cluster.requests import InFlight, Request
from mirror.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionFailed,
    InvalidArgument,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
)
from mirror.meters import RequestMeters
from mirror.timing import FOREVER_MS, deadline
from mirror.version import VERSION
from mirror.wire import codec, older
from mirror.wire.api import Api
from mirror.wire.error_codes import ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM, broker_error
from mirror.wire.frames import Buffer, FrameReader
from mirror.wire.messages.base import FEW_BYTES, Message, Segment
from mirror.wire.messages.session import (
    ApiVersionsRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from mirror.wire.versions import BrokerVersions

_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert or handshake: no Kafka frame is that large."""
LONGEST_THROTTLE_MS: Final = 300_000
"""No quota throttles for longer at a time; a single wrong bit could block the connection for weeks."""
_PROBED: Final = "PLAIN"
"""The mechanism that a listener is asked for which may want any."""
_NO_KAFKA: Final = "is this a Kafka listener, of this security.protocol?"
_SILENT: Final = f"is the broker frozen or overloaded, or {_NO_KAFKA}"
CLOSED_IN_HANDSHAKE: Final = "the broker closed the connection in the TLS handshake"


class SessionPhase(enum.Enum):
    """The phase of a connection; requests are held back before READY, and while it authenticates again."""

    NEGOTIATING = "negotiating versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"


class BrokerSession:
    """Frames, correlation ids, negotiation, authentication, throttling and timeouts of one connection.

    ``label`` names it in errors. ``login`` is set where the listener requires SASL; ``suspicion`` is checked first.
    :meth:`advance` must be called in every turn of the loop.
    """

    def __init__(
        self,
        label: str,
        client_id: str,
        request_timeout_ms: int,
        login: Login | None = None,
        suspicion: Suspicion | None = None,
    ) -> None:
        self.label = label
        self.phase = SessionPhase.NEGOTIATING
        self.versions: BrokerVersions | None = None
        self.outgoing: deque[Segment] = deque()
        self.answered = False
        """A request other than the session's own has got a response."""
        self.known_broker = False
        """The broker has spoken Kafka on an earlier connection."""
        self.meters = RequestMeters()
        """Counts and latencies of the requests."""
        self.last_used_ms = 0
        self.throttled_until_ms = 0
        self.throttled_ms = 0
        """How long the broker has throttled this client, in all (KIP-219)."""
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._login = login
        self._suspicion = suspicion
        self._exchange: SaslExchange | None = None
        self._authenticate_by_ms = FOREVER_MS
        self._renew_at_ms = FOREVER_MS
        self._frames = FrameReader(FEW_BYTES)
        self._waiting: deque[tuple[Request, int]] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._correlation_id = 0

    @property
    def load(self) -> int:
        """The number of requests waiting or in flight."""
        return len(self._waiting) + len(self._in_flight)

    # Invariant: A request is not written request.timeout.ms after it was queued, as by a process that was suspended:
    #   what the broker has forgotten since would be appended twice.
    # Test: tests/runtime/test_suspended.py::test_request_is_not_written_after_its_timeout
    @property
    def overdue(self) -> bool:
        """Whether a request that has timed out for its caller still has no response."""
        return any(sent.abandoned for sent in self._in_flight)

    @property
    def wants_sasl(self) -> bool:
        """Whether this client authenticates."""
        return self._login is not None

    @property
    def ready(self) -> bool:
        """Whether requests are sent at once (except for throttling)."""
        return self.phase is SessionPhase.READY

    def sends_at_once(self, now: int) -> bool:
        """Whether a request would be sent now: negotiated, authenticated, and not throttled."""
        return self.phase is SessionPhase.READY and self.throttled_until_ms <= now

    def start(self, now: int) -> None:
        """Negotiate versions, as the connection is established."""
        self._negotiate(negotiation.FIRST_VERSION, now)

    def _negotiate(self, version: int, now: int) -> None:
        self._write(
            Api.API_VERSIONS, version, ApiVersionsRequest(negotiation.SOFTWARE_NAME, VERSION), None, FOREVER_MS, now
        )

    def send(self, request: Request, now: int) -> None:
        """Send ``request`` as soon as the connection is ready. Its timeout starts now."""
        self._waiting.append((request, deadline(now, request.timeout_ms)))
        if self.phase is SessionPhase.READY:
            self._release(now)

    def advance(self, now: int) -> None:
        """Authenticate and send held-back requests, as far as they are due. Raises KafkaError if that fails."""
        if self._waiting and self.phase is SessionPhase.READY:
            self._release(now)
        if self.phase is SessionPhase.AUTHENTICATING:
            self._begin_exchange(now)

    def _release(self, now: int) -> None:
        """Send waiting requests, unless the broker throttles this client, or re-authentication is due."""
        if self._waiting and self._renew_at_ms <= now:
            self._authenticate(now)  # the next advance() starts it, as send() must not raise its errors
        while self._waiting and self.phase is SessionPhase.READY and self.throttled_until_ms <= now:
            request, caller_deadline = self._waiting.popleft()
            if request.unwanted is not None and request.unwanted():
                left = f"{self.label}: {request.api.label} not sent: its caller has left"
                request.fail_unsent(ClientClosed(left), now)
            else:
                self._send_versioned(request, caller_deadline, now)

    def _send_versioned(self, request: Request, caller_deadline: int, now: int) -> None:
        assert self.versions is not None  # noqa: S101 - it is ready
        try:
            version = self.versions.pick(request.api, request.max_version)
        except KafkaError as error:
            request.on_failure(type(error)(f"{self.label}: {error}"), now)
            return
        bodies = older.parts(request.api, version, request.body)
        if bodies[0] is request.body:
            self._write(request.api, version, request.body, request, caller_deadline, now)
            return
        for part in RequestParts(request, bodies).requests():
            self._write(part.api, version, part.body, part, caller_deadline, now)

    def _write(
        self, api: Api, version: int, body: Message, request: Request | None, caller_deadline: int, now: int
    ) -> None:
        correlation_id = (self._correlation_id + 1) % 2**31
        try:
            segments = codec.encode_request(api, version, correlation_id, self._client_id, body)
        except Exception as error:  # noqa: BLE001 - any error concerns this message, not the loop
            failure = self._unsendable(api, error, own=request is None)
            if request is None:
                raise failure from None
            request.on_failure(failure, now)
            return
        self._correlation_id = correlation_id
        self.outgoing.extend(segments)
        self.last_used_ms = now
        connection_deadline = deadline(now, self._request_timeout_ms)
        self._in_flight.append(
            InFlight(
                self._correlation_id,
                api,
                version,
                request,
                caller_deadline,
                connection_deadline,
                api.most_response_bytes(body),
            )
        )

    # Invariant: A message that cannot be encoded fails its request only, not the network thread of all clients.
    # Test: tests/runtime/test_unsendable.py::test_a_message_that_cannot_be_encoded_fails_alone
    def _unsendable(self, api: Api, error: Exception, *, own: bool) -> InvalidArgument:
        # The session's own requests may have secrets, and an encoder's error quotes its input.
        why = type(error).__name__ if own else f"{type(error).__name__}: {error}"
        return InvalidArgument(
            f"{self.label}: {api.label} cannot be sent ({why}): an argument or setting does not fit it"
        )

    # --- responses

    def buffer(self) -> memoryview:
        """Return the buffer for received bytes."""
        return self._frames.buffer()

    def received(self, count: int, now: int) -> None:
        """Process ``count`` received bytes. Raises KafkaError if the connection has to be closed."""
        try:
            while (frame := self._frame(count)) is not None:
                self._answer(frame, now)
                count = 0
        except ProtocolError as error:
            if self.versions is None and self._frames.begins in _TLS_RECORDS:
                if self._suspicion is Suspicion.NO_TLS:
                    raise disconnected(self.label, CLOSED_IN_HANDSHAKE) from error
                raise AuthenticationFailed(f"{self.label}: {WANTS_TLS.words}") from error
            if str(error).startswith(self.label):
                raise
            raise ProtocolError(f"{self.label}: {error}") from error

    def _frame(self, count: int) -> Buffer | None:
        """Return the next frame, if it is whole. A size that the next request's response cannot have is refused."""
        # Responses come in the order of the requests: the first one in flight is the next to be answered.
        sent = self._in_flight[0] if self._in_flight else None
        self._frames.max_frame = FEW_BYTES if sent is None else sent.most_bytes
        self._frames.what = "a frame" if sent is None or self.versions is None else f"the {sent.api.label} response"
        return self._frames.received(count)

    def _answer(self, frame: Buffer, now: int) -> None:
        correlation_id = codec.read_correlation_id(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            msg = f"{self.label}: answer {correlation_id} to no request of ours, or out of order"
            raise ProtocolError(msg)
        sent = self._in_flight.popleft()
        self.last_used_ms = now
        if sent.request is None:
            self._answer_own(sent, frame, now)
            return
        try:
            recognized = None if sent.request.recognize is None else sent.request.recognize(frame)
            body = recognized or codec.decode_response(sent.api, sent.version, frame)
            assert self.versions is not None  # noqa: S101 - requests follow the negotiation
            older.drop_unreliable(self.versions, sent.version, body)
        except ProtocolError as error:
            labelled = ProtocolError(f"{self.label}: {error}")
            sent.lost(labelled, now)
            raise labelled from error
        self.answered = True
        meter = self.meters[sent.api.label]
        meter.took.add(now - sent.connection_deadline + self._request_timeout_ms)
        meter.throttled_ms += self._throttle(body, now)
        if sent.abandoned:
            sent.request.settled(now)
        else:
            sent.request.on_response(body, now)

    def _throttle(self, body: Any, now: int) -> int:
        """Apply the throttle time of a response (KIP-219), and return it."""
        throttle_ms: int = min(getattr(body, "throttle_time", 0), LONGEST_THROTTLE_MS)
        if throttle_ms > 0:
            self.throttled_until_ms = max(self.throttled_until_ms, now + throttle_ms)
            self.throttled_ms += throttle_ms
        return throttle_ms

    def _answer_own(self, sent: InFlight, frame: Buffer, now: int) -> None:
        if sent.api is Api.API_VERSIONS:
            self._negotiated(sent.version, frame, now)
            return
        body = codec.decode_response(sent.api, sent.version, frame)
        if self._suspicion is Suspicion.WANTS_SASL:
            self._on_sasl_probe(body, now)
            return
        if self._exchange is None:
            raise ProtocolError(f"{self.label}: an answer to {sent.api.label}, which is over")
        following = self._exchange.agreed(body) if sent.api is Api.SASL_HANDSHAKE else self._exchange.answered(body)
        if following is not None:
            self._write_own(Api.SASL_AUTHENTICATE, following, now)
        else:
            self._authenticated(self._exchange.lifetime_ms, now)

    def _negotiated(self, version: int, frame: Buffer, now: int) -> None:
        body = negotiation.read_response(version, frame)
        if (lower := negotiation.next_version(version, body)) is not None:
            self._negotiate(lower, now)
            return
        if body.error_code:
            raise broker_error(body.error_code, f"{self.label}: ApiVersions")
        self.versions = BrokerVersions.of(body)
        self._throttle(body, now)
        if self._suspicion is Suspicion.NO_TLS:
            raise AuthenticationFailed(f"{self.label}: {NO_TLS.words}")
        if self._suspicion is Suspicion.WANTS_SASL:
            self._write_own(Api.SASL_HANDSHAKE, SaslHandshakeRequest(_PROBED), now)
        elif self._login is None:
            self._become_ready(now)
        else:
            self._authenticate(now)
            self._begin_exchange(now)

    def _become_ready(self, now: int) -> None:
        """Become ready, with negotiation and login done."""
        self.phase = SessionPhase.READY
        self._release(now)

    def _on_sasl_probe(self, body: SaslHandshakeResponse, now: int) -> None:
        """Process the response to the SASL probe: a listener without SASL refuses the handshake and stays usable.

        Apache Kafka's brokers do so by the state; Tansu's refuse the mechanism that they name.
        """
        refused = body.error_code == UNSUPPORTED_SASL_MECHANISM and _PROBED in body.mechanisms
        if body.error_code != ILLEGAL_SASL_STATE and not refused:
            has = offered(body.mechanisms) or "no mechanism"
            raise AuthenticationFailed(f"{self.label}: {WANTS_SASL.words} ({has})")
        self._suspicion = None
        self._become_ready(now)

    # --- SASL

    def _authenticate(self, now: int) -> None:
        self.phase = SessionPhase.AUTHENTICATING
        self._exchange = None
        self._authenticate_by_ms = deadline(now, self._request_timeout_ms)

    def _begin_exchange(self, now: int) -> None:
        if self._exchange is not None or self._login is None:
            return
        try:
            mechanism = self._login.begin(now)
        except KafkaError as error:
            raise type(error)(f"{self.label}: {error}") from error
        if mechanism is not None:
            self._authenticate_by_ms = FOREVER_MS  # from now on each request has its own timeout
            self._exchange = SaslExchange(self.label, mechanism)
            self._write_own(Api.SASL_HANDSHAKE, self._exchange.begin(), now)

    def _write_own(self, api: Api, body: Message, now: int) -> None:
        assert self.versions is not None  # noqa: S101 - negotiated first
        try:
            version = self.versions.pick(api)
        except KafkaError as error:
            raise type(error)(f"{self.label}: {error}") from error
        self._write(api, version, body, None, FOREVER_MS, now)

    def _authenticated(self, lifetime_ms: int, now: int) -> None:
        self._exchange = None
        renew_after_ms = self._login.renew_after_ms(lifetime_ms) if self._login and lifetime_ms else FOREVER_MS
        self._renew_at_ms = deadline(now, renew_after_ms)
        self._become_ready(now)

    # --- timeouts, and the end

    # Invariant: The caller's deadline only answers the caller; the connection, which others share, is closed at its own
    #   deadline.
    # Test: tests/cluster/test_session.py::test_a_callers_deadline_costs_its_neighbours_nothing
    def expire(self, now: int) -> bool:
        """Fail the requests that have timed out; return whether the connection itself is overdue and must be closed."""
        for sent in self._in_flight:
            if sent.request is not None and not sent.abandoned and sent.caller_deadline <= now:
                sent.abandoned = True
                sent.request.on_failure(self._timed_out(sent.request, ""), now)
        late = [pair for pair in self._waiting if pair[1] <= now]
        if late:
            self._waiting = deque(pair for pair in self._waiting if pair[1] > now)
            for request, _ in late:
                request.fail_unsent(self._timed_out(request, self._why_held(now)), now)
                request.settled(now)
        return self.is_silent(now) or self._authenticate_by_ms <= now

    def is_silent(self, now: int) -> bool:
        """Whether a request that was queued ``request.timeout.ms`` ago, or earlier, has no response."""
        return bool(self._in_flight) and self._in_flight[0].connection_deadline <= now

    def _why_held(self, now: int) -> str:
        """Return why requests are held back, for error texts."""
        if self.phase is SessionPhase.READY:
            return " (held back: the broker throttles this client)" if self.throttled_until_ms > now else ""
        if self.phase is SessionPhase.AUTHENTICATING:
            return " (still authenticating)"
        if not self._in_flight:
            return " (not connected yet)"
        if self.known_broker:
            return " (it has not said yet which versions it speaks)"
        return f"; it does not say which versions it speaks: {_SILENT}"

    def why_overdue(self) -> str:
        """Return during what there was no response, for the error that ends the connection."""
        silence = f" for {self._request_timeout_ms} ms"
        if self.ready:
            return f"silent{silence}"
        stranger = self.phase is SessionPhase.NEGOTIATING and not self.known_broker
        return f"silent while {self.phase.value}{silence}" + (f": {_SILENT}" if stranger else "")

    def _timed_out(self, request: Request, why: str) -> KafkaTimeout:
        return KafkaTimeout(f"{self.label}: no answer to {request.api.label} within {request.timeout_ms} ms{why}")

    def wait_ms(self, now: int) -> int:
        """Return ms until :meth:`advance` or :meth:`expire` has something to do."""
        times = [pair[1] for pair in self._waiting]
        times += [FOREVER_MS if sent.abandoned else sent.caller_deadline for sent in self._in_flight]
        if self._in_flight:
            times.append(self._in_flight[0].connection_deadline)
        if self.throttled_until_ms > now:
            # Also without waiting requests: a producer holds its batches back until this connection is ready again.
            times.append(self.throttled_until_ms)
        times.append(self._authenticate_by_ms)
        return max(0, min(times) - now)

    def fail(self, error: KafkaError, now: int) -> None:
        """Fail all requests in order, as the connection is closed."""
        in_flight, self._in_flight = self._in_flight, deque()
        waiting, self._waiting = self._waiting, deque()
        self.outgoing.clear()
        lost = not isinstance(error, ClientClosed)  # a client that closes gives up its own requests
        for sent in in_flight:
            self.meters[sent.api.label].lost += lost
            sent.lost(error, now)
        for request, _ in waiting:
            request.fail_unsent(error, now)


def disconnected(label: str, why: str) -> ConnectionFailed:
    """Return the error of a connection that broke."""
    return ConnectionFailed(f"{label}: {why}")
