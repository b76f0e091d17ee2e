"""Authentication on a connection: when it happens, what waits for it, and what ends it."""

from __future__ import annotations

import struct

import pytest

from mirror.cluster.auth.sasl import Mechanism, OAuthBearer, Plain
from mirror.cluster.connection.negotiation import Suspicion
from mirror.cluster.connection.session import BrokerSession, SessionPhase
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError, ProtocolError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.metadata import MetadataResponse
from mirror.wire.messages.session import (
    ApiVersion,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.cluster.probes import ByHand, Probe

_METADATA = MetadataResponse((), "cluster", 1)
_TIMEOUT_MS = 1_000


class Login:
    """Gives ``mechanism``, once it is there; sessions are renewed after nine tenths."""

    def __init__(self, mechanism: Mechanism | None = None) -> None:
        self.mechanism = mechanism
        self.error: KafkaError | None = None
        self.begun = 0

    def begin(self, now: int) -> Mechanism | None:
        del now
        if self.error is not None:
            raise self.error
        self.begun += self.mechanism is not None
        return self.mechanism

    def renew_after_ms(self, lifetime_ms: int) -> int:
        return lifetime_ms * 9 // 10


class Secured(ByHand):
    """A session that authenticates, and its broker played by the test."""

    def __init__(self, login: Login | None, suspicion: Suspicion | None = None) -> None:
        super().__init__(_TIMEOUT_MS)
        label = "broker 1 at broker-1.fake:9092"
        self.session = BrokerSession(label, "me", _TIMEOUT_MS, login, suspicion)

    def versions(self, now: int) -> None:
        """Connected, with the versions negotiated."""
        self.session.start(now)
        (asked,) = self.read()
        spoken = tuple(ApiVersion(api.value.key, api.value.low, api.value.high) for api in Api)
        self.answer(asked, ApiVersionsResponse(0, spoken), now)

    def one(self, expected: Api) -> tuple[Api, int, int, Message]:
        (asked,) = self.read()
        assert asked[0] is expected
        return asked

    def authenticate(self, now: int, lifetime_ms: int = 0) -> None:
        """Play the broker's part of PLAIN, which the session has begun."""
        asked = self.one(Api.SASL_HANDSHAKE)
        assert asked[3] == SaslHandshakeRequest("PLAIN")
        self.answer(asked, SaslHandshakeResponse(0, ("PLAIN",)), now)
        asked = self.one(Api.SASL_AUTHENTICATE)
        assert asked[3] == SaslAuthenticateRequest(b"\0tim\0secret")
        self.answer(asked, SaslAuthenticateResponse(0, None, b"", lifetime_ms), now)


def plain() -> Login:
    return Login(Plain("tim", "secret"))


def test_requests_wait_until_it_is_authenticated() -> None:
    hand, probe = Secured(plain()), Probe()
    hand.session.send(probe.request, 0)
    hand.versions(1)
    assert hand.session.phase is SessionPhase.AUTHENTICATING
    hand.authenticate(2)
    assert hand.session.ready
    hand.answer(hand.one(Api.METADATA), _METADATA, 3)
    assert len(probe.responses) == 1
    assert hand.session.wait_ms(3) == FOREVER_MS - 3


def test_it_authenticates_again_before_the_session_ends_and_holds_requests_back_meanwhile() -> None:
    hand, before, after = Secured(plain()), Probe(), Probe()
    hand.versions(0)
    hand.authenticate(0, lifetime_ms=10_000)
    hand.session.send(before.request, 8_999)
    unanswered = hand.one(Api.METADATA)
    hand.session.send(after.request, 9_000)
    assert not hand.read()
    hand.session.advance(9_000)
    handshake = hand.one(Api.SASL_HANDSHAKE)
    hand.answer(unanswered, _METADATA, 9_001)  # brokers answer in order: what was under way comes first
    assert len(before.responses) == 1
    hand.answer(handshake, SaslHandshakeResponse(0, ("PLAIN",)), 9_002)
    hand.answer(hand.one(Api.SASL_AUTHENTICATE), SaslAuthenticateResponse(0, None, b"", 10_000), 9_003)
    hand.answer(hand.one(Api.METADATA), _METADATA, 9_004)
    assert len(after.responses) == 1
    late = Probe()
    hand.session.send(late.request, 18_002)
    hand.one(Api.METADATA)
    hand.session.send(late.request, 18_003)
    hand.session.advance(18_003)
    hand.one(Api.SASL_HANDSHAKE)


def test_an_idle_connection_authenticates_when_it_is_wanted_again() -> None:
    hand = Secured(plain())
    hand.versions(0)
    hand.authenticate(0, lifetime_ms=10_000)
    hand.session.advance(60_000)
    assert not hand.read()
    hand.session.send(Probe().request, 60_000)
    hand.session.advance(60_000)
    hand.authenticate(60_001, lifetime_ms=10_000)
    hand.one(Api.METADATA)


def test_a_token_on_its_way_is_awaited() -> None:
    login, probe = Login(), Probe()
    hand = Secured(login)
    hand.session.send(probe.request, 0)
    hand.versions(0)
    hand.session.advance(400)
    assert not hand.read()
    assert not hand.session.expire(999)
    login.mechanism = OAuthBearer("token")
    hand.session.advance(500)
    hand.session.advance(501)
    assert login.begun == 1
    assert hand.one(Api.SASL_HANDSHAKE)[3] == SaslHandshakeRequest("OAUTHBEARER")


def test_a_token_that_does_not_come_ends_the_connection_in_time() -> None:
    hand = Secured(Login())
    hand.versions(0)
    assert hand.session.wait_ms(0) == _TIMEOUT_MS
    assert not hand.session.expire(_TIMEOUT_MS - 1)
    assert hand.session.expire(_TIMEOUT_MS)


@pytest.mark.parametrize("step", ["handshake", "authentication"])
def test_a_broker_silent_in_the_middle_is_given_up(step: str) -> None:
    hand = Secured(plain())
    hand.versions(0)
    asked = hand.one(Api.SASL_HANDSHAKE)
    began = 0
    if step == "authentication":
        hand.answer(asked, SaslHandshakeResponse(0, ("PLAIN",)), 300)
        began = 300
    assert not hand.session.expire(began + _TIMEOUT_MS - 1)
    assert hand.session.expire(began + _TIMEOUT_MS)


@pytest.mark.parametrize("kind", [AuthenticationFailed, ConnectionFailed])
def test_what_the_login_raises_ends_the_connection_but_never_the_sender(kind: type[KafkaError]) -> None:
    login = plain()
    hand = Secured(login)
    hand.versions(0)
    hand.authenticate(0, lifetime_ms=1_000)
    login.error = kind("no token")
    hand.session.send(Probe().request, 5_000)
    with pytest.raises(kind, match=r"broker 1 at broker-1.fake:9092: no token"):
        hand.session.advance(5_000)


def test_a_refusal_is_reported_to_everything_that_waits() -> None:
    hand, probe = Secured(plain()), Probe()
    hand.session.send(probe.request, 0)
    hand.versions(0)
    hand.answer(hand.one(Api.SASL_HANDSHAKE), SaslHandshakeResponse(0, ("PLAIN",)), 1)
    asked = hand.one(Api.SASL_AUTHENTICATE)
    with pytest.raises(AuthenticationFailed) as caught:
        hand.answer(asked, SaslAuthenticateResponse(58, "no", b""), 2)
    hand.session.fail(caught.value, 2)
    assert probe.failures == [caught.value]
    assert "secret" not in str(caught.value)


def test_a_tls_alert_in_the_clear_says_what_is_wrong() -> None:
    hand = ByHand()
    hand.session.start(0)
    with pytest.raises(AuthenticationFailed, match="the listener speaks TLS"):
        hand.feed(b"\x15\x03\x03\x00\x02\x02\x28", 1)


def test_another_size_beyond_all_bounds_is_no_tls() -> None:
    hand = ByHand()
    hand.session.start(0)
    with pytest.raises(ProtocolError, match="is this a Kafka listener"):
        hand.feed(b"HTTP/1.1 400", 1)


def test_a_suspected_listener_without_tls_is_never_sent_a_password() -> None:
    hand = Secured(plain(), Suspicion.NO_TLS)
    with pytest.raises(AuthenticationFailed, match="the listener does not speak TLS"):
        hand.versions(0)
    assert not hand.read()


def test_a_suspected_listener_that_does_speak_tls_was_only_away() -> None:
    hand = Secured(plain(), Suspicion.NO_TLS)
    hand.session.start(0)
    with pytest.raises(ConnectionFailed, match="closed the connection in the TLS handshake"):
        hand.feed(b"\x15\x03\x03\x00\x02\x02\x28", 1)


def test_a_suspected_listener_that_wants_sasl() -> None:
    hand = Secured(None, Suspicion.WANTS_SASL)
    hand.session.send(Probe().request, 0)
    hand.versions(0)
    asked = hand.one(Api.SASL_HANDSHAKE)
    with pytest.raises(AuthenticationFailed, match=r"wants SASL; set security.protocol .* \(GSSAPI\)"):
        hand.answer(asked, SaslHandshakeResponse(33, ("GSSAPI",)), 1)


@pytest.mark.parametrize(
    "refused",
    [
        SaslHandshakeResponse(34),
        pytest.param(SaslHandshakeResponse(33, ("PLAIN",)), id="Tansu: not even the mechanism that it names"),
    ],
)
def test_a_suspected_listener_without_sasl_was_only_away(refused: SaslHandshakeResponse) -> None:
    hand, probe = Secured(None, Suspicion.WANTS_SASL), Probe()
    hand.session.send(probe.request, 0)
    hand.versions(0)
    hand.answer(hand.one(Api.SASL_HANDSHAKE), refused, 1)
    assert hand.session.ready
    hand.answer(hand.one(Api.METADATA), _METADATA, 2)
    assert len(probe.responses) == 1


def _api_versions(correlation_id: int, keys: int, tags: int = 0) -> bytes:
    """A whole answer in version 3: so many entries, each true to the protocol, and so many unknown tagged fields."""
    body = struct.pack(">ih", correlation_id, 0) + _varint(keys + 1) + (struct.pack(">hhh", 1, 0, 1) + b"\0") * keys
    body += b"\0\0\0\0" + _varint(tags) + b"\x63\0" * tags
    return struct.pack(">i", len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("keys", "tags", "why"),
    [
        (3_000_000, 0, r"a frame of 210000\d\d bytes \(allowed: 4 to 1048576\)"),
        (100_000, 0, r"a list of 100000 items .*at most 1000"),
        (1, 500_000, r"500000 tagged fields"),
    ],
    ids=["frame", "list", "tags"],
)
def test_who_is_not_known_yet_is_read_no_more_than_a_broker_has_to_say(keys: int, tags: int, why: str) -> None:
    """All of it is legal; to read it would hold the thread of all connections for seconds."""
    hand = Secured(plain())
    hand.session.start(0)
    (asked,) = hand.read()
    with pytest.raises(ProtocolError, match=why):
        hand.feed(_api_versions(asked[2], keys, tags), 1)


def test_so_is_the_list_of_mechanisms() -> None:
    hand = Secured(plain())
    hand.versions(1)
    ((_, _, correlation_id, _),) = hand.read()
    body = struct.pack(">ihi", correlation_id, 0, 100_000) + b"\0\0" * 100_000
    with pytest.raises(ProtocolError, match=r"a list of 100000 items .*at most 1000"):
        hand.feed(struct.pack(">i", len(body)) + body, 2)


@pytest.mark.parametrize("login", [None, plain()], ids=["no login", "PLAIN"])
def test_large_answers_are_read_once_the_connection_is_ready(login: Login | None) -> None:
    hand, probe = Secured(login), Probe()
    hand.versions(1)
    if login is not None:
        hand.authenticate(2)
    hand.session.send(probe.request, 3)
    hand.answer(hand.one(Api.METADATA), MetadataResponse((), "c" * 2_000_000, 1), 4)
    assert [len(response.cluster_id) for response in probe.responses] == [2_000_000]


def test_a_renewal_of_the_login_leaves_large_answers_alone() -> None:
    """What was asked before it may be answered in the middle of it."""
    hand, before = Secured(plain()), Probe()
    hand.versions(0)
    hand.authenticate(0, lifetime_ms=10_000)
    hand.session.send(before.request, 8_999)
    unanswered = hand.one(Api.METADATA)
    hand.session.send(Probe().request, 9_000)
    hand.session.advance(9_000)
    hand.one(Api.SASL_HANDSHAKE)
    hand.answer(unanswered, MetadataResponse((), "c" * 2_000_000, 1), 9_001)
    assert len(before.responses) == 1
