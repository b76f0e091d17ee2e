"""SASL without the connection: which message comes next, and whether the other side is who it claims to be.

A :class:`Mechanism` makes the messages of one exchange (RFC 4616 PLAIN, RFC 7628 OAUTHBEARER; SCRAM is in
:mod:`.scram`); :class:`SaslExchange` wraps them into Kafka's SaslHandshake and SaslAuthenticate (KIP-43,
KIP-152).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Protocol

from mirror.errors import AuthenticationFailed, KafkaError, brief
from mirror.wire.error_codes import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    broker_error,
    code_name,
)
from mirror.wire.messages.session import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MAX_CHALLENGE: Final = 65_536
"""Bytes of one message of a broker's; those of an honest one have some hundreds. It is read before it is trusted."""

_SEPARATOR: Final = "\x01"


class Mechanism(Protocol):
    """One exchange, from the client's side. ``who`` names the user in errors."""

    name: str
    who: str

    def first(self) -> bytes:
        """The client's first message. Raises ValueError where the credentials cannot be sent."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to the broker's message, None at the end. Raises ValueError, which says why, to break off."""
        ...

    def hide(self, text: str) -> str:
        """``text`` of a broker in a line, not too long, without the secret that it was given."""
        ...


class Login(Protocol):
    """Where a connection gets its exchanges from, again at each re-authentication."""

    def begin(self, now: int) -> Mechanism | None:
        """A new exchange; None where its token is still on its way. Raises KafkaError where there will be none."""
        ...

    def renew_after_ms(self, lifetime_ms: int) -> int:
        """How long into a session of ``lifetime_ms`` to authenticate again."""
        ...


class Plain:
    """Name and password, in the clear: for TLS connections."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self.who = f"user {username!r}"
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Both, separated by zero bytes."""
        return f"\0{self._username}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """There is nothing more to say."""
        del challenge
        return None

    def hide(self, text: str) -> str:
        """Without the password."""
        return brief(text.replace(self._password, "***"))


class OAuthBearer:
    """A token. ``extensions`` are further names and values for the broker (KIP-342)."""

    name = "OAUTHBEARER"
    who = "the token's owner"

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        self._token = token
        self._extensions = extensions
        self._refusal: str | None = None

    def first(self) -> bytes:
        """The token. Raises ValueError where it has characters that no token has."""
        if not self._token or not all("!" <= character <= "~" for character in self._token):
            raise ValueError("the token is empty or has characters that no token has")
        pairs = [("auth", f"Bearer {self._token}"), *self._extensions]
        fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        return f"n,,{_SEPARATOR}{fields}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """A refusal is acknowledged (RFC 7628, 3.2.3), then the broker says no; it cannot say yes any more."""
        if self._refusal is not None:
            raise ValueError(f"the broker refuses the token ({self._refusal})")
        if not challenge:
            return None
        self._refusal = self.hide(_status(challenge))
        return _SEPARATOR.encode()

    def hide(self, text: str) -> str:
        """Without the token; with the broker's own reason, where it gave one before."""
        shown = brief(text.replace(self._token, "***"))
        return f"{shown} ({self._refusal})" if self._refusal else shown


def offered(mechanisms: Sequence[str]) -> str:
    """The mechanisms of a broker's answer, for errors; empty where there is none."""
    return brief(", ".join(sorted(mechanisms)))


def _status(challenge: bytes) -> str:
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "no reason given"
    return status if isinstance(status, str) and status else "no reason given"


class SaslExchange:
    """One authentication: which request to send next. ``label`` names the broker in errors.

    Every method raises AuthenticationFailed where there is no use in trying again.
    """

    def __init__(self, label: str, mechanism: Mechanism) -> None:
        self._label = label
        self._mechanism = mechanism
        self.lifetime_ms = 0
        """How long the session lasts, once it is authenticated; 0: for ever."""

    def begin(self) -> SaslHandshakeRequest:
        """The first request."""
        return SaslHandshakeRequest(self._mechanism.name)

    def agreed(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """What follows the broker's answer to the handshake."""
        name = self._mechanism.name
        if response.error_code == UNSUPPORTED_SASL_MECHANISM:
            has = self._mechanism.hide(offered(response.mechanisms)) or "none"
            raise self._failed(f"the broker does not offer sasl.mechanism {name}; it offers: {has}")
        if response.error_code == ILLEGAL_SASL_STATE:
            raise self._failed("the listener does not use SASL: set security.protocol to PLAINTEXT or SSL")
        if response.error_code:
            raise broker_error(response.error_code, f"{self._label}: SaslHandshake")
        try:
            return SaslAuthenticateRequest(self._mechanism.first())
        except ValueError as error:
            raise self._failed(str(error)) from error

    def answered(self, response: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """What follows the broker's answer to an authentication request; None where it is done."""
        if response.error_code:
            raise self._refused(response)
        size = len(response.auth_bytes)
        if size > MAX_CHALLENGE:
            raise self._failed(f"the broker's message has {size} bytes, more than {MAX_CHALLENGE}")
        try:
            following = self._mechanism.respond(response.auth_bytes)
        except ValueError as error:
            raise self._failed(str(error)) from error
        if following is not None:
            return SaslAuthenticateRequest(following)
        self.lifetime_ms = max(0, response.session_lifetime)
        return None

    def _refused(self, response: SaslAuthenticateResponse) -> KafkaError:
        said = self._mechanism.hide(response.error_message or "")
        if response.error_code not in {SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM}:
            # Not about the credentials: another attempt may fare better.
            return broker_error(response.error_code, f"{self._label}: SaslAuthenticate", said or None)
        return self._failed(said or code_name(response.error_code))

    def _failed(self, why: str) -> AuthenticationFailed:
        who = f"{self._mechanism.name} authentication of {self._mechanism.who}"
        return AuthenticationFailed(f"{self._label}: {who} failed: {why}")
