"""The TLS and SASL credentials that the connections of a cluster share, created before the first of them."""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from mirror.backoff import Backoff
from mirror.cluster.auth.oauth_settings import CALLBACK, PROVIDER, TokenRequest, is_file
from mirror.cluster.auth.sasl import Login
from mirror.cluster.auth.security import SaslSettings, Security
from mirror.runtime.network.background import Background
from mirror.runtime.network.connection import WrapSocket
from mirror.runtime.network.login import make_login
from mirror.runtime.network.oauth import Token, TokenKeeper, from_callback, from_endpoint
from mirror.runtime.network.tls import RECEIVE_BYTES, TlsTransport
from mirror.runtime.network.tls_contexts import TlsContexts
from mirror.runtime.network.token_files import assertion, from_file
from mirror.runtime.network.token_providers import load_provider


class Credentials:
    """``wrap`` creates the transport of a socket (None: without TLS), ``login_to`` what authenticates with a host."""

    def __init__(
        self,
        security: Security,
        request_timeout_ms: int,
        background: Background,
        backoff: Backoff,
        rng: random.Random,
        hosts: Sequence[str] = (),
    ) -> None:
        """Create them from the settings; ``hosts`` are those of ``bootstrap.servers``.

        Raises ConfigError if a file of keys or certificates is not usable, or a token provider cannot be loaded.
        """
        self.wrap: WrapSocket | None = None
        self._tls = security.tls
        self._hosts = tuple(hosts)
        self._request_timeout_ms = request_timeout_ms
        if security.uses_tls:
            scratch = memoryview(bytearray(RECEIVE_BYTES))
            self.wrap = functools.partial(_wrap, contexts=TlsContexts(self._tls), scratch=scratch)
        self._logins = None if security.sasl is None else self._make_logins(security.sasl, background, backoff, rng)

    def login_to(self, host: str) -> Login | None:
        """Return the login of a connection to ``host``; None without SASL."""
        return None if self._logins is None else self._logins(host)

    def _make_logins(
        self, sasl: SaslSettings, background: Background, backoff: Backoff, rng: random.Random
    ) -> Callable[[str], Login]:
        if sasl.kerberos is not None:
            from mirror.runtime.network.kerberos import KerberosLogin, tickets

            keeper = TokenKeeper(tickets(sasl.kerberos), background, backoff)
            return functools.partial(KerberosLogin, sasl.kerberos, keeper, background, rng)
        login = make_login(sasl, lambda: TokenKeeper(self._token_source(sasl), background, backoff), rng)
        return lambda _: login

    def _token_source(self, sasl: SaslSettings) -> Callable[[], Token[str]]:
        if sasl.token_callback is not None:
            return from_callback(sasl.token_callback, CALLBACK)
        if sasl.token_provider:
            provider = load_provider(sasl.token_provider)
            request = TokenRequest(sasl.scope, self._hosts)
            return from_callback(lambda: provider(request), f"{PROVIDER} {sasl.token_provider}")
        if is_file(sasl.token_endpoint_url):
            return from_file(sasl.token_endpoint_url)
        # ssl.endpoint.identification.algorithm is about brokers: as in Java, the endpoint's name is always checked.
        contexts = TlsContexts(replace(self._tls, check_host_name=True))
        make = None if sasl.assertion is None else functools.partial(assertion, sasl.assertion)
        return from_endpoint(sasl, contexts.current, self._request_timeout_ms, make)


def _wrap(sock: socket.socket, host: str, *, contexts: TlsContexts, scratch: memoryview) -> TlsTransport:
    return TlsTransport(sock, contexts.current(), host, scratch)
