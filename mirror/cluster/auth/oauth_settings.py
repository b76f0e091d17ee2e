"""The settings of OAUTHBEARER: where its token comes from, and what each of these sources needs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mirror.cluster.keys import Key


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What the function of ``sasl.oauthbearer.token.provider`` is called with."""

    scope: str
    """``sasl.oauthbearer.scope``, or empty."""
    hosts: tuple[str, ...]
    """The hosts of ``bootstrap.servers``, without ports."""


TokenCallback = Callable[[], tuple[str, int]]
"""Returns an OAUTHBEARER token and its lifetime in ms. It may block: it is not called on the network thread."""
TokenProvider = Callable[[TokenRequest], tuple[str, int]]
"""The same, named in a configuration file."""

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
"""Amazon's mechanism in Java, whose brokers take the same signatures as tokens of OAUTHBEARER."""
AWS_PROVIDER: Final = "aws"
SHIPPED: Final[Mapping[str, str]] = {
    AWS_PROVIDER: "aws_msk_iam_sasl_signer",
    "azure": "azure.identity",
    "gcp": "google.auth",
}
"""The providers that this package has, each with the package that its extra of the same name installs."""
URL: Final = "sasl.oauthbearer.token.endpoint.url"
CALLBACK: Final = "sasl.oauthbearer.token.callback"
PROVIDER: Final = "sasl.oauthbearer.token.provider"
CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
ASSERTION: Final = "sasl.oauthbearer.assertion"
_ALGORITHMS: Final = ("RS256", "ES256")
_DAY_S: Final = 86_400
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

OAUTH_KEYS: Final = (
    Key(CALLBACK, "callable", None, "gives (token, lifetime in ms); not from a file"),
    Key(PROVIDER, "str", "", "a function that gives tokens, as `package.module:function`; `azure`, `gcp`"),
    Key(URL, "str", "", "where a token is got for client id and secret or an assertion, or `file:///...`, a file"),
    Key(f"{CLIENT}.id", "str", "", "client id (KIP-1139)"),
    Key(f"{CLIENT}.secret", "secret", "", "client secret (KIP-1139)"),
    Key("sasl.oauthbearer.scope", "str", "", "scope that the token is asked for"),
    Key(f"{ASSERTION}.file", "str", "", "file with a JWT assertion, for a token by RFC 7523 (KIP-1139)"),
    Key(f"{ASSERTION}.private.key.file", "str", "", "PEM file of the key that signs assertions made here"),
    Key(f"{ASSERTION}.private.key.passphrase", "secret", "", "of that key, where it is encrypted"),
    Key(f"{ASSERTION}.algorithm", "str", "RS256", "how assertions are signed", choices=_ALGORITHMS),
    Key(f"{ASSERTION}.template.file", "str", "", "JSON file with the objects header and payload of assertions"),
    Key(f"{ASSERTION}.claim.iss", "str", "", "issuer of assertions"),
    Key(f"{ASSERTION}.claim.sub", "str", "", "subject of assertions"),
    Key(f"{ASSERTION}.claim.aud", "str", "", "audience of assertions"),
    Key(f"{ASSERTION}.claim.exp.seconds", "int", 300, "lifetime of an assertion", low=1, high=_DAY_S),
    Key(f"{ASSERTION}.claim.nbf.seconds", "int", 60, "from how long ago an assertion is valid", high=_DAY_S),
    Key(f"{ASSERTION}.claim.jti.include", "bool", False, "whether each assertion has an id"),
)


@dataclass(frozen=True, slots=True)
class AssertionSettings:
    """The JWT assertion that a token is exchanged for: a file that has it, or what one is made of. Times in s."""

    file: str = ""
    private_key_file: str = ""
    passphrase: str = field(default="", repr=False)
    algorithm: str = "RS256"
    template_file: str = ""
    claims: tuple[tuple[str, str], ...] = ()
    lifetime_s: int = 300
    not_before_s: int = 60
    with_id: bool = False


def read_assertion(values: Mapping[str, Any]) -> AssertionSettings | None:
    """Return the settings of assertions, or None if no key names where they come from."""
    of = {key.name.removeprefix(f"{ASSERTION}."): values[key.name] for key in OAUTH_KEYS if _is_of_assertion(key.name)}
    if not (of["file"] or of["private.key.file"]):
        return None
    claims = {name: of[f"claim.{name}"] for name in ("iss", "sub", "aud")}
    return AssertionSettings(
        file=of["file"],
        private_key_file=of["private.key.file"],
        passphrase=of["private.key.passphrase"],
        algorithm=of["algorithm"],
        template_file=of["template.file"],
        claims=tuple((name, value) for name, value in claims.items() if value),
        lifetime_s=of["claim.exp.seconds"],
        not_before_s=of["claim.nbf.seconds"],
        with_id=of["claim.jti.include"],
    )


def _is_of_assertion(key: str) -> bool:
    return key.startswith(f"{ASSERTION}.")


def wrong_source(
    values: Mapping[str, Any], client_id: str, client_secret: str, assertion: AssertionSettings | None
) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not name one source of tokens and what it needs, each with what is allowed."""
    given = [key for key in (CALLBACK, PROVIDER, URL) if values[key]]
    client = {f"{CLIENT}.id": client_id, f"{CLIENT}.secret": client_secret}
    url: str = values[URL]
    if not given:
        yield URL, f"required with OAUTHBEARER (or {PROVIDER}, or a token callback)"
    elif len(given) > 1:
        yield given[0], f"contradicts {given[1]}"
    elif values[PROVIDER]:
        if values[PROVIDER] not in SHIPPED and _FUNCTION.fullmatch(values[PROVIDER]) is None:
            yield PROVIDER, f'must be a function as "package.module:function", or one of {", ".join(SHIPPED)}'
    elif url:
        yield from _wrong_url(url)
        if assertion is None and not is_file(url):
            yield from ((key, "required with the token endpoint") for key, value in client.items() if not value)
    if assertion is None or not url or is_file(url):
        unused = [key.name for key in OAUTH_KEYS if _is_of_assertion(key.name) and values[key.name] != key.default]
        needs = f"needs {ASSERTION}.file or .private.key.file, and an endpoint in {URL}"
        yield from ((key, needs) for key in unused)
    elif assertion.file and assertion.private_key_file:
        yield f"{ASSERTION}.file", f"contradicts {ASSERTION}.private.key.file"
    else:
        yield from ((key, f"contradicts {ASSERTION}.*") for key, value in client.items() if value)


def is_file(url: str) -> bool:
    """Return whether the URL of a token endpoint is that of a file, as Java's client has it, too."""
    return url.startswith("file:")


def path_of(url: str) -> str:
    """Return the path in a URL such as ``file:///run/secrets/token``."""
    return unquote(urlsplit(url).path)


def _wrong_url(url: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        yield URL, "must be a URL such as https://login.example.com/token"
        return
    if parts.username or parts.password:
        yield URL, "must not contain a name or password: they have keys of their own"
    elif parts.scheme == "file":
        if host or not parts.path.startswith("/") or "%00" in parts.path:
            yield URL, "must be the absolute path of a file, as file:///run/secrets/token"
    elif not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        yield URL, "must begin with https:// (http:// only to this machine), for the client's secret goes there"


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine: what is sent there passes no network."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
