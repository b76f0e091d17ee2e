"""CreateTopics, CreatePartitions, DescribeConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.wire.messages.admin import (
    ConfigResource,
    CreatableTopic,
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_SET_ON_TOPIC, _DEFAULT = 1, 5
_DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "604800000"}


def create_topics(cluster: FakeCluster, call: ServerCall) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.body
    return CreateTopicsResponse(tuple(_create(cluster, call, topic) for topic in request.topics))


def _create(cluster: FakeCluster, call: ServerCall, topic: CreatableTopic) -> CreatedTopic:
    code = call.action.code(topic.name)
    if code:
        return CreatedTopic(topic.name, code, "as the test wants it")
    if topic.name in cluster.topics:
        return CreatedTopic(topic.name, errors.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    configs = {config.name: config.value or "" for config in topic.configs}
    made = cluster.add_topic(topic.name, max(1, topic.num_partitions), **configs)
    return CreatedTopic(topic.name, 0, None, made.topic_id)


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
        return CreatePartitionsResult(asked.name, code, "refused")
    cluster.grow(topic, asked.count)
    return CreatePartitionsResult(asked.name, 0)


def describe_configs(cluster: FakeCluster, call: ServerCall) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.body
    return DescribeConfigsResponse(tuple(_describe(cluster, call, resource) for resource in request.resources))


def _describe(cluster: FakeCluster, call: ServerCall, resource: ConfigResource) -> DescribeConfigsResult:
    topic = cluster.topics.get(resource.resource_name)
    code = call.action.code(resource.resource_name) or (errors.UNKNOWN_TOPIC_OR_PARTITION if topic is None else 0)
    if code or topic is None:
        return DescribeConfigsResult(code, "refused", resource.resource_type, resource.resource_name, ())
    configs = tuple(
        DescribedConfig(name, value, _SET_ON_TOPIC if name in topic.configs else _DEFAULT)
        for name, value in {**_DEFAULTS, **topic.configs}.items()
    )
    return DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name, configs)
