"""Topics, their configurations and logs: CreateTopics, DeleteTopics, IncrementalAlterConfigs, DescribeLogDirs ..."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

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
    """``config_source`` 1: set on this very topic. The value of a sensitive one is None."""

    name: str
    value: str | None
    config_source: int = -1
    is_sensitive: bool = False
    read_only: bool = False


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


@dataclass(slots=True)
class AlterableConfig(Message):
    """``config_operation`` 0: set, 1: delete, 2: append, 3: subtract. ``value`` may be a secret."""

    name: str
    config_operation: int
    value: str | None = field(repr=False)


@dataclass(slots=True)
class AlterConfigsResource(Message):
    """``resource_type`` as in :class:`ConfigResource`."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@dataclass(slots=True)
class IncrementalAlterConfigsRequest(Message):
    """What is not named stays as it is (KIP-339)."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@dataclass(slots=True)
class AlterConfigsResult(Message):
    """One resource's verdict."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Message):
    """One answer to an IncrementalAlterConfigs."""

    responses: tuple[AlterConfigsResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteTopicState(Message):
    """By name; by ``topic_id`` where the name is None."""

    name: str | None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class DeleteTopicsRequest(Message):
    """``timeout`` ms bounds the broker's wait."""

    topics: tuple[DeleteTopicState, ...]
    timeout: int


@dataclass(slots=True)
class DeletedTopic(Message):
    """One topic's verdict."""

    name: str | None
    error_code: int
    error_message: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class DeleteTopicsResponse(Message):
    """One answer to a DeleteTopics."""

    responses: tuple[DeletedTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteRecordsPartition(Message):
    """Records before ``offset`` go; -1: all before the high watermark."""

    partition_index: int
    offset: int


@dataclass(slots=True)
class DeleteRecordsTopic(Message):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@dataclass(slots=True)
class DeleteRecordsRequest(Message):
    """``timeout`` ms bounds the leader's wait for its replicas."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout: int


@dataclass(slots=True)
class DeleteRecordsPartitionResult(Message):
    """``low_watermark``: the log's new start."""

    partition_index: int
    low_watermark: int
    error_code: int


@dataclass(slots=True)
class DeleteRecordsTopicResult(Message):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@dataclass(slots=True)
class DeleteRecordsResponse(Message):
    """One answer to a DeleteRecords."""

    topics: tuple[DeleteRecordsTopicResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeLogDirsRequest(Message):
    """``topics`` None asks for all; this client asks for no others."""

    topics: tuple[Message, ...] | None = None


@dataclass(slots=True)
class LogDirPartition(Message):
    """``partition_size`` in bytes; ``is_future_key``: a copy that will replace the one in another directory."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


@dataclass(slots=True)
class LogDirTopic(Message):
    """Partitions of one topic."""

    name: str
    partitions: tuple[LogDirPartition, ...]


@dataclass(slots=True)
class DescribedLogDir(Message):
    """One directory; its volume's bytes from version 4 on, else -1."""

    error_code: int
    log_dir: str
    topics: tuple[LogDirTopic, ...]
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(slots=True)
class DescribeLogDirsResponse(Message):
    """One broker's answer. ``error_code`` from version 3 on: before, who may not ask gets no directory."""

    results: tuple[DescribedLogDir, ...]
    error_code: int = 0
    throttle_time: int = 0
