"""Calls about transactions, and the producers that have them open (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclOperation
from mirror.cluster.calls.keyed_call import BrokersCall, GroupsCall, KeyedCall
from mirror.cluster.calls.offset_calls import LeadersCall, by_topic
from mirror.cluster.calls.routed_calls import ClusterView, Failures
from mirror.cluster.coordinators import KeyType
from mirror.cluster.types import ProducerState, TopicPartition, TransactionDescription, TransactionListing
from mirror.wire.api import Api
from mirror.wire.error_codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from mirror.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_DESCRIBE: Final = frozenset({AclOperation.DESCRIBE})


class TransactionalIdOperations(KeyedCall[str, frozenset[AclOperation]]):
    """Whether this client may see transactional ids: an answer has Describe, and an id without it is refused.

    Brokers show no more than that. Each broker shows it: it checks the permission first (``KafkaApis``), and only then
    whether it is the id's coordinator. So none has to be looked up, and the topic of transactions need not exist yet.
    """

    api = Api.DESCRIBE_TRANSACTIONS
    needs = "Describe"

    def __init__(self, ids: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("reading permissions on transactional ids", ids, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"reading permissions on transactional id {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeTransactionsRequest:
        """Request all keys at once."""
        del view, timeout_ms
        return DescribeTransactionsRequest(tuple(sorted(keys)))

    def accept(self, keys: Collection[str], response: DescribeTransactionsResponse) -> Failures:
        """Set the result of each id.

        Any other answer, also that there is none, shows that this client may see the id.
        """
        for entry in response.transaction_states:
            refused = entry.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            self.set_result(entry.transactional_id, entry.error_code if refused else 0, _DESCRIBE)
        return self.unresolved(keys)


class DescribeTransactions(GroupsCall[TransactionDescription]):
    """Describe transactional ids; code 105 where there is no such id."""

    api = Api.DESCRIBE_TRANSACTIONS
    kind = KeyType.TRANSACTION
    needs = "Describe"

    def __init__(self, ids: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing transactions", ids, deadline_ms, timeout_ms)

    def describe(self, key: str) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing the transaction of transactional id {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeTransactionsRequest:
        """Request the keys of one coordinator."""
        del view, timeout_ms
        return DescribeTransactionsRequest(tuple(sorted(keys)))

    def accept(self, keys: Collection[str], response: DescribeTransactionsResponse) -> Failures:
        """Set the result of each id."""
        for part in response.transaction_states:
            found = TransactionDescription(
                part.transaction_state,
                part.producer_id,
                part.producer_epoch,
                part.transaction_timeout,
                part.transaction_start_time if part.transaction_start_time >= 0 else None,
            )
            self.set_result(part.transactional_id, part.error_code, found)
        return self.unresolved(keys)


class ListTransactions(BrokersCall[tuple[TransactionListing, ...]]):
    """List the transactional ids of these producer ids that each broker coordinates and this client may see."""

    api = Api.LIST_TRANSACTIONS
    needs = "Describe"

    def __init__(
        self, nodes: Collection[int], producer_ids: Collection[int], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__("listing transactions", nodes, deadline_ms, timeout_ms)
        self._producer_ids = tuple(sorted(producer_ids))

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"listing the transactions of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> ListTransactionsRequest:
        """Let the brokers filter."""
        del keys, view, timeout_ms
        return ListTransactionsRequest(producer_id_filters=self._producer_ids)

    def accept(self, keys: Collection[int], response: ListTransactionsResponse) -> Failures:
        """Set the result of one broker."""
        found = tuple(
            TransactionListing(part.transactional_id, part.producer_id, part.transaction_state)
            for part in response.transaction_states
        )
        for node in keys:
            self.set_result(node, response.error_code, found)
        return self.unresolved(keys)


class DescribeProducers(LeadersCall[tuple[ProducerState, ...]]):
    """Describe the producers of partitions, as their leaders remember them."""

    api = Api.DESCRIBE_PRODUCERS
    needs = "Read"

    def __init__(self, tps: Collection[TopicPartition], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing producers", tps, deadline_ms, timeout_ms)

    def describe(self, key: TopicPartition) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing the producers of {key}"

    def body(self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int) -> DescribeProducersRequest:
        """Request the partitions of one leader."""
        del view, timeout_ms
        topics = by_topic(keys).items()
        return DescribeProducersRequest(tuple(DescribeProducersTopic(name, tuple(parts)) for name, parts in topics))

    def accept(self, keys: Collection[TopicPartition], response: DescribeProducersResponse) -> Failures:
        """Set the result of each partition."""
        for topic in response.topics:
            for part in topic.partitions:
                found = tuple(
                    ProducerState(
                        one.producer_id,
                        one.producer_epoch,
                        one.last_timestamp,
                        one.coordinator_epoch,
                        one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
                    )
                    for one in part.active_producers
                )
                self.set_result(
                    TopicPartition(topic.name, part.partition_index), part.error_code, found, part.error_message
                )
        return self.unresolved(keys)
