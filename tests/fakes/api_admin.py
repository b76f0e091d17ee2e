"""What only administrators ask: log directories, groups, ACLs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.cluster.acls import AclOperation, ResourceType
from mirror.cluster.types import TopicPartition
from mirror.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
    MatchingAcl,
)
from mirror.wire.messages.admin import (
    DescribeClientQuotasResponse,
    DescribedLogDir,
    DescribeLogDirsResponse,
    LogDirPartition,
    LogDirTopic,
    QuotaEntry,
)
from mirror.wire.messages.groups import (
    AssignedTopic,
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberAssignment,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

CLUSTER_AUTHORIZATION_FAILED = 31
SECURITY_DISABLED = 54
_INVALID_REQUEST = 42
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86

CLASSIC, CONSUMER = "classic", "consumer"
_KIND_IN_LISTS = 5
"""ListGroups' first version that tells and filters kinds."""
_NO_DEAD_GROUPS = 6
"""DescribeGroups' first version with an error for a group that is not there."""
_ANY, _MATCH, _LITERAL, _PREFIXED = 1, 2, 3, 4
LOG_DIR = "/var/lib/kafka"
_VOLUME_BYTES = 1_000_000


SUPPORTED = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE}),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        }
    ),
}
"""All operations of a kind (``AclEntry.supportedOperations``)."""


@dataclass(slots=True)
class FakeMember:
    """One member and what it was assigned."""

    member_id: str
    assigned: list[TopicPartition] = field(default_factory=list)
    raw: bytes | None = None
    """Bytes to send instead of a classic assignment."""


@dataclass(slots=True)
class FakeGroup:
    """A group with its members; one that only has offsets needs none of this."""

    kind: str = CLASSIC
    state: str = "Empty"
    members: list[FakeMember] = field(default_factory=list)
    protocol_type: str = "consumer"


@dataclass(slots=True)
class AdminState:
    """``broker_configs`` by id as text ("" for all brokers); ``acls`` None: the cluster has no authorizer.

    ``may``: the operations that are reported to clients for a topic, a group or the cluster (""); without an entry it
    is everything.
    """

    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    groups: dict[str, FakeGroup] = field(default_factory=dict)
    acls: list[AclCreation] | None = field(default_factory=list)
    quotas: list[QuotaEntry] = field(default_factory=list)
    may: dict[tuple[ResourceType, str], frozenset[AclOperation]] = field(default_factory=dict)

    def bits(self, kind: ResourceType, name: str) -> int:
        """As the field of authorized operations has it (KIP-430)."""
        return sum(1 << operation for operation in self.may.get((kind, name), SUPPORTED[kind]))


# --- quotas


def describe_client_quotas(cluster: FakeCluster, call: ServerCall) -> DescribeClientQuotasResponse:
    """All quotas."""
    code = call.action.code("quotas")
    return DescribeClientQuotasResponse(code, "refused" if code else None, () if code else tuple(cluster.admin.quotas))


# --- log directories


def describe_log_dirs(cluster: FakeCluster, call: ServerCall) -> DescribeLogDirsResponse:
    """Every broker has a replica of every partition, in one directory."""
    code = call.action.code(str(call.node))
    if code:
        return DescribeLogDirsResponse((), code)
    topics = tuple(
        LogDirTopic(
            name,
            tuple(LogDirPartition(p, log.size, 0, False) for p, log in enumerate(topic.partitions)),
        )
        for name, topic in cluster.topics.items()
    )
    used = sum(part.partition_size for topic in topics for part in topic.partitions)
    return DescribeLogDirsResponse((DescribedLogDir(0, LOG_DIR, topics, _VOLUME_BYTES, _VOLUME_BYTES - used),))


# --- groups


def _group(cluster: FakeCluster, name: str) -> FakeGroup | None:
    """A group is there that has members, or offsets."""
    found = cluster.admin.groups.get(name)
    return FakeGroup() if found is None and cluster.groups.get(name) else found


def _group_code(cluster: FakeCluster, call: ServerCall, group: str) -> int:
    return call.action.code(group) or (errors.NOT_COORDINATOR if cluster.coordinator(group) != call.node else 0)


def list_groups(cluster: FakeCluster, call: ServerCall) -> ListGroupsResponse:
    """Those that this broker coordinates."""
    request: ListGroupsRequest = call.body
    code = call.action.code(str(call.node))
    if code:
        return ListGroupsResponse(code, ())
    names = sorted({*cluster.admin.groups, *(name for name, offsets in cluster.groups.items() if offsets)})
    mine = [(name, _group(cluster, name) or FakeGroup()) for name in names if cluster.coordinator(name) == call.node]
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter} if call.version >= _KIND_IN_LISTS else set()
    return ListGroupsResponse(
        0,
        tuple(
            ListedGroup(name, group.protocol_type, group.state, group.kind)
            for name, group in mine
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ),
    )


def describe_groups(cluster: FakeCluster, call: ServerCall) -> DescribeGroupsResponse:
    request: DescribeGroupsRequest = call.body
    groups = tuple(_classic(cluster, call, name) for name in request.groups)
    if request.include_authorized_operations:
        for result in groups:
            if not result.error_code:
                result.authorized_operations = cluster.admin.bits(ResourceType.GROUP, result.group_id)
    return DescribeGroupsResponse(groups)


def _classic(cluster: FakeCluster, call: ServerCall, name: str) -> ClassicGroup:
    code, group = _group_code(cluster, call, name), _group(cluster, name)
    if code:
        return ClassicGroup(code, name, "", "", "", ())
    if group is None or group.kind != CLASSIC:
        if call.version < _NO_DEAD_GROUPS:
            return ClassicGroup(0, name, "Dead", "", "", ())
        return ClassicGroup(GROUP_ID_NOT_FOUND, name, "Dead", "", "", (), f"Group {name} is not a classic group.")
    members = tuple(ClassicMember(one.member_id, "client", "/127.0.0.1", _assignment(one)) for one in group.members)
    return ClassicGroup(0, name, group.state, group.protocol_type, "range", members)


def _assignment(member: FakeMember) -> bytes:
    """As ``ConsumerProtocol`` writes it, version 3."""
    if member.raw is not None:
        return member.raw
    topics = sorted({tp.topic for tp in member.assigned})
    out = struct.pack(">hi", 3, len(topics))
    for topic in topics:
        parts = [tp.partition for tp in member.assigned if tp.topic == topic]
        name = topic.encode()
        out += struct.pack(f">h{len(name)}si{len(parts)}i", len(name), name, len(parts), *parts)
    return out + struct.pack(">i", -1)


def consumer_group_describe(cluster: FakeCluster, call: ServerCall) -> ConsumerGroupDescribeResponse:
    request: ConsumerGroupDescribeRequest = call.body
    return ConsumerGroupDescribeResponse(tuple(_consumer(cluster, call, name) for name in request.group_ids))


def _consumer(cluster: FakeCluster, call: ServerCall, name: str) -> ConsumerGroup:
    code, group = _group_code(cluster, call, name), _group(cluster, name)
    if code or group is None or group.kind != CONSUMER:
        return ConsumerGroup(code or GROUP_ID_NOT_FOUND, name, "", "", (), f"Group {name} is not a consumer group.")
    members = []
    for one in group.members:
        topics = tuple(
            AssignedTopic(
                cluster.topics[topic].topic_id,
                topic,
                tuple(tp.partition for tp in one.assigned if tp.topic == topic),
            )
            for topic in sorted({tp.topic for tp in one.assigned})
        )
        has = MemberAssignment(topics)
        members.append(ConsumerGroupMember(one.member_id, None, "client", "/127.0.0.1", has, has))
    return ConsumerGroup(0, name, group.state, "uniform", tuple(members))


def delete_groups(cluster: FakeCluster, call: ServerCall) -> DeleteGroupsResponse:
    request: DeleteGroupsRequest = call.body
    return DeleteGroupsResponse(
        tuple(DeletedGroup(name, _delete_group(cluster, call, name)) for name in request.groups_names)
    )


def _delete_group(cluster: FakeCluster, call: ServerCall, name: str) -> int:
    code, group = _group_code(cluster, call, name), _group(cluster, name)
    if code or group is None or group.members:
        return code or (GROUP_ID_NOT_FOUND if group is None else NON_EMPTY_GROUP)
    cluster.admin.groups.pop(name, None)
    cluster.groups.pop(name, None)
    return 0


def offset_delete(cluster: FakeCluster, call: ServerCall) -> OffsetDeleteResponse:
    """A partition that a member has counts as subscribed; one without an offset is a success."""
    request: OffsetDeleteRequest = call.body
    name = request.group_id
    code, group = _group_code(cluster, call, name), _group(cluster, name)
    if code or group is None:
        return OffsetDeleteResponse(code or GROUP_ID_NOT_FOUND, ())
    subscribed = {tp.topic for one in group.members for tp in one.assigned}
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            refused = GROUP_SUBSCRIBED_TO_TOPIC if topic.name in subscribed else 0
            missing = errors.UNKNOWN_TOPIC_OR_PARTITION if topic.name not in cluster.topics else 0
            one = call.action.code(tp) or missing or refused
            if not one:
                cluster.groups[name].pop(tp, None)
            parts.append(OffsetDeleteResponsePartition(part.partition_index, one))
        topics.append(OffsetDeleteResponseTopic(topic.name, tuple(parts)))
    return OffsetDeleteResponse(0, tuple(topics))


# --- ACLs


def create_acls(cluster: FakeCluster, call: ServerCall) -> CreateAclsResponse:
    request: CreateAclsRequest = call.body
    return CreateAclsResponse(tuple(_create_acl(cluster, call, acl) for acl in request.creations))


def _create_acl(cluster: FakeCluster, call: ServerCall, acl: AclCreation) -> AclCreationResult:
    code = call.action.code(acl.resource_name)
    if code or cluster.admin.acls is None:
        return AclCreationResult(code or SECURITY_DISABLED, "No Authorizer is configured." if not code else "refused")
    if not acl.principal.partition(":")[2]:
        return AclCreationResult(_INVALID_REQUEST, f"Could not parse principal from `{acl.principal}`")
    if acl not in cluster.admin.acls:
        cluster.admin.acls.append(acl)
    return AclCreationResult(0)


def describe_acls(cluster: FakeCluster, call: ServerCall) -> DescribeAclsResponse:
    request: DescribeAclsRequest = call.body
    code = call.action.code("acls")
    if code or cluster.admin.acls is None:
        return DescribeAclsResponse(code or SECURITY_DISABLED, "refused" if code else "No Authorizer.", ())
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in cluster.admin.acls:
        if _matches(request, acl):
            result = AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type)
            key = (acl.resource_type, acl.resource_name, acl.resource_pattern_type)
            found.setdefault(key, []).append(result)
    return DescribeAclsResponse(0, None, tuple(DescribeAclsResource(*key, tuple(acls)) for key, acls in found.items()))


def delete_acls(cluster: FakeCluster, call: ServerCall) -> DeleteAclsResponse:
    request: DeleteAclsRequest = call.body
    return DeleteAclsResponse(tuple(_delete_acls(cluster, call, one) for one in request.filters))


def _delete_acls(cluster: FakeCluster, call: ServerCall, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    code = call.action.code(wanted.resource_name_filter or "acls")
    if code or cluster.admin.acls is None:
        return DeleteAclsFilterResult(code or SECURITY_DISABLED, "refused" if code else "No Authorizer.", ())
    gone = [acl for acl in cluster.admin.acls if _matches(wanted, acl)]
    cluster.admin.acls = [acl for acl in cluster.admin.acls if acl not in gone]
    result = tuple(
        MatchingAcl(
            0,
            None,
            acl.resource_type,
            acl.resource_name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in gone
    )
    return DeleteAclsFilterResult(0, None, result)


def _matches(wanted: DescribeAclsRequest | DeleteAclsFilter, acl: AclCreation) -> bool:
    """``AclBindingFilter.matches``."""
    numbers = (
        (wanted.resource_type_filter, acl.resource_type),
        (wanted.operation, acl.operation),
        (wanted.permission_type, acl.permission_type),
    )
    texts = ((wanted.principal_filter, acl.principal), (wanted.host_filter, acl.host))
    return (
        all(asked in {_ANY, result} for asked, result in numbers)
        and all(asked in {None, result} for asked, result in texts)
        and _name_matches(wanted.resource_name_filter, wanted.pattern_type_filter, acl)
    )


def _name_matches(name: str | None, pattern: int, acl: AclCreation) -> bool:
    if pattern == _MATCH:
        if acl.resource_pattern_type == _PREFIXED:
            return name is None or name.startswith(acl.resource_name)
        return name is None or acl.resource_name in {name, "*"}
    return pattern in {_ANY, acl.resource_pattern_type} and name in {None, acl.resource_name}
