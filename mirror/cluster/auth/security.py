"""The settings of TLS and SASL, under Java's names. No repr contains a secret, so that no log of settings does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.cluster.auth.jaas import DELEGATION, EXTENSION, JaasLine, parse_jaas
from mirror.cluster.auth.kerberos_settings import KERBEROS_KEYS, KerberosSettings, read_kerberos, wrong_kerberos
from mirror.cluster.auth.oauth_settings import (
    AWS_MSK_IAM,
    AWS_PROVIDER,
    CALLBACK,
    OAUTH_KEYS,
    PROVIDER,
    URL,
    AssertionSettings,
    TokenCallback,
    is_file,
    read_assertion,
    wrong_source,
)
from mirror.cluster.keys import HIDDEN, NOT_SET, Key
from mirror.errors import Problem

GSSAPI: Final = "GSSAPI"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", AWS_MSK_IAM, GSSAPI)

PEM: Final = "PEM"
STORE_TYPES: Final = (PEM, "JKS", "PKCS12", "")

_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")

_PASSWORD_KEYS: Final = (
    Key("sasl.username", "str", "", "of PLAIN and SCRAM"),
    Key("sasl.password", "secret", "", "of PLAIN and SCRAM"),
)
SECURITY_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key(
            "security.protocol",
            "str",
            "PLAINTEXT",
            "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`",
            choices=PROTOCOLS,
        ),
        Key("ssl.truststore.type", "str", "", "empty: what the file's bytes are", choices=STORE_TYPES),
        Key(
            "ssl.truststore.location", "str", "", "file of the trusted CAs: PEM, PKCS12, JKS; without it, the system's"
        ),
        Key("ssl.truststore.certificates", "str", "", "the trusted CAs themselves, as PEM text"),
        Key("ssl.truststore.password", "secret", "", "of a JKS or PKCS12 file"),
        Key("ssl.keystore.type", "str", "", "empty: what the file's bytes are", choices=STORE_TYPES),
        Key("ssl.keystore.location", "str", "", "file of the client's key and its certificates: PEM, PKCS12, JKS"),
        Key("ssl.keystore.key", "secret", "", "the private key itself, as PEM text"),
        Key("ssl.keystore.certificate.chain", "str", "", "the certificate chain itself, as PEM text"),
        Key("ssl.keystore.password", "secret", "", "of a JKS or PKCS12 file"),
        Key("ssl.key.password", "secret", "", "of a private key that is encrypted; of JKS, where it is not the file's"),
        Key(
            "ssl.endpoint.identification.algorithm",
            "str",
            "https",
            "whether a broker's name must be the certificate's; empty: not (that of a token endpoint always must)",
            choices=("https", ""),
        ),
        Key(
            "sasl.mechanism",
            "str",
            "",
            " or ".join(f"`{one}`" for one in MECHANISMS),
            choices=MECHANISMS,
        ),
        *_PASSWORD_KEYS,
        Key(
            "sasl.jaas.config",
            "secret",
            "",
            "Java's login line, instead of name and password; `tokenauth=true`: a delegation token",
        ),
        *OAUTH_KEYS,
        *KERBEROS_KEYS,
    )
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The trusted certificates, and the client's key: files of a type (empty: any), or PEM texts."""

    truststore_location: str = ""
    truststore_type: str = ""
    truststore_password: str = field(default="", repr=False)
    truststore_certificates: str = field(default="", repr=False)
    keystore_location: str = ""
    keystore_type: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_chain: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    check_host_name: bool = True


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The credentials: name and password, a token from the callback, the provider or the endpoint, or Kerberos."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """Whether SCRAM's user and password are the id and the HMAC of a delegation token."""
    # Compared but not hashed: a callback may be a method of an object without a hash.
    token_callback: TokenCallback | None = field(default=None, hash=False)
    token_provider: str = ""
    token_endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    assertion: AssertionSettings | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    kerberos: KerberosSettings | None = None
    ignored_options: int = field(default=0, compare=False)
    """How many options of the login line its module does not know."""


@dataclass(frozen=True, slots=True)
class Security:
    """The settings of ``security.protocol`` and the keys under ``ssl.`` and ``sasl.``."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings = TlsSettings()
    sasl: SaslSettings | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether connections to brokers use TLS; ``tls`` may be set for the token endpoint only."""
        return self.protocol in {"SSL", "SASL_SSL"}


def read_security(values: Mapping[str, Any], given: frozenset[str], where: str) -> tuple[Security, list[Problem]]:
    """Return the security settings of checked ``values``, and all problems.

    ``given`` are the keys that the user set.
    """
    problems = [Problem(where, key, HIDDEN, allowed) for key, allowed in _astray(values, given)]
    protocol: str = values["security.protocol"]
    sasl: SaslSettings | None = None
    if not problems:
        wrong = _wrong_tls(values)
        problems += [
            Problem(where, key, SECURITY_KEYS[key].show(values[key]) if key in given else NOT_SET, allowed)
            for key, allowed in wrong
        ]
    if not problems and protocol.startswith("SASL_"):
        sasl, unfit = _sasl(values)
        problems += [Problem(where, key, HIDDEN if key in given else NOT_SET, allowed) for key, allowed in unfit]
    tls = TlsSettings(
        truststore_location=values["ssl.truststore.location"],
        truststore_type=values["ssl.truststore.type"],
        truststore_password=values["ssl.truststore.password"],
        truststore_certificates=values["ssl.truststore.certificates"],
        keystore_location=values["ssl.keystore.location"],
        keystore_type=values["ssl.keystore.type"],
        keystore_password=values["ssl.keystore.password"],
        keystore_key=values["ssl.keystore.key"],
        keystore_chain=values["ssl.keystore.certificate.chain"],
        key_password=values["ssl.key.password"],
        check_host_name=values["ssl.endpoint.identification.algorithm"] == "https",
    )
    return Security(protocol, tls, sasl), problems


def _astray(values: Mapping[str, Any], given: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Return problems of keys that the protocol does not use: their author expects a protection that is missing."""
    protocol = values["security.protocol"]
    endpoint = protocol.startswith("SASL_") and values[URL] and not is_file(values[URL])
    for key in SECURITY_KEYS:
        if key not in given:
            continue
        if key.startswith("sasl.") and not protocol.startswith("SASL_"):
            yield key, "needs security.protocol SASL_SSL or SASL_PLAINTEXT"
        if key.startswith("ssl.") and not protocol.endswith("SSL") and not endpoint:
            yield key, "needs security.protocol SSL or SASL_SSL"


def _wrong_tls(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for store, text in (("truststore", "ssl.truststore.certificates"), ("keystore", "ssl.keystore.key")):
        location, kind, password = (f"ssl.{store}.{part}" for part in ("location", "type", "password"))
        if values[location] and values[text]:
            yield location, f"contradicts {text}: give one of them"
        elif values[password] and values[kind] == PEM:
            yield password, "PEM files have none: a key has ssl.key.password"
        elif values[password] and not values[location]:
            yield password, f"belongs to a JKS or PKCS12 file: set {location}"
    if bool(values["ssl.keystore.key"]) != bool(values["ssl.keystore.certificate.chain"]):
        yield "ssl.keystore.key", "belongs together with ssl.keystore.certificate.chain: give both"


def _sasl(values: Mapping[str, Any]) -> tuple[SaslSettings | None, list[tuple[str, str]]]:
    mechanism = values["sasl.mechanism"]
    if not mechanism:
        return None, [("sasl.mechanism", f"required with SASL: {', '.join(MECHANISMS)}")]
    jaas: JaasLine | None = None
    if values["sasl.jaas.config"]:
        try:
            jaas = parse_jaas(values["sasl.jaas.config"])
        except ValueError as error:
            return None, [("sasl.jaas.config", str(error))]
        if not mechanism.startswith(jaas.family):
            return None, [("sasl.jaas.config", f"its login module is for {jaas.family}, sasl.mechanism is {mechanism}")]
    if mechanism == AWS_MSK_IAM:
        # The credentials are those that AWS's libraries find.
        settings, problems = SaslSettings("OAUTHBEARER", token_provider=AWS_PROVIDER), list[tuple[str, str]]()
    elif mechanism == GSSAPI:
        kerberos, ignored = read_kerberos(values, jaas), jaas.ignored if jaas else 0
        settings = SaslSettings(GSSAPI, kerberos=kerberos, ignored_options=ignored)
        problems = list(wrong_kerberos(values, jaas))
    else:
        settings, problems = _token(values, jaas) if mechanism == "OAUTHBEARER" else _password(values, jaas)
    return settings, [*problems, *_unused(values, mechanism)]


def _unused(values: Mapping[str, Any], mechanism: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of other mechanisms that are set."""
    used = {AWS_MSK_IAM: (), GSSAPI: KERBEROS_KEYS, "OAUTHBEARER": OAUTH_KEYS}.get(mechanism, _PASSWORD_KEYS)
    others = [key for keys in (_PASSWORD_KEYS, OAUTH_KEYS, KERBEROS_KEYS) if keys is not used for key in keys]
    yield from ((key.name, f"{mechanism} does not use it") for key in others if values[key.name] != key.default)


def _one(values: Mapping[str, Any], key: str, jaas: JaasLine | None, option: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a value that may be in its own key or in the login line, but not in both."""
    own, line = str(values[key]), jaas.options.get(option, "") if jaas else ""
    return own or line, [(key, "is in sasl.jaas.config too: give it once")] if own and line else []


def _password(values: Mapping[str, Any], jaas: JaasLine | None) -> tuple[SaslSettings, list[tuple[str, str]]]:
    mechanism = values["sasl.mechanism"]
    username, problems = _one(values, "sasl.username", jaas, "username")
    password, more = _one(values, "sasl.password", jaas, "password")
    problems = problems + more
    problems += [(key, f"required with {mechanism}") for key, value in _names(username, password) if not value]
    # A zero byte separates the fields of PLAIN (RFC 4616), and is invalid in the other mechanisms.
    problems += [(key, "must not contain a zero byte") for key, value in _names(username, password) if "\0" in value]
    ignored, by_token = (jaas.ignored, jaas.options.get(DELEGATION, "").lower() == "true") if jaas else (0, False)
    return SaslSettings(mechanism, username, password, by_token, ignored_options=ignored), problems


def _names(username: str, password: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("sasl.username", username), ("sasl.password", password)


def _token(values: Mapping[str, Any], jaas: JaasLine | None) -> tuple[SaslSettings, list[tuple[str, str]]]:
    client_id, problems = _one(values, "sasl.oauthbearer.client.credentials.client.id", jaas, "clientId")
    secret, more = _one(values, "sasl.oauthbearer.client.credentials.client.secret", jaas, "clientSecret")
    scope, last = _one(values, "sasl.oauthbearer.scope", jaas, "scope")
    problems = [*problems, *more, *last]
    assertion = read_assertion(values)
    problems += wrong_source(values, client_id, secret, assertion)
    extensions = _extensions(jaas)
    if any(not _EXTENSION_NAME.fullmatch(n) or n == "auth" or not _EXTENSION_VALUE.fullmatch(v) for n, v in extensions):
        problems.append(("sasl.jaas.config", "an extension is a name of letters, but not auth, and printable ASCII"))
    settings = SaslSettings(
        mechanism="OAUTHBEARER",
        token_callback=values[CALLBACK],
        token_provider=values[PROVIDER],
        token_endpoint_url=values[URL],
        client_id=client_id,
        client_secret=secret,
        scope=scope,
        assertion=assertion,
        extensions=extensions,
        ignored_options=jaas.ignored if jaas else 0,
    )
    return settings, problems


def _extensions(jaas: JaasLine | None) -> tuple[tuple[str, str], ...]:
    found = jaas.options.items() if jaas else ()
    return tuple((name.removeprefix(EXTENSION), value) for name, value in found if name.startswith(EXTENSION))
