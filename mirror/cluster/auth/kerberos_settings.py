"""The settings of GSSAPI: the service's name, and where the client's key or ticket is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mirror.cluster.auth.jaas import JaasLine
from mirror.cluster.keys import Key

SERVICE: Final = "sasl.kerberos.service.name"
KEYTAB: Final = "sasl.kerberos.keytab"
PRINCIPAL: Final = "sasl.kerberos.principal"

KERBEROS_KEYS: Final = (
    Key(SERVICE, "str", "", "first part of the brokers' principals, as in `kafka/HOST@REALM`"),
    Key(KEYTAB, "str", "", "file with the client's key; without it, the ticket is that of the credential cache"),
    Key(PRINCIPAL, "str", "", "principal of the client; empty: the first of the keytab, or the cache's"),
)


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """``keytab`` is the file of a key, ``cache`` that of a ticket; both are empty for the host's default cache."""

    service: str
    keytab: str = ""
    principal: str = ""
    cache: str = ""


def read_kerberos(values: Mapping[str, Any], jaas: JaasLine | None) -> KerberosSettings:
    """Return the settings; a key takes precedence over the login line's option of the same meaning."""
    options = jaas.options if jaas else {}
    from_line = options.get("keyTab", "") if _is_on(options, "useKeyTab") else ""
    return KerberosSettings(
        service=values[SERVICE] or options.get("serviceName", ""),
        keytab=(values[KEYTAB] or from_line).removeprefix("FILE:"),
        principal=values[PRINCIPAL] or options.get("principal", ""),
        cache=options.get("ticketCache", "") if _is_on(options, "useTicketCache") else "",
    )


def wrong_kerberos(values: Mapping[str, Any], jaas: JaasLine | None) -> Iterator[tuple[str, str]]:
    """Yield the keys that are missing, or contradict the login line, each with what is allowed."""
    options = jaas.options if jaas else {}
    for key, option in ((SERVICE, "serviceName"), (KEYTAB, "keyTab"), (PRINCIPAL, "principal")):
        if values[key] and options.get(option, values[key]) != values[key]:
            yield key, "is in sasl.jaas.config too, with another value: give it once"
    if not read_kerberos(values, jaas).service:
        yield SERVICE, "required with GSSAPI: the first part of the brokers' principals, such as kafka"
    if jaas is not None and not values[KEYTAB]:
        if _is_on(options, "useKeyTab") and not options.get("keyTab"):
            yield "sasl.jaas.config", "useKeyTab needs keyTab, the path of the file"
        elif not (_is_on(options, "useKeyTab") or _is_on(options, "useTicketCache")):
            yield (
                "sasl.jaas.config",
                "needs useKeyTab=true and keyTab, or useTicketCache=true: no password is asked for",
            )


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
