"""The events that application threads send to a producer's core on the network thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from mirror.cluster.events import CompletableEvent, Event, as_kafka_error
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.queue import ProducerId


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

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        """Let the batches of ``chain`` carry ``identity`` in ``tp``."""
        ...

    def release(self, tp: TopicPartition) -> None:
        """Forget the identity that ``tp`` has adopted."""
        ...

    def add_partitions(self, tps: Collection[TopicPartition], now: int) -> None:
        """Add ``tps`` to the transaction."""
        ...

    def admit_id(self, producer_id: int) -> None:
        """Let batches be sent under ``producer_id``."""
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
    """A batch to deliver: encoded by the caller, or open and just begun."""

    def __init__(self, batch: ProducerBatch) -> None:
        self._batch = batch

    def fail(self, error: BaseException) -> None:
        """Fail the batch, which was never sent."""
        self._batch.fail(as_kafka_error(error))

    def apply(self, core: ProducerActions, now: int) -> None:
        """Append the batch to its queue."""
        core.enqueue(self._batch, now)


class AdoptEvent(Event):
    """A partition adopts an identity, under which the batches of one chain are sent from now on."""

    def __init__(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        self._tp = tp
        self._identity = identity
        self._chain = chain

    def apply(self, core: ProducerActions, now: int) -> None:
        """Replace the partition's queue."""
        del now
        core.adopt(self._tp, self._identity, self._chain)


class ReleaseEvent(Event):
    """An adopted identity is no longer used."""

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp

    def apply(self, core: ProducerActions, now: int) -> None:
        """Replace the partition's queue."""
        del now
        core.release(self._tp)


class AdmitIdEvent(Event):
    """A producer id may be used."""

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id

    def apply(self, core: ProducerActions, now: int) -> None:
        """Let batches be sent under it."""
        del now
        core.admit_id(self._producer_id)


class WakeEvent(Event):
    """An open batch has become full, or a thread waits for memory: the core is to be polled."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Do nothing: the loop polls the core after each event."""


class FlushEvent(Event):
    """Batches sent so far must not linger."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Flush the batches created by now."""
        core.flush(now)


class AwaitTopicEvent(CompletableEvent[None]):
    """The wait of ``send`` for metadata of a partition (``KafkaProducer.waitOnMetadata``, KIP-912)."""

    def __init__(self, tp: TopicPartition, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"waiting for metadata of {tp}", deadline_ms, timeout_ms)
        self.tp = tp

    def apply(self, core: ProducerActions, now: int) -> None:
        """Let the core complete it once the metadata has the partition."""
        del now
        core.await_topic(self)


class BeginTransactionEvent(Event):
    """Begin a transaction, to which later sends belong."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Begin without a request: the coordinator learns of it with the first partition."""
        del now
        core.transactions.begin()


class AddPartitionsEvent(Event):
    """Partitions join the transaction, although nothing may be written to them."""

    def __init__(self, tps: Collection[TopicPartition]) -> None:
        self._tps = tps

    def apply(self, core: ProducerActions, now: int) -> None:
        """Send AddPartitionsToTxn as soon as the coordinator is free."""
        core.add_partitions(self._tps, now)


class TransactionEvent(CompletableEvent[None]):
    """A step of a transaction that a caller waits for. If the wait times out, the step continues.

    A repeated call joins it.
    """


class InitTransactionsEvent(TransactionEvent):
    """Get a producer id and epoch that fence every older producer of the transactional id."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Send InitProducerId, once."""
        del now
        core.transactions.init(self)


class AddOffsetsEvent(TransactionEvent):
    """Offsets to be committed with the transaction."""

    def __init__(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"adding offsets of group {group!r} to the transaction", deadline_ms, timeout_ms)
        self.group = group
        self.offsets = offsets

    def apply(self, core: ProducerActions, now: int) -> None:
        """Queue the offsets behind the partitions."""
        core.transactions.add_offsets(self, now)


class CommitEvent(TransactionEvent):
    """Commit once everything sent is acknowledged."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Flush and commit."""
        core.commit_transaction(self, now)


class AbortEvent(TransactionEvent):
    """Abort: waiting batches are dropped, those in flight are fenced."""

    def apply(self, core: ProducerActions, now: int) -> None:
        """Abort as soon as the coordinator answers."""
        del now
        core.abort_transaction(self)
