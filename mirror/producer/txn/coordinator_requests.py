"""The requests of a transaction, and what their answers say: data in, data out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mirror.cluster.coordinators import KeyType
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, ConfigError, KafkaError, Problem, TransactionExpired
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

NOBODY: Final = ProducerId(-1, -1)
BEFORE_IMPLICIT: Final = {Api.PRODUCE: 11, Api.TXN_OFFSET_COMMIT: 4, Api.END_TXN: 4}
"""The last versions that do not ask for transaction version 2 (KIP-890)."""

_WORST_LAST: Final = (
    ErrorAction.RETRY,
    ErrorAction.REFRESH_METADATA,
    ErrorAction.FIND_COORDINATOR,
    ErrorAction.ABORTABLE,
)


class CoordinatorRequest(NamedTuple):
    """What to ask, and whom."""

    api: Api
    body: Message
    kind: KeyType
    key: str


@dataclass(frozen=True, slots=True)
class CoordinatorRequestBuilder:
    """Makes requests in the name of one transactional id; ``timeout_ms`` is transaction.timeout.ms."""

    transactional_id: str
    timeout_ms: int

    def ask(self, step: TransactionStep, identity: ProducerId, txn: Transaction, *, commit: bool) -> CoordinatorRequest:
        """The request of ``step``."""
        mine, kind = self.transactional_id, KeyType.TRANSACTION
        match step:
            case TransactionStep.ADD_PARTITIONS:
                topics = tuple(AddPartitionsTopic(name, numbers) for name, numbers in _by_topic(txn.asked))
                return CoordinatorRequest(
                    Api.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(mine, *identity, topics), kind, mine
                )
            case TransactionStep.ADD_OFFSETS:
                body = AddOffsetsToTxnRequest(mine, *identity, txn.asked_group or "")
                return CoordinatorRequest(Api.ADD_OFFSETS_TO_TXN, body, kind, mine)
            case TransactionStep.COMMIT_OFFSETS:
                event = txn.offsets[0]
                offsets = self._offsets(identity, event)
                return CoordinatorRequest(Api.TXN_OFFSET_COMMIT, offsets, KeyType.GROUP, event.group)
            case TransactionStep.END:
                return CoordinatorRequest(Api.END_TXN, EndTxnRequest(mine, *identity, commit), kind, mine)
            case _:
                return CoordinatorRequest(
                    Api.INIT_PRODUCER_ID, InitProducerIdRequest(mine, self.timeout_ms, *identity), kind, mine
                )

    def _offsets(self, identity: ProducerId, event: AddOffsetsEvent) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitPartition]] = {}
        for tp, one in sorted(event.offsets.items()):
            epoch = -1 if one.leader_epoch is None else one.leader_epoch
            part = TxnOffsetCommitPartition(tp.partition, one.offset, epoch, one.metadata)
            topics.setdefault(tp.topic, []).append(part)
        told = tuple(TxnOffsetCommitTopic(name, tuple(parts)) for name, parts in topics.items())
        return TxnOffsetCommitRequest(self.transactional_id, event.group, *identity, told)

    def refusals(self, step: TransactionStep, response: Any, ask: CoordinatorRequest) -> list[BrokerError]:
        """What the answer refuses, each as its error; empty where all was done."""
        about = f"{step.value} of {self.transactional_id!r}"
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
                    (part.error_code, f"committing {topic.name}-{part.partition_index} of group {ask.key!r}", "Read")
                    for topic in response.topics
                    for part in topic.partitions
                ]
            case TransactionStep.ADD_OFFSETS:
                codes = [(response.error_code, about, "Read")]
            case _:
                codes = [(response.error_code, about, "Write")]
        refused = [one for one in codes if one[0] not in {0, OPERATION_NOT_ATTEMPTED}]
        if step in {TransactionStep.ADD_PARTITIONS, TransactionStep.COMMIT_OFFSETS} and len(codes) < _count(ask.body):
            refused.append((NETWORK_EXCEPTION, f"{about}: the broker's answer leaves partitions out", "Write"))
        return [broker_error(code, what, needs=needs) for code, what, needs in refused]

    def expired(self, error: KafkaError, open_ms: int) -> TransactionExpired:
        """What ``error``, which speaks of a newer producer, means after ``open_ms``."""
        return TransactionExpired(
            f"the transaction of {self.transactional_id!r} was open for {open_ms} ms, longer than"
            f" transaction.timeout.ms ({self.timeout_ms}): its coordinator has aborted it ({error})",
            error.code if isinstance(error, BrokerError) else -1,
        )

    def timeout_refused(self, error: KafkaError) -> ConfigError:
        """The brokers do not allow ``transaction.timeout.ms``."""
        allowed = f"the brokers' transaction.max.timeout.ms is smaller ({error})"
        return ConfigError([Problem("", "transaction.timeout.ms", str(self.timeout_ms), allowed)])


def _count(body: Message) -> int:
    """The partitions that a request speaks of."""
    assert isinstance(body, AddPartitionsToTxnRequest | TxnOffsetCommitRequest)  # noqa: S101 - no other names any
    return sum(len(topic.partitions) for topic in body.topics)


def weight(error: BrokerError) -> int:
    """Which of several refusals in one answer counts: the heaviest."""
    outcome = verdict(error.code)
    return _WORST_LAST.index(outcome) if outcome in _WORST_LAST else len(_WORST_LAST)


def _by_topic(tps: set[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(tps):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [(name, tuple(numbers)) for name, numbers in topics.items()]
