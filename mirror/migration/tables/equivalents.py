"""What becomes of the settings that have no key in our configuration: a table, by key or by the beginning of a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mirror.migration.findings import Kind

_CONNECT: Final = "Kafka Connect's own storage and workers are not there: Spark runs the copies"


class Remark(NamedTuple):
    """What a setting means to MirrorMaker 2 and here, and what to do."""

    kind: Kind
    meaning: str
    action: str = ""


def _none(meaning: str, action: str = "") -> Remark:
    return Remark(Kind.NO_EQUIVALENT, meaning, action)


def _unneeded(meaning: str, action: str = "") -> Remark:
    return Remark(Kind.NOT_NEEDED, meaning, action)


CONNECTOR: Final[Mapping[str, Remark]] = {
    "sync.topic.": _unneeded("sync-interval-ms is the interval of configurations and ACLs"),
    "config.properties.exclude": _unneeded("configs-exclude has such a default, too"),
    "config.property.filter.class": _none("configurations are chosen by configs-exclude and configs-overrides"),
    "use.defaults.from": _none(
        "defaults of the source's brokers are never copied, and what is set on the target alone stays",
        "write them in configs-overrides",
    ),
    "topic.filter.class": _none("topics are chosen by regular expressions only", "write them as topics"),
    "group.filter.class": _none("groups are chosen by regular expressions only", "write them as include and exclude"),
    "offset-syncs.": _unneeded("offsets are translated from the flow's own index, exactly; see mirror offsets"),
    "offset.lag.max": _unneeded("every offset is translated exactly"),
    "emit.offset-syncs.enabled": _unneeded("the index of offsets is always written"),
    "checkpoints.topic.replication.factor": _none("the topic of checkpoints has the target's default replication"),
    "heartbeats.topic.replication.factor": _none("the topic of heartbeats has the source's default replication"),
    "emit.heartbeats.interval.seconds": _none("a stream writes a heartbeat every second, and a run one"),
    "emit.checkpoints.interval.seconds": _unneeded("interval-ms of the table groups is the shorter of both"),
    "sync.group.offsets.interval.seconds": _unneeded("interval-ms of the table groups is the shorter of both"),
    "refresh.groups.": _none("new groups are found within a second, in each round of the table groups"),
    "tasks.max": _unneeded("Spark's master says how many tasks run at once (local[*,4] is the default)"),
    "consumer.poll.timeout.ms": _unneeded("a task reads without waiting in polls"),
    "admin.timeout.ms": _none("calls to a cluster are limited by its default.api.timeout.ms", "set that if need be"),
    "metric": _none("metrics are those of OpenTelemetry", "see config/dashboards/README.md"),
    "forwarding.admin.class": _none(
        "topics are created on the target itself", "if another system creates them, let it do so before the first run"
    ),
    "replication.policy.internal.topic.separator.enabled": _none("internal topics of this project have fixed names"),
    "replication.policy.separator": _unneeded("the separator is a dot"),
    "errors.": _none("what happens to records that cannot be copied is said by on-gap, on-too-large, on-no-key"),
    "key.converter": _unneeded("records are copied as bytes"),
    "value.converter": _unneeded("records are copied as bytes"),
    "header.converter": _unneeded("headers are copied as bytes"),
    "predicates": _none("there are no predicates of transforms", "a transform may be a Python function"),
    "transaction.boundary": _none("a transaction is committed as commit-interval-ms and commit-min-interval-ms say"),
    "exactly.once.support": _unneeded("delivery says whether a flow is exactly once"),
    "offsets.storage.topic": _unneeded("progress is kept on the target, in the flow's own topic and groups"),
    "topic.creation.": _none("topics are created with the source's configuration and replication-factor"),
    "config.action.reload": _unneeded("a configuration is read when a run begins"),
    "config.providers": _unneeded("values come from the environment or the secrets folder"),
    "state": _none("the connector is paused or stopped, and the flow is not", "run the flow when it is to copy"),
    "connector.": _unneeded(_CONNECT),
    "name": _unneeded("a flow is named by its table"),
    "target.producer.": _none("of MirrorMaker 2's own clients on the target, not of the one that writes the records"),
    "target.consumer.": _none("of MirrorMaker 2's own clients on the target, not of the one that reads the source"),
    "producer.": _unneeded("of the producer of offset syncs only, which is not needed here"),
    "source.producer.": _unneeded("of the producer of offset syncs only, which is not needed here"),
    "admin.": _none("admin clients have the settings of their cluster", "set the key in the cluster's table"),
    "source.admin.": _none("admin clients have the settings of their cluster", "set the key in the cluster's table"),
    "target.admin.": _none("admin clients have the settings of their cluster", "set the key in the cluster's table"),
}
"""Of a connector. The longest beginning that fits applies."""

WORKER: Final[Mapping[str, Remark]] = {
    "offset.flush.": _none("progress is committed as commit-interval-ms says", "set that if need be"),
    "offset.storage.": _unneeded(_CONNECT),
    "config.storage.": _unneeded(_CONNECT),
    "status.storage.": _unneeded(_CONNECT),
    "exactly.once.source.support": _unneeded("delivery says whether a flow is exactly once"),
    "dedicated.mode.enable.internal.rest": _unneeded(_CONNECT),
    "listeners": _unneeded(_CONNECT),
    "rest.": _unneeded(_CONNECT),
    "plugin.": _unneeded(_CONNECT),
    "connector.client.config.override.policy": _unneeded(_CONNECT),
    "task.": _unneeded(_CONNECT),
    "worker.": _unneeded(_CONNECT),
    "scheduled.rebalance.": _unneeded(_CONNECT),
    "session.timeout.ms": _unneeded(_CONNECT),
    "heartbeat.interval.ms": _unneeded(_CONNECT),
    "rebalance.timeout.ms": _unneeded(_CONNECT),
    "inter.worker.": _unneeded(_CONNECT),
    "group.id": _unneeded(_CONNECT),
    "client.id": _none("the client's name has a default here", "set client.id in the cluster's table"),
    "producer.": _none("it is none of the settings of the producer that a copy has"),
    "consumer.": _none("it is none of the settings of the consumer that a copy has"),
    "admin.": _none("admin clients have the settings of their cluster", "set the key in the cluster's table"),
}
"""Of a worker, and of the cluster that it writes to."""

CLIENT: Final[Mapping[str, Remark]] = {
    "ssl.": _none("TLS is Python's: its protocols, ciphers and random numbers are those of OpenSSL"),
    "sasl.kerberos.": _none(
        "a ticket for a keytab is renewed after 80% of its lifetime; others must renew that of a cache"
    ),
    "sasl.login.callback.handler.class": _none("there are no callback handlers", "set the keys of sasl.oauthbearer"),
    "sasl.client.callback.handler.class": _none(
        "there are no callback handlers", "set sasl.username and sasl.password"
    ),
    "sasl.login.": _none("a token is renewed before it expires, without settings"),
    "sasl.oauthbearer.jwt.": _none(
        "the keys that are set show where a token comes from", "check the keys of sasl.oauthbearer"
    ),
    "sasl.": _none("the client has no such setting", "see the key table of clusters in config/README.md"),
    "max.in.flight.requests.per.connection": _none("at most 5 are in flight, in order"),
    "key.serializer": _unneeded("records are copied as bytes"),
    "value.serializer": _unneeded("records are copied as bytes"),
    "key.deserializer": _unneeded("records are copied as bytes"),
    "value.deserializer": _unneeded("records are copied as bytes"),
    "interceptor.classes": _none("there are no interceptors", "traces are those of OpenTelemetry"),
    "partitioner.": _unneeded("a record stays in the partition that it has on the source"),
    "compression.": _none("a codec is chosen without a level"),
    "enable.auto.commit": _unneeded("progress is committed on the target"),
    "group.": _unneeded("partitions are assigned by Spark"),
    "max.poll.": _unneeded("a task reads batches, not records"),
    "metric": _none("metrics are those of OpenTelemetry", "see config/dashboards/README.md"),
    "send.buffer.bytes": _none("the sizes of sockets' buffers are the system's"),
    "receive.buffer.bytes": _none("the sizes of sockets' buffers are the system's"),
    "client.dns.lookup": _none("all addresses of a name are tried"),
    "": _none("the client has no such setting"),
}
"""Of a client that reads, writes or administers."""


def of_client(key: str) -> Remark:
    """Return the remark about a client's key that has no equivalent."""
    return remark(CLIENT, key) or CLIENT[""]


def remark(table: Mapping[str, Remark], key: str) -> Remark | None:
    """Return the remark about a key: that of the longest beginning that fits."""
    fits = [begin for begin in table if key.startswith(begin)]
    return table[max(fits, key=len)] if fits else None
