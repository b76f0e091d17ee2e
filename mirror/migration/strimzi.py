"""Strimzi's KafkaMirrorMaker2: the connectors that its operator makes of it, for the API versions v1beta2 and v1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mirror.migration.connectors import NOT_RUNNING, Connector
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting, default
from mirror.migration.parsing.nodes import Node
from mirror.migration.precedence import CHECKPOINT, HEARTBEAT, SOURCE
from mirror.migration.reader import Reader
from mirror.migration.strimzi_login import Login, reference

KIND: Final = "KafkaMirrorMaker2"
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_CONNECTORS: Final = (
    (SOURCE, "sourceConnector"),
    (CHECKPOINT, "checkpointConnector"),
    (HEARTBEAT, "heartbeatConnector"),
)
_MIRROR_FIELD: Final = re.compile(r"spec\.mirrors\[\d+\]\.(?!\w+Connector\b|source\b)")
"""Where a mirror has a field of its own. Such a field that nothing reads is none of the resource's definition."""
_PATTERNS: Final = {
    "topics": ("topicsPattern",),
    "topics.exclude": ("topicsExcludePattern", "topicsBlacklistPattern"),
    "groups": ("groupsPattern",),
    "groups.exclude": ("groupsExcludePattern", "groupsBlacklistPattern"),
}
"""Of two of the same key the first one applies."""
_WORKER: Final = {
    "groupId": "group.id",
    "offsetStorageTopic": "offset.storage.topic",
    "configStorageTopic": "config.storage.topic",
    "statusStorageTopic": "status.storage.topic",
}
"""Of the API version v1."""
_OF_PODS: Final = "of the pods that the operator runs, which are not there: Spark runs the copies"


class Resource:
    """Reads one resource; ``reader`` is at its root."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._namespace = reader.node.get("metadata", "namespace").text or "NAMESPACE"
        self._ends: dict[str, tuple[dict[str, Setting], dict[str, Setting]]] = {}
        self.findings: list[Finding] = []

    def connectors(self) -> Iterator[Connector]:
        """Yield the connectors of the resource."""
        spec = self._reader["spec"]
        spec["connectCluster"].text()
        clusters = {cluster["alias"].text() or "": cluster for cluster in spec["clusters"].items()}
        for mirror in spec["mirrors"].items():
            nothing = Reader(Node(mirror.node.line))
            source, target = mirror["source"], spec["target"]
            if not source.node.entries:
                source = clusters.get(mirror["sourceCluster"].text() or "", nothing)
            if not target.node.entries:
                target = clusters.get(mirror["targetCluster"].text() or "", nothing)
            of_source, of_target = self._cluster(source), self._cluster(target)
            ends = {
                f"{end}.cluster.{key}": setting
                for end, found in (("source", of_source[0]), ("target", of_target[0]))
                for key, setting in found.items()
            }
            for kind, name in _CONNECTORS:
                if name in mirror:
                    yield Connector(kind, ends | self._config(kind, mirror, mirror[name]), of_target[1])
        for cluster in clusters.values():
            if cluster.path not in self._ends:
                cluster.pass_over()
                setting = cluster.setting("")
                self.findings.append(about(Kind.NOT_NEEDED, setting, "no mirror copies from this cluster or to it"))

    def _cluster(self, cluster: Reader) -> tuple[dict[str, Setting], dict[str, Setting]]:
        """Return how clients connect to a cluster, and the settings of workers that write to it."""
        if cluster.path not in self._ends:
            self._ends[cluster.path] = self._read_cluster(cluster)
        return self._ends[cluster.path]

    def _read_cluster(self, cluster: Reader) -> tuple[dict[str, Setting], dict[str, Setting]]:
        found: dict[str, Setting] = {}
        for name, key in (("alias", "alias"), ("bootstrapServers", "bootstrap.servers")):
            if (value := cluster[name].text()) is not None:
                found[key] = cluster[name].setting(value)
        login = Login(cluster, self._namespace)
        config = cluster["config"].settings()
        found |= self._security(cluster, login)
        self._note_replaced(found, config)
        found |= config
        self.findings += login.findings
        worker = dict(config)
        for name, key in _WORKER.items():
            if (value := cluster[name].text()) is not None:
                worker[key] = cluster[name].setting(value)
        return found, worker

    def _security(self, cluster: Reader, login: Login) -> dict[str, Setting]:
        found = login.settings()
        certificates = cluster["tls"]["trustedCertificates"]
        if certificates.node.items:
            names = "".join(reference(one, "certificate", self._namespace) for one in certificates.items())
            own = found.get("ssl.truststore.certificates")
            found["ssl.truststore.certificates"] = certificates.setting(names + (own.value if own else ""))
        secured = "SSL" if "tls" in cluster else "PLAINTEXT"
        if login.is_sasl:
            secured = "SASL_SSL" if "tls" in cluster else "SASL_PLAINTEXT"
        found["security.protocol"] = cluster.setting(secured, "security.protocol")
        return found

    def _config(self, kind: str, mirror: Reader, connector: Reader) -> dict[str, Setting]:
        found = connector["config"].settings()
        own: dict[str, Setting] = {}
        for key, names in _PATTERNS.items():
            given = [mirror[name].setting(value) for name in names if (value := mirror[name].text()) is not None]
            own |= {key: given[0]} if given else {}
            for setting in given[1:]:
                self.findings.append(about(Kind.IGNORED, setting, f"{given[0].key} takes precedence", "remove it"))
        if (tasks := connector["tasksMax"].value()) is not None:
            own["tasks.max"] = connector["tasksMax"].setting(tasks)
        for key in ("state", "pause"):
            if connector.node.get(key).text in NOT_RUNNING and "state" not in own:
                own["state"] = connector[key].setting(connector[key].value() or "")
        self._note_replaced(found, own)
        return found | own | {"connector.class": default("connector.class", _PACKAGE + kind)}

    def _note_replaced(self, settings: dict[str, Setting], by: dict[str, Setting]) -> None:
        for key in settings.keys() & by.keys():
            meaning = f"line {by[key].line}, {by[key].key}, takes precedence"
            self.findings.append(about(Kind.IGNORED, settings[key], meaning, "remove one of them"))


def unread(part: Reader) -> Finding:
    """Return what is said of a part of a resource that no connector has."""
    setting = part.setting("")
    if _MIRROR_FIELD.search(part.path):
        meaning = "a mirror has no such field, and Kubernetes drops it, so that the connectors have their defaults"
        return about(Kind.IGNORED, setting, meaning, f"write it under {', '.join(field for _, field in _CONNECTORS)}")
    if ".config" in part.path and part.node.text is None:
        return about(Kind.REFUSED, setting, "a list or mapping is no value of a setting", "write a text, with commas")
    if ".authentication" in part.path or ".tls" in part.path:
        return about(Kind.NO_EQUIVALENT, setting, "no client that connects here has such a setting")
    if part.path.rpartition("spec.")[2].startswith(("mirrors[", "clusters[", "target.")):
        return about(Kind.NO_EQUIVALENT, setting, "nothing here has its effect")
    if ".spec." in f".{part.path}":
        return about(Kind.NOT_NEEDED, setting, _OF_PODS)
    return about(Kind.NOT_NEEDED, setting, "of Kubernetes, not of the connectors")
