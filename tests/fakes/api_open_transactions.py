"""What brokers report of open transactions (KIP-664): leaders of producers, coordinators of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.transactions import (
    DescribedProducer,
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.fakes import errors
from tests.fakes.transactions import State

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster
    from tests.fakes.control import ServerCall

TRANSACTIONAL_ID_NOT_FOUND = 105
_STATES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.ENDING: "PrepareAbort",
    State.ENDED: "CompleteAbort",
}


def describe_transactions(cluster: FakeCluster, call: ServerCall) -> DescribeTransactionsResponse:
    request: DescribeTransactionsRequest = call.body
    return DescribeTransactionsResponse(tuple(_transaction(cluster, call, name) for name in request.transactional_ids))


def _transaction(cluster: FakeCluster, call: ServerCall, name: str) -> DescribedTransaction:
    """Permission comes first, and then whose id it is (``KafkaApis.handleDescribeTransactionsRequest``)."""
    txn = cluster.transactions.ids.get(name)
    code = call.action.code(name)
    if not code and cluster.coordinator(name) != call.node:
        code = errors.NOT_COORDINATOR
    if code or txn is None:
        return DescribedTransaction(code or TRANSACTIONAL_ID_NOT_FOUND, name)
    start_ms = txn.begun_ms if txn.state in {State.ONGOING, State.ENDING} else -1
    return DescribedTransaction(0, name, _STATES[txn.state], txn.timeout_ms, start_ms, txn.producer_id, txn.epoch)


def list_transactions(cluster: FakeCluster, call: ServerCall) -> ListTransactionsResponse:
    """Those that this broker coordinates."""
    request: ListTransactionsRequest = call.body
    code = call.action.code(str(call.node))
    mine = [(name, txn) for name, txn in cluster.transactions.ids.items() if cluster.coordinator(name) == call.node]
    wanted = set(request.producer_id_filters)
    return ListTransactionsResponse(
        code,
        tuple(
            ListedTransaction(name, txn.producer_id, _STATES[txn.state])
            for name, txn in mine
            if not code and (not wanted or txn.producer_id in wanted)
        ),
    )


def describe_producers(cluster: FakeCluster, call: ServerCall) -> DescribeProducersResponse:
    request: DescribeProducersRequest = call.body
    return DescribeProducersResponse(
        tuple(
            DescribedProducersTopic(
                topic.name,
                tuple(_producers(cluster, call, TopicPartition(topic.name, part)) for part in topic.partition_indexes),
            )
            for topic in request.topics
        )
    )


def _producers(cluster: FakeCluster, call: ServerCall, tp: TopicPartition) -> DescribedProducersPartition:
    """Followers answer, too, with what they know (``ReplicaManager.activeProducerState``)."""
    log = cluster.partition_of(cluster.topics.get(tp.topic), tp.partition)
    code = call.action.code(tp)
    if log is None:
        code = code or errors.UNKNOWN_TOPIC_OR_PARTITION
    if code or log is None:
        return DescribedProducersPartition(tp.partition, code)
    cluster.expire_producers(log)
    known = log if call.node == log.leader else log.follower()
    return DescribedProducersPartition(
        tp.partition,
        0,
        None,
        tuple(
            DescribedProducer(
                producer_id,
                state.epoch,
                state.recent[-1][1] if state.recent else -1,
                state.last_ms,
                coordinator_epoch=0,
                current_txn_start_offset=known.open_transactions.get(producer_id, -1),
            )
            for producer_id, state in known.producers.items()
        ),
    )
