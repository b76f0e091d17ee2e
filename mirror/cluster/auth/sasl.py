"""SASL without the connection: which message comes next, and whether the other side is who it claims to be.

A :class:`Mechanism` makes the messages of one exchange (RFC 4616 PLAIN, RFC 7628 OAUTHBEARER; others are in
:mod:`.scram` and :mod:`.gssapi`); :class:`SaslExchange` wraps them into Kafka's SaslHandshake and SaslAuthenticate
(KIP-43, KIP-152). :class:`.security.SaslSettings` has the configured mechanism; the logins in the package
``runtime.network`` (``login.py``, ``kerberos.py``) create it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Protocol

from mirror.causes import LOGIN, NO_SASL
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
"""The largest SASL message of a broker in bytes, which is read before the broker is trusted; usual are hundreds."""

_SEPARATOR: Final = "\x01"


class Mechanism(Protocol):
    """The client's side of one exchange. ``who`` names the user in errors."""

    name: str
    who: str

    def first(self) -> bytes:
        """Return the client's first message. Raises ValueError if the credentials cannot be sent."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to the broker's message; None at the end. Raises ValueError with the reason to abort."""
        ...

    def hide(self, text: str) -> str:
        """Return ``text`` of a broker on one line, bounded in length, without the secret that it received."""
        ...


class Login(Protocol):
    """The source of a connection's exchanges, one for each (re-)authentication."""

    def begin(self, now: int) -> Mechanism | None:
        """Return a new exchange; None while its token is being fetched. Raises KafkaError if there will be none."""
        ...

    def renew_after_ms(self, lifetime_ms: int) -> int:
        """Return how long after the start of a session of ``lifetime_ms`` to authenticate again."""
        ...


class Plain:
    """User name and password in clear text, for TLS connections."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self.who = f"user {username!r}"
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Return both, separated by zero bytes (RFC 4616)."""
        return f"\0{self._username}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None: the exchange is complete."""
        del challenge
        return None

    def hide(self, text: str) -> str:
        """Remove the password."""
        return brief(text.replace(self._password, "***"))


class OAuthBearer:
    """A bearer token. ``extensions`` are further names and values for the broker (KIP-342)."""

    name = "OAUTHBEARER"
    who = "the token's owner"

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        self._token = token
        self._extensions = extensions
        self._refusal: str | None = None

    def first(self) -> bytes:
        """Return the token. Raises ValueError if it has invalid characters."""
        if not self._token or not all("!" <= character <= "~" for character in self._token):
            raise ValueError("the token is empty or has characters that no token has")
        pairs = [("auth", f"Bearer {self._token}"), *self._extensions]
        fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        return f"n,,{_SEPARATOR}{fields}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Acknowledge a refusal (RFC 7628, 3.2.3), after which the broker fails the authentication."""
        if self._refusal is not None:
            raise ValueError(f"the broker refuses the token ({self._refusal})")
        if not challenge:
            return None
        self._refusal = self.hide(_status(challenge))
        return _SEPARATOR.encode()

    def hide(self, text: str) -> str:
        """Remove the token; add the broker's own reason, if it gave one before."""
        shown = brief(text.replace(self._token, "***"))
        return f"{shown} ({self._refusal})" if self._refusal else shown


def offered(mechanisms: Sequence[str]) -> str:
    """Return the mechanisms that a broker offers, for error texts; empty if there are none."""
    return brief(", ".join(sorted(mechanisms)))


def _status(challenge: bytes) -> str:
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "no reason given"
    return status if isinstance(status, str) and status else "no reason given"


class SaslExchange:
    """The requests of one authentication. ``label`` names the broker in errors.

    Every method raises AuthenticationFailed where there is no use in trying again.
    """

    def __init__(self, label: str, mechanism: Mechanism) -> None:
        self._label = label
        self._mechanism = mechanism
        self.lifetime_ms = 0
        """The lifetime of the authenticated session; 0: unlimited."""

    def begin(self) -> SaslHandshakeRequest:
        """Return the first request."""
        return SaslHandshakeRequest(self._mechanism.name)

    def agreed(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """Return the request after the response to the handshake."""
        name = self._mechanism.name
        if response.error_code == UNSUPPORTED_SASL_MECHANISM:
            has = self._mechanism.hide(offered(response.mechanisms)) or "none"
            raise self._failed(f"the broker does not offer sasl.mechanism {name}; it offers: {has}")
        if response.error_code == ILLEGAL_SASL_STATE:
            raise self._failed(NO_SASL.words)
        if response.error_code:
            raise broker_error(response.error_code, f"{self._label}: SaslHandshake")
        try:
            return SaslAuthenticateRequest(self._mechanism.first())
        except ValueError as error:
            raise self._failed(str(error)) from error

    def answered(self, response: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """Return the request after the response to an authentication request; None when it is done."""
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
            # Not about the credentials: another attempt may succeed.
            return broker_error(response.error_code, f"{self._label}: SaslAuthenticate", said or None)
        return self._failed(f"{said or code_name(response.error_code)}; {LOGIN.remedy}")

    def _failed(self, why: str) -> AuthenticationFailed:
        who = f"{self._mechanism.name} authentication of {self._mechanism.who}"
        return AuthenticationFailed(f"{self._label}: {who} failed: {why}")
