"""The keys that MirrorMaker 2 of Apache Kafka 4.3 knows, and their defaults. A test compares them with its classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLIENT: Final = _names(
    """
    bootstrap.servers sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """
)
"""The keys by which its clients connect (``MirrorClientConfig``)."""

_COMMON: Final = _names(
    """
    admin.timeout.ms config.action.reload config.providers connector.class connector.plugin.version enabled
    errors.log.enable errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance
    forwarding.admin.class header.converter header.converter.plugin.version key.converter
    key.converter.plugin.version metric.reporters name predicates replication.policy.class
    replication.policy.internal.topic.separator.enabled replication.policy.separator source.cluster.alias
    target.cluster.alias tasks.max tasks.max.enforce transforms value.converter value.converter.plugin.version
    """
) | (CLIENT - {"bootstrap.servers"})

SOURCE: Final = _COMMON | _names(
    """
    config.properties.exclude config.property.filter.class consumer.poll.timeout.ms emit.offset-syncs.enabled
    heartbeats.replication.enabled metric.names.formats offset-syncs.topic.location
    offset-syncs.topic.replication.factor offset.lag.max refresh.topics.enabled refresh.topics.interval.seconds
    replication.factor sync.topic.acls.enabled sync.topic.acls.interval.seconds sync.topic.configs.enabled
    sync.topic.configs.interval.seconds topic.filter.class topics topics.exclude
    """
)
CHECKPOINT: Final = _COMMON | _names(
    """
    checkpoints.topic.replication.factor consumer.poll.timeout.ms emit.checkpoints.enabled
    emit.checkpoints.interval.seconds group.filter.class groups groups.exclude metric.names.formats
    offset-syncs.topic.location refresh.groups.enabled refresh.groups.interval.seconds sync.group.offsets.enabled
    sync.group.offsets.interval.seconds topic.filter.class
    """
)
HEARTBEAT: Final = _COMMON | _names(
    """
    emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor
    """
)
CONNECTORS: Final = SOURCE | CHECKPOINT | HEARTBEAT
"""The keys that are read at top level and after ``A->B.``."""

FORMER: Final[Mapping[str, str]] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
    "topics.whitelist": "topics",
    "groups.whitelist": "groups",
}
"""The present names of keys that MirrorMaker 2 does not read any more, or (``whitelist``) never did.

Before Kafka 4.0, which removed what KIP-629 had renamed, a ``blacklist`` counted where its present key was not set.
"""

CONNECTOR_PREFIXES: Final = (
    "source.",
    "target.",
    "producer.",
    "consumer.",
    "admin.",
    "transforms.",
    "predicates.",
    "topic.creation.",
    "config.providers",
    "replication.policy",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "exactly.once.support",
    "transaction.boundary",
    "offsets.storage.topic",
    "use.defaults.from",
)
"""The beginnings of keys that a connector reads beside these: of clients, of Connect, and of policies and filters."""

DEFAULTS: Final[Mapping[str, str]] = {
    "admin.timeout.ms": "60000",
    "checkpoints.topic.replication.factor": "3",
    "config.action.reload": "restart",
    "config.properties.exclude": "follower.replication.throttled.replicas,leader.replication.throttled.replicas,"
    "message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,"
    "message.timestamp.type,unclean.leader.election.enable,min.insync.replicas",
    "config.property.filter.class": "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter",
    "config.providers": "",
    "consumer.poll.timeout.ms": "1000",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "60",
    "emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "1",
    "emit.offset-syncs.enabled": "true",
    "enabled": "true",
    "errors.log.enable": "false",
    "errors.log.include.messages": "false",
    "errors.retry.delay.max.ms": "60000",
    "errors.retry.timeout": "0",
    "errors.tolerance": "none",
    "forwarding.admin.class": "org.apache.kafka.clients.admin.ForwardingAdmin",
    "group.filter.class": "org.apache.kafka.connect.mirror.DefaultGroupFilter",
    "groups": ".*",
    "groups.exclude": "console-consumer-.*,connect-.*,__.*",
    "heartbeats.replication.enabled": "true",
    "heartbeats.topic.replication.factor": "3",
    "metric.names.formats": "legacy",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "offset-syncs.topic.location": "source",
    "offset-syncs.topic.replication.factor": "3",
    "offset.lag.max": "100",
    "predicates": "",
    "refresh.groups.enabled": "true",
    "refresh.groups.interval.seconds": "600",
    "refresh.topics.enabled": "true",
    "refresh.topics.interval.seconds": "600",
    "replication.factor": "2",
    "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "replication.policy.internal.topic.separator.enabled": "true",
    "replication.policy.separator": ".",
    "sync.group.offsets.enabled": "false",
    "sync.group.offsets.interval.seconds": "60",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "600",
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "600",
    "target.cluster.alias": "target",
    "tasks.max": "1",
    "tasks.max.enforce": "true",
    "topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter",
    "topics": ".*",
    "topics.exclude": r"mm2.*\.internal,.*\.replica,__.*",
    "transforms": "",
}
"""The defaults of the connectors' own keys, where they have one, as text."""
