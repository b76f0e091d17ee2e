"""The batches of one producer by partition, from their arrival to their end (``RecordAccumulator``). No I/O."""

from __future__ import annotations

from collections.abc import Callable

from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.cluster.types import TopicPartition
from mirror.errors import ClientClosed, KafkaError
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.expiry import Expiry
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.timing import deadline

Release = Callable[[TopicPartition, int], None]


class Accumulator:
    """The queues of all partitions, and their deadlines.

    ``release`` is called once for each batch with the bytes of memory that it held, when its buffer is free: after the
    response or a disconnect, never after expiry alone (KAFKA-17862, KAFKA-19012). ``lost`` is called for each batch
    that will not be delivered.
    """

    def __init__(
        self,
        delivery_timeout_ms: int,
        expiry: Expiry,
        release: Release,
        lost: Callable[[ProducerBatch, KafkaError], None],
    ) -> None:
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        """The queues that are not empty."""
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._delivery_timeout_ms = delivery_timeout_ms
        self._expiry = expiry
        self._release = release
        self._lost = lost
        self._deadlines: DeadlineHeap[PartitionQueue] = DeadlineHeap()

    def append(self, batch: ProducerBatch) -> None:
        """Append ``batch`` to the queue of its partition; it expires no earlier than those before it."""
        queue = self._queues.get(batch.tp)
        if queue is None:
            queue = self._queues[batch.tp] = PartitionQueue(batch.tp)
        if (refusal := queue.refusal(batch)) is not None:
            self.refuse(batch, refusal)
            return
        batch.expires_ms = deadline(batch.created_ms, self._delivery_timeout_ms)
        earlier = queue.waiting or queue.in_flight
        if earlier:
            batch.expires_ms = max(batch.expires_ms, earlier[-1].expires_ms)
        queue.waiting.append(batch)
        self.busy[batch.tp] = queue
        self._deadlines.sooner(queue, batch.expires_ms)

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """Return the queue of ``tp``."""
        return self._queues[tp]

    # --- adopted identities

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        """Let the batches of ``chain`` carry ``identity``; abandon those of ``tp`` so far."""
        former = self._queues.get(tp) or PartitionQueue(tp)
        self._abandon(former, ClientClosed(f"{tp}: another chain ({chain}) sends to the partition now"))
        self._queues[tp] = former.adopting(identity, chain)

    def release(self, tp: TopicPartition) -> None:
        """Abandon the batches of the adopted identity of ``tp``, and forget it; do nothing if there is none."""
        former = self._queues.get(tp)
        if former is not None and former.adopted is not None:
            self._abandon(former, ClientClosed(f"{tp}: the partition was released before the batch was acknowledged"))
            self._queues[tp] = former.released()

    def unfinished(self) -> bool:
        """Whether some caller waits for the outcome of a batch."""
        return any(queue.oldest_incomplete() is not None for queue in self.busy.values())

    # --- time

    def expire(self, now: int) -> int:
        """Fail batches older than ``delivery.timeout.ms``, in flight or not (KIP-91).

        Return ms until the next expiry.
        """
        for queue in self._deadlines.due(now):
            while (batch := queue.oldest_incomplete()) is not None and batch.expires_ms <= now:
                self._expire(queue, batch, now)
            if batch is not None:
                self._deadlines.set(queue, batch.expires_ms)
        return self._deadlines.next_ms() - now

    def _expire(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> None:
        error = self._expiry.error(queue, batch, now)
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            self._forget(queue, batch, error)
        else:
            # Its request stays in flight until its response, or for its full request.timeout.ms.
            queue.leave_gap(batch)
            self._fail(batch, error)

    # --- the ends of a batch

    def acknowledged(self, batch: ProducerBatch, base_offset: int, throttle_ms: int, now: int) -> None:
        """Complete ``batch``, which was in flight and is in the log."""
        queue = self._queues[batch.tp]
        queue.acknowledged(batch, now)
        self._free(batch)
        batch.succeed(base_offset, throttle_ms)
        self.update_busy(queue)

    def give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail ``batch``, which was in flight and is not sent again."""
        queue = self._queues[batch.tp]
        queue.in_flight.remove(batch)
        self._forget(queue, batch, error)

    def fail_behind(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail all batches behind ``batch``: the log lost acknowledged data, on which they follow.

        Batches sent after this are sent in a new epoch, by a caller that knows of the loss.
        """
        queue = self._queues[batch.tp]
        for other in queue.in_flight:
            if other is not batch:
                queue.leave_gap(other)
                self._fail(other, error)
        self.drop_waiting(queue, error)

    def drop_waiting(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Fail all waiting batches of ``queue``."""
        while queue.waiting:
            self._forget(queue, queue.waiting.popleft(), error)

    def abandon(self, error: KafkaError) -> None:
        """Fail all batches; those in flight stay with their requests.

        If a transaction is aborted, a new epoch ensures that those are written in it or not at all.
        """
        for queue in list(self.busy.values()):
            self._abandon(queue, error)

    def abandon_own(self, error: KafkaError) -> None:
        """Fail the batches under the producer's own identity."""
        for queue in [queue for queue in self.busy.values() if queue.adopted is None]:
            self._abandon(queue, error)

    def _abandon(self, queue: PartitionQueue, error: KafkaError) -> None:
        if queue.adopted is not None and queue.adopted not in queue.broken:
            queue.break_chain(queue.adopted, error)
        self.drop_waiting(queue, error)
        for batch in queue.in_flight:
            self._fail(batch, error)
        queue.in_flight = []
        self.update_busy(queue)

    def release_abandoned(self, batch: ProducerBatch) -> None:
        """The request of an abandoned batch has ended: its buffer is free now."""
        self._free(batch)

    def refuse(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch that was not accepted."""
        batch.fail(error)
        self._free(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], *, transactional: bool) -> None:
        """Replace ``batch`` by its parts, which have its deadline and share its memory."""
        queue = self._queues[batch.tp]
        queue.replace(batch, parts, transactional=transactional)
        for part in parts:
            part.expires_ms = batch.expires_ms
        batch.release_payload()

    def _forget(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        queue.leave_gap(batch)
        self._free(batch)
        self._fail(batch, error)
        self.update_busy(queue)

    # Invariant: A buffer is released on response or disconnect, never on expiry alone: a request in flight may still
    #   read it.
    # Test: tests/producer/
    #   test_delivery_timeout.py::test_a_buffer_in_flight_is_never_given_back_before_its_request_has_ended
    def _free(self, batch: ProducerBatch) -> None:
        """Count its memory as free. Therefore nothing may keep its bytes: neither a gap nor a future."""
        self._release(batch.tp, batch.size)
        batch.release_payload()

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        if not batch.completed:
            batch.fail(error)
            self._lost(batch, error)
            if batch.chain is not None:
                self._break(self._queues[batch.tp], batch.chain, error)

    def _break(self, queue: PartitionQueue, chain: int, error: KafkaError) -> None:
        """Fail the waiting batches of a chain that lost a batch, and refuse later ones."""
        if chain not in queue.broken:
            queue.break_chain(chain, error)
            for other in [batch for batch in queue.waiting if batch.chain == chain]:
                queue.waiting.remove(other)
                self._forget(queue, other, error)

    def update_busy(self, queue: PartitionQueue) -> None:
        """Remove ``queue`` from :attr:`busy` if it is empty."""
        if not queue.waiting and not queue.in_flight:
            self.busy.pop(queue.tp, None)
            self._deadlines.clear(queue)
