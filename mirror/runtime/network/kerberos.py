"""Tickets and contexts of Kerberos, by MIT's library and its Python package: the extra ``gssapi`` of this package.

Realms, KDCs and the canonical names of hosts are the business of the library and its ``krb5.conf``.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mirror.cluster.auth.gssapi import Gssapi
from mirror.cluster.auth.kerberos_settings import KEYTAB, PRINCIPAL, SERVICE, KerberosSettings
from mirror.cluster.auth.sasl import Mechanism
from mirror.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KafkaError, Problem, brief
from mirror.extras import GSSAPI, install
from mirror.runtime.network.background import Background
from mirror.runtime.network.login import Renewing
from mirror.runtime.network.oauth import Token, TokenKeeper

_CACHES: Final = itertools.count(1)
_ERRORS: Final = 2**32 - 1_765_328_384
"""The first code of the library's errors (``krb5_err.et``), as GSS-API has it: without a sign."""
_EXPIRED: Final = "the ticket has expired: it must be renewed"
"""Not final: what renews the cache may be late."""
_TRY_LATER: Final = frozenset({_ERRORS + 32, _ERRORS + 29, _ERRORS + 156})
"""KRB5KRB_AP_ERR_TKT_EXPIRED, KRB5KDC_ERR_SVC_UNAVAILABLE, KRB5_KDC_UNREACH."""
_OTHER_KEY: Final = "the principal has another key by now: write the keytab again"
_HINTS: Final[Mapping[int, str]] = {
    # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
    _ERRORS + 7: f"the KDC has no such service: check {SERVICE} and the brokers' host names",
    # KRB5KDC_ERR_PREAUTH_FAILED, KRB5KRB_AP_ERR_BAD_INTEGRITY
    _ERRORS + 24: _OTHER_KEY,
    _ERRORS + 31: _OTHER_KEY,
    # KRB5_FCC_NOFILE: of a keytab without the key, the library looks for a ticket in a cache.
    _ERRORS + 195: f"there is no key or ticket of the principal: check {PRINCIPAL}",
}
"""Better reasons than the library's own."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Credentials of GSS-API, and the principal that they are for."""

    credentials: Any
    principal: str


def load_gssapi() -> Any:
    """Import the package. Raises ConfigError if it, or MIT's library, is missing."""
    try:
        return importlib.import_module("gssapi")
    except ModuleNotFoundError as error:
        why = f"needs {error.name!r}: {install(GSSAPI)}, on every host"
    except (ImportError, OSError):
        why = "the library of Kerberos cannot be loaded (Debian: apt-get install libgssapi-krb5-2), on every host"
    raise ConfigError([Problem("", "sasl.mechanism", "'GSSAPI'", why)])


def tickets(settings: KerberosSettings) -> Callable[[], Token[Ticket]]:
    """Return a source of tickets: for the key of a keytab, or the one of a credential cache, which is read again.

    Raises ConfigError if the library is missing.
    """
    gssapi = load_gssapi()

    def fetch() -> Token[Ticket]:
        _check_readable(settings.keytab)
        where = f"{KEYTAB} {settings.keytab}" if settings.keytab else "the credential cache (kinit, KRB5CCNAME)"
        store = {"ccache": settings.cache} if settings.cache else None
        if settings.keytab:
            # A cache of its own: the library empties the one for which it gets a ticket, and others may be using that.
            store = {"client_keytab": f"FILE:{settings.keytab}", "ccache": f"MEMORY:mirror-{next(_CACHES)}"}
        with _explained(gssapi, where):
            kind = gssapi.NameType.kerberos_principal
            name = gssapi.Name(settings.principal, kind) if settings.principal else None
            mechanisms = [gssapi.MechType.kerberos]
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=mechanisms, store=store)
            lifetime_s, principal = credentials.lifetime, str(credentials.name)
        if not lifetime_s:
            raise ConnectionFailed(f"Kerberos: {where}: {_EXPIRED}")
        return Token(Ticket(credentials, principal), lifetime_s * 1000)

    return fetch


def _check_readable(keytab: str) -> None:
    """Raise AuthenticationFailed: the library would complain of a missing cache instead."""
    try:
        if keytab:
            Path(keytab).open("rb").close()
    except OSError as error:
        raise AuthenticationFailed(f"{KEYTAB} {keytab} cannot be read: {error.strerror}") from None


class KerberosLogin(Renewing):
    """The login of one connection, to ``host``: Kerberos has a ticket for each broker."""

    def __init__(
        self,
        settings: KerberosSettings,
        keeper: TokenKeeper[Ticket],
        background: Background,
        rng: random.Random,
        host: str,
    ) -> None:
        super().__init__(rng)
        self._server = f"{settings.service}@{host}"
        self._keeper = keeper
        self._background = background
        self._pending: Future[Gssapi] | None = None

    def begin(self, now: int) -> Mechanism | None:
        """Return the mechanism with a ticket for the broker, or None while that is fetched."""
        if self._pending is None and (ticket := self._keeper.token(now)) is not None:
            self._pending = self._background.run("mirror-ticket", lambda: self._exchange(ticket))
        if self._pending is None or not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        error = pending.exception()
        if error is not None and not isinstance(error, KafkaError):
            raise ConnectionFailed(f"Kerberos: no ticket for {self._server}: {type(error).__name__}")
        return pending.result()

    def _exchange(self, ticket: Ticket) -> Gssapi:
        return Gssapi(ticket.principal, _Context(load_gssapi(), ticket, self._server))


class _Context:
    """A :class:`.gssapi.SecurityContext` of the library. Raises KafkaError if there is no ticket for ``server``."""

    def __init__(self, gssapi: Any, ticket: Ticket, server: str) -> None:
        self._error = gssapi.exceptions.GSSError
        needed = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        with _explained(gssapi, f"a ticket of {ticket.principal} for {server}"):
            name = gssapi.Name(server, gssapi.NameType.hostbased_service)
            mechanism = gssapi.MechType.kerberos
            self._context = gssapi.SecurityContext(
                name=name, creds=ticket.credentials, mech=mechanism, flags=needed, usage="initiate"
            )
            self.first: bytes = self._context.step()

    @property
    def established(self) -> bool:
        return bool(self._context.complete)

    def step(self, message: bytes) -> bytes:
        return self._call(lambda: self._context.step(message) or b"")

    def unwrap(self, message: bytes) -> bytes:
        return self._call(lambda: bytes(self._context.unwrap(message).message))

    def wrap(self, content: bytes) -> bytes:
        return self._call(lambda: bytes(self._context.wrap(content, encrypt=False).message))

    def _call(self, call: Callable[[], bytes]) -> bytes:
        try:
            return call()
        except self._error as error:
            what = "the broker did not prove that it has the service's key: it may not be the broker it claims to be"
            raise ValueError(f"{what} ({_reason(error)})") from None


@contextmanager
def _explained(gssapi: Any, what: str) -> Iterator[None]:
    """Turn an error of the library into a KafkaError of one line about ``what``."""
    try:
        yield
    except gssapi.exceptions.GSSError as error:
        if isinstance(error, gssapi.exceptions.ExpiredCredentialsError):
            raise ConnectionFailed(f"Kerberos: {what}: {_EXPIRED}") from None
        kind = ConnectionFailed if error.min_code in _TRY_LATER else AuthenticationFailed
        raise kind(f"Kerberos: {what}: {_HINTS.get(error.min_code) or _reason(error)}") from None


def _reason(error: Any) -> str:
    """Return what Kerberos says, or GSS-API where it says nothing. For the thread that got the error."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return brief("; ".join(texts or error.get_all_statuses(error.maj_code, True)))
