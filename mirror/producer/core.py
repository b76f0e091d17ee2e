"""The producer's part of the network thread: expire, resolve, drain, send (``Sender.runOnce``)."""

from __future__ import annotations

from mirror.cluster.events import as_kafka_error
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.requests import IDLE, Poll
from mirror.errors import BrokerError, ClientClosed, DeliveryPhase, KafkaError, NeedsAbort, WrongState
from mirror.producer.batch.accumulator import Accumulator, Release
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.expiry import Expiry
from mirror.producer.batch.queue import PartitionQueue
from mirror.producer.events import AbortEvent, AwaitTopicEvent, CommitEvent
from mirror.producer.identity import IdempotentIdentity
from mirror.producer.produce_responses import ProduceResponseHandler
from mirror.producer.sender import Sender
from mirror.producer.settings import ProducerSettings
from mirror.producer.txn.transactions import Transactions
from mirror.wire.error_codes import ErrorAction, verdict


class ProducerCore:
    """One producer, idempotent or transactional. Touched by the network thread only.

    ``release`` is called with a partition and the bytes of its memory that are free again.
    """

    every_turn = False

    def __init__(self, settings: ProducerSettings, loop: ClusterLoop, release: Release) -> None:
        self._metadata = loop.metadata
        self._transactions = Transactions(settings, loop) if settings.transactional_id is not None else None
        self._identity = IdempotentIdentity(settings.cluster, loop.rng)
        expiry = Expiry(loop.metadata, loop.network, settings.delivery_timeout_ms, self._waits_for_coordinator)
        self.batches = Accumulator(settings.delivery_timeout_ms, expiry, release, self._lost)
        answers = ProduceResponseHandler(settings, loop, self.batches, self._transactions)
        self._sending = Sender(settings, loop, self.batches, answers, self._transactions or self._identity)
        self._awaiting: list[AwaitTopicEvent] = []
        self._gone: KafkaError | None = None

    @property
    def producer_id(self) -> int:
        """The id that batches go out under, -1 while there is none. A plain value: any thread may look."""
        identity = (self._transactions or self._identity).identity
        return -1 if identity is None else identity.producer_id

    @property
    def fences_in_doubt(self) -> int:
        """How many of its own requests may still fence it, or its successor; any thread may look."""
        return 0 if self._transactions is None else self._transactions.fences_in_doubt

    # --- what application threads ask

    def enqueue(self, batch: ProducerBatch, now: int) -> None:
        """Take a batch into its partition's queue."""
        refusal = self._gone or (self._transactions.refusal() if self._transactions is not None else None)
        if refusal is not None:
            self.batches.refuse(batch, refusal)
            return
        self._metadata.want((batch.tp.topic,))
        self.batches.append(batch)
        if self._transactions is not None:
            self._transactions.writes_to(batch.tp, now)

    def flush(self, now: int) -> None:
        """What was begun by ``now`` lingers no longer."""
        self._sending.flushed_ms = now

    def await_topic(self, event: AwaitTopicEvent) -> None:
        """Complete ``event`` once its partition is known."""
        if self._gone is not None:
            event.fail(self._gone)
        else:
            self._awaiting.append(event)

    @property
    def transactions(self) -> Transactions:
        """Those of a producer that has a ``transactional.id``. Raises WrongState for one that has not."""
        if self._transactions is None:
            msg = "this producer has no transactional.id: set one to use transactions"
            raise WrongState(msg)
        return self._transactions

    def commit_transaction(self, event: CommitEvent, now: int) -> None:
        """Send what lingers, and commit once all is acknowledged."""
        self.flush(now)
        self.transactions.commit(event)

    def abort_transaction(self, event: AbortEvent) -> None:
        """Drop what is not sent, leave what is unanswered to its requests, and abort."""
        if self.transactions.abort(event):
            error = NeedsAbort("the transaction was aborted before the batch was acknowledged")
            self.batches.abandon(error)

    # --- one turn

    def poll(self, now: int) -> Poll:
        """Expire before drain, so that nothing expired is ever sent."""
        wait = self.batches.expire(now)
        self._look_for_topics()
        self._drop_what_cannot_be_sent()
        sends, drain_wait = self._sending.drain(now) if self.batches.busy else IDLE
        # After the drain, which may have found that a producer id's epochs are used up: nobody else asks for another.
        requests, steer_wait = self._steer(now)
        return Poll([*requests, *sends], min(wait, steer_wait, drain_wait))

    def _steer(self, now: int) -> Poll:
        if self._transactions is not None:
            return self._transactions.poll(now, unfinished=self.batches.unfinished, joining=self._joining)
        return self._identity.poll(now) if self.batches.busy else IDLE

    def _joining(self) -> bool:
        """Whether some partition has nothing acknowledged in the transaction that it is about to write in."""
        return any(queue.will_join(self.transactions.count) for queue in self.batches.busy.values())

    def _drop_what_cannot_be_sent(self) -> None:
        hopeless = self._metadata.hopeless or self._identity.fatal
        if hopeless is not None:
            self._abandon(hopeless)
        elif self._transactions is not None and (failure := self._transactions.failure()) is not None:
            for queue in list(self.batches.busy.values()):
                self.batches.drop_waiting(queue, failure)

    def _abandon(self, error: KafkaError) -> None:
        if self._transactions is not None:
            self._transactions.end(error)
        if self.batches.busy:
            self.batches.abandon(error)

    def _look_for_topics(self) -> None:
        """Answer those who wait for a partition to be known."""
        if not self._awaiting:
            return
        self._awaiting = [event for event in self._awaiting if not event.future.done()]
        for event in self._awaiting:
            self._metadata.want((event.tp.topic,))
            error = self._metadata.hopeless or self._metadata.why_unknown(event.tp)
            if event.tp.partition < self._metadata.partition_count(event.tp.topic):
                event.complete(None)
            elif error is not None and (error is self._metadata.hopeless or _refused(error)):
                event.fail(error)
            else:
                event.last_error = error
                self._metadata.request_update()

    def _waits_for_coordinator(self, queue: PartitionQueue) -> tuple[DeliveryPhase, KafkaError | None] | None:
        """What keeps a partition's batches from being stamped, for the error of one that expired."""
        if self._transactions is not None:
            return self._transactions.holds_up(queue.tp)
        if queue.identity is None and self._identity.identity is None:
            return DeliveryPhase.FENCING, self._identity.last_error
        return None

    def _lost(self, batch: ProducerBatch, error: KafkaError) -> None:
        if self._transactions is not None:
            if batch.sequence is not None:
                # In doubt or refused: it is missing in the log, or may be, and only a new epoch begins again at 0.
                self._transactions.leaves_unanswered()
            self._transactions.failed(error)

    # --- the end

    def _fail_all(self, error: KafkaError) -> None:
        self._gone = error
        if self._transactions is not None:
            self._transactions.end(error)
        self.batches.abandon(error)
        for event in self._awaiting:
            event.fail(error)

    def leave(self, event: LeaveEvent, now: int) -> None:
        """The producer closed: what is not acknowledged by now is not told to be."""
        del now
        self._fail_all(ClientClosed("the producer was closed before it was done"))
        event.complete(None)

    def gone(self) -> None:
        """Its connections are everybody's."""

    def fail(self, error: BaseException) -> None:
        """The network thread is dying."""
        self._fail_all(as_kafka_error(error))


def _refused(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and verdict(error.code) is ErrorAction.FATAL
