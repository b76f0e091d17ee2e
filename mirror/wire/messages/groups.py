"""Groups and their offsets: OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups etc."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import OPERATIONS_NOT_TOLD, Message


@dataclass(slots=True)
class OffsetCommitPartition(Message):
    """``committed_offset`` is the next offset to read."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


@dataclass(slots=True)
class OffsetCommitTopic(Message):
    """Topics are identified by name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...]


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """A commit without group membership has generation -1 and no member id."""

    group_id: str
    topics: tuple[OffsetCommitTopic, ...]
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class OffsetCommitResponsePartition(Message):
    """Result of one partition."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class OffsetCommitResponseTopic(Message):
    """Results of one topic, identified by name."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """Response to an OffsetCommit request."""

    topics: tuple[OffsetCommitResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class OffsetFetchTopic(Message):
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@dataclass(slots=True)
class OffsetFetchGroup(Message):
    """``topics`` None requests all offsets of the group."""

    group_id: str
    topics: tuple[OffsetFetchTopic, ...] | None


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """``require_stable``: fail with a retriable error while transactions are pending (KIP-447), from version 7.

    Lower versions ignore it (``BrokerVersions.reports_pending_offsets``).

    Before version 8 a request has one group, in ``group_id`` and ``topics`` (KIP-709).
    """

    groups: tuple[OffsetFetchGroup, ...]
    require_stable: bool = True
    group_id: str = ""
    topics: tuple[OffsetFetchTopic, ...] | None = None


@dataclass(slots=True)
class OffsetFetchResponsePartition(Message):
    """``committed_offset`` is -1 if the group has no offset."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopic(Message):
    """Topics are identified by name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@dataclass(slots=True)
class OffsetFetchResponseGroup(Message):
    """The offsets of one group."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """One entry per group; before version 8 only the fields of the one group."""

    most_bytes: ClassVar[int] = 256 * 1024 * 1024
    """The metadata of an offset has up to 4 KiB (``offset.metadata.max.bytes``), that of a progress 550 bytes."""

    groups: tuple[OffsetFetchResponseGroup, ...] = ()
    throttle_time: int = 0
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: int = 0


@dataclass(slots=True)
class OffsetDeletePartition(Message):
    """One partition."""

    partition_index: int


@dataclass(slots=True)
class OffsetDeleteTopic(Message):
    """Partitions of one topic, identified by name."""

    name: str
    partitions: tuple[OffsetDeletePartition, ...]


@dataclass(slots=True)
class OffsetDeleteRequest(Message):
    """Deletes committed offsets of a group (KIP-496)."""

    group_id: str
    topics: tuple[OffsetDeleteTopic, ...]


@dataclass(slots=True)
class OffsetDeleteResponsePartition(Message):
    """Result of one partition."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class OffsetDeleteResponseTopic(Message):
    """Results of one topic, identified by name."""

    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """If ``error_code`` is not 0, it holds for the whole group, and ``topics`` is empty."""

    error_code: int
    topics: tuple[OffsetDeleteResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ListGroupsRequest(Message):
    """Empty filters match all groups. Versions before 4 have none, and ``types_filter`` is sent from version 5 only."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(slots=True)
class ListedGroup(Message):
    """``group_state`` is empty before version 4, and ``group_type`` before version 5."""

    group_id: str
    protocol_type: str
    group_state: str = ""
    group_type: str = ""


@dataclass(slots=True)
class ListGroupsResponse(Message):
    """The groups that one broker coordinates."""

    error_code: int
    groups: tuple[ListedGroup, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeGroupsRequest(Message):
    """Groups of the classic protocol."""

    groups: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(slots=True)
class ClassicMember(Message):
    """``member_assignment`` is in the format of the group's own protocol. The instance id exists from version 4."""

    member_id: str
    client_id: str
    client_host: str
    member_assignment: bytes
    group_instance_id: str | None = None


@dataclass(slots=True)
class ClassicGroup(Message):
    """One group. A group that does not exist is ``Dead`` before version 6, and error 69 from then on."""

    error_code: int
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[ClassicMember, ...]
    error_message: str | None = None
    authorized_operations: int = OPERATIONS_NOT_TOLD


@dataclass(slots=True)
class DescribeGroupsResponse(Message):
    """Response to a DescribeGroups request."""

    groups: tuple[ClassicGroup, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ConsumerGroupDescribeRequest(Message):
    """Groups of the consumer protocol (KIP-848)."""

    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(slots=True)
class AssignedTopic(Message):
    """Partitions of one topic."""

    topic_id: uuid.UUID | None
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class MemberAssignment(Message):
    """The partitions assigned to a member."""

    topic_partitions: tuple[AssignedTopic, ...]


@dataclass(slots=True)
class ConsumerGroupMember(Message):
    """One member with its current and its target assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: MemberAssignment
    target_assignment: MemberAssignment


@dataclass(slots=True)
class ConsumerGroup(Message):
    """One group. Error 69: the group does not use the consumer protocol."""

    error_code: int
    group_id: str
    group_state: str
    assignor_name: str
    members: tuple[ConsumerGroupMember, ...]
    error_message: str | None = None


@dataclass(slots=True)
class ConsumerGroupDescribeResponse(Message):
    """Response to a ConsumerGroupDescribe request."""

    groups: tuple[ConsumerGroup, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteGroupsRequest(Message):
    """Deletes groups that have no members."""

    groups_names: tuple[str, ...]


@dataclass(slots=True)
class DeletedGroup(Message):
    """Result of one group."""

    group_id: str
    error_code: int


@dataclass(slots=True)
class DeleteGroupsResponse(Message):
    """Response to a DeleteGroups request."""

    results: tuple[DeletedGroup, ...]
    throttle_time: int = 0
