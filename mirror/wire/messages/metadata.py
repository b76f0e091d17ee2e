"""Metadata and FindCoordinator: which brokers lead partitions and coordinate groups and transactions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import OPERATIONS_NOT_TOLD, Message


@dataclass(slots=True)
class MetadataRequestTopic(Message):
    """A topic to describe, by name."""

    name: str | None
    topic_id: uuid.UUID | None = None


@dataclass(slots=True)
class MetadataRequest(Message):
    """``topics`` None requests all topics. Operations on the cluster are in versions 8 to 10 (KIP-430, KIP-700)."""

    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = False
    include_topic_authorized_operations: bool = False
    include_cluster_authorized_operations: bool = False


@dataclass(slots=True)
class MetadataBroker(Message):
    """The address of one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class MetadataPartition(Message):
    """The leader and the replicas of one partition. ``leader_id`` is -1 if there is no leader."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True)
class MetadataTopic(Message):
    """One topic, or the reason why it cannot be described (``error_code``).

    ``topic_authorized_operations`` has a bit for each operation (KIP-430).
    """

    error_code: int
    name: str | None
    topic_id: uuid.UUID | None = None
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] = ()
    topic_authorized_operations: int = OPERATIONS_NOT_TOLD


@dataclass(slots=True)
class MetadataResponse(Message):
    """The cluster as the responding broker sees it."""

    most_items: ClassVar[int] = 8_000_000
    """A partition with three replicas has 7, so this is more than a million of them."""

    brokers: tuple[MetadataBroker, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    topics: tuple[MetadataTopic, ...] = ()
    throttle_time: int = 0
    cluster_authorized_operations: int = OPERATIONS_NOT_TOLD


@dataclass(slots=True)
class DescribeClusterRequest(Message):
    """Used for the operations on the cluster alone: from version 11 on, Metadata does not have them (KIP-700)."""

    include_cluster_authorized_operations: bool
    include_fenced_brokers: bool = False


@dataclass(slots=True)
class DescribeClusterBroker(Message):
    """The address of one broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class DescribeClusterResponse(Message):
    """The cluster as the responding broker sees it; without Describe on it, no operation is authorized."""

    error_code: int
    error_message: str | None
    cluster_id: str
    brokers: tuple[DescribeClusterBroker, ...]
    controller_id: int = -1
    cluster_authorized_operations: int = OPERATIONS_NOT_TOLD
    throttle_time: int = 0


@dataclass(slots=True)
class QuorumPartition(Message):
    """A partition of the controllers' log."""

    partition_index: int


@dataclass(slots=True)
class QuorumTopic(Message):
    """The topic of the controllers' log, ``__cluster_metadata``."""

    topic_name: str
    partitions: tuple[QuorumPartition, ...]


@dataclass(slots=True)
class DescribeQuorumRequest(Message):
    """Describes the quorum of controllers (KIP-595)."""

    topics: tuple[QuorumTopic, ...]


@dataclass(slots=True)
class QuorumReplica(Message):
    """A replica of the controllers' log. Times are those of the leader's clock, in ms since 1970 (KIP-836)."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    """Of the leader itself: the current time."""


@dataclass(slots=True)
class DescribedQuorumPartition(Message):
    """The leader of the quorum, which is the active controller, and its replicas."""

    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()


@dataclass(slots=True)
class DescribedQuorumTopic(Message):
    """The only topic."""

    topic_name: str
    partitions: tuple[DescribedQuorumPartition, ...]


@dataclass(slots=True)
class DescribeQuorumResponse(Message):
    """Response to a DescribeQuorum request."""

    error_code: int
    topics: tuple[DescribedQuorumTopic, ...]


@dataclass(slots=True)
class FindCoordinatorRequest(Message):
    """``key_type`` 0: groups, 1: transactional ids. Before version 4 a request has one key, in ``key`` (KIP-699)."""

    key_type: int
    coordinator_keys: tuple[str, ...]
    key: str = ""


@dataclass(slots=True)
class Coordinator(Message):
    """The address of the coordinator of one key."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None = None


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    """One entry per key; before version 4 only the fields of the one coordinator."""

    coordinators: tuple[Coordinator, ...] = ()
    throttle_time: int = 0
    error_code: int = 0
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1
