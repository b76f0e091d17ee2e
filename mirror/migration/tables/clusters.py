"""The table of a cluster, from the settings by which MirrorMaker 2's clients connect to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.auth.jaas import UnsupportedLogin, parse_jaas
from mirror.cluster.auth.kerberos_settings import SERVICE
from mirror.cluster.auth.oauth_settings import PROVIDER
from mirror.cluster.auth.security import GSSAPI, MECHANISMS, PROTOCOLS
from mirror.config.schema import CLUSTER_KEYS, is_secret
from mirror.migration import known_keys
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting, Settings, default
from mirror.migration.precedence import items
from mirror.migration.references import how_to_set, references, secrets_file
from mirror.migration.tables import equivalents
from mirror.migration.tables.document import Table

_SCHEME: Final = re.compile(r"(?:(\w+)://)?(.*)", re.DOTALL)
_OF_KAFKA: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS: Final[Mapping[str, frozenset[str]]] = {
    "sasl.client.callback.handler.class": frozenset({"software.amazon.msk.auth.iam.IAMClientCallbackHandler"}),
    "sasl.login.callback.handler.class": frozenset(
        {f"{_OF_KAFKA}.OAuthBearerLoginCallbackHandler", f"{_OF_KAFKA}.secured.OAuthBearerLoginCallbackHandler"}
    ),
}
"""The handlers of Java that do what the client here does for the mechanism."""
_PROVIDERS: Final[Mapping[tuple[str, str], str]] = {
    ("sasl.login.callback.handler.class", "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"): "gcp",
}
"""The handlers of Java whose tokens a provider of this package gives."""
_STORE_TYPES: Final = frozenset({"ssl.keystore.type", "ssl.truststore.type"})


@dataclass(slots=True)
class Cluster:
    """A mapped cluster."""

    name: str
    table: Table
    findings: list[Finding] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """The contents of files in the secrets folder, by name."""
    placeholders: dict[str, str] = field(default_factory=dict)
    """Values for the keys that are references, by which the configuration can be checked."""
    obstacles: list[str] = field(default_factory=list)
    """Why the cluster cannot be connected to."""


def map_cluster(name: str, settings: Settings) -> Cluster:
    """Return the table of cluster ``name``; ``settings`` are by the clients' keys."""
    cluster = Cluster(name, Table(("clusters", name)))
    protocol = settings.get("security.protocol", default("security.protocol", "PLAINTEXT"))
    secured = protocol.value.strip().upper()
    cluster.obstacles += _obstacles(name, settings, protocol)
    if secured.startswith("SASL_") and _mechanism(settings).value.strip() == GSSAPI:
        _say_how_kerberos_logs_in(cluster, settings)
    for key, setting in sorted(settings.items(), key=lambda item: (item[0] != "bootstrap.servers", item[1].line)):
        if _is_unused(key, secured, settings):
            meaning = f"security.protocol is {secured}, which does not use it"
            cluster.findings.append(about(Kind.IGNORED, setting, meaning, "remove it, or set security.protocol"))
        elif key in _HANDLERS and setting.value.strip() in _HANDLERS[key]:
            cluster.findings.append(about(Kind.NOT_NEEDED, setting, "the mechanism is enough here"))
        elif (provider := _PROVIDERS.get((key, setting.value.strip()))) is not None:
            cluster.table.add(PROVIDER, provider, setting)
        elif key not in CLUSTER_KEYS:
            found = equivalents.CLIENT[""] if key not in known_keys.CLIENT else equivalents.of_client(key)
            cluster.findings.append(about(found.kind, setting, found.meaning, found.action))
        else:
            _add(cluster, key, setting, secured, _mechanism(settings).value.strip())
    return cluster


def _say_how_kerberos_logs_in(cluster: Cluster, settings: Settings) -> None:
    if "sasl.mechanism" not in settings:
        cluster.table.add("sasl.mechanism", GSSAPI, _mechanism(settings))
    line = settings.get("sasl.jaas.config")
    if line is not None and references(line) and SERVICE not in settings:
        cluster.placeholders[SERVICE] = "kafka"  # the line may have it
    if line is None:
        how = "set sasl.kerberos.keytab and .principal; without them, the ticket is that of kinit"
        meaning = "the login is in a file of the JVM (java.security.auth.login.config)"
        cluster.findings.append(about(Kind.TO_DO, _mechanism(settings), meaning, how))


def _obstacles(name: str, settings: Settings, protocol: Setting) -> Iterator[str]:
    """Yield why our client cannot connect to the cluster."""
    secured = protocol.value.strip().upper()
    if "bootstrap.servers" not in settings:
        yield f"cluster {name} has no bootstrap.servers"
    if secured not in PROTOCOLS and not references(protocol):
        yield f"{protocol.origin} is no security.protocol"
    mechanism = _mechanism(settings)
    named = mechanism.value.strip()
    if secured.startswith("SASL_") and named not in MECHANISMS and not references(mechanism):
        yield f"{mechanism.origin} is {named}, and only {', '.join(MECHANISMS)} are supported"
    line = settings.get("sasl.jaas.config")
    if secured.startswith("SASL_") and line is not None and references(line):
        try:
            parse_jaas(line.value)
        except UnsupportedLogin as error:
            yield f"{line.origin}: {error}"
        except ValueError:  # Its references may be the whole line.
            return


def _mechanism(settings: Settings) -> Setting:
    return settings.get("sasl.mechanism", default("sasl.mechanism", GSSAPI))


def _is_unused(key: str, protocol: str, settings: Settings) -> bool:
    if key.startswith("sasl."):
        return not protocol.startswith("SASL_")
    has_endpoint = protocol.startswith("SASL_") and "sasl.oauthbearer.token.endpoint.url" in settings
    return key.startswith("ssl.") and not protocol.endswith("SSL") and not has_endpoint


def _add(cluster: Cluster, key: str, setting: Setting, protocol: str, mechanism: str) -> None:
    path = ("clusters", cluster.name, key)
    if references(setting):
        how = how_to_set(path, setting)
        cluster.table.add(key, None, setting, f"is not in this file: {how}")
        cluster.findings.append(about(Kind.TO_DO, setting, "the reference is not resolved", how))
        cluster.placeholders[key] = _placeholder(key, mechanism)
    elif is_secret(path):
        if not setting.value.strip():
            return
        if key == "sasl.jaas.config":
            _say_what_is_ignored(cluster, setting)
        cluster.secrets[secrets_file(path)] = setting.value.strip()
        cluster.table.add(key, None, setting, f"is in the secrets file {secrets_file(path)}")
    else:
        value = setting.value.strip()
        if key == "security.protocol":
            value = protocol
        elif key == "bootstrap.servers":
            value = _addresses(cluster, setting, protocol)
        elif key == "ssl.endpoint.identification.algorithm":
            value = value.lower()
        elif key in _STORE_TYPES:
            value = value.upper()
        cluster.table.add(key, value, setting)


def _say_what_is_ignored(cluster: Cluster, setting: Setting) -> None:
    try:
        ignored = parse_jaas(setting.value).ignored
    except ValueError:  # The configuration is not written then, and the loader's problem is named.
        return
    if ignored:
        meaning = f"its login module ignores {ignored} of its options, here as in Java"
        cluster.findings.append(about(Kind.NOT_NEEDED, setting, meaning))


def _addresses(cluster: Cluster, setting: Setting, protocol: str) -> str:
    """Return the addresses without the scheme that Java passes over (``Utils.getHost``): ``PLAINTEXT://host:port``."""
    servers = [_SCHEME.fullmatch(server) for server in items(setting)]
    schemes = {found[1].upper() for found in servers if found and found[1]}
    if schemes:
        action = "" if schemes == {protocol} else f"set security.protocol if it is not {protocol}"
        kind = Kind.CHANGED if action else Kind.NOT_NEEDED
        meaning = f"clients pass over the scheme {', '.join(sorted(schemes))} of an address"
        cluster.findings.append(about(kind, setting, meaning, action))
    return ",".join(found[2] for found in servers if found and found[2]) if schemes else setting.value.strip()


def _placeholder(key: str, mechanism: str) -> str:
    plain = 'PlainLoginModule required username="x" password="x";'
    lines = {
        "SCRAM": plain.replace("Plain", "Scram"),
        "OAUTH": "OAuthBearerLoginModule required;",
        "AWS_M": "IAMLoginModule required;",
        "GSSAP": "Krb5LoginModule required useTicketCache=true;",
    }
    return {
        "bootstrap.servers": "placeholder:9092",
        "sasl.jaas.config": lines.get(mechanism[:5], plain),
        "sasl.mechanism": "PLAIN",
        "security.protocol": "PLAINTEXT",
        "sasl.oauthbearer.token.endpoint.url": "https://placeholder/token",
    }.get(key, "x")
