"""Produce and InitProducerId."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.topics import TopicPartition
from mirror.wire.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedLeader,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster, FakeTopic


def produce(cluster: FakeCluster, call: ServerCall) -> ProduceResponse:
    """Each partition's batch appended, or refused."""
    request: ProduceRequest = call.body
    topics = []
    for asked in request.topic_data:
        topic = cluster.topic_of(asked.name, asked.topic_id)
        parts = tuple(_produce_one(cluster, call, topic, asked.name, part) for part in asked.partition_data)
        topics.append(ProduceResponseTopic(asked.name, asked.topic_id, parts))
    return ProduceResponse(tuple(topics))


def _produce_one(
    cluster: FakeCluster, call: ServerCall, topic: FakeTopic | None, name: str, part: ProducePartition
) -> ProduceResponsePartition:
    log = cluster.partition_of(topic, part.index)
    code = call.action.code(TopicPartition(topic.name if topic else name, part.index))
    if code and not call.action.handled:
        return ProduceResponsePartition(part.index, code, -1)
    if log is None:
        missing = errors.UNKNOWN_TOPIC_OR_PARTITION if name else errors.UNKNOWN_TOPIC_ID
        return ProduceResponsePartition(part.index, missing, -1)
    if log.leader != call.node:
        # KIP-951; versions before 10 have no place for it.
        leader = ProducedLeader(log.leader, log.leader_epoch)
        return ProduceResponsePartition(part.index, errors.NOT_LEADER, -1, current_leader=leader)
    refused, offset = log.produce(b"".join(bytes(segment) for segment in part.records.segments))
    if refused or code:
        return ProduceResponsePartition(part.index, refused or code, -1)
    return ProduceResponsePartition(part.index, 0, offset, log_start_offset=log.start_offset)


def init_producer_id(cluster: FakeCluster, call: ServerCall) -> InitProducerIdResponse:
    """A new id, or the transactional id's own in its next epoch, which fences the old one."""
    request: InitProducerIdRequest = call.body
    code = call.action.code("InitProducerId")
    if code:
        return InitProducerIdResponse(code)
    if request.transactional_id is None:
        cluster.next_producer_id += 1
        return InitProducerIdResponse(0, cluster.next_producer_id, 0)
    if call.node != cluster.coordinator(request.transactional_id):
        return InitProducerIdResponse(errors.NOT_COORDINATOR)
    if request.transactional_id in cluster.transactional:
        producer_id, epoch = cluster.transactional[request.transactional_id]
        cluster.transactional[request.transactional_id] = (producer_id, epoch + 1)
    else:
        cluster.next_producer_id += 1
        cluster.transactional[request.transactional_id] = (cluster.next_producer_id, 0)
    return InitProducerIdResponse(0, *cluster.transactional[request.transactional_id])
