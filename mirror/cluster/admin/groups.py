"""Calls about groups: list, describe, delete (``KafkaAdminClient``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclOperation, operations_of
from mirror.cluster.calls.keyed_call import BrokersCall, GroupsCall
from mirror.cluster.calls.routed_calls import ClusterView, Failures
from mirror.cluster.types import GroupDescription, GroupListing, GroupMember, TopicPartition
from mirror.errors import ProtocolError, UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.error_codes import GROUP_ID_NOT_FOUND
from mirror.wire.member_assignment import read_assignment
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
    """List the groups that each broker coordinates, of these kinds and in these states; empty: of all."""

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

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"listing the groups of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> ListGroupsRequest:
        """Let the brokers filter, as far as their version supports it."""
        del keys, view, timeout_ms
        return ListGroupsRequest(self._states, self._kinds)

    def accept(self, keys: Collection[int], response: ListGroupsResponse) -> Failures:
        """Set the result of one broker. Before version 5 brokers neither filter nor report kinds.

        All groups are classic. Before version 4 they do neither with states: then nothing is left to filter by.
        """
        if self._states and any(not entry.group_state for entry in response.groups):
            for node in keys:
                why = "brokers before Apache Kafka 2.6 do not list the states of groups"
                self.set_failed(node, UnsupportedVersion(f"{self.describe(node)}: {why}"))
            return self.unresolved(keys)
        listed = (
            GroupListing(entry.group_id, entry.group_type.lower() or CLASSIC, entry.group_state, entry.protocol_type)
            for entry in response.groups
        )
        wanted = tuple(group for group in listed if not self._kinds or group.kind in self._kinds)
        for node in keys:
            self.set_result(node, response.error_code, wanted)
        return self.unresolved(keys)


class DescribeGroups(GroupsCall[GroupDescription]):
    """Groups of the classic protocol. Others, and those that are not there, fail with code 69.

    Before version 6 a broker has no error for that and calls such a group dead.
    """

    api = Api.DESCRIBE_GROUPS
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing groups", groups, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeGroupsRequest:
        """Request the keys of one coordinator."""
        del view, timeout_ms
        return DescribeGroupsRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: DescribeGroupsResponse) -> Failures:
        """Set the result of each group."""
        for entry in response.groups:
            code = entry.error_code
            if not code and entry.group_state == _DEAD:
                code = GROUP_ID_NOT_FOUND
            try:
                members = tuple(_classic_member(one, entry.protocol_type) for one in entry.members)
            except ProtocolError as error:
                self.set_failed(entry.group_id, ProtocolError(f"{self.describe(entry.group_id)}: {error}"))
            else:
                self.set_result(entry.group_id, code, _classic(entry, members), entry.error_message)
        return self.unresolved(keys)


def _classic(entry: ClassicGroup, members: tuple[GroupMember, ...]) -> GroupDescription:
    return GroupDescription(entry.group_id, CLASSIC, entry.group_state, entry.protocol_data, members)


def _classic_member(entry: ClassicMember, protocol_type: str) -> GroupMember:
    # Connect's workers and others write something else there.
    assigned = read_assignment(entry.member_assignment) if protocol_type == CONSUMER else {}
    tps = tuple(TopicPartition(topic, p) for topic, partitions in sorted(assigned.items()) for p in sorted(partitions))
    return GroupMember(entry.member_id, entry.group_instance_id, entry.client_id, entry.client_host, tps)


class GroupOperations(GroupsCall[frozenset[AclOperation]]):
    """What this client may do with groups (KIP-430), also with those that are not there, or of another protocol.

    Nothing is entry of those from version 6 on, which has an error for them.
    """

    api = Api.DESCRIBE_GROUPS
    max_version = 5
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("reading permissions on groups", groups, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"reading permissions on group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeGroupsRequest:
        """Request the keys of one coordinator."""
        del view, timeout_ms
        return DescribeGroupsRequest(tuple(keys), include_authorized_operations=True)

    def accept(self, keys: Collection[str], response: DescribeGroupsResponse) -> Failures:
        """Set the result of each group."""
        for entry in response.groups:
            operations = operations_of(entry.authorized_operations)
            if operations is None and not entry.error_code:
                self.set_absent(entry.group_id)
            else:
                self.set_result(entry.group_id, entry.error_code, operations or frozenset(), entry.error_message)
        return self.unresolved(keys)


class DescribeConsumerGroups(GroupsCall[GroupDescription]):
    """Describe groups of the consumer protocol (KIP-848). Others, and those that do not exist, fail with code 69."""

    api = Api.CONSUMER_GROUP_DESCRIBE
    needs = "Describe"

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing groups", groups, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> ConsumerGroupDescribeRequest:
        """Request the keys of one coordinator."""
        del view, timeout_ms
        return ConsumerGroupDescribeRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: ConsumerGroupDescribeResponse) -> Failures:
        """Set the result of each group."""
        for entry in response.groups:
            self.set_result(entry.group_id, entry.error_code, _consumer(entry), entry.error_message)
        return self.unresolved(keys)


def _consumer(entry: ConsumerGroup) -> GroupDescription:
    members = tuple(_consumer_member(one) for one in entry.members)
    return GroupDescription(entry.group_id, CONSUMER, entry.group_state, entry.assignor_name, members)


def _consumer_member(entry: ConsumerGroupMember) -> GroupMember:
    tps = sorted(TopicPartition(t.topic_name, p) for t in entry.assignment.topic_partitions for p in t.partitions)
    return GroupMember(entry.member_id, entry.instance_id, entry.client_id, entry.client_host, tuple(tps))


class DeleteGroups(GroupsCall[None]):
    """Delete groups; one with members is refused (code 68), one that does not exist too (code 69)."""

    api = Api.DELETE_GROUPS
    needs = "Delete"
    changes = True
    missing_code = GROUP_ID_NOT_FOUND

    def __init__(self, groups: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"deleting groups {sorted(groups)}", groups, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"deleting group {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DeleteGroupsRequest:
        """Request the keys of one coordinator."""
        del view, timeout_ms
        return DeleteGroupsRequest(tuple(keys))

    def accept(self, keys: Collection[str], response: DeleteGroupsResponse) -> Failures:
        """Set the result of each group."""
        for entry in response.results:
            self.set_result(entry.group_id, entry.error_code, None)
        return self.unresolved(keys)
