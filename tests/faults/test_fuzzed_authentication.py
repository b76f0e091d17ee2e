"""Brokers with malformed responses during authentication: each ends with one clear error, after bounded work.

MIRROR_FUZZ_SEEDS is how many worlds are tried of each mechanism (default 40); a failure names the seed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import traceback
from collections.abc import Callable
from typing import Any, Final

import pytest
import scramp.core  # type: ignore[import-untyped] # ships no types

from mirror.cluster.auth.sasl import MAX_CHALLENGE, Login
from mirror.cluster.auth.scram import MAX_ITERATIONS
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError, ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.session import SaslAuthenticateResponse
from tests.cluster.probes import Probe
from tests.faults.authenticating import (
    LABEL,
    LIFETIME_MS,
    MARKER,
    MECHANISMS,
    TIMEOUT_MS,
    Answers,
    Asked,
    Broker,
    frame_of,
    login,
    replaced,
)
from tests.faults.fuzzer import Fuzzer

SEEDS = int(os.environ.get("MIRROR_FUZZ_SEEDS", "40"))
ROUNDS = 10
_LONGEST_ERROR: Final = 1_000
"""Characters of an error: one or two lines for every response."""

_VALUES: Final = (
    b"",
    b"0",
    b"-1",
    b"4095",
    b"131073",
    b"1000000000000",
    b"9" * 5_000,
    b"\xd9\xa4\xd9\xa0\xd9\xa9\xd9\xa6",
    b"no base64",
    b"AA==",
    b"\x1b[2J\x07\r\n",
    b"\xff\xfe",
    b"A" * 200_000,
    b"biws",
    b"y,,",
    b"other-error",
    b"invalid-proof",
)
_ATTRIBUTES: Final = b"rsivemnpcxZ1"


@pytest.fixture(autouse=True)
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of iterations that the exchanges have hashed; large numbers are only recorded."""
    counts = list[int]()
    hash_it = scramp.core.hi

    def counted(hf: Any, password: bytes, salt: bytes, iterations: Any) -> Any:
        counts.append(int(iterations))
        few = min(counts[-1], 4096)
        return hash_it(hf, password, salt, scramp.core.IterationCount(few) if type(iterations) is not int else few)

    monkeypatch.setattr(scramp.core, "hi", counted)
    return counts


class SaslFuzzer:
    """Replaces some of the SASL responses by malformed ones."""

    def __init__(self, seed: int) -> None:
        self.fuzzer: Final = Fuzzer(seed)
        self.rng: Final = random.Random(seed)
        self.share: Final = self.rng.choice((0.2, 0.5, 1.0))
        self._last = b""
        self.made = 0

    def __call__(self, asked: Asked, body: Message) -> Answers:
        frame = frame_of(asked, body)
        before, self._last = self._last, frame
        if asked[0] not in {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE} or self.rng.random() > self.share:
            return [frame]
        self.made += 1
        kinds: list[Callable[[], Answers]] = [
            lambda: [self.fuzzer.frame(frame)],
            lambda: [self._written(asked, self.fuzzer.body(body), frame)],
            lambda: [self._written(asked, self._other_message(body), frame)],
            lambda: [frame, frame],
            lambda: [before, frame],
            lambda: [frame, frame_of((asked[0], asked[1], asked[2] + 1, asked[3]), body)],
            list,
        ]
        return self.rng.choices(kinds, (3, 3, 6, 1, 1, 1, 1))[0]()

    def _written(self, asked: Asked, body: Message, otherwise: bytes) -> bytes:
        """Return the frame if the format can encode it."""
        with contextlib.suppress(Exception):
            return frame_of(asked, body)
        return otherwise

    def _other_message(self, body: Message) -> Message:
        if not isinstance(body, SaslAuthenticateResponse):
            return replaced(body, mechanisms=tuple("\x1b[31m" * 20 for _ in range(self.rng.choice((0, 1, 3_000)))))
        match self.rng.randrange(4):
            case 0:
                lifetime = self.rng.choice((-(2**63), -1, 1, 2**63 - 1))
                return replaced(body, session_lifetime=lifetime)
            case 1:
                code = self.rng.choice((58, 33, 34, 7, -1, 31, 999))
                return replaced(body, error_code=code, error_message=f"\x1b]0;{MARKER}\x07\n\u202e" * 3_000)
            case 2:
                return replaced(
                    body, auth_bytes=self.rng.choice((b"[" * 60_000, b'{"status":"' + b"x" * 50_000 + b'"}'))
                )
            case _:
                return replaced(body, auth_bytes=self._scram(body.auth_bytes))

    def _scram(self, message: bytes) -> bytes:
        """Change, add, duplicate, remove or reorder attributes."""
        parts = message.split(b",")
        at = self.rng.randrange(len(parts))
        other = bytes([self.rng.choice(_ATTRIBUTES)]) + b"=" + self.rng.choice(_VALUES)
        match self.rng.randrange(5):
            case 0:
                parts[at] = parts[at][:2] + self.rng.choice(_VALUES)
            case 1:
                parts.insert(at, other)
            case 2:
                parts.append(parts[at])
            case 3:
                del parts[at]
            case _:
                self.rng.shuffle(parts)
                parts[0] = other
        return b",".join(parts)


def _attempt(broker: Broker, now: int) -> tuple[KafkaError | None, int]:
    """Run a connection until it ends or has been used for a while; return the error and the time."""
    probe = Probe(timeout_ms=60_000)
    broker.session.start(now)
    broker.session.send(probe.request, now)
    turns = 0
    error: KafkaError | None = None
    try:
        for _ in range(3):
            while not probe.completions:
                turns += 1
                assert turns < 100, "it goes round in circles"
                broker.session.advance(now)
                if not broker.serve(now):
                    now += broker.session.wait_ms(now)
                    if broker.session.expire(now):
                        raise ConnectionFailed(f"{LABEL}: {broker.session.why_overdue()}")
            now += LIFETIME_MS
            probe = Probe(timeout_ms=60_000)
            broker.session.send(probe.request, now)
    except KafkaError as raised:
        error = raised
    broker.session.fail(error or ConnectionFailed(f"{LABEL}: over"), now)
    assert probe.completions == 1
    return error, now


def _is_clear(error: KafkaError) -> None:
    text = str(error)
    assert text.startswith(LABEL)
    assert text.isprintable()
    assert len(text) < _LONGEST_ERROR
    assert MARKER not in text + repr(error) + "".join(traceback.format_exception(error))
    assert MARKER.encode() not in pickle.dumps(error)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_malformed_response_ends_an_authentication_with_one_error(mechanism: str, seed: int, hashed: list[int]) -> None:
    wrong, credentials, now, failed = SaslFuzzer(seed), login(mechanism, seed), 0, 0
    for _ in range(ROUNDS):
        began = now
        error, now = _attempt(Broker(credentials, wrong), now)
        if error is not None:
            failed += 1
            _is_clear(error)
        assert now <= began + 4 * (LIFETIME_MS + 2 * TIMEOUT_MS)
    assert wrong.made
    assert failed
    assert all(count <= MAX_ITERATIONS for count in hashed)
    sane = Broker(credentials)
    error, _ = _attempt(sane, now)
    assert error is None
    assert sane.asked.count(Api.SASL_HANDSHAKE) == 3, "once at first, and twice again"


# --- single cases


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
    mechanism: str, count: bytes, why: str, hashed: list[int]
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
