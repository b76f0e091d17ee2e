"""The events that application threads send to a producer's core on the network thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.producer.batch.batches import ProducerBatch


class TransactionActions(Protocol):
    """What events call on the transactions of a producer."""

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def init(self, event: InitTransactionsEvent) -> None:
        """Fence older producers, and complete ``event``."""
        ...

    def add_offsets(self, event: AddOffsetsEvent, now: int) -> None:
        """Commit the offsets of ``event`` with the transaction, and complete it."""
        ...


class ProducerActions(Protocol):
    """What events call on the producer core, on the network thread."""

    @property
    def transactions(self) -> TransactionActions:
        """The transactions of the producer. Raises WrongState for a producer without a ``transactional.id``."""
        ...

    def enqueue(self, batch: ProducerBatch, now: int) -> None:
        """Append ``batch`` to the queue of its partition."""
        ...

    def flush(self, now: int) -> None:
        """Send the batches begun by ``now`` without waiting for ``linger.ms``."""
        ...

    def await_topic(self, event: AwaitTopicEvent) -> None:
        """Complete ``event`` once the metadata has its partition."""
        ...

    def commit_transaction(self, event: CommitEvent, now: int) -> None:
        """Commit once all batches are acknowledged, and complete ``event``."""
        ...

    def abort_transaction(self, event: AbortEvent) -> None:
        """Drop what is not sent, abort, and complete ``event``."""
        ...


class SendEvent(Event):
    """A batch to deliver: ready-made, or open and just begun."""

    def __init__(self, batch: ProducerBatch) -> None:
        self._batch = batch

    def fail(self, error: BaseException) -> None:
        """It was never sent."""
        self._batch.fail(as_kafka_error(error))

    def apply(self, core: ProducerActions, now: int) -> None:
        """Into its queue."""
        core.enqueue(self._batch, now)


class WakeEvent(Event):
    """An open batch has become full, or somebody waits for memory: look at the queues."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """The loop polls the core because of it."""


class FlushEvent(Event):
    """What has been sent so far shall not linger."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Every batch begun by now is ready."""
        core.flush(now)


class AwaitTopicEvent(CompletableEvent[None]):
    """The wait of ``send`` for a partition to be known (``KafkaProducer.waitOnMetadata``, KIP-912)."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"waiting for metadata of {tp}", deadline_ms, timeout_ms)
        self.tp = tp

    def apply(self, core: ProducerActions, now: int) -> None:
        """The core completes it once brokers tell of the partition."""
        del now
        core.await_topic(self)


class BeginTransactionEvent(Event):
    """A transaction begins; what is sent from here on belongs to it."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """No request: the coordinator learns of it with the first partition."""
        del now
        core.transactions.begin()


class TransactionEvent(CompletableEvent[None]):
    """A step of a transaction that somebody waits for. Expired, it goes on; the same call again joins it."""


class InitTransactionsEvent(TransactionEvent):
    """Get an id and epoch that fence every older producer of the transactional id."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """``InitProducerId``, once."""
        del now
        core.transactions.init(self)


class AddOffsetsEvent(TransactionEvent):
    """Offsets that are committed with the transaction."""

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"adding offsets of group {group!r} to the transaction", deadline_ms, timeout_ms)
        self.group = group
        self.offsets = offsets

    def apply(self, core: ProducerActions, now: int) -> None:
        """Queue them behind the partitions."""
        core.transactions.add_offsets(self, now)


class CommitEvent(TransactionEvent):
    """Commit, once everything sent is acknowledged."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """What lingers is sent."""
        core.commit_transaction(self, now)


class AbortEvent(TransactionEvent):
    """Abort: what was not sent is dropped, what is unanswered is fenced out."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Nothing is waited for but the coordinator."""
        del now
        core.abort_transaction(self)
