"""Topics and their configurations: CreateTopics, CreatePartitions, DescribeConfigs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class CreatableConfig(Message):
    """One configuration of a new topic."""

    name: str
    value: str | None


@dataclass(slots=True)
class CreatableTopic(Message):
    """``replication_factor`` -1: the broker's default."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[Message, ...] = ()
    configs: tuple[CreatableConfig, ...] = ()


@dataclass(slots=True)
class CreateTopicsRequest(Message):
    """``timeout`` ms bounds the broker's wait."""

    topics: tuple[CreatableTopic, ...]
    timeout: int
    validate_only: bool = False


@dataclass(slots=True)
class CreatedTopic(Message):
    """One topic's verdict."""

    name: str
    error_code: int
    error_message: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class CreateTopicsResponse(Message):
    """One answer to a CreateTopics."""

    topics: tuple[CreatedTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class CreatePartitionsTopic(Message):
    """``count`` is the new total."""

    name: str
    count: int
    assignments: tuple[Message, ...] | None = None


@dataclass(slots=True)
class CreatePartitionsRequest(Message):
    """``timeout`` ms bounds the broker's wait."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout: int
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsResult(Message):
    """One topic's verdict."""

    name: str
    error_code: int
    error_message: str | None = None


@dataclass(slots=True)
class CreatePartitionsResponse(Message):
    """One answer to a CreatePartitions."""

    results: tuple[CreatePartitionsResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ConfigResource(Message):
    """``resource_type`` 2: topic, 4: broker. ``configuration_keys`` None asks for all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@dataclass(slots=True)
class DescribeConfigsRequest(Message):
    """Several resources of one kind."""

    resources: tuple[ConfigResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(slots=True)
class DescribedConfig(Message):
    """``config_source`` 1: set on this very topic."""

    name: str
    value: str | None
    config_source: int = -1
    is_sensitive: bool = False


@dataclass(slots=True)
class DescribeConfigsResult(Message):
    """One resource's configuration."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribedConfig, ...]


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """One answer to a DescribeConfigs."""

    results: tuple[DescribeConfigsResult, ...]
    throttle_time: int = 0
