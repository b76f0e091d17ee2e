"""Produce, with what it asks of the transaction coordinator (KIP-890)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.produce import (
    ProducedLeader,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
)
from mirror.wire.records import Batch
from tests.fakes import errors
from tests.fakes.control import ServerCall
from tests.fakes.log import PartitionLog, lone_batch

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster, FakeTopic

_TELLS_ABORTABLE, _ADDS_BY_ITSELF = 11, 12


@dataclass(slots=True)
class Append:
    """One partition's part of a request; ``log`` where it was appended, in ``leader_epoch``, up to ``end``."""

    topic: ProduceTopic
    reply: ProduceResponsePartition
    log: PartitionLog | None = None
    leader_epoch: int = 0
    end: int = 0
    acks: int = -1

    @property
    def replicated(self) -> bool:
        """Whether there is nothing to wait for, or no more."""
        return self.log is None or self._lost or self.log.high_watermark >= self.end

    @property
    def _lost(self) -> bool:
        return self.log is not None and self.log.leader_epoch != self.leader_epoch

    def response(self) -> ProduceResponsePartition:
        if self._lost:
            return ProduceResponsePartition(self.reply.index, errors.NOT_LEADER, -1)
        if self.replicated or self.acks >= 0:
            return self.reply
        return ProduceResponsePartition(self.reply.index, errors.REQUEST_TIMED_OUT, -1)


def produce(cluster: FakeCluster, call: ServerCall) -> ProduceResponse | None:
    """Each partition's batch appended, or refused; answered when the in-sync followers have it (acks=all)."""
    request: ProduceRequest = call.body
    if call.produced is None:
        call.produced = [
            _produce_one(cluster, call, cluster.topic_of(asked.name, asked.topic_id), asked, part)
            for asked in request.topic_data
            for part in asked.partition_data
        ]
        call.wait_until_ms = cluster.clock.now() + request.timeout
    waits = request.acks < 0 and not all(one.replicated for one in call.produced)
    if waits and cluster.clock.now() < (call.wait_until_ms or 0):
        return None
    return ProduceResponse(
        tuple(
            ProduceResponseTopic(
                asked.name, asked.topic_id, tuple(one.response() for one in call.produced if one.topic is asked)
            )
            for asked in request.topic_data
        )
    )


def _produce_one(
    cluster: FakeCluster, call: ServerCall, topic: FakeTopic | None, asked: ProduceTopic, part: ProducePartition
) -> Append:
    log = cluster.partition_of(topic, part.index)
    tp = TopicPartition(topic.name if topic else asked.name, part.index)
    code = call.action.code(tp)
    if code and not call.action.handled:
        return Append(asked, ProduceResponsePartition(part.index, code, -1))
    if log is None:
        missing = errors.UNKNOWN_TOPIC_OR_PARTITION if asked.name else errors.UNKNOWN_TOPIC_ID
        return Append(asked, ProduceResponsePartition(part.index, missing, -1))
    if log.leader != call.node:
        # KIP-951; versions before 10 have no place for it.
        leader = ProducedLeader(log.leader, log.leader_epoch)
        return Append(asked, ProduceResponsePartition(part.index, errors.NOT_LEADER, -1, current_leader=leader))
    refused, offset = _append(cluster, call, tp, log, part)
    if refused or code:
        return Append(asked, ProduceResponsePartition(part.index, refused or code, -1))
    reply = ProduceResponsePartition(part.index, 0, offset, log_start_offset=log.start_offset)
    return Append(asked, reply, log, log.leader_epoch, log.end_offset, call.body.acks)


def _append(
    cluster: FakeCluster, call: ServerCall, tp: TopicPartition, log: PartitionLog, part: ProducePartition
) -> tuple[int, int]:
    data = b"".join(bytes(segment) for segment in part.records.segments)
    configs = cluster.topics[tp.topic].configs
    limit = configs.get("max.message.bytes")
    if limit is not None and len(data) > int(limit):
        return errors.MESSAGE_TOO_LARGE, -1
    one = lone_batch(data)
    cluster.expire_producers(log)
    code = _verify(cluster, call, tp, log, one) if one is not None and one.is_transactional else 0
    if code:
        return code, -1
    append_time = configs.get("message.timestamp.type") == "LogAppendTime"
    from_zero = call.version >= _ADDS_BY_ITSELF
    return log.produce(data, from_zero=from_zero, unix_ms=cluster.clock.unix_ms(), append_time=append_time)


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
