"""Single answers to authentications, and what they end in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.cluster.auth.sasl import MAX_CHALLENGE, Login
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError, ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.session import SaslAuthenticateResponse
from tests.faults.authenticating import (
    MARKER,
    MECHANISMS,
    Answers,
    Asked,
    Broker,
    frame_of,
    login,
    replaced,
)
from tests.faults.test_fuzzed_authentication import _attempt, _is_clear, hashed  # noqa: F401 - a fixture of each test


def _ended_by(
    mechanism: str, change: Callable[[Asked, Message], Answers], credentials: Login | None = None
) -> KafkaError:
    """Return the error of a connection whose SASL responses are changed."""
    error, _ = _attempt(Broker(credentials or login(mechanism), change), 0)
    assert error is not None
    _is_clear(error)
    return error


def _scram_answer(number: int, change: Callable[[bytes], bytes]) -> Callable[[Asked, Message], Answers]:
    """Change the broker's message ``number``: 1 is the first, 2 the final one."""
    seen = 0

    def wrong(asked: Asked, body: Message) -> Answers:
        nonlocal seen
        if isinstance(body, SaslAuthenticateResponse):
            seen += 1
            if seen == number:
                body = replaced(body, auth_bytes=change(body.auth_bytes))
        return [frame_of(asked, body)]

    return wrong


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("count", "why"),
    [
        (b"0", "fewer than 4096"),
        (b"1", "fewer than 4096"),
        (b"4095", "fewer than 4096"),
        (b"-1", "is not valid"),
        (b"131073", "asks for 131073 SCRAM iterations, more than 131072"),
        (b"1000000000000", "asks for 1000000000000 SCRAM iterations, more than 131072"),
        (b"9" * 60_000, "more than 131072"),
        (b"0" * 60_000 + b"4095", "asks for 4095 SCRAM iterations, fewer"),
        (b"4096.5", "is not valid"),
        (b"\xd9\xa4\xd9\xa0\xd9\xa9\xd9\xa6", "is not valid"),
        (b"", "is not valid"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_forbidden_iteration_count_is_refused_without_hashing(
    mechanism: str,
    count: bytes,
    why: str,
    hashed: list[int],  # noqa: F811 - the fixture
) -> None:
    before = len(hashed)
    broker_hashed = 1  # for the user's stored keys
    change = _scram_answer(1, lambda first: first.replace(b"i=4096", b"i=" + count))
    error = _ended_by(mechanism, change)
    assert isinstance(error, AuthenticationFailed)
    assert why in str(error)
    assert len(hashed) - before == broker_hashed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: b"", "is not valid"),
        (lambda first: first.replace(b"r=", b"r=x"), "nonce"),
        (lambda first: first[: first.index(b"broker")] + first[first.index(b",s=") :], "nonce"),
        (lambda first: first.replace(b",s=", b",s=%%%"), "base 64"),
        (lambda first: first.replace(b",s=", b",s=\xff"), "utf-8"),
        (lambda first: first + b"," + first, "Duplicate"),
        (lambda first: b"m=must-be-understood," + first, "'m' attribute"),
        (lambda first: b",".join(reversed(first.split(b","))), "is not valid"),
        (lambda _: b"e=\x1b[31mno such user\x07", "is not valid"),
        (lambda _: b"e=unknown-user", "unknown-user"),
        (lambda first: first + b",x=" + b"y" * MAX_CHALLENGE, f"more than {MAX_CHALLENGE}"),
        (lambda _: b"," * 1_000_000, "1000000 bytes"),
    ],
    ids=["empty", "nonce", "nonce-ours", "salt", "utf-8", "twice", "m", "order", "escapes", "e", "long", "commas"],
)
def test_invalid_first_scram_message_is_refused(change: Callable[[bytes], bytes], why: str) -> None:
    error = _ended_by("SCRAM-SHA-256", _scram_answer(1, change))
    assert isinstance(error, AuthenticationFailed)
    assert why in str(error)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"v=",
        b"v=" + b"A" * 43 + b"=",
        b"v=%%%",
        b"e=\x1b[2Jinvalid-proof\x07",
        b"e=invalid-proof",
        b"c=biws,v=AAAA",
        b"\xff",
        b"v=" + b"A" * 1_000_000,
    ],
    ids=lambda value: repr(value)[:24],
)
def test_invalid_final_scram_message_is_refused(final: bytes) -> None:
    error = _ended_by("SCRAM-SHA-512", _scram_answer(2, lambda _: final))
    assert isinstance(error, AuthenticationFailed)


def test_inserted_scram_extension_is_detected() -> None:
    """The extension is ignored, but both sides sign everything that they received."""
    error = _ended_by("SCRAM-SHA-256", _scram_answer(1, lambda first: first + b",x=\x1b[2J"))
    assert isinstance(error, AuthenticationFailed)
    assert "invalid credentials" in str(error)


@pytest.mark.parametrize(
    "challenge", [b"[" * 60_000, b'{"status":' + b"[" * 50_000, b"\xff", b"1" * 5_000, b'{"status":1}']
)
def test_unreadable_reason_is_ignored(challenge: bytes) -> None:
    error = _ended_by("OAUTHBEARER", lambda asked, body: [frame_of(asked, _challenged(body, challenge))])
    assert isinstance(error, AuthenticationFailed)
    assert "no reason given" in str(error)


def _challenged(body: Message, challenge: bytes) -> Message:
    return replaced(body, auth_bytes=challenge) if isinstance(body, SaslAuthenticateResponse) else body


@pytest.mark.parametrize("before", range(80, 310, 10))
def test_token_in_a_long_reason_is_not_shown_in_part(before: int) -> None:
    """The token is hidden before the reason is cut, because half of a token is secret, too."""
    challenge = b'{"status":"' + b"x" * before + f'{MARKER}"}}'.encode()
    error = _ended_by("OAUTHBEARER", lambda asked, body: [frame_of(asked, _challenged(body, challenge))])
    assert MARKER[:4] not in str(error)


def test_refused_token_is_not_accepted_later() -> None:
    error = _ended_by("OAUTHBEARER", _scram_answer(1, lambda _: b'{"status":"invalid_token"}'))
    assert isinstance(error, AuthenticationFailed)
    assert "refuses the token (invalid_token)" in str(error)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_broker_reason_is_one_line_without_the_secret(mechanism: str) -> None:
    said = f"\x1b[31mno {MARKER}\r\nmirror: all is well " + "x" * 1_000_000

    def refuse(asked: Asked, body: Message) -> Answers:
        if isinstance(body, SaslAuthenticateResponse):
            body = SaslAuthenticateResponse(58, said, b"")
        return [frame_of(asked, body)]

    error = _ended_by(mechanism, refuse)
    assert isinstance(error, AuthenticationFailed)
    assert r"\x1b[31mno ***" in str(error)


def test_list_of_broker_mechanisms_is_bounded() -> None:
    def refuse(asked: Asked, body: Message) -> Answers:
        if asked[0] is Api.SASL_HANDSHAKE:
            body = replaced(body, error_code=33, mechanisms=tuple(f"\x1b{number}" * 50 for number in range(1_000)))
        return [frame_of(asked, body)]

    error = _ended_by("PLAIN", refuse)
    assert isinstance(error, AuthenticationFailed)
    assert "does not offer sasl.mechanism PLAIN" in str(error)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("lifetime", [-(2**63), -1, 2**63 - 1])
def test_session_lifetime_outside_the_limits_is_handled(mechanism: str, lifetime: int) -> None:
    """Both count as a session that does not have to be renewed."""

    def change(asked: Asked, body: Message) -> Answers:
        if isinstance(body, SaslAuthenticateResponse):
            body = replaced(body, session_lifetime=lifetime)
        return [frame_of(asked, body)]

    broker = Broker(login(mechanism), change)
    error, _ = _attempt(broker, 0)
    assert error is None
    assert broker.asked.count(Api.SASL_HANDSHAKE) == 1


def test_session_of_a_millisecond_does_not_reauthenticate_forever() -> None:
    def change(asked: Asked, body: Message) -> Answers:
        if isinstance(body, SaslAuthenticateResponse):
            body = replaced(body, session_lifetime=1)
        return [frame_of(asked, body)]

    broker = Broker(login("PLAIN"), change)
    error, _ = _attempt(broker, 0)
    assert error is None
    assert broker.asked.count(Api.SASL_HANDSHAKE) == broker.asked.count(Api.METADATA) == 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("when", ["first", "again"])
@pytest.mark.parametrize("what", ["another id", "twice", "too early", "cut off", "a lying size"])
def test_response_out_of_order_or_truncated_is_refused(mechanism: str, when: str, what: str) -> None:
    handshakes = 0

    def change(asked: Asked, body: Message) -> Answers:
        nonlocal handshakes
        api, version, correlation_id, request = asked
        handshakes += api is Api.SASL_HANDSHAKE
        frame = frame_of(asked, body)
        if api is not Api.SASL_AUTHENTICATE or handshakes != (1 if when == "first" else 2):
            return [frame]
        return {
            "another id": [frame_of((api, version, correlation_id + 7, request), body)],
            "twice": [frame, frame],
            "too early": [frame, frame_of((api, version, correlation_id + 1, request), body)],
            "cut off": [frame[:-1]],
            "a lying size": [b"\0\0\0\4" + frame[4:]],
        }[what]

    error = _ended_by(mechanism, change)
    expected = ConnectionFailed if what == "cut off" else ProtocolError | AuthenticationFailed
    assert isinstance(error, expected)
    if what == "cut off":
        assert "silent while authenticating" in str(error)
