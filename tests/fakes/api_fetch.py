"""Fetch, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from mirror.cluster.types import EARLIEST, LATEST, TopicPartition
from mirror.wire.messages.epochs import (
    EpochEnd,
    EpochEndTopic,
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from mirror.wire.messages.fetch import (
    AbortedTransaction,
    FetchedLeader,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall
from tests.fakes.log import PartitionLog

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_WITH_TOPIC_IDS = 13


def fetch(cluster: FakeCluster, call: ServerCall) -> FetchResponse | None:
    """What there is; waits for ``min_bytes`` up to ``max_wait``, unless something is wrong.

    An incremental answer (KIP-227) leaves out the partitions that have nothing new.
    """
    request: FetchRequest = call.body
    if call.session is None:
        call.session = cluster.sessions.resolve(call.node, request)
    session = call.session
    code = session.error or call.action.code("Fetch")
    if code:
        return FetchResponse(code)
    room, found, urgent = request.max_bytes, 0, False
    topics: dict[tuple[str, uuid.UUID | None], list[FetchResponsePartition]] = {}
    for key, part in list(session.partitions.items()):
        name, topic_id, _ = key
        topic = cluster.topic_of(name, topic_id)
        tp = TopicPartition(topic.name if topic else name, part.partition)
        result = _fetch_one(call, cluster.partition_of(topic, part.partition), tp, part, room, first=not found)
        size = len(result.records or b"")
        room, found, urgent = room - size, found + size, urgent or bool(result.error_code)
        if size or result.error_code or result.preferred_read_replica >= 0 or not session.incremental:
            topics.setdefault((name, topic_id), []).append(result)
        if size:
            session.had(key)
    call.wait_until_ms = call.received_ms + request.max_wait
    if session.partitions and found < request.min_bytes and not urgent and cluster.clock.now() < call.wait_until_ms:
        return None
    responses = tuple(FetchResponseTopic(topic_id, name, tuple(p)) for (name, topic_id), p in topics.items())
    return FetchResponse(0, session.session_id, responses)


def _fetch_one(
    call: ServerCall, log: PartitionLog | None, tp: TopicPartition, part: FetchPartition, room: int, *, first: bool
) -> FetchResponsePartition:
    code = call.action.code(tp) or _leadership(call, log, part.current_leader_epoch)
    if code or log is None:
        leader = FetchedLeader(log.leader, log.leader_epoch) if log and code == errors.NOT_LEADER else None
        return FetchResponsePartition(part.partition, code, records=memoryview(b""), current_leader=leader)
    if not log.start_offset <= part.fetch_offset <= log.end_offset:
        return FetchResponsePartition(
            part.partition,
            errors.OFFSET_OUT_OF_RANGE,
            log_start_offset=log.start_offset if log.reports_start else -1,
            records=memoryview(b""),
        )
    if log.preferred_replica is not None and call.node == log.leader:
        # KIP-392: nothing from here, ask that one.
        return FetchResponsePartition(
            part.partition, 0, log.high_watermark, preferred_read_replica=log.preferred_replica, records=memoryview(b"")
        )
    committed = bool(call.body.isolation_level)
    size = max(0, min(room, part.partition_max_bytes))
    data, upper = log.read(part.fetch_offset, size, committed=committed, whole_first=first)
    aborted = tuple(
        AbortedTransaction(one.producer_id, one.first_offset)
        for one in log.aborted_between(part.fetch_offset, upper)
        if committed
    )
    return FetchResponsePartition(
        part.partition,
        0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=aborted if committed else None,
        records=memoryview(data),
    )


def _leadership(call: ServerCall, log: PartitionLog | None, epoch: int) -> int:
    """0 where this broker leads the partition, in the epoch that the client believes in (KIP-320)."""
    if log is None:
        by_name = call.api is not call.api.FETCH or call.version < _WITH_TOPIC_IDS
        return errors.UNKNOWN_TOPIC_OR_PARTITION if by_name else errors.UNKNOWN_TOPIC_ID
    if call.node not in {log.leader, log.preferred_replica}:
        return errors.NOT_LEADER
    if epoch in {-1, log.leader_epoch}:
        return 0
    return errors.FENCED_LEADER_EPOCH if epoch < log.leader_epoch else errors.UNKNOWN_LEADER_EPOCH


def list_offsets(cluster: FakeCluster, call: ServerCall) -> ListOffsetsResponse:
    """By position or by time."""
    request: ListOffsetsRequest = call.body
    topics = []
    for asked in request.topics:
        topic = cluster.topics.get(asked.name)
        parts = tuple(
            _list_one(call, cluster.partition_of(topic, p.partition_index), asked.name, p) for p in asked.partitions
        )
        topics.append(ListOffsetsResponseTopic(asked.name, parts))
    return ListOffsetsResponse(tuple(topics))


def _list_one(
    call: ServerCall, log: PartitionLog | None, topic: str, part: ListOffsetsPartition
) -> ListOffsetsResponsePartition:
    code = call.action.code(TopicPartition(topic, part.partition_index))
    code = code or _leadership(call, log, part.current_leader_epoch)
    if code or log is None:
        return ListOffsetsResponsePartition(part.partition_index, code)
    limit = log.last_stable_offset if call.body.isolation_level else log.high_watermark
    if part.timestamp in {EARLIEST, LATEST}:
        offset = log.start_offset if part.timestamp == EARLIEST else limit
        return ListOffsetsResponsePartition(part.partition_index, 0, -1, offset, log.leader_epoch)
    for one in log.batches():
        if one.max_timestamp >= part.timestamp and log.start_offset <= one.base_offset < limit:
            return ListOffsetsResponsePartition(
                part.partition_index, 0, one.max_timestamp, one.base_offset, one.leader_epoch
            )
    return ListOffsetsResponsePartition(part.partition_index, 0, -1, -1, -1)


def offset_for_leader_epoch(cluster: FakeCluster, call: ServerCall) -> OffsetForLeaderEpochResponse:
    """Where an epoch ended, as the leader sees it (KIP-320)."""
    request: OffsetForLeaderEpochRequest = call.body
    topics = []
    for asked in request.topics:
        topic = cluster.topics.get(asked.topic)
        parts = tuple(
            _epoch_end(call, cluster.partition_of(topic, p.partition), asked.topic, p) for p in asked.partitions
        )
        topics.append(EpochEndTopic(asked.topic, parts))
    return OffsetForLeaderEpochResponse(tuple(topics))


def _epoch_end(call: ServerCall, log: PartitionLog | None, topic: str, part: EpochPartition) -> EpochEnd:
    code = call.action.code(TopicPartition(topic, part.partition))
    code = code or _leadership(call, log, part.current_leader_epoch)
    if code or log is None:
        return EpochEnd(code, part.partition)
    return EpochEnd(0, part.partition, *log.end_of_epoch(part.leader_epoch))
