"""Groups and their offsets: OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups ..."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

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
    """By name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...]


@dataclass(slots=True)
class OffsetCommitRequest(Message):
    """Without membership: generation -1 and no member id."""

    group_id: str
    topics: tuple[OffsetCommitTopic, ...]
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class OffsetCommitResponsePartition(Message):
    """One partition's verdict."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class OffsetCommitResponseTopic(Message):
    """By name."""

    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """One answer to an OffsetCommit."""

    topics: tuple[OffsetCommitResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class OffsetFetchTopic(Message):
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@dataclass(slots=True)
class OffsetFetchGroup(Message):
    """``topics`` None asks for all that the group has."""

    group_id: str
    topics: tuple[OffsetFetchTopic, ...] | None


@dataclass(slots=True)
class OffsetFetchRequest(Message):
    """``require_stable``: wait out pending transactions (KIP-447)."""

    groups: tuple[OffsetFetchGroup, ...]
    require_stable: bool = True


@dataclass(slots=True)
class OffsetFetchResponsePartition(Message):
    """``committed_offset`` -1 where there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopic(Message):
    """By name (versions up to 9)."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@dataclass(slots=True)
class OffsetFetchResponseGroup(Message):
    """One group's offsets."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """One answer to an OffsetFetch."""

    groups: tuple[OffsetFetchResponseGroup, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class OffsetDeletePartition(Message):
    """One partition."""

    partition_index: int


@dataclass(slots=True)
class OffsetDeleteTopic(Message):
    """By name."""

    name: str
    partitions: tuple[OffsetDeletePartition, ...]


@dataclass(slots=True)
class OffsetDeleteRequest(Message):
    """Offsets that a group is to forget (KIP-496)."""

    group_id: str
    topics: tuple[OffsetDeleteTopic, ...]


@dataclass(slots=True)
class OffsetDeleteResponsePartition(Message):
    """One partition's verdict."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class OffsetDeleteResponseTopic(Message):
    """By name."""

    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """``error_code`` is the whole group's; then there are no topics."""

    error_code: int
    topics: tuple[OffsetDeleteResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ListGroupsRequest(Message):
    """Empty filters let all pass; ``types_filter`` goes out from version 5 on only."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(slots=True)
class ListedGroup(Message):
    """``group_type`` is empty before version 5."""

    group_id: str
    protocol_type: str
    group_state: str
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
    """``member_assignment`` is in the format of the group's own protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_assignment: bytes


@dataclass(slots=True)
class ClassicGroup(Message):
    """One group. Before version 6 one that is not there is ``Dead``, afterwards an error (69)."""

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
    """One answer to a DescribeGroups."""

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
    """What a member has."""

    topic_partitions: tuple[AssignedTopic, ...]


@dataclass(slots=True)
class ConsumerGroupMember(Message):
    """One member, with what it has now, and what it is to have."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: MemberAssignment
    target_assignment: MemberAssignment


@dataclass(slots=True)
class ConsumerGroup(Message):
    """One group; error 69 where it is none of the consumer protocol."""

    error_code: int
    group_id: str
    group_state: str
    assignor_name: str
    members: tuple[ConsumerGroupMember, ...]
    error_message: str | None = None


@dataclass(slots=True)
class ConsumerGroupDescribeResponse(Message):
    """One answer to a ConsumerGroupDescribe."""

    groups: tuple[ConsumerGroup, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteGroupsRequest(Message):
    """Groups without members."""

    groups_names: tuple[str, ...]


@dataclass(slots=True)
class DeletedGroup(Message):
    """One group's verdict."""

    group_id: str
    error_code: int


@dataclass(slots=True)
class DeleteGroupsResponse(Message):
    """One answer to a DeleteGroups."""

    results: tuple[DeletedGroup, ...]
    throttle_time: int = 0
