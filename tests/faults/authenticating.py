"""A fake broker for authentication whose responses can be changed: bodies, bytes, SCRAM texts."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any, Final

from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped] # ships no types

from mirror.backoff import Backoff
from mirror.cluster.auth.sasl import Login
from mirror.cluster.auth.security import SaslSettings
from mirror.cluster.connection.session import BrokerSession
from mirror.runtime.network.background import Background
from mirror.runtime.network.login import make_login
from mirror.runtime.network.oauth import TokenKeeper, from_callback
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.metadata import MetadataResponse
from mirror.wire.messages.session import (
    ApiVersion,
    ApiVersionsResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from tests.cluster.probes import ByHand
from tests.fakes.server_codec import encode_response

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MARKER: Final = "m4rk3r-of-a-secret"
LABEL: Final = "broker 1 at broker-1.fake:9092"
TIMEOUT_MS: Final = 1_000
LIFETIME_MS: Final = 10_000

Asked = tuple[Api, int, int, Message]
Answers = list[bytes]


def login(mechanism: str, seed: int = 1) -> Login:
    """The real token keeper, with the marker as the token."""
    rng = random.Random(seed)

    class AtOnce(Background):
        def run(self, name: str, work: Callable[[], Any]) -> Any:
            made = super().run(name, work)
            made.exception(10)
            return made

    def keeper() -> TokenKeeper[str]:
        fetch = from_callback(lambda: (MARKER, 3_600_000), "it")
        return TokenKeeper(fetch, AtOnce(lambda: None), Backoff(50, 1_000, rng))

    return make_login(SaslSettings(mechanism, "tim", MARKER), keeper, rng)


class Broker(ByHand):
    """A session that authenticates, and a broker that does its part of it well; ``wrong`` changes what it sends.

    ``wrong`` is given a request and the body that would answer it, and returns the frames that come instead.
    """

    def __init__(self, login: Login, wrong: Callable[[Asked, Message], Answers] | None = None) -> None:
        super().__init__(TIMEOUT_MS)
        self.session = BrokerSession(LABEL, "me", TIMEOUT_MS, login)
        self.asked = list[Api]()
        self._wrong = wrong
        self._scram: Any = None
        self._mechanism = ""

    def serve(self, now: int) -> bool:
        """Answer all that is there; whether there was anything. Raises what the session raises."""
        requests = self.read()
        for asked in requests:
            self.asked.append(asked[0])
            body = self._body(asked)
            frames = [frame_of(asked, body)] if self._wrong is None else self._wrong(asked, body)
            for frame in frames:
                self.feed(frame, now)
        return bool(requests)

    def _body(self, asked: Asked) -> Message:
        api, _, _, body = asked
        if api is Api.API_VERSIONS:
            spoken = tuple(ApiVersion(each.value.key, each.value.low, each.value.high) for each in Api)
            return ApiVersionsResponse(0, spoken)
        if api is Api.SASL_HANDSHAKE:
            self._mechanism, self._scram = body.mechanism, None  # type: ignore[attr-defined]
            return SaslHandshakeResponse(0, MECHANISMS)
        if api is Api.SASL_AUTHENTICATE:
            try:
                return SaslAuthenticateResponse(0, "", *self._following(body.auth_bytes))  # type: ignore[attr-defined]
            except ScramException:
                return SaslAuthenticateResponse(58, "invalid credentials", b"")
        return MetadataResponse((), "cluster", 1)

    def _following(self, message: bytes) -> tuple[bytes, int]:
        if not self._mechanism.startswith("SCRAM"):
            return b"", LIFETIME_MS
        if self._scram is None:
            kind = ScramMechanism(self._mechanism)
            salt, stored, server, count = kind.make_auth_info(MARKER, 4096, b"s" * 16)
            self._scram = kind.make_server(lambda _: (salt, stored, server, count), s_nonce="broker" * 4)
            self._scram.set_client_first(message.decode())
            return self._scram.get_server_first().encode(), 0
        self._scram.set_client_final(message.decode())
        return self._scram.get_server_final().encode(), LIFETIME_MS


def frame_of(asked: Asked, body: Message) -> bytes:
    """``body`` as the answer to ``asked``."""
    api, version, correlation_id, _ = asked
    if isinstance(body, SaslAuthenticateResponse) and abs(body.session_lifetime) > 2**40:
        # More than a timedelta holds, and so than kio writes: the last field, before the empty tags.
        frame = encode_response(api, version, correlation_id, replaced(body, session_lifetime=0))
        return frame[:-9] + body.session_lifetime.to_bytes(8, "big", signed=True) + frame[-1:]
    return encode_response(api, version, correlation_id, body)


def replaced(body: Message, **values: Any) -> Message:
    """The same with other ``values``."""
    return dataclasses.replace(body, **values)  # type: ignore[type-var]
