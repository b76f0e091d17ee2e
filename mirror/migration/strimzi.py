"""Strimzi's KafkaMirrorMaker2: the connectors that its operator makes of it, for the API versions v1beta2 and v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mirror.migration.connectors import Connector, settings_of
from mirror.migration.parsing.entries import Setting, default
from mirror.migration.parsing.nodes import Node
from mirror.migration.precedence import CHECKPOINT, HEARTBEAT, SOURCE

KIND: Final = "KafkaMirrorMaker2"
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_CONNECTORS: Final = (
    (SOURCE, "sourceConnector"),
    (CHECKPOINT, "checkpointConnector"),
    (HEARTBEAT, "heartbeatConnector"),
)
_PATTERNS: Final = {
    "topicsPattern": "topics",
    "topicsBlacklistPattern": "topics.exclude",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsBlacklistPattern": "groups.exclude",
    "groupsExcludePattern": "groups.exclude",
}
_WORKER: Final = {
    "groupId": "group.id",
    "offsetStorageTopic": "offset.storage.topic",
    "configStorageTopic": "config.storage.topic",
    "statusStorageTopic": "status.storage.topic",
}
"""Of the API version v1."""
_LOGINS: Final = {
    "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "scram-sha-512": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


def connectors(resource: Node) -> Iterator[Connector]:
    """Yield the connectors of a resource."""
    spec = resource.get("spec")
    namespace = resource.get("metadata", "namespace").text or "NAMESPACE"
    clusters = {cluster.get("alias").text or "": cluster for cluster in spec.get("clusters").items}
    for number, mirror in enumerate(spec.get("mirrors").items):
        source, target = mirror.get("source"), spec.get("target")
        if not source.entries:
            source = clusters.get(mirror.get("sourceCluster").text or "", Node(mirror.line))
        if not target.entries:
            target = clusters.get(mirror.get("targetCluster").text or "", Node(mirror.line))
        ends = _cluster(source, "source", namespace) | _cluster(target, "target", namespace)
        for kind, name in _CONNECTORS:
            if (connector := mirror.get(name)).entries or name in mirror.entries:
                config = ends | _config(kind, mirror, connector, number, name)
                yield Connector(kind, config, _worker(target))


def _worker(target: Node) -> dict[str, Setting]:
    prefix = f"clusters.{target.get('alias').text}."
    found = settings_of(target.get("config"), f"{prefix}config.")
    for name, key in _WORKER.items():
        if (value := target.get(name)).text is not None:
            found[key] = Setting(value.text, value.line, prefix + name)
    return found


def _config(kind: str, mirror: Node, connector: Node, number: int, name: str) -> dict[str, Setting]:
    place = f"spec.mirrors[{number}]."
    found = settings_of(connector.get("config"), f"{place}{name}.config.")
    for key, pattern in _PATTERNS.items():
        if (value := mirror.get(key)).text is not None:
            found[pattern] = Setting(value.text, value.line, place + key)
    if (tasks := connector.get("tasksMax")).text is not None:
        found["tasks.max"] = Setting(tasks.text, tasks.line, f"{place}{name}.tasksMax")
    for key in ("state", "pause"):
        if (value := connector.get(key)).text in {"paused", "stopped", "true"}:
            found["state"] = Setting(value.text or "", value.line, f"{place}{name}.{key}")
    found["connector.class"] = default("connector.class", _PACKAGE + kind)
    return found


def _cluster(cluster: Node, end: str, namespace: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    alias, servers = cluster.get("alias"), cluster.get("bootstrapServers")
    prefix = f"clusters.{alias.text}."
    if alias.text is not None:
        found["alias"] = Setting(alias.text, alias.line, f"{prefix}alias")
    if servers.text is not None:
        found["bootstrap.servers"] = Setting(servers.text, servers.line, f"{prefix}bootstrapServers")
    found |= _security(cluster, prefix, namespace)
    found |= settings_of(cluster.get("config"), f"{prefix}config.")
    return {f"{end}.cluster.{key}": setting for key, setting in found.items()}


def _security(cluster: Node, prefix: str, namespace: str) -> dict[str, Setting]:
    tls, login = cluster.entries.get("tls"), cluster.get("authentication")
    found: dict[str, Setting] = {}
    certificates = tls.get("trustedCertificates").items if tls is not None else ()
    if certificates:
        names = "".join(_reference(one, "certificate", namespace) for one in certificates)
        key = f"{prefix}tls.trustedCertificates"
        found["ssl.truststore.certificates"] = Setting(names, certificates[0].line, key)
    for key, value in _login(login, namespace).items():
        found[key] = Setting(value, login.line, f"{prefix}authentication as {key}")
    if login.get("type").text == "custom":
        found |= settings_of(login.get("config"), f"{prefix}authentication.config.")
    secured = "SSL" if tls is not None else "PLAINTEXT"
    if "sasl.mechanism" in found or login.get("sasl").text == "true":
        secured = "SASL_SSL" if tls is not None else "SASL_PLAINTEXT"
    found["security.protocol"] = Setting(secured, cluster.line, f"{prefix}tls and authentication")
    return found


def _login(login: Node, namespace: str) -> dict[str, str]:
    """Return Kafka's keys of an authentication, but of the type custom, which has them itself."""
    method = login.get("type").text or ""
    if method == "tls":
        pair = login.get("certificateAndKey")
        return {
            "ssl.keystore.certificate.chain": _reference(pair, "certificate", namespace),
            "ssl.keystore.key": _reference(pair, "key", namespace),
        }
    if method in _LOGINS:
        mechanism, module = _LOGINS[method]
        password = _reference(login.get("passwordSecret"), "password", namespace)
        user = login.get("username").text or ""
        line = f'{module} required username="{user}" password="{password}";'
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": line}
    if method == "oauth":
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": login.get("tokenEndpointUri").text or "",
            "sasl.oauthbearer.client.credentials.client.id": login.get("clientId").text or "",
            "sasl.oauthbearer.client.credentials.client.secret": _reference(
                login.get("clientSecret"), "key", namespace
            ),
        }
    return {}


def _reference(secret: Node, key: str, namespace: str) -> str:
    name, inside = secret.get("secretName").text or "", secret.get(key).text or secret.get("pattern").text or ""
    return f"${{strimzisecrets:{namespace}/{name}:{inside}}}"
