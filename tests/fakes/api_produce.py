"""Produce, with what it asks of the transaction coordinator (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.produce import (
    ProducedLeader,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from mirror.wire.records import Batch
from tests.fakes import errors
from tests.fakes.control import ServerCall
from tests.fakes.log import PartitionLog, lone_batch

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster, FakeTopic

_TELLS_ABORTABLE, _ADDS_BY_ITSELF = 11, 12


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
    refused, offset = _append(cluster, call, TopicPartition(topic.name if topic else name, part.index), log, part)
    if refused or code:
        return ProduceResponsePartition(part.index, refused or code, -1)
    return ProduceResponsePartition(part.index, 0, offset, log_start_offset=log.start_offset)


def _append(
    cluster: FakeCluster, call: ServerCall, tp: TopicPartition, log: PartitionLog, part: ProducePartition
) -> tuple[int, int]:
    data = b"".join(bytes(segment) for segment in part.records.segments)
    limit = cluster.topics[tp.topic].configs.get("max.message.bytes")
    if limit is not None and len(data) > int(limit):
        return errors.MESSAGE_TOO_LARGE, -1
    one = lone_batch(data)
    code = _verify(cluster, call, tp, log, one) if one is not None and one.is_transactional else 0
    return (code, -1) if code else log.produce(data, from_zero=call.version >= _ADDS_BY_ITSELF)


def _verify(cluster: FakeCluster, call: ServerCall, tp: TopicPartition, log: PartitionLog, one: Batch) -> int:
    """Only the first batch of a transaction is looked into (``maybeStartTransactionVerification``)."""
    name = call.body.transactional_id
    if name is None:
        return errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if log.is_outdated(one):
        return errors.INVALID_PRODUCER_EPOCH
    adds = call.version >= _ADDS_BY_ITSELF
    if log.has_open(one) or not (adds or cluster.verifies):
        return 0
    log.begin_verification(one)
    return _ask_coordinator(cluster, call, name, tp, one, adds=adds)


def _ask_coordinator(
    cluster: FakeCluster, call: ServerCall, name: str, tp: TopicPartition, one: Batch, *, adds: bool
) -> int:
    if not cluster.is_up(cluster.coordinator(name)):
        return errors.NOT_ENOUGH_REPLICAS
    who = (name, one.producer_id, one.producer_epoch)
    code = cluster.transactions.add(*who, {tp}) if adds else cluster.transactions.verify(*who, tp)
    if code == errors.PRODUCER_FENCED:
        return errors.INVALID_PRODUCER_EPOCH
    if code == errors.CONCURRENT_TRANSACTIONS and not adds:
        return errors.NOT_ENOUGH_REPLICAS  # something that every client retries
    if code == errors.TRANSACTION_ABORTABLE and call.version < _TELLS_ABORTABLE:
        return errors.INVALID_TXN_STATE
    return code
