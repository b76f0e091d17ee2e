"""Calls about groups: list, describe, delete (``KafkaAdminClient``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclOperation, operations_of
from mirror.cluster.calls import ClusterView, Failures
from mirror.cluster.keyed_call import GROUP_ID_NOT_FOUND, BrokersCall, GroupsCall
from mirror.cluster.types import GroupDescription, GroupListing, GroupMember, TopicPartition
from mirror.errors import ProtocolError
from mirror.wire.api import Api
from mirror.wire.assignment import read_assignment
from mirror.wire.messages.groups import (
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_DEAD: Final = "Dead"


class ListGroups(BrokersCall[tuple[GroupListing, ...]]):
    """The groups that each broker coordinates, of these kinds and in these states; empty: of all."""

    api = Api.LIST_GROUPS
    needs = "Describe"

    def __init__(
        self,
        nodes: Collection[int],
        *,
        states: Collection[str],
        kinds: Collection[str],
        deadline_ms: int,
        timeout_ms: int,
    ) -> None:
        super().__init__("listing groups", nodes, deadline_ms, timeout_ms)
        self._states = tuple(sorted(states))
        self._kinds = tuple(sorted(kind.lower() for kind in kinds))

    def about(self, key: int) -> str:
        """For errors."""
        return f"listing the groups of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> ListGroupsRequest:
        """The brokers filter, as far as their version can."""
        del keys, view, timeout_ms
        return ListGroupsRequest(self._states, self._kinds)

    def accept(self, keys: Collection[int], response: ListGroupsResponse) -> Failures:
        """One broker's. Brokers before version 5 neither filter nor tell kinds: all that they have is classic."""
        listed = (
            GroupListing(told.group_id, told.group_type.lower() or CLASSIC, told.group_state, told.protocol_type)
            for told in response.groups
        )
        wanted = tuple(one for one in listed if not self._kinds or one.kind in self._kinds)
        for node in keys:
            self.take(node, response.error_code, wanted)
        return self.open(keys)


class DescribeGroups(GroupsCall[GroupDescription]):
    """Groups of the classic protocol. Others, and those that are not there, fail with code 69.

    Before version 6 a broker has no error for that and calls such a group dead.
    """

    api = Api.DESCRIBE_GROUPS
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing groups", groups, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"describing group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeGroupsRequest:
        """Those of one coordinator."""
        del view, timeout_ms
        return DescribeGroupsRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: DescribeGroupsResponse) -> Failures:
        """Per group."""
        for told in response.groups:
            code = told.error_code
            if not code and told.group_state == _DEAD:
                code = GROUP_ID_NOT_FOUND
            try:
                members = tuple(_classic_member(one, told.protocol_type) for one in told.members)
            except ProtocolError as error:
                self.refuse(told.group_id, ProtocolError(f"{self.about(told.group_id)}: {error}"))
            else:
                self.take(told.group_id, code, _classic(told, members), told.error_message)
        return self.open(keys)


def _classic(told: ClassicGroup, members: tuple[GroupMember, ...]) -> GroupDescription:
    return GroupDescription(told.group_id, CLASSIC, told.group_state, told.protocol_data, members)


def _classic_member(told: ClassicMember, protocol_type: str) -> GroupMember:
    # Connect's workers and others write something else there.
    assigned = read_assignment(told.member_assignment) if protocol_type == CONSUMER else {}
    tps = tuple(TopicPartition(topic, p) for topic, partitions in sorted(assigned.items()) for p in sorted(partitions))
    return GroupMember(told.member_id, told.group_instance_id, told.client_id, told.client_host, tps)


class GroupOperations(GroupsCall[frozenset[AclOperation]]):
    """What this client may do with groups (KIP-430), also with those that are not there, or of another protocol.

    Nothing is told of those from version 6 on, which has an error for them.
    """

    api = Api.DESCRIBE_GROUPS
    max_version = 5
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("looking at permissions on groups", groups, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"looking at permissions on group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeGroupsRequest:
        """Those of one coordinator."""
        del view, timeout_ms
        return DescribeGroupsRequest(tuple(keys), include_authorized_operations=True)

    def accept(self, keys: Collection[str], response: DescribeGroupsResponse) -> Failures:
        """Per group."""
        for told in response.groups:
            operations = operations_of(told.authorized_operations)
            if operations is None and not told.error_code:
                self.absent(told.group_id)
            else:
                self.take(told.group_id, told.error_code, operations or frozenset(), told.error_message)
        return self.open(keys)


class DescribeConsumerGroups(GroupsCall[GroupDescription]):
    """Groups of the consumer protocol (KIP-848). Others, and those that are not there, fail with code 69."""

    api = Api.CONSUMER_GROUP_DESCRIBE
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing groups", groups, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"describing group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> ConsumerGroupDescribeRequest:
        """Those of one coordinator."""
        del view, timeout_ms
        return ConsumerGroupDescribeRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: ConsumerGroupDescribeResponse) -> Failures:
        """Per group."""
        for told in response.groups:
            self.take(told.group_id, told.error_code, _consumer(told), told.error_message)
        return self.open(keys)


def _consumer(told: ConsumerGroup) -> GroupDescription:
    members = tuple(_consumer_member(one) for one in told.members)
    return GroupDescription(told.group_id, CONSUMER, told.group_state, told.assignor_name, members)


def _consumer_member(told: ConsumerGroupMember) -> GroupMember:
    tps = sorted(TopicPartition(t.topic_name, p) for t in told.assignment.topic_partitions for p in t.partitions)
    return GroupMember(told.member_id, told.instance_id, told.client_id, told.client_host, tuple(tps))


class DeleteGroups(GroupsCall[None]):
    """Groups to delete; one with members is refused (code 68), one that is not there too (code 69)."""

    api = Api.DELETE_GROUPS
    needs = "Delete"
    gone = GROUP_ID_NOT_FOUND

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"deleting groups {sorted(groups)}", groups, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"deleting group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DeleteGroupsRequest:
        """Those of one coordinator."""
        del view, timeout_ms
        return DeleteGroupsRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: DeleteGroupsResponse) -> Failures:
        """Per group."""
        for told in response.results:
            self.take(told.group_id, told.error_code, None)
        return self.open(keys)
