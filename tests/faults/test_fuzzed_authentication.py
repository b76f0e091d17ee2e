"""Brokers with malformed responses during authentication: each ends with one clear error, after bounded work.

MIRROR_FUZZ_SEEDS is how many worlds are tried of each mechanism (default 6); a failure names the seed.
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

from mirror.cluster.auth.scram import MAX_ITERATIONS
from mirror.errors import ConnectionFailed, KafkaError
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

SEEDS = int(os.environ.get("MIRROR_FUZZ_SEEDS", "6"))
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
