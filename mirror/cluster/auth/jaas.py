"""Parses Java's ``sasl.jaas.config`` line, for users of MirrorMaker; it is never required.

``org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="...";``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_OPTION: Final = re.compile(r"""\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""")
_HEAD: Final = re.compile(r"\s*([\w.$]+)\s+(\w+)\b")

PLAIN_OPTIONS: Final = frozenset({"username", "password"})
OAUTH_OPTIONS: Final = frozenset({"clientId", "clientSecret", "scope"})
KERBEROS_OPTIONS: Final = frozenset(
    {"useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName"}
    # Here as if they were on: a key is stored, tickets are renewed, and no password is asked for.
    | {"storeKey", "renewTGT", "doNotPrompt", "refreshKrb5Config"}
)
DELEGATION: Final = "tokenauth"
"""Of ScramLoginModule: the user is the id of a delegation token, and the password its HMAC (KIP-48)."""
EXTENSION: Final = "extension_"
"""Prefix of the OAUTHBEARER extensions (KIP-342), such as ``extension_logicalCluster``."""

_MODULES: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "PlainLoginModule": (PLAIN_OPTIONS, "PLAIN"),
    "ScramLoginModule": (PLAIN_OPTIONS | {DELEGATION}, "SCRAM"),
    "OAuthBearerLoginModule": (OAUTH_OPTIONS, "OAUTHBEARER"),
    "IAMLoginModule": (frozenset(), "AWS_MSK_IAM"),
    "Krb5LoginModule": (KERBEROS_OPTIONS, "GSSAPI"),
}

_OF_OTHER_HANDLERS: Final = ("oauth.", "unsecured")
"""Options of Strimzi's callback handler, and of Kafka's for tests, by which they get the token."""


class UnsupportedLogin(ValueError):
    """A login that Java has, and this client does not."""


@dataclass(frozen=True, slots=True)
class JaasLine:
    """One login module: ``family`` is PLAIN, SCRAM, OAUTHBEARER, AWS_MSK_IAM or GSSAPI; ``options`` follow it.

    ``ignored`` of them mean nothing to the module: Java's modules read the options that they know, and no others.
    """

    family: str
    options: Mapping[str, str] = field(repr=False)
    ignored: int = 0


def parse_jaas(text: str) -> JaasLine:
    """Parse the login module of ``text``. Raises ValueError with the problem, without any value.

    It is UnsupportedLogin if Java would log in.
    """
    head = _HEAD.match(text)
    if head is None or head[2].lower() not in _FLAGS:
        raise ValueError('must be: LoginModule required username="..." password="...";')
    name = head[1].rpartition(".")[2]
    if name not in _MODULES:
        raise ValueError(f"only {', '.join(_MODULES)} are supported")
    known, family = _MODULES[name]
    options, rest = _options(text[head.end() :])
    if rest.strip() != ";":
        raise ValueError("after the options, which are key=\"value\", there must be one ';' and nothing else")
    unknown = [key for key in options if key not in known]
    if family == "AWS_MSK_IAM" and any(key.startswith(("awsProfile", "awsRole", "awsSts")) for key in unknown):
        raise UnsupportedLogin("its options (aws...) are not supported: set AWS_PROFILE to the profile")
    if family == "OAUTHBEARER":
        unknown = [key for key in unknown if not key.startswith(EXTENSION)]
        if any(key.startswith(_OF_OTHER_HANDLERS) for key in unknown):
            raise UnsupportedLogin(
                "its options are those of another callback handler (oauth.*, unsecured*): set instead "
                "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.credentials.client.id and .secret"
            )
    return JaasLine(family, options, len(unknown))


def _options(text: str) -> tuple[dict[str, str], str]:
    options: dict[str, str] = {}
    while (found := _OPTION.match(text)) is not None:
        key, double, single, bare = found.groups()
        quoted = double if double is not None else single
        if key in options:
            raise ValueError(f"the option {key} is given twice")
        options[key] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        text = text[found.end() :]
    return options, text
