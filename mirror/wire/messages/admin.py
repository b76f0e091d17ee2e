"""Topics, their configurations and logs: CreateTopics, DeleteTopics, IncrementalAlterConfigs, DescribeLogDirs etc."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class CreatableConfig(Message):
    """One configuration of a new topic."""

    name: str
    value: str | None


@dataclass(slots=True)
class CreatableTopic(Message):
    """``replication_factor`` -1 is the broker's default."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[Message, ...] = ()
    configs: tuple[CreatableConfig, ...] = ()


@dataclass(slots=True)
class CreateTopicsRequest(Message):
    """``timeout`` limits how long the broker waits, in ms."""

    topics: tuple[CreatableTopic, ...]
    timeout: int
    validate_only: bool = False


@dataclass(slots=True)
class CreatedTopic(Message):
    """Result of one topic."""

    name: str
    error_code: int
    error_message: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class CreateTopicsResponse(Message):
    """Response to a CreateTopics request."""

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
    """``timeout`` limits how long the broker waits, in ms."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout: int
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsResult(Message):
    """Result of one topic."""

    name: str
    error_code: int
    error_message: str | None = None


@dataclass(slots=True)
class CreatePartitionsResponse(Message):
    """Response to a CreatePartitions request."""

    results: tuple[CreatePartitionsResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ConfigResource(Message):
    """``resource_type`` 2 is a topic, 4 a broker. ``configuration_keys`` None requests all."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


@dataclass(slots=True)
class DescribeConfigsRequest(Message):
    """Several resources of one type."""

    resources: tuple[ConfigResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(slots=True)
class DescribedConfig(Message):
    """``config_source`` 1: set on this topic itself. The value of a sensitive configuration is None."""

    name: str
    value: str | None
    config_source: int = -1
    is_sensitive: bool = False
    read_only: bool = False


@dataclass(slots=True)
class DescribeConfigsResult(Message):
    """The configuration of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribedConfig, ...]


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    """Response to a DescribeConfigs request."""

    most_bytes: ClassVar[int] = 256 * 1024 * 1024
    """A topic has almost 40 keys, of 40 bytes each."""
    most_items: ClassVar[int] = 8_000_000

    results: tuple[DescribeConfigsResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class AlterableConfig(Message):
    """``config_operation`` is 0: set, 1: delete, 2: append, 3: subtract. ``value`` may be a secret."""

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
    """Configurations that the request does not name stay unchanged (KIP-339)."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


@dataclass(slots=True)
class AlterConfigsResult(Message):
    """Result of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


@dataclass(slots=True)
class IncrementalAlterConfigsResponse(Message):
    """Response to an IncrementalAlterConfigs request."""

    responses: tuple[AlterConfigsResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteTopicState(Message):
    """A topic to delete, by name, or by ``topic_id`` if the name is None."""

    name: str | None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class DeleteTopicsRequest(Message):
    """``timeout`` limits how long the broker waits, in ms."""

    topics: tuple[DeleteTopicState, ...]
    timeout: int


@dataclass(slots=True)
class DeletedTopic(Message):
    """Result of one topic."""

    name: str | None
    error_code: int
    error_message: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class DeleteTopicsResponse(Message):
    """Response to a DeleteTopics request."""

    responses: tuple[DeletedTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteRecordsPartition(Message):
    """Deletes the records before ``offset``. -1 is the high watermark."""

    partition_index: int
    offset: int


@dataclass(slots=True)
class DeleteRecordsTopic(Message):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@dataclass(slots=True)
class DeleteRecordsRequest(Message):
    """``timeout`` limits how long the leader waits for its replicas, in ms."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout: int


@dataclass(slots=True)
class DeleteRecordsPartitionResult(Message):
    """``low_watermark`` is the new start of the log."""

    partition_index: int
    low_watermark: int
    error_code: int


@dataclass(slots=True)
class DeleteRecordsTopicResult(Message):
    """Results of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@dataclass(slots=True)
class DeleteRecordsResponse(Message):
    """Response to a DeleteRecords request."""

    topics: tuple[DeleteRecordsTopicResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeLogDirsRequest(Message):
    """``topics`` None requests all topics; this client sends nothing else."""

    topics: tuple[Message, ...] | None = None


@dataclass(slots=True)
class LogDirPartition(Message):
    """``partition_size`` is in bytes.

    ``is_future_key``: a replica that is being moved here from another directory.
    """

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
    """One directory. The sizes of its volume, in bytes, are -1 before version 4."""

    error_code: int
    log_dir: str
    topics: tuple[LogDirTopic, ...]
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(slots=True)
class DescribeLogDirsResponse(Message):
    """The log directories of one broker.

    ``error_code`` exists from version 3. Before, a client without permission gets no directories and no error.
    """

    results: tuple[DescribedLogDir, ...]
    error_code: int = 0
    throttle_time: int = 0


@dataclass(slots=True)
class QuotaFilter(Message):
    """Which entities of a type are asked for: that of a name (0), the default (1), all with a name (2)."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass(slots=True)
class DescribeClientQuotasRequest(Message):
    """Describes the quotas of users and client ids (KIP-546)."""

    components: tuple[QuotaFilter, ...]
    strict: bool


@dataclass(slots=True)
class QuotaEntity(Message):
    """A user or a client id; None is the default."""

    entity_type: str
    entity_name: str | None


@dataclass(slots=True)
class QuotaValue(Message):
    """One quota."""

    key: str
    value: float


@dataclass(slots=True)
class QuotaEntry(Message):
    """The quotas of a user, a client id, or both."""

    entity: tuple[QuotaEntity, ...]
    values: tuple[QuotaValue, ...]


@dataclass(slots=True)
class DescribeClientQuotasResponse(Message):
    """Response to a DescribeClientQuotas request."""

    error_code: int
    error_message: str | None
    entries: tuple[QuotaEntry, ...] | None
    throttle_time: int = 0
