"""Topics and configurations: create, grow, delete, delete records, describe, change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.admin import (
    AlterConfigsResource,
    AlterConfigsResult,
    ConfigResource,
    CreatableTopic,
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_TOPIC, _BROKER = 2, 4
_SET_ON_TOPIC, _SET_ON_BROKER, _SET_ON_ALL_BROKERS, _DEFAULT = 1, 2, 3, 5
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "604800000"}
_SETTABLE = {"max.message.bytes", "min.compaction.lag.ms", "min.insync.replicas"}
"""Further keys of topics, without a default."""
_BROKER_DEFAULTS = {
    "log.retention.ms": "604800000",
    "log.cleaner.threads": "1",
    "producer.id.expiration.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "600000",
    "sasl.jaas.config": "",
}
_SECRETS = {"sasl.jaas.config"}
_LISTS = {"cleanup.policy"}
_NUMBERS = {
    "retention.ms",
    "log.retention.ms",
    "log.cleaner.threads",
    "producer.id.expiration.ms",
    "producer.id.expiration.check.interval.ms",
}
_INVALID_CONFIG, _INVALID_REQUEST = 40, 42
_DEFAULTS_FROM = 4
"""The version of CreateTopics from which -1 is the cluster's default (KIP-464)."""


def create_topics(cluster: FakeCluster, call: ServerCall) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.body
    only = request.validate_only
    return CreateTopicsResponse(tuple(_create(cluster, call, topic, only) for topic in request.topics))


def _create(cluster: FakeCluster, call: ServerCall, topic: CreatableTopic, validate_only: bool) -> CreatedTopic:
    code = call.action.code(topic.name)
    if code:
        return CreatedTopic(topic.name, code, call.action.message(topic.name))
    if topic.name in cluster.topics:
        return CreatedTopic(topic.name, errors.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if message := _wrong_replicas(cluster, call, topic.replication_factor):
        return CreatedTopic(topic.name, errors.INVALID_REPLICATION_FACTOR, message)
    rivals = sorted(name for name in cluster.topics if name.replace(".", "_") == topic.name.replace(".", "_"))
    if rivals:
        message = f"Topic '{topic.name}' collides with existing topic: {', '.join(rivals)}"
        return CreatedTopic(topic.name, errors.INVALID_TOPIC_EXCEPTION, message)
    if validate_only:
        return CreatedTopic(topic.name, 0)
    configs = {config.name: config.value or "" for config in topic.configs}
    made = cluster.add_topic(topic.name, max(1, topic.num_partitions), **configs)
    made.replicas = None if topic.replication_factor < 0 else topic.replication_factor
    return CreatedTopic(topic.name, 0, None, made.topic_id)


def _wrong_replicas(cluster: FakeCluster, call: ServerCall, replicas: int) -> str | None:
    if replicas < 0 and call.version < _DEFAULTS_FROM:
        return "Replication factor must be larger than 0."
    brokers = len(cluster.brokers)
    return f"Unable to replicate the partition {replicas} time(s): {brokers} brokers" if replicas > brokers else None


def create_partitions(cluster: FakeCluster, call: ServerCall) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.body
    return CreatePartitionsResponse(tuple(_grow(cluster, call, topic) for topic in request.topics))


def _grow(cluster: FakeCluster, call: ServerCall, asked: CreatePartitionsTopic) -> CreatePartitionsResult:
    topic = cluster.topics.get(asked.name)
    code = call.action.code(asked.name)
    if topic is None:
        code = code or errors.UNKNOWN_TOPIC_OR_PARTITION
    elif asked.count <= len(topic.partitions):
        code = code or errors.INVALID_PARTITIONS
    if code or topic is None:
        return CreatePartitionsResult(asked.name, code, call.action.message(asked.name))
    request: CreatePartitionsRequest = call.body
    if not request.validate_only:
        cluster.grow(topic, asked.count)
    return CreatePartitionsResult(asked.name, 0)


def describe_configs(cluster: FakeCluster, call: ServerCall) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.body
    return DescribeConfigsResponse(tuple(_describe(cluster, call, resource) for resource in request.resources))


def _describe(cluster: FakeCluster, call: ServerCall, resource: ConfigResource) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    code = call.action.code(name) or _missing(cluster, call, kind, name)
    if code:
        return DescribeConfigsResult(code, call.action.message(name), kind, name, ())
    result: dict[str, DescribedConfig] = {}
    for source, configs in _layers(cluster, kind, name):
        for key, value in configs.items():
            if resource.configuration_keys is not None and key not in resource.configuration_keys:
                continue
            secret = key in _SECRETS
            result.setdefault(key, DescribedConfig(key, None if secret else value, source, secret))
    return DescribeConfigsResult(0, None, kind, name, tuple(result.values()))


def _missing(cluster: FakeCluster, call: ServerCall, kind: int, name: str) -> int:
    if kind == _TOPIC:
        return 0 if name in cluster.topics else errors.UNKNOWN_TOPIC_OR_PARTITION
    return 0 if name in {"", str(call.node)} else _INVALID_REQUEST


def _layers(cluster: FakeCluster, kind: int, name: str) -> list[tuple[int, dict[str, str]]]:
    """(source, configs), the first that has a key wins."""
    if kind == _TOPIC:
        return [(_SET_ON_TOPIC, cluster.topics[name].configs), (_DEFAULT, _DEFAULTS)]
    of_all = (_SET_ON_ALL_BROKERS, cluster.admin.broker_configs.get("", {}))
    if not name:
        return [of_all]
    return [(_SET_ON_BROKER, cluster.admin.broker_configs.get(name, {})), of_all, (_DEFAULT, _BROKER_DEFAULTS)]


def broker_config(cluster: FakeCluster, node: int, key: str) -> str:
    return next(configs[key] for _, configs in _layers(cluster, _BROKER, str(node)) if key in configs)


def incremental_alter_configs(cluster: FakeCluster, call: ServerCall) -> IncrementalAlterConfigsResponse:
    request: IncrementalAlterConfigsRequest = call.body
    return IncrementalAlterConfigsResponse(
        tuple(_alter(cluster, call, resource, keep=not request.validate_only) for resource in request.resources)
    )


def _alter(cluster: FakeCluster, call: ServerCall, asked: AlterConfigsResource, *, keep: bool) -> AlterConfigsResult:
    """All of a resource's changes, or none."""
    kind, name = asked.resource_type, asked.resource_name
    code = call.action.code(name) or _missing(cluster, call, kind, name)
    if code:
        return AlterConfigsResult(code, call.action.message(name), kind, name)
    known = {**_DEFAULTS, **dict.fromkeys(_SETTABLE, "")} if kind == _TOPIC else _BROKER_DEFAULTS
    configs = cluster.topics[name].configs if kind == _TOPIC else cluster.admin.broker_configs.setdefault(name, {})
    changed = dict(configs)
    for change in asked.configs:
        why = _wrong(change.name, change.config_operation, change.value, known)
        if why:
            return AlterConfigsResult(_INVALID_CONFIG, why, kind, name)
        if change.config_operation == _DELETE:
            changed.pop(change.name, None)
        elif change.config_operation == _SET:
            changed[change.name] = change.value or ""
        else:
            items = [item for item in changed.get(change.name, known[change.name]).split(",") if item]
            given = (change.value or "").split(",")
            kept = [item for item in items if item not in given]
            changed[change.name] = ",".join(
                kept if change.config_operation == _SUBTRACT else [*items, *(one for one in given if one not in items)]
            )
    if keep:
        configs.clear()
        configs.update(changed)
    return AlterConfigsResult(0, None, kind, name)


def _wrong(key: str, operation: int, value: str | None, known: dict[str, str]) -> str | None:
    """Why a change is refused, in the words of the broker: they may hold the value."""
    if key not in known:
        return f"Unknown config name: {key}"
    if operation in {_APPEND, _SUBTRACT} and key not in _LISTS:
        return f"Can't {'APPEND' if operation == _APPEND else 'SUBTRACT'} to key {key} because its type is not LIST."
    if operation == _SET and key in _NUMBERS and not (value or "").lstrip("-").isdecimal():
        return f"Invalid value {value} for configuration {key}: Not a number of type LONG"
    if operation == _SET and key in _SECRETS and " required " not in f"{value}":
        words = (value or "").split()
        return f"Invalid value {value} for configuration {key}: Invalid control flag '{words[-1]}' in JAAS config"
    return None


def delete_topics(cluster: FakeCluster, call: ServerCall) -> DeleteTopicsResponse:
    """The offsets that groups have for them go too."""
    request: DeleteTopicsRequest = call.body
    names = {topic.topic_id: name for name, topic in cluster.topics.items()}
    result = []
    for asked in request.topics:
        name = (names.get(asked.topic_id) if asked.name is None and asked.topic_id else asked.name) or ""
        missing = errors.UNKNOWN_TOPIC_ID if asked.name is None else errors.UNKNOWN_TOPIC_OR_PARTITION
        code = call.action.code(name) or (0 if name in cluster.topics else missing)
        if not code:
            del cluster.topics[name]
            for offsets in cluster.groups.values():
                for tp in [tp for tp in offsets if tp.topic == name]:
                    del offsets[tp]
        result.append(DeletedTopic(name or None, code, "refused" if code else None, asked.topic_id))
    return DeleteTopicsResponse(tuple(result))


def delete_records(cluster: FakeCluster, call: ServerCall) -> DeleteRecordsResponse:
    request: DeleteRecordsRequest = call.body
    return DeleteRecordsResponse(
        tuple(
            DeleteRecordsTopicResult(
                topic.name, tuple(_delete_records(cluster, call, topic.name, part) for part in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _delete_records(
    cluster: FakeCluster, call: ServerCall, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    number = asked.partition_index
    log = cluster.partition_of(cluster.topics.get(topic), number)
    code = call.action.code(TopicPartition(topic, number))
    if log is None:
        code = code or errors.UNKNOWN_TOPIC_OR_PARTITION
    elif log.leader != call.node:
        code = code or errors.NOT_LEADER
    elif asked.offset > log.high_watermark:
        code = code or errors.OFFSET_OUT_OF_RANGE
    if code or log is None:
        return DeleteRecordsPartitionResult(number, -1, code)
    log.delete_before(max(log.start_offset, log.high_watermark if asked.offset < 0 else asked.offset))
    return DeleteRecordsPartitionResult(number, log.start_offset, 0)
