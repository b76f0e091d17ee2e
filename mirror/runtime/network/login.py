"""The credentials of a cluster's connections: a password, or a token that is fetched and kept."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Final

from mirror.cluster.auth.sasl import Login, Mechanism, OAuthBearer, Plain
from mirror.cluster.auth.security import SaslSettings
from mirror.runtime.network.oauth import TokenKeeper

_RENEW_WINDOW: Final = (0.85, 0.95)
"""The part of a session's lifetime, drawn each time, so that clients do not re-authenticate all at once (KIP-368)."""
_SHORTEST_MS: Final = 1_100
"""A broker allows one re-authentication a second (KafkaChannel)."""


class Renewing:
    """When to authenticate again, for all logins."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def renew_after_ms(self, lifetime_ms: int) -> int:
        """Return 85 to 95% of the lifetime of the session."""
        return max(_SHORTEST_MS, int(lifetime_ms * self._rng.uniform(*_RENEW_WINDOW)))


class PasswordLogin(Renewing):
    """PLAIN and SCRAM."""

    def __init__(self, settings: SaslSettings, rng: random.Random) -> None:
        super().__init__(rng)
        self._make: Final = _maker(settings)

    def begin(self, now: int) -> Mechanism | None:
        """Return the mechanism."""
        del now
        return self._make()


def _maker(settings: SaslSettings) -> Callable[[], Mechanism]:
    name, user, password = settings.mechanism, settings.username, settings.password
    if name == "PLAIN":
        return lambda: Plain(user, password)
    from mirror.cluster.auth.scram import Scram  # here: `begin` is called on the network thread

    return lambda: Scram(name, user, password, secrets.token_hex(24), by_token=settings.by_token)


class TokenLogin(Renewing):
    """OAUTHBEARER."""

    def __init__(self, settings: SaslSettings, tokens: TokenKeeper[str], rng: random.Random) -> None:
        super().__init__(rng)
        self._extensions = settings.extensions
        self._tokens = tokens

    def begin(self, now: int) -> Mechanism | None:
        """Return the mechanism with the kept token, or None while another one is fetched."""
        token = self._tokens.token(now)
        return None if token is None else OAuthBearer(token, self._extensions)


def make_login(settings: SaslSettings, tokens: Callable[[], TokenKeeper[str]], rng: random.Random) -> Login:
    """Create the login of ``settings`` for all hosts; ``tokens`` creates the TokenKeeper if one is needed."""
    if settings.mechanism == "OAUTHBEARER":
        return TokenLogin(settings, tokens(), rng)
    return PasswordLogin(settings, rng)
