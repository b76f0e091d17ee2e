"""Random resources of Strimzi: the fields of KafkaMirrorMaker2 in v1beta2 and v1, and some that it does not have."""

from __future__ import annotations

import random
from typing import Any, Final

Tree = dict[str, Any]

_SECRET: Final = {"secretName": "s", "key": "k"}
_CERTIFICATE: Final = {"secretName": "c", "certificate": "ca.crt"}
_OAUTH: Final[Tree] = {
    "tokenEndpointUri": "https://login.example.org/token",
    "clientId": "me",
    "clientSecret": _SECRET,
    "scope": "read",
    "audience": "kafka",
    "accessToken": _SECRET,
    "accessTokenLocation": "/var/token",
    "refreshToken": _SECRET,
    "clientAssertion": _SECRET,
    "clientAssertionLocation": "/var/jwt",
    "clientAssertionType": "urn:jwt",
    "grantType": "client_credentials",
    "saslExtensions": {"pool": "p"},
    "tlsTrustedCertificates": [_CERTIFICATE],
    "disableTlsHostnameVerification": True,
    "connectTimeoutSeconds": 1,
    "readTimeoutSeconds": 1,
    "httpRetries": 1,
    "httpRetryPauseMs": 1,
    "maxTokenExpirySeconds": 1,
    "accessTokenIsJwt": False,
    "enableMetrics": True,
    "includeAcceptHeader": False,
    "fieldOfLaterRelease": {"a": [1, "b"]},
}
_USUAL: Final = ("tokenEndpointUri", "clientId", "clientSecret")
_LOGINS: Final[list[Tree]] = [
    {"type": "plain", "username": "u", "passwordSecret": {"secretName": "s", "password": "p"}},
    {"type": "scram-sha-512", "username": "u", "passwordSecret": {"secretName": "s", "password": "p"}, "other": 1},
    {"type": "tls", "certificateAndKey": {"secretName": "s", "certificate": "user.crt", "key": "user.key"}},
    {"type": "custom", "sasl": True, "config": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "${env:LINE}"}},
]
_CONFIG: Final[Tree] = {
    "replication.factor": -1,
    "sync.topic.acls.enabled": "false",
    "sync.topic.configs.enabled": False,
    "refresh.topics.interval.seconds": 30,
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "replication.policy.separator": "",
    "topics.blacklist": "secret.*",
    "topics.exclude": "x",
    "offset-syncs.topic.replication.factor": -1,
    "consumer.fetch.max.bytes": 1000,
    "producer.override.linger.ms": 5,
    "no.such.key": "x",
    "nested": {"a": 1},
    "listed": ["a", "b"],
    "sync.group.offsets.enabled": True,
    "groups.exclude": "x",
    "emit.checkpoints.interval.seconds": 20,
}
_OF_CLUSTERS: Final[Tree] = {
    "producer.batch.size": 3000,
    "client.id": "me",
    "ssl.cipher.suites": "X",
    "ssl.endpoint.identification.algorithm": "",
    "offset.storage.replication.factor": -1,
    "exactly.once.source.support": "enabled",
    "no.such.key": 1,
    "nested": {"a": [1]},
}
_OF_MIRRORS: Final[Tree] = {
    "topicsPattern": "orders",
    "topicsExcludePattern": "a",
    "topicsBlacklistPattern": "b",
    "groupsPattern": ".*",
    "groupsExcludePattern": "c",
    "groupsBlacklistPattern": "d",
    "fieldOfLaterRelease": 1,
}
_OF_CONNECTORS: Final[Tree] = {
    "tasksMax": 3,
    "state": "running",
    "pause": True,
    "autoRestart": {"enabled": True, "maxRestarts": 3},
    "listOffsets": {"toConfigMap": {"name": "x"}},
}
_OF_PODS: Final[Tree] = {
    "version": "4.1.0",
    "replicas": 3,
    "resources": {"requests": {"cpu": 1, "memory": "2Gi"}},
    "logging": {"type": "inline", "loggers": {"rootLogger.level": "INFO"}},
    "template": {"pod": {"tolerations": [{"key": "a"}]}},
    "rack": {"topologyKey": "zone"},
    "metricsConfig": {"type": "jmxPrometheusExporter"},
}


def _some(rng: random.Random, fields: Tree, share: float = 0.4) -> Tree:
    return {key: value for key, value in fields.items() if rng.random() < share}


def resource(rng: random.Random) -> Tree:
    """Return a resource."""
    spec = _some(rng, _OF_PODS)
    names = ["near", "far", "third"]
    clusters = [_cluster(rng, name) for name in names]
    if is_v1 := rng.random() < 0.4:
        spec["target"] = clusters[1] | _some(
            rng, {"groupId": "g", "offsetStorageTopic": "o", "statusStorageTopic": "s"}
        )
    else:
        spec |= {"connectCluster": "far", "clusters": clusters}
    ends: list[Tree] = [{"source": clusters[0]}] if is_v1 else [{"sourceCluster": "near", "targetCluster": "far"}]
    if not is_v1 and rng.random() < 0.3:
        ends.append({"sourceCluster": "far", "targetCluster": "near"})
    spec["mirrors"] = [end | _some(rng, _OF_MIRRORS) | _connectors(rng) for end in ends]
    metadata = {"name": "copy", "namespace": "streams", "annotations": {"a": "b"}}
    found: Tree = {"kind": "KafkaMirrorMaker2", "apiVersion": "kafka.strimzi.io/v1", "metadata": metadata, "spec": spec}
    return found | _some(rng, {"status": {"conditions": [{"type": "Ready"}]}})


def _connectors(rng: random.Random) -> Tree:
    names = ["sourceConnector", *(name for name in ("checkpointConnector", "heartbeatConnector") if rng.random() < 0.5)]
    return {name: {"config": _some(rng, _CONFIG, 0.3)} | _some(rng, _OF_CONNECTORS) for name in names}


def _cluster(rng: random.Random, name: str) -> Tree:
    found: Tree = {"alias": name, "bootstrapServers": f"{name}:9092", "config": _some(rng, _OF_CLUSTERS)}
    if rng.random() < 0.5:
        found["tls"] = rng.choice([{}, {"trustedCertificates": [_CERTIFICATE]}, {"fieldOfLaterRelease": 1}])
    if rng.random() < 0.5:
        found["authentication"] = rng.choice([*_LOGINS, _oauth(rng), _oauth(rng)])
    return found | _some(rng, {"fieldOfLaterRelease": [{"a": 1}]}, 0.2)


def _oauth(rng: random.Random) -> Tree:
    return {"type": "oauth"} | {key: _OAUTH[key] for key in _USUAL} | _some(rng, _OAUTH, rng.choice([0.1, 0.5]))
