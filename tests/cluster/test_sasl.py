"""SASL's exchanges, message by message, against the examples of their RFCs."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from mirror.causes import LOGIN
from mirror.cluster.auth.sasl import Mechanism, OAuthBearer, Plain, SaslExchange
from mirror.cluster.auth.scram import MAX_ITERATIONS, Scram
from mirror.errors import AuthenticationFailed, BrokerError
from mirror.wire.messages.session import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse

LABEL = "broker 1 at paris:9093"

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def accepted(mechanism: Mechanism) -> SaslExchange:
    """An exchange whose mechanism the broker has agreed to."""
    exchange = SaslExchange(LABEL, mechanism)
    assert exchange.begin().mechanism == mechanism.name
    assert exchange.agreed(SaslHandshakeResponse(0, (mechanism.name,))).auth_bytes == mechanism.first()
    return exchange


def answer(auth_bytes: bytes = b"", *, lifetime: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(0, None, auth_bytes, lifetime)


def test_scram_as_in_rfc_7677() -> None:
    mechanism = scram()
    assert mechanism.first() == FIRST
    assert mechanism.respond(SERVER_FIRST) == FINAL
    assert mechanism.respond(SERVER_FINAL) is None


def test_a_delegation_token_is_named_as_such_and_covered_by_the_proof() -> None:
    mechanism = Scram("SCRAM-SHA-256", "user", "pencil", NONCE, by_token=True)
    assert mechanism.who == "delegation token 'user'"
    assert mechanism.first() == FIRST + b",tokenauth=true"
    final = mechanism.respond(SERVER_FIRST)
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof, _, proof = (final or b"").partition(b",p=")
    said = b",".join([FIRST.removeprefix(b"n,,") + b",tokenauth=true", SERVER_FIRST, without_proof])
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    assert base64.b64decode(proof) == bytes(one ^ other for one, other in zip(client_key, signature, strict=True))


@pytest.mark.parametrize("final", [b"v=" + b"A" * 43 + b"=", b"e=other-error", b"", b"\xff", b"v=6rriTRBi23WpRR/wtup+"])
def test_a_broker_that_does_not_know_the_password_is_not_believed(final: bytes) -> None:
    exchange = accepted(scram())
    assert exchange.answered(answer(SERVER_FIRST)) == SaslAuthenticateRequest(FINAL)
    with pytest.raises(AuthenticationFailed, match=r"broker 1 at paris:9093: .*did not prove that it knows the pass"):
        exchange.answered(answer(final))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (SERVER_FIRST.replace(b"r=r", b"r=x"), "first SCRAM message is not valid"),
        (SERVER_FIRST.replace(b"4096", b"1"), "1 SCRAM iterations, fewer than 4096"),
        (SERVER_FIRST.replace(b"4096", str(MAX_ITERATIONS + 1).encode()), f"more than {MAX_ITERATIONS}"),
        (b"", "first SCRAM message is not valid"),
        (b"\xff\xfe", "first SCRAM message is not valid"),
    ],
)
def test_a_strange_first_message_of_the_broker(first: bytes, why: str) -> None:
    exchange = accepted(scram())
    with pytest.raises(AuthenticationFailed, match=why):
        exchange.answered(answer(first))


def test_a_success_without_any_proof_is_none() -> None:
    exchange = accepted(scram())
    with pytest.raises(AuthenticationFailed):
        exchange.answered(answer(b"", lifetime=60_000))
    assert exchange.lifetime_ms == 0


def test_scram_escapes_the_user_name() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c", "x", NONCE).first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


@pytest.mark.parametrize("text", ["Kim Ñandú", "N\u0303", "①ﬁ\u00a0\u00ad", "bell\x07"])
def test_scram_takes_user_and_password_as_they_are(text: str) -> None:
    """As ``ScramFormatter.normalize`` of Kafka does; RFC 4013 would replace or refuse each of these."""
    scram = Scram("SCRAM-SHA-256", text, text, NONCE)
    assert scram.first() == b"n,,n=" + text.encode() + b",r=" + NONCE.encode()
    salt, first = b"salt" * 4, f"n={text},r={NONCE}"
    server_first = f"r={NONCE}-server,s={base64.b64encode(salt).decode()},i=4096"
    final = scram.respond(server_first.encode())
    assert final is not None
    bare, _, proof = final.decode().rpartition(",p=")
    client_key = hmac.digest(hashlib.pbkdf2_hmac("sha256", text.encode(), salt, 4096), b"Client Key", "sha256")
    signed = f"{first},{server_first},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def test_plain_as_in_rfc_4616() -> None:
    exchange = accepted(Plain("tim", "tanstaaftanstaaf"))
    assert Plain("tim", "tanstaaftanstaaf").first() == b"\0tim\0tanstaaftanstaaf"
    assert exchange.answered(answer(lifetime=5000)) is None
    assert exchange.lifetime_ms == 5000


def test_a_token_as_in_rfc_7628() -> None:
    assert OAuthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==").first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    extended = OAuthBearer("t", (("logicalCluster", "lkc-1"),))
    assert extended.first() == b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01\x01"
    assert accepted(extended).answered(answer(lifetime=1)) is None


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "x\x01y", "ünïcode"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(AuthenticationFailed, match="has characters that no token has") as caught:
        SaslExchange(LABEL, OAuthBearer(token)).agreed(SaslHandshakeResponse(0))
    assert not token or token not in str(caught.value)


def test_a_refused_token_is_acknowledged_and_its_reason_reported() -> None:
    exchange = accepted(OAuthBearer("secret.token"))
    refusal = b'{"status":"invalid_token secret.token"}'
    assert exchange.answered(answer(refusal)) == SaslAuthenticateRequest(b"\x01")
    with pytest.raises(AuthenticationFailed, match=r"of the token's owner failed: no: \*\*\* \(invalid_token \*\*\*\)"):
        exchange.answered(SaslAuthenticateResponse(58, "no: secret.token", b""))


def test_a_broker_that_refuses_a_token_for_ever() -> None:
    exchange = accepted(OAuthBearer("secret.token"))
    exchange.answered(answer(b"not json"))
    with pytest.raises(AuthenticationFailed, match="refuses the token"):
        exchange.answered(answer(b"not json"))


def test_a_mechanism_that_the_broker_has_not() -> None:
    with pytest.raises(AuthenticationFailed, match=r"does not offer sasl.mechanism PLAIN; it offers: GSSAPI, SCRAM"):
        SaslExchange(LABEL, Plain("u", "p")).agreed(SaslHandshakeResponse(33, ("SCRAM-SHA-256", "GSSAPI")))


def test_a_listener_without_sasl() -> None:
    with pytest.raises(AuthenticationFailed, match=r"does not use SASL; set security.protocol"):
        SaslExchange(LABEL, Plain("u", "p")).agreed(SaslHandshakeResponse(34))


def test_a_refusal_repeats_no_password() -> None:
    exchange = accepted(Plain("tim", "hunter2"))
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.answered(SaslAuthenticateResponse(58, "no user tim\nwith hunter2", b""))
    expected = "broker 1 at paris:9093: PLAIN authentication of user 'tim' failed: no user tim with ***"
    assert str(caught.value) == f"{expected}; {LOGIN.remedy}"


def test_trouble_of_the_brokers_own_is_no_refusal() -> None:
    exchange = accepted(Plain("tim", "x"))
    with pytest.raises(BrokerError, match="SaslAuthenticate: REQUEST_TIMED_OUT"):
        exchange.answered(SaslAuthenticateResponse(7, None, b""))


def test_messages_show_no_credentials() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(b"\0u\0hunter2"))
    assert "hunter2" not in repr(SaslAuthenticateResponse(0, None, b"hunter2"))
