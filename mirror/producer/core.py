"""The producer core, which runs on the network thread: expire, drain, send (``Sender.runOnce``). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from mirror.cluster.events import as_kafka_error
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.requests import IDLE, Poll
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, ClientClosed, DeliveryPhase, KafkaError, KafkaTimeout, NeedsAbort, WrongState
from mirror.producer.batch.accumulator import Accumulator, Release
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.expiry import Expiry
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.producer.events import AbortEvent, AwaitTopicEvent, CommitEvent
from mirror.producer.id_gate import ProducerIdGate
from mirror.producer.identity import IdempotentIdentity
from mirror.producer.produce_responses import ProduceResponseHandler
from mirror.producer.sender import Sender
from mirror.producer.settings import ProducerSettings
from mirror.producer.txn.transactions import Transactions
from mirror.wire.error_codes import ErrorAction, verdict


class ProducerCore:
    """One producer, idempotent or transactional. Used on the network thread only.

    ``release`` is called with a partition and the bytes of ``buffer.memory`` that it releases, ``ask_id`` with each
    producer id before its first batch, which is held back until :meth:`admit_id`; None: all ids may be used.
    """

    every_turn = False

    def __init__(
        self,
        settings: ProducerSettings,
        loop: ClusterLoop,
        release: Release,
        ask_id: Callable[[int], None] | None = None,
    ) -> None:
        self._metadata = loop.metadata
        self._transactions = Transactions(settings, loop) if settings.transactional_id is not None else None
        self._identity = IdempotentIdentity(settings.cluster, loop.rng)
        self._gate = None if ask_id is None else ProducerIdGate(ask_id)
        # No methods of its own: what refers to itself is freed by a collection only, which stops all threads.
        waits = partial(_waits_for_coordinator, self._gate, self._transactions, self._identity)
        expiry = Expiry(loop.metadata, loop.network, settings.delivery_timeout_ms, waits)
        lost = partial(_on_batch_lost, self._transactions)
        self.batches = Accumulator(settings.delivery_timeout_ms, expiry, release, lost)
        responses = ProduceResponseHandler(settings, loop, self.batches, self._transactions)
        identity = self._transactions or self._identity
        self._sender = Sender(settings, loop, self.batches, responses, identity, self._gate)
        self._topic_waits: list[AwaitTopicEvent] = []
        self._closed_by: KafkaError | None = None

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 while there is none. May be read from any thread."""
        identity = (self._transactions or self._identity).identity
        return -1 if identity is None else identity.producer_id

    @property
    def identity(self) -> ProducerId | None:
        """The producer id and epoch; those of a transactional producer after its last transaction.

        May be read from any thread.
        """
        return self._identity.identity if self._transactions is None else self._transactions.settled

    @property
    def pending_step(self) -> tuple[str | None, KafkaError | None]:
        """The step of a transaction that has not ended, or None, and its last error. May be read from any thread."""
        return (None, None) if self._transactions is None else self._transactions.pending_step

    @property
    def fences_in_doubt(self) -> int:
        """How many requests of its own may still fence it, or its successor. May be read from any thread."""
        return 0 if self._transactions is None else self._transactions.fences_in_doubt

    # --- events of application threads

    def enqueue(self, batch: ProducerBatch, now: int) -> None:
        """Append a batch to the queue of its partition."""
        refusal = self._closed_by or (self._transactions.refusal() if self._transactions is not None else None)
        if refusal is not None:
            self.batches.refuse(batch, refusal)
            return
        self._metadata.want((batch.tp.topic,))
        self.batches.append(batch)
        if not batch.completed and self.batches.queue(batch.tp).adopted is None:
            self._identity.wanted = True
        if self._transactions is not None:
            self._transactions.add_partition(batch.tp, now)

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        """Let the batches of ``chain`` carry ``identity``; everything queued or in flight for ``tp`` is abandoned."""
        self.batches.adopt(tp, identity, chain)

    def release(self, tp: TopicPartition) -> None:
        """Forget the identity that ``tp`` has adopted; everything queued or in flight under it is abandoned."""
        self.batches.release(tp)

    def admit_id(self, producer_id: int) -> None:
        """Let batches be sent under ``producer_id``."""
        if self._gate is not None:
            self._gate.admit(producer_id)

    def flush(self, now: int) -> None:
        """Send batches created by ``now`` without lingering."""
        self._sender.flushed_ms = now

    def await_topic(self, event: AwaitTopicEvent) -> None:
        """Complete ``event`` as soon as the metadata has its partition."""
        if self._closed_by is not None:
            event.fail(self._closed_by)
        else:
            self._topic_waits.append(event)

    @property
    def transactions(self) -> Transactions:
        """The transactions of the producer. Raises WrongState without a ``transactional.id``."""
        if self._transactions is None:
            msg = "this producer has no transactional.id: set one to use transactions"
            raise WrongState(msg)
        return self._transactions

    def add_partitions(self, tps: Collection[TopicPartition], now: int) -> None:
        """Add ``tps`` to the transaction, whether or not anything is written to them."""
        self._metadata.want({tp.topic for tp in tps})
        self.transactions.add_partitions(tps, now)

    def commit_transaction(self, event: CommitEvent, now: int) -> None:
        """Flush, and commit once everything is acknowledged."""
        self.flush(now)
        self.transactions.commit(event)

    def abort_transaction(self, event: AbortEvent) -> None:
        """Abort: drop waiting batches, and leave those in flight to their requests."""
        if self.transactions.abort(event):
            error = NeedsAbort("the transaction was aborted before the batch was acknowledged")
            self.batches.abandon(error)

    # --- one turn

    def poll(self, now: int) -> Poll:
        """Expire before draining, so that no expired batch is sent."""
        wait = self.batches.expire(now)
        self._complete_topic_waits()
        self._drop_what_cannot_be_sent()
        sends, drain_wait = self._sender.drain(now) if self.batches.busy else IDLE
        # After the drain, which may find that the epochs of the producer id are used up.
        requests, steer_wait = self._steer(now)
        return Poll([*requests, *sends], min(wait, steer_wait, drain_wait))

    def _steer(self, now: int) -> Poll:
        if self._transactions is not None:
            return self._transactions.poll(now, unfinished=self.batches.unfinished, joining=self._joining)
        return self._identity.poll(now) if self.batches.busy else IDLE

    def _joining(self) -> bool:
        """Whether some partition has nothing acknowledged in the current transaction, and a batch for it."""
        return any(queue.will_join(self.transactions.count) for queue in self.batches.busy.values())

    def _drop_what_cannot_be_sent(self) -> None:
        if (fatal := self._metadata.fatal_error) is not None:
            self._abandon(fatal)
        elif self._identity.fatal is not None:
            self.batches.abandon_own(self._identity.fatal)
        elif self._transactions is not None and (failure := self._transactions.failure()) is not None:
            for queue in list(self.batches.busy.values()):
                self.batches.drop_waiting(queue, failure)

    def _abandon(self, error: KafkaError) -> None:
        if self._transactions is not None:
            self._transactions.end(error)
        if self.batches.busy:
            self.batches.abandon(error)

    def _complete_topic_waits(self) -> None:
        """Complete the calls that wait for metadata of a partition."""
        if not self._topic_waits:
            return
        self._topic_waits = [event for event in self._topic_waits if not event.future.done()]
        for event in self._topic_waits:
            self._metadata.want((event.tp.topic,))
            error = self._metadata.fatal_error or self._metadata.why_unknown(event.tp)
            if event.tp.partition < self._metadata.partition_count(event.tp.topic):
                event.complete(None)
            elif error is not None and (error is self._metadata.fatal_error or _refused(error)):
                event.fail(error)
            else:
                event.last_error = error
                self._metadata.request_update((event.tp.topic,))

    # --- the end

    def _fail_all(self, error: KafkaError) -> None:
        self._closed_by = error
        if self._transactions is not None:
            self._transactions.end(error)
        self.batches.abandon(error)
        for event in self._topic_waits:
            event.fail(error)

    def leave(self, event: LeaveEvent, now: int) -> None:
        """Close: fail all unacknowledged batches and waiting calls, then complete ``event``."""
        del now
        self._fail_all(ClientClosed("the producer was closed before it was done"))
        event.complete(None)

    def on_removed(self) -> None:
        """Do nothing: its connections are shared."""

    def fail(self, error: BaseException) -> None:
        """The network thread is dying: fail all batches and waiting calls with ``error``."""
        self._fail_all(as_kafka_error(error))


def _refused(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and verdict(error.code) is ErrorAction.FATAL


def _waits_for_coordinator(
    gate: ProducerIdGate | None, transactions: Transactions | None, identity: IdempotentIdentity, queue: PartitionQueue
) -> tuple[DeliveryPhase, KafkaError | None] | None:
    """Return the phase in which a partition waits for a producer id or a coordinator, with the last error."""
    if gate is not None and queue.identity is not None and gate.holds_back(queue.identity.producer_id):
        return DeliveryPhase.FENCING, KafkaTimeout(f"producer id {queue.identity.producer_id} is not admitted yet")
    if transactions is not None:
        return transactions.blocking_phase(queue.tp)
    if queue.identity is None and identity.identity is None:
        return DeliveryPhase.FENCING, identity.last_error
    return None


def _on_batch_lost(transactions: Transactions | None, batch: ProducerBatch, error: KafkaError) -> None:
    if transactions is not None:
        if batch.sequence is not None:
            # In doubt or refused: the log lacks it, or may lack it, and only a new epoch restarts sequences at 0.
            transactions.batch_lost()
        transactions.failed(error)
