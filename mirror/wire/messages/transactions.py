"""Transactions: what their producers say to coordinators (KIP-98, KIP-447, KIP-890), and how they stand (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class AddPartitionsTopic(Message):
    """Partitions of one topic that the transaction is going to write to."""

    name: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class AddPartitionsToTxnRequest(Message):
    """Before the first Produce to a partition under transaction version 1.

    The fields are called as the schema's (which keeps a batched form for brokers beside them): give them by position.
    """

    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: tuple[AddPartitionsTopic, ...]

    @property
    def transactional_id(self) -> str:
        """Whose transaction it is."""
        return self.v3_and_below_transactional_id

    @property
    def producer_id(self) -> int:
        """As InitProducerId (or the last EndTxn) gave it."""
        return self.v3_and_below_producer_id

    @property
    def producer_epoch(self) -> int:
        """The same."""
        return self.v3_and_below_producer_epoch

    @property
    def topics(self) -> tuple[AddPartitionsTopic, ...]:
        """The partitions to add."""
        return self.v3_and_below_topics


@dataclass(slots=True)
class AddPartitionsPartitionResult(Message):
    """One partition's verdict. Where one is refused, the others are not added either: error 55."""

    partition_index: int
    partition_error_code: int


@dataclass(slots=True)
class AddPartitionsResult(Message):
    """One topic's partitions."""

    name: str
    results_by_partition: tuple[AddPartitionsPartitionResult, ...]

    @property
    def results(self) -> tuple[AddPartitionsPartitionResult, ...]:
        """One entry per partition."""
        return self.results_by_partition


@dataclass(slots=True)
class AddPartitionsToTxnResponse(Message):
    """One answer to an AddPartitionsToTxn."""

    results_by_topic_v3_and_below: tuple[AddPartitionsResult, ...]
    throttle_time: int = 0

    @property
    def results(self) -> tuple[AddPartitionsResult, ...]:
        """One entry per topic."""
        return self.results_by_topic_v3_and_below


@dataclass(slots=True)
class AddOffsetsToTxnRequest(Message):
    """Before the first TxnOffsetCommit of a transaction under transaction version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(slots=True)
class AddOffsetsToTxnResponse(Message):
    """One answer to an AddOffsetsToTxn."""

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
    """By name."""

    name: str
    partitions: tuple[TxnOffsetCommitPartition, ...]


@dataclass(slots=True)
class TxnOffsetCommitRequest(Message):
    """Offsets that the group gets when the transaction commits; asked of the group's coordinator.

    Version 5 adds the group to the transaction by itself, on brokers with transaction version 2 only (KIP-890).
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
    """One partition's verdict."""

    partition_index: int
    error_code: int


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic(Message):
    """By name."""

    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(slots=True)
class TxnOffsetCommitResponse(Message):
    """One answer to a TxnOffsetCommit."""

    topics: tuple[TxnOffsetCommitResponseTopic, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class EndTxnRequest(Message):
    """Commit or abort. Version 5 asks for the bumped epoch too, on brokers with transaction version 2 only."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(slots=True)
class EndTxnResponse(Message):
    """From version 5 on the id and epoch of what comes next; -1 in older ones."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1
    throttle_time: int = 0


@dataclass(slots=True)
class DescribeTransactionsRequest(Message):
    """How the transactions of these ids stand."""

    transactional_ids: tuple[str, ...]


@dataclass(slots=True)
class DescribedTransactionTopic(Message):
    """Partitions of one topic that are in the transaction."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class DescribedTransaction(Message):
    """One id's; code 53 where it may not be seen, 105 where there is none, 16 where another broker knows."""

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
    """One answer to a DescribeTransactions."""

    transaction_states: tuple[DescribedTransaction, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class ListTransactionsRequest(Message):
    """The transactions that a coordinator knows, in these states and of these producer ids; empty: of all."""

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()


@dataclass(slots=True)
class ListedTransaction(Message):
    """One transactional id that the client may Describe."""

    transactional_id: str
    producer_id: int
    transaction_state: str


@dataclass(slots=True)
class ListTransactionsResponse(Message):
    """One answer to a ListTransactions."""

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
    """Who writes to these partitions; their leaders know."""

    topics: tuple[DescribeProducersTopic, ...]


@dataclass(slots=True)
class DescribedProducer(Message):
    """What a leader remembers of one producer id; ``current_txn_start_offset`` is -1 without an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass(slots=True)
class DescribedProducersPartition(Message):
    """One partition's producers, or an error."""

    partition_index: int
    error_code: int
    error_message: str | None = None
    active_producers: tuple[DescribedProducer, ...] = ()


@dataclass(slots=True)
class DescribedProducersTopic(Message):
    """One topic's partitions."""

    name: str
    partitions: tuple[DescribedProducersPartition, ...]


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    """One answer to a DescribeProducers."""

    topics: tuple[DescribedProducersTopic, ...]
    throttle_time: int = 0
