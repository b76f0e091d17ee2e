"""Builds the requests of a transaction, and reads the errors of their responses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mirror.cluster.coordinators import KeyType
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, ConfigError, Fenced, KafkaError, Problem, TransactionExpired
from mirror.producer.batch.queue import ProducerId
from mirror.producer.events import AddOffsetsEvent
from mirror.producer.txn.steps import Transaction, TransactionStep
from mirror.wire.api import Api
from mirror.wire.error_codes import NETWORK_EXCEPTION, OPERATION_NOT_ATTEMPTED, ErrorAction, broker_error, verdict
from mirror.wire.messages.base import Message
from mirror.wire.messages.produce import InitProducerIdRequest
from mirror.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

NO_PRODUCER: Final = ProducerId(-1, -1)
BEFORE_IMPLICIT: Final = {Api.PRODUCE: 11, Api.TXN_OFFSET_COMMIT: 4, Api.END_TXN: 4}
"""The last versions of these requests that belong to transaction version 1 (KIP-890)."""

_BY_SEVERITY: Final = (
    ErrorAction.RETRY,
    ErrorAction.REFRESH_METADATA,
    ErrorAction.FIND_COORDINATOR,
    ErrorAction.ABORTABLE,
)


class CoordinatorRequest(NamedTuple):
    """A request, and the key (group or transactional id) of its coordinator."""

    api: Api
    body: Message
    kind: KeyType
    key: str


@dataclass(frozen=True, slots=True)
class CoordinatorRequestBuilder:
    """Builds the requests of one transactional id; ``timeout_ms`` is transaction.timeout.ms."""

    transactional_id: str
    timeout_ms: int

    def request_of(
        self, step: TransactionStep, identity: ProducerId, txn: Transaction, *, commit: bool
    ) -> CoordinatorRequest:
        """Return the request of ``step``."""
        own_id, kind = self.transactional_id, KeyType.TRANSACTION
        match step:
            case TransactionStep.ADD_PARTITIONS:
                topics = tuple(AddPartitionsTopic(name, numbers) for name, numbers in _by_topic(txn.pending))
                return CoordinatorRequest(
                    Api.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(own_id, *identity, topics), kind, own_id
                )
            case TransactionStep.ADD_OFFSETS:
                body = AddOffsetsToTxnRequest(own_id, *identity, txn.pending_group or "")
                return CoordinatorRequest(Api.ADD_OFFSETS_TO_TXN, body, kind, own_id)
            case TransactionStep.COMMIT_OFFSETS:
                event = txn.offsets[0]
                offsets = self._offsets(identity, event)
                return CoordinatorRequest(Api.TXN_OFFSET_COMMIT, offsets, KeyType.GROUP, event.group)
            case TransactionStep.END:
                return CoordinatorRequest(Api.END_TXN, EndTxnRequest(own_id, *identity, commit), kind, own_id)
            case _:
                return CoordinatorRequest(
                    Api.INIT_PRODUCER_ID, InitProducerIdRequest(own_id, self.timeout_ms, *identity), kind, own_id
                )

    def _offsets(self, identity: ProducerId, event: AddOffsetsEvent) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitPartition]] = {}
        for tp, offset in sorted(event.offsets.items()):
            epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
            part = TxnOffsetCommitPartition(tp.partition, offset.offset, epoch, offset.metadata)
            topics.setdefault(tp.topic, []).append(part)
        committed = tuple(TxnOffsetCommitTopic(name, tuple(parts)) for name, parts in topics.items())
        return TxnOffsetCommitRequest(self.transactional_id, event.group, *identity, committed)

    def refusals(self, step: TransactionStep, response: Any, request: CoordinatorRequest) -> list[BrokerError]:
        """Return the error of everything that the response refuses; empty if it refuses nothing."""
        operation = f"{step.value} of {self.transactional_id!r}"
        match step:
            case TransactionStep.ADD_PARTITIONS:
                codes = [
                    (
                        part.partition_error_code,
                        f"adding {topic.name}-{part.partition_index} to the transaction",
                        "Write",
                    )
                    for topic in response.results
                    for part in topic.results
                ]
            case TransactionStep.COMMIT_OFFSETS:
                codes = [
                    (
                        part.error_code,
                        f"committing {topic.name}-{part.partition_index} of group {request.key!r}",
                        "Read",
                    )
                    for topic in response.topics
                    for part in topic.partitions
                ]
            case TransactionStep.ADD_OFFSETS:
                codes = [(response.error_code, operation, "Read")]
            case _:
                codes = [(response.error_code, operation, "Write")]
        refused = [entry for entry in codes if entry[0] not in {0, OPERATION_NOT_ATTEMPTED}]
        if step in {TransactionStep.ADD_PARTITIONS, TransactionStep.COMMIT_OFFSETS} and len(codes) < _count(
            request.body
        ):
            refused.append((NETWORK_EXCEPTION, f"{operation}: the broker's answer leaves partitions out", "Write"))
        return [broker_error(code, action, needs=needs) for code, action, needs in refused]

    def expired(self, error: KafkaError, open_ms: int) -> TransactionExpired:
        """Return the error of a transaction that its coordinator aborted after its timeout, as ``error`` shows."""
        return TransactionExpired(
            f"the transaction of {self.transactional_id!r} was open for {open_ms} ms, longer than"
            f" transaction.timeout.ms ({self.timeout_ms}): its coordinator has aborted it ({error})",
            error.code if isinstance(error, BrokerError) else -1,
        )

    def aborted_by_another(self, error: KafkaError) -> Fenced:
        """Return the error of a transaction that a newer producer has aborted, as ``error`` shows."""
        return Fenced(
            f"a newer producer of {self.transactional_id!r} has aborted this one's transaction ({error})",
            error.code if isinstance(error, BrokerError) else -1,
        )

    def timeout_refused(self, error: KafkaError) -> ConfigError:
        """Return the error for a ``transaction.timeout.ms`` that the brokers do not allow."""
        allowed = f"the brokers' transaction.max.timeout.ms is smaller ({error})"
        return ConfigError([Problem("", "transaction.timeout.ms", str(self.timeout_ms), allowed)])


def _count(body: Message) -> int:
    """Return the number of partitions in a request."""
    assert isinstance(body, AddPartitionsToTxnRequest | TxnOffsetCommitRequest)  # noqa: S101 - no other names any
    return sum(len(topic.partitions) for topic in body.topics)


def severity(error: BrokerError) -> int:
    """Return the rank of an error: of several in one response the most severe counts."""
    outcome = verdict(error.code)
    return _BY_SEVERITY.index(outcome) if outcome in _BY_SEVERITY else len(_BY_SEVERITY)


def _by_topic(tps: set[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(tps):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [(name, tuple(numbers)) for name, numbers in topics.items()]
