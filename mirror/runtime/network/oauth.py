"""OAUTHBEARER tokens: from a function, or from an endpoint, for a client's credentials or an assertion."""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final, Generic, TypeVar

from mirror.backoff import Backoff
from mirror.cluster.auth.oauth_settings import TokenCallback, is_loopback
from mirror.cluster.auth.security import SaslSettings
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from mirror.runtime.network.background import Background
from mirror.runtime.network.bounded_http import Limit, opener
from mirror.runtime.network.tls import explain_certificate
from mirror.timing import FOREVER_MS, deadline

_REFRESH_AT: Final = 0.8
"""The part of a token's lifetime after which it is replaced, earlier than its sessions
(``sasl.login.refresh.window.factor``)."""
DEFAULT_LIFETIME_MS: Final = 300_000
"""The lifetime if the endpoint does not return it (RFC 6749 only recommends that): short, as a fetch is cheap."""
_ROUNDING_MS: Final = 1_000
"""Issuers count in whole seconds: a token may expire that much earlier."""
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LARGEST_ANSWER: Final = 1024 * 1024
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")
_REFUSED_TUNNEL: Final = re.compile(r"Tunnel connection failed: [0-9]{1,3}")
_TRY_LATER: Final = frozenset({408, 425, 429})


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Token(Generic[T]):
    """A token, or the ticket of Kerberos, and its lifetime, in ms from when it was obtained."""

    value: T = field(repr=False)
    lifetime_ms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "lifetime_ms", min(self.lifetime_ms, FOREVER_MS))


class TokenKeeper(Generic[T]):
    """One token for all connections of a cluster, replaced before it expires. For the network thread only."""

    def __init__(self, fetch: Callable[[], Token[T]], background: Background, backoff: Backoff) -> None:
        self._fetch = fetch
        self._background = background
        self._backoff = backoff
        self._pending: Future[Token[T]] | None = None
        self._asked_ms = 0
        self._token: Token[T] | None = None
        self._refresh_ms = 0
        self._expires_ms = 0
        self._error: KafkaError | None = None
        self._failures = 0
        self._not_before_ms = 0

    def token(self, now: int) -> T | None:
        """Return the token; None while one is fetched (the loop is woken after that). Raises KafkaError if that failed.

        AuthenticationFailed means that the credentials are refused, ConnectionFailed that a retry may succeed.
        """
        if self._pending is not None and self._pending.done():
            self._take_in(self._pending, now)
        if self._token is not None and now < self._refresh_ms:
            return self._token.value
        if self._pending is None and now >= self._not_before_ms:
            self._asked_ms = now
            self._pending = self._background.run("mirror-token", self._fetch)
            if self._pending.done():
                self._take_in(self._pending, now)
                return self.token(now)
        if self._pending is not None:
            return None
        if self._token is not None and now < self._expires_ms:
            return self._token.value
        raise self._error or ConnectionFailed("there is no token or ticket")

    def _take_in(self, pending: Future[Token[T]], now: int) -> None:
        self._pending = None
        error = pending.exception()
        if error is not None:
            self._failures += 1
            self._not_before_ms = now + self._backoff.after(self._failures)
            self._error = error if isinstance(error, KafkaError) else ConnectionFailed(_strange(error))
            return
        token = self._token = pending.result()
        self._failures = 0
        self._error = None
        # From when it was requested: the issuer's clock started between then and now.
        lifetime_ms = max(token.lifetime_ms - _ROUNDING_MS, token.lifetime_ms // 2)
        self._refresh_ms = deadline(self._asked_ms, int(lifetime_ms * _REFRESH_AT))
        self._expires_ms = deadline(self._asked_ms, lifetime_ms)
        # A token with a lifetime too short for use must not be fetched in a tight loop.
        self._not_before_ms = now + self._backoff.after(1)
        self._refresh_ms = max(self._refresh_ms, self._not_before_ms)


def _strange(error: BaseException) -> str:
    # Only the type: the text may contain the credentials of the request.
    return f"no token or ticket: {type(error).__name__}"


def from_callback(callback: TokenCallback, name: str) -> Callable[[], Token[str]]:
    """Return a source of tokens from a function, which ``name`` names in errors.

    OSError is retriable, any other exception a refusal.
    """

    def fetch() -> Token[str]:
        try:
            value, lifetime_ms = callback()
        except (KafkaError, OSError):
            raise
        except Exception as error:
            raise AuthenticationFailed(f"{name} raised {type(error).__name__}") from error
        return _checked(value, lifetime_ms, name)

    return fetch


def _checked(value: object, lifetime_ms: object, name: str) -> Token[str]:
    if not isinstance(value, str) or not isinstance(lifetime_ms, int) or lifetime_ms <= 0:
        raise AuthenticationFailed(f"{name} must return (text, milliseconds above 0)")
    return Token(value, lifetime_ms)


def from_endpoint(
    settings: SaslSettings, context: Callable[[], ssl.SSLContext], timeout_ms: int, assertion: Callable[[], str] | None
) -> Callable[[], Token[str]]:
    """Return a source of tokens from ``sasl.oauthbearer.token.endpoint.url``.

    They are got for an ``assertion`` (RFC 7523, 2.1), or else by the client-credentials grant (RFC 6749, 4.4).
    ``context`` returns the TLS context of each fetch.
    An endpoint on another host is reached through the proxy of ``https_proxy``, unless ``no_proxy`` names the endpoint.
    """
    url = settings.token_endpoint_url
    host = urllib.parse.urlsplit(url).hostname or ""
    where = f"token endpoint {url.partition('?')[0]}"
    scope = {"scope": settings.scope} if settings.scope else {}

    def fetch() -> Token[str]:
        if assertion is None:
            pair = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
            fields, headers = {"grant_type": "client_credentials"}, {"Authorization": f"Basic {pair}"}
        else:
            fields, headers = {"grant_type": _JWT_BEARER, "assertion": assertion()}, {}
        request = urllib.request.Request(  # noqa: S310 - https, or http to this machine: checked with the settings
            url,
            data=urllib.parse.urlencode(fields | scope).encode(),
            headers=headers | {"Accept": "application/json"},
        )
        proxy = _proxy_to(host)
        with Limit(timeout_ms) as limit:
            try:
                with opener(context(), limit, proxy).open(request, timeout=limit.timeout_s) as response:
                    answer = response.read(_LARGEST_ANSWER)
                    if not limit.over:
                        return _token(answer, where, cut_off=bool(response.length))
            except urllib.error.HTTPError as error:
                with error:
                    refused = _refused(error, where)
                if not limit.over:
                    raise refused from None
            except (OSError, HTTPException) as error:
                # The socket's own timeout is as long: either may end the wait first.
                if not (limit.over or _has_timed_out(error)):
                    raise _unreachable(error, where, host, proxy) from None
        raise ConnectionFailed(f"{where}: no whole answer within {timeout_ms} ms")

    return fetch


def _token(answer: bytes, where: str, *, cut_off: bool) -> Token[str]:
    if len(answer) == _LARGEST_ANSWER:
        raise AuthenticationFailed(f"{where}: its answer has {_LARGEST_ANSWER} bytes or more")
    if cut_off:
        raise ConnectionFailed(f"{where}: the connection ended in the middle of its answer")
    try:
        body = json.loads(answer)
        value = body["access_token"]
        lifetime_ms = int(float(body.get("expires_in", DEFAULT_LIFETIME_MS / 1000)) * 1000)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise AuthenticationFailed(f"{where}: its answer holds no access_token") from None
    if not isinstance(value, str) or lifetime_ms <= 0:
        raise AuthenticationFailed(f"{where}: its answer holds no usable access_token")
    return Token(value, lifetime_ms)


def _refused(error: urllib.error.HTTPError, where: str) -> KafkaError:
    if error.code >= 500 or error.code in _TRY_LATER:  # noqa: PLR2004 - an error of the server
        return ConnectionFailed(f"{where}: HTTP status {error.code}")
    try:
        code = json.loads(error.read(_LARGEST_ANSWER))["error"]
    except (ValueError, LookupError, TypeError, RecursionError, OSError, HTTPException):
        code = ""
    # The code alone, in a restricted alphabet: a description might repeat the request.
    reason = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
    return AuthenticationFailed(f"{where}: HTTP status {error.code}{reason}")


def _proxy_to(host: str) -> str:
    """Return the URL of the proxy for https requests to ``host``; empty if there is none."""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get("https", "")


def _has_timed_out(error: Exception) -> bool:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(cause, TimeoutError) and cause.errno is None


def _unreachable(error: Exception, where: str, host: str, proxy: str) -> KafkaError:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"{where}: {explain_certificate(cause, host, 'endpoint')}")
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else type(cause).__name__
    if not proxy:
        return ConnectionFailed(f"{where}: {text}")
    # The status of a refused tunnel alone: the URL of the proxy may contain a password.
    refused = _REFUSED_TUNNEL.match(str(cause))
    through = proxy.rpartition("@")[2].rpartition("//")[2].partition("/")[0]
    return ConnectionFailed(
        f"{where}: {refused[0] if refused else text}, through the proxy {through} (https_proxy; see no_proxy)"
    )
