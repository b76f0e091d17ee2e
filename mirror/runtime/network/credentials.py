"""The TLS and SASL credentials that the connections of a cluster share, created before the first of them."""

from __future__ import annotations

import functools
import random
import socket
from dataclasses import replace

from mirror.backoff import Backoff
from mirror.cluster.auth.sasl import Login
from mirror.cluster.auth.security import SaslSettings, Security
from mirror.runtime.network.background import Background
from mirror.runtime.network.connection import WrapSocket
from mirror.runtime.network.login import make_login
from mirror.runtime.network.oauth import TokenKeeper, from_callback, from_endpoint
from mirror.runtime.network.tls import RECEIVE_BYTES, TlsTransport
from mirror.runtime.network.tls_contexts import TlsContexts


class Credentials:
    """``wrap`` creates the transport of a socket (None: without TLS), ``login`` authenticates (None: no SASL)."""

    def __init__(
        self, security: Security, request_timeout_ms: int, background: Background, backoff: Backoff, rng: random.Random
    ) -> None:
        """Create them from the settings. Raises ConfigError if a file of keys or certificates is not usable."""
        self.wrap: WrapSocket | None = None
        self.login: Login | None = None
        self._tls = security.tls
        self._request_timeout_ms = request_timeout_ms
        if security.uses_tls:
            scratch = memoryview(bytearray(RECEIVE_BYTES))
            self.wrap = functools.partial(_wrap, contexts=TlsContexts(self._tls), scratch=scratch)
        sasl = security.sasl
        if sasl is not None:
            self.login = make_login(sasl, lambda: self._tokens(sasl, background, backoff), rng)

    def _tokens(self, sasl: SaslSettings, background: Background, backoff: Backoff) -> TokenKeeper:
        if sasl.token_callback is not None:
            return TokenKeeper(from_callback(sasl.token_callback), background, backoff)
        # ssl.endpoint.identification.algorithm is about brokers: as in Java, the endpoint's name is always checked.
        contexts = TlsContexts(replace(self._tls, check_host_name=True))
        fetch = from_endpoint(sasl, contexts.current, self._request_timeout_ms)
        return TokenKeeper(fetch, background, backoff)


def _wrap(sock: socket.socket, host: str, *, contexts: TlsContexts, scratch: memoryview) -> TlsTransport:
    return TlsTransport(sock, contexts.current(), host, scratch)
