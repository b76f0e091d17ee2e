"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_REQUIRES_STABLE, _SEVERAL_GROUPS = 7, 8


def _group_code(cluster: FakeCluster, call: ServerCall, group: str) -> int:
    return call.action.code(group) or (errors.NOT_COORDINATOR if cluster.coordinator(group) != call.node else 0)


def offset_commit(cluster: FakeCluster, call: ServerCall) -> OffsetCommitResponse:
    """Without membership, which a group with members refuses; the same code for every partition in that case."""
    request: OffsetCommitRequest = call.body
    group_code = _group_code(cluster, call, request.group_id)
    group = cluster.admin.groups.get(request.group_id)
    if group is not None and group.members:
        group_code = group_code or errors.UNKNOWN_MEMBER_ID
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            code = group_code or call.action.code(tp)
            if not code:
                cluster.groups[request.group_id][tp] = cluster.committed(part)
            parts.append(OffsetCommitResponsePartition(part.partition_index, code))
        topics.append(OffsetCommitResponseTopic(topic.name, tuple(parts)))
    cluster.on_committed(request.group_id)
    return OffsetCommitResponse(tuple(topics))


def offset_fetch(cluster: FakeCluster, call: ServerCall) -> OffsetFetchResponse:
    """Several groups at once, from version 8 on (KIP-709)."""
    request: OffsetFetchRequest = call.body
    if call.version < _SEVERAL_GROUPS:
        one = _fetch_group(cluster, call, OffsetFetchGroup(request.group_id, request.topics))
        return OffsetFetchResponse((), 0, one.topics, one.error_code)
    return OffsetFetchResponse(tuple(_fetch_group(cluster, call, group) for group in request.groups))


def _fetch_group(cluster: FakeCluster, call: ServerCall, group: OffsetFetchGroup) -> OffsetFetchResponseGroup:
    code = _group_code(cluster, call, group.group_id)
    if code:
        return OffsetFetchResponseGroup(group.group_id, (), code)
    committed = cluster.groups[group.group_id]
    asked: dict[str, list[int]] = {}
    if group.topics is None:
        for tp in committed:
            asked.setdefault(tp.topic, []).append(tp.partition)
    else:
        asked = {topic.name: list(topic.partition_indexes) for topic in group.topics}
    topics = tuple(
        OffsetFetchResponseTopic(
            name, tuple(_fetch_offset(cluster, call, group.group_id, TopicPartition(name, p)) for p in parts)
        )
        for name, parts in asked.items()
    )
    return OffsetFetchResponseGroup(group.group_id, topics)


def _fetch_offset(
    cluster: FakeCluster, call: ServerCall, group: str, tp: TopicPartition
) -> OffsetFetchResponsePartition:
    pending = cluster.group_transactions[group].pending.values()
    unstable = (
        call.version >= _REQUIRES_STABLE and call.body.require_stable and any(tp in offsets for offsets in pending)
    )
    code = call.action.code(tp) or (errors.UNSTABLE_OFFSET_COMMIT if unstable else 0)
    kept = cluster.groups[group].get(tp)
    if code or kept is None:
        return OffsetFetchResponsePartition(tp.partition, -1, -1, "", code)
    return OffsetFetchResponsePartition(tp.partition, kept.offset, kept.leader_epoch, kept.metadata)
