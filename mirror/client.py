"""The client API: ``from mirror.client import Consumer, Producer, Admin, TopicPartition``."""

from __future__ import annotations

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.auth.oauth_settings import TokenRequest
from mirror.cluster.types import (
    EARLIEST,
    LATEST,
    Broker,
    ClientQuota,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigKind,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogDir,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    Outcomes,
    PartitionDescription,
    ProducerState,
    ReplicaLog,
    TopicDescription,
    TopicListing,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from mirror.consumer.fetched import Fetched
from mirror.producer.batch.batches import RecordMetadata
from mirror.runtime.admin import Admin
from mirror.runtime.consumer import Consumer
from mirror.runtime.memory.buffer_memory import BufferMemory
from mirror.runtime.producer import Producer
from mirror.wire.decode import Record

__all__ = [
    "EARLIEST",
    "LATEST",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "Broker",
    "BufferMemory",
    "ClientQuota",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigKind",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "Consumer",
    "Fetched",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDir",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetResult",
    "Outcomes",
    "PartitionDescription",
    "PatternType",
    "Producer",
    "ProducerState",
    "Record",
    "RecordMetadata",
    "ReplicaLog",
    "ResourceType",
    "TokenRequest",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
]
