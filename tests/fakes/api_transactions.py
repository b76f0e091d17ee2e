"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from mirror.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsPartitionResult,
    AddPartitionsResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.fakes import errors
from tests.fakes.control import ServerCall
from tests.fakes.transactions import Answer

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_ADDS_BY_ITSELF, _TELLS_ABORTABLE, _BUMPS = 5, 4, 5
_TELLS_FENCED = 4


def _refused(cluster: FakeCluster, call: ServerCall, transactional_id: str) -> int:
    """The test's code where nothing is to be done, or 16 where another broker coordinates the id."""
    code = call.action.code(call.api.label) or call.action.code(transactional_id)
    if code and not call.action.handled:
        return code
    return errors.NOT_COORDINATOR if call.node != cluster.coordinator(transactional_id) else 0


def _error_code(call: ServerCall, transactional_id: str, code: int) -> int:
    """``code``, or the wrong one that the test wants to be returned all the same (``handled``)."""
    return call.action.code(call.api.label) or call.action.code(transactional_id) or code


def init_producer_id(cluster: FakeCluster, call: ServerCall) -> InitProducerIdResponse:
    """A new id, or the transactional id's own in its next epoch, which fences the old one."""
    request: InitProducerIdRequest = call.body
    name = request.transactional_id
    if name is None:
        code = call.action.code(call.api.label)
        return InitProducerIdResponse(code) if code else InitProducerIdResponse(0, cluster.new_producer_id(), 0)
    answer = Answer(_refused(cluster, call, name))
    if not answer.code:
        result = (request.transaction_timeout, request.producer_id, request.producer_epoch)
        answer = cluster.transactions.init(name, *result)
    code = _error_code(call, name, answer.code)
    if code == errors.PRODUCER_FENCED and call.version < _TELLS_FENCED:
        code = errors.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(code) if code else InitProducerIdResponse(0, answer.producer_id, answer.epoch)


def add_partitions_to_txn(cluster: FakeCluster, call: ServerCall) -> AddPartitionsToTxnResponse:
    """All of them or none: beside one that is not there the others are not attempted."""
    request: AddPartitionsToTxnRequest = call.body
    asked = [TopicPartition(topic.name, p) for topic in request.topics for p in topic.partitions]
    wrong = {tp: code for tp in asked if (code := _partition_code(cluster, call, tp))}
    shared = errors.OPERATION_NOT_ATTEMPTED
    if not wrong:
        shared = _refused(cluster, call, request.transactional_id)
        who = (request.transactional_id, request.producer_id, request.producer_epoch)
        shared = shared or cluster.transactions.add(*who, set(asked))
        shared = _error_code(call, request.transactional_id, shared)
    topics = tuple(
        AddPartitionsResult(
            topic.name,
            tuple(
                AddPartitionsPartitionResult(p, wrong.get(TopicPartition(topic.name, p), shared))
                for p in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return AddPartitionsToTxnResponse(topics)


def _partition_code(cluster: FakeCluster, call: ServerCall, tp: TopicPartition) -> int:
    missing = cluster.partition_of(cluster.topics.get(tp.topic), tp.partition) is None
    return call.action.code(tp) or (errors.UNKNOWN_TOPIC_OR_PARTITION if missing else 0)


def add_offsets_to_txn(cluster: FakeCluster, call: ServerCall) -> AddOffsetsToTxnResponse:
    """The group becomes part of the transaction."""
    request: AddOffsetsToTxnRequest = call.body
    code = _refused(cluster, call, request.transactional_id) or call.action.code(request.group_id)
    if not code:
        who = (request.transactional_id, request.producer_id, request.producer_epoch)
        code = cluster.transactions.add(*who, {request.group_id})
    return AddOffsetsToTxnResponse(_error_code(call, request.transactional_id, code))


def end_txn(cluster: FakeCluster, call: ServerCall) -> EndTxnResponse:
    """Answered before the markers are written."""
    request: EndTxnRequest = call.body
    answer = Answer(_refused(cluster, call, request.transactional_id))
    if not answer.code:
        who = (request.transactional_id, request.producer_id, request.producer_epoch)
        answer = cluster.transactions.end(*who, commit=request.committed, bump=call.version >= _BUMPS)
    code = _error_code(call, request.transactional_id, answer.code)
    return EndTxnResponse(code) if code else EndTxnResponse(0, answer.producer_id, answer.epoch)


def txn_offset_commit(cluster: FakeCluster, call: ServerCall) -> TxnOffsetCommitResponse:
    """Offsets that wait for the transaction's end; the same code for all where the transaction is refused."""
    request: TxnOffsetCommitRequest = call.body
    wanted = call.action.code(call.api.label) or call.action.code(request.group_id)
    refused = wanted if wanted and not call.action.handled else _commit_code(cluster, call, request)
    return TxnOffsetCommitResponse(
        tuple(
            TxnOffsetCommitResponseTopic(
                topic.name, tuple(_commit_one(cluster, call, request, topic.name, p, refused) for p in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _commit_code(cluster: FakeCluster, call: ServerCall, request: TxnOffsetCommitRequest) -> int:
    if call.node != cluster.coordinator(request.group_id):
        return errors.NOT_COORDINATOR
    group = cluster.group_transactions[request.group_id]
    if request.producer_epoch < group.epochs.get(request.producer_id, -1):
        return errors.INVALID_PRODUCER_EPOCH
    if request.producer_id in group.pending and request.producer_epoch == group.epochs.get(request.producer_id):
        return 0
    who = (request.transactional_id, request.producer_id, request.producer_epoch)
    if call.version >= _ADDS_BY_ITSELF:
        code = cluster.transactions.add(*who, {request.group_id})
    elif cluster.verifies:
        code = cluster.transactions.verify(*who, request.group_id)
    else:
        code = 0
    if code == errors.TRANSACTION_ABORTABLE and call.version < _TELLS_ABORTABLE:
        return errors.INVALID_TXN_STATE
    return errors.INVALID_PRODUCER_EPOCH if code == errors.PRODUCER_FENCED else code


def _commit_one(
    cluster: FakeCluster,
    call: ServerCall,
    request: TxnOffsetCommitRequest,
    topic: str,
    part: TxnOffsetCommitPartition,
    refused: int,
) -> TxnOffsetCommitResponsePartition:
    tp = TopicPartition(topic, part.partition_index)
    wanted = call.action.code(call.api.label) or call.action.code(request.group_id) or call.action.code(tp)
    refused = refused or (0 if call.action.handled else wanted)
    if not refused:
        group = cluster.group_transactions[request.group_id]
        group.epochs[request.producer_id] = request.producer_epoch
        group.pending.setdefault(request.producer_id, {})[tp] = cluster.committed(part)
    return TxnOffsetCommitResponsePartition(part.partition_index, refused or wanted)
