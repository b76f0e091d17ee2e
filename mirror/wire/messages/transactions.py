"""Requests of transactional producers (KIP-98, KIP-447, KIP-890), and descriptions of transactions (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import FEW_BYTES, Message


@dataclass(slots=True)
class AddPartitionsTopic(Message):
    """Partitions of one topic to add to the transaction."""

    name: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class AddPartitionsToTxnRequest(Message):
    """Required before the first Produce to a partition under transaction version 1.

    The fields have the schema's names: the schema also has a batched form that only brokers use. Pass the values by
    position, and read them through the properties.
    """

    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: tuple[AddPartitionsTopic, ...]

    @property
    def transactional_id(self) -> str:
        """The transactional id of the producer."""
        return self.v3_and_below_transactional_id

    @property
    def producer_id(self) -> int:
        """The producer id from InitProducerId or from the last EndTxn."""
        return self.v3_and_below_producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch that belongs to ``producer_id``."""
        return self.v3_and_below_producer_epoch

    @property
    def topics(self) -> tuple[AddPartitionsTopic, ...]:
        """The partitions to add."""
        return self.v3_and_below_topics


@dataclass(slots=True)
class AddPartitionsPartitionResult(Message):
    """Result of one partition. If one partition is refused, the others fail with error 55."""

    partition_index: int
    partition_error_code: int


@dataclass(slots=True)
class AddPartitionsResult(Message):
    """Results of one topic."""

    name: str
    results_by_partition: tuple[AddPartitionsPartitionResult, ...]

    @property
    def results(self) -> tuple[AddPartitionsPartitionResult, ...]:
        """One entry per partition."""
        return self.results_by_partition


@dataclass(slots=True)
class AddPartitionsToTxnResponse(Message):
    """Response to an AddPartitionsToTxn request."""

    results_by_topic_v3_and_below: tuple[AddPartitionsResult, ...]
    throttle_time: int = 0

    @property
    def results(self) -> tuple[AddPartitionsResult, ...]:
        """One entry per topic."""
        return self.results_by_topic_v3_and_below


@dataclass(slots=True)
class AddOffsetsToTxnRequest(Message):
    """Required before the first TxnOffsetCommit of a transaction under transaction version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(slots=True)
class AddOffsetsToTxnResponse(Message):
    """Response to an AddOffsetsToTxn request."""

    most_bytes: ClassVar[int] = FEW_BYTES

    error_code: int
    throttle_time: int = 0


@dataclass(slots=True)
class TxnOffsetCommitPartition(Message):
    """``committed_offset`` is the next offset to read."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


@dataclass(slots=True)
class TxnOffsetCommitTopic(Message):
    """Topics are identified by name."""

    name: str
    partitions: tuple[TxnOffsetCommitPartition, ...]


@dataclass(slots=True)
class TxnOffsetCommitRequest(Message):
    """Offsets to commit for the group together with the transaction, sent to the group's coordinator.

    Version 5 also adds the group to the transaction, on brokers with transaction version 2 only (KIP-890).
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TxnOffsetCommitTopic, ...]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition(Message):
    """Result of one partition."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic(Message):
    """Results of one topic, identified by name."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(slots=True)
class TxnOffsetCommitResponse(Message):
    """Response to a TxnOffsetCommit request."""

    topics: tuple[TxnOffsetCommitResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class EndTxnRequest(Message):
    """Commits or aborts. Version 5 also bumps the epoch, on brokers with transaction version 2 only (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(slots=True)
class EndTxnResponse(Message):
    """From version 5, the producer id and epoch of the next transaction; -1 in older versions."""

    most_bytes: ClassVar[int] = FEW_BYTES

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeTransactionsRequest(Message):
    """Requests the state of these transactional ids."""

    transactional_ids: tuple[str, ...]


@dataclass(slots=True)
class DescribedTransactionTopic(Message):
    """Partitions of one topic that are in the transaction."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class DescribedTransaction(Message):
    """The state of one transactional id, or an error.

    Error codes: 53: the client may not describe it, 105: it does not exist, 16: another broker is its coordinator.
    """

    error_code: int
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout: int = 0
    transaction_start_time: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    topics: tuple[DescribedTransactionTopic, ...] = ()


@dataclass(slots=True)
class DescribeTransactionsResponse(Message):
    """Response to a DescribeTransactions request."""

    transaction_states: tuple[DescribedTransaction, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ListTransactionsRequest(Message):
    """Filters by state and by producer id; an empty filter matches all transactions of the coordinator."""

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()


@dataclass(slots=True)
class ListedTransaction(Message):
    """The transaction of one transactional id for which the client has the Describe permission."""

    transactional_id: str
    producer_id: int
    transaction_state: str


@dataclass(slots=True)
class ListTransactionsResponse(Message):
    """Response to a ListTransactions request."""

    error_code: int
    transaction_states: tuple[ListedTransaction, ...]
    unknown_state_filters: tuple[str, ...] = ()
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeProducersTopic(Message):
    """Partitions of one topic to describe."""

    name: str
    partition_indexes: tuple[int, ...]


@dataclass(slots=True)
class DescribeProducersRequest(Message):
    """Requests the active producers of these partitions, from their leaders."""

    topics: tuple[DescribeProducersTopic, ...]


@dataclass(slots=True)
class DescribedProducer(Message):
    """A leader's state of one producer id. ``current_txn_start_offset`` is -1 without an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass(slots=True)
class DescribedProducersPartition(Message):
    """The producers of one partition, or an error."""

    partition_index: int
    error_code: int
    error_message: str | None = None
    active_producers: tuple[DescribedProducer, ...] = ()


@dataclass(slots=True)
class DescribedProducersTopic(Message):
    """Partitions of one topic."""

    name: str
    partitions: tuple[DescribedProducersPartition, ...]


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    """Response to a DescribeProducers request."""

    topics: tuple[DescribedProducersTopic, ...]
    throttle_time: int = 0
