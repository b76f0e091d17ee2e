"""The text of a first configuration: two clusters and a flow between them, with every secret outside of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mirror.cluster.auth.oauth_settings import CLIENT, URL
from mirror.cluster.auth.security import GSSAPI
from mirror.config.key_names import PREFIX, dotted, variable

_USER: Final = "sasl.username"
_OUTSIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "PLAIN": (_USER, "sasl.password"),
    "SCRAM-SHA-256": (_USER, "sasl.password"),
    "SCRAM-SHA-512": (_USER, "sasl.password"),
    "OAUTHBEARER": (URL, f"{CLIENT}.id", f"{CLIENT}.secret"),
}
"""What a mechanism needs beside the file."""


@dataclass(frozen=True, slots=True)
class FirstCluster:
    """What a first file says of a cluster; ``mechanism``, ``username`` and ``ca`` may be empty."""

    name: str
    bootstrap: str
    protocol: str
    mechanism: str = ""
    username: str = ""
    ca: str = ""
    """The file with the CA of its certificates; empty: the system knows it."""

    @property
    def has_tls(self) -> bool:
        """Whether its listener has certificates."""
        return self.protocol.endswith("SSL")

    @property
    def has_username(self) -> bool:
        """Whether the mechanism has a user's name."""
        return _USER in _OUTSIDE.get(self.mechanism, ())

    def outside(self) -> dict[str, str]:
        """Return the environment variable of each key that is to be set outside of the file."""
        keys = (key for key in _OUTSIDE.get(self.mechanism, ()) if key != _USER or not self.username)
        return {key: variable(("clusters", self.name, key)) for key in keys}

    def lines(self) -> Iterator[str]:
        """Yield the lines of its table."""
        yield f"[{dotted(('clusters', self.name))}]"
        values = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            _USER: self.username if self.has_username else "",
            "sasl.kerberos.service.name": "kafka" if self.mechanism == GSSAPI else "",
            "ssl.truststore.location": self.ca if self.has_tls else "",
        }
        yield from (f'"{key}" = {json.dumps(value)}' for key, value in values.items() if value)
        for key, name in self.outside().items():
            file = name.removeprefix(PREFIX).lower()
            yield f'# "{key}" is the variable {name}, or the file {file} in the folder of --secrets-dir'
        if self.has_tls and not self.ca:
            yield '# "ssl.truststore.location" = "/etc/mirror/ca.pem" # if the system does not know the brokers\' CA'


def first_file(source: FirstCluster, target: FirstCluster, topics: list[str]) -> str:
    """Return the text of the file."""
    flow = f"{source.name}-{target.name}".replace(".", "-")
    lines = [
        "# To have an editor complete this file: mirror config-schema > mirror.schema.json, and as the first line here",
        "# #:schema ./mirror.schema.json",
        "",
        *source.lines(),
        "",
        *target.lines(),
        "",
        f"[{dotted(('flows', flow))}]",
        f"source = {json.dumps(source.name)}",
        f"target = {json.dumps(target.name)}",
        f"topics = {json.dumps(topics)} # regular expressions that match whole names",
        'naming = "prefix" # or "identity", which gives topics the same names on the target',
    ]
    return "\n".join([*lines, ""])


def placeholders(*clusters: FirstCluster) -> dict[str, str]:
    """Return a valid value for each variable that the file needs, by which it can be checked before they are set."""
    return {name: "https://host/" if key == URL else "x" for one in clusters for key, name in one.outside().items()}
