"""GSSAPI's messages (RFC 4752), with a context that protects what it wraps by a digest."""

from __future__ import annotations

import hashlib

import pytest

from mirror.cluster.auth.gssapi import Gssapi
from mirror.cluster.auth.sasl import SaslExchange
from mirror.errors import AuthenticationFailed
from mirror.wire.messages.session import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse

PROOF = b"the broker's proof"


def wrapped(content: bytes) -> bytes:
    return hashlib.sha256(content).digest() + content


class Context:
    first = b"the ticket"

    def __init__(self) -> None:
        self.established = False

    def step(self, message: bytes) -> bytes:
        if message != PROOF:
            raise ValueError("the broker did not prove that it has the key")
        self.established = True
        return b""

    def unwrap(self, message: bytes) -> bytes:
        if wrapped(message[32:]) != message:
            raise ValueError("not protected")
        return message[32:]

    def wrap(self, content: bytes) -> bytes:
        return wrapped(content)


def exchange() -> SaslExchange:
    made = SaslExchange("broker 1", Gssapi("me@HERE", Context()))
    assert made.begin().mechanism == "GSSAPI"
    assert made.agreed(SaslHandshakeResponse(0, ("GSSAPI",))) == SaslAuthenticateRequest(b"the ticket")
    return made


def answer(auth_bytes: bytes) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(0, None, auth_bytes, 60_000)


@pytest.mark.parametrize("layers", [b"\x01\0\0\0", b"\x07\x01\0\0"], ids=["none", "any"])
def test_no_security_layer_is_chosen(layers: bytes) -> None:
    made = exchange()
    assert made.answered(answer(PROOF)) == SaslAuthenticateRequest(b"")
    assert made.answered(answer(wrapped(layers))) == SaslAuthenticateRequest(wrapped(b"\x01\0\0\0"))
    assert made.answered(answer(b"")) is None
    assert made.lifetime_ms == 60_000


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([b"another proof"], "the broker did not prove that it has the key"),
        ([b""], "the broker did not prove that it has the key"),
        ([PROOF, wrapped(b"\x06\x01\0\0")], "the broker wants a security layer"),
        ([PROOF, wrapped(b"\x01")], "the broker wants a security layer"),
        ([PROOF, wrapped(b"\x01\0\0\0")[:-1]], "not protected"),
    ],
)
def test_a_broker_that_does_not_keep_to_it(answers: list[bytes], reason: str) -> None:
    made = exchange()
    for each in answers[:-1]:
        made.answered(answer(each))
    with pytest.raises(AuthenticationFailed, match=f"GSSAPI authentication of principal 'me@HERE' failed: {reason}"):
        made.answered(answer(answers[-1]))
