"""The batches of one producer, by partition: taken in, expired, given up, given back (``RecordAccumulator``)."""

from __future__ import annotations

from collections.abc import Callable

from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.expiry import Expiry
from mirror.producer.batch.queue import PartitionQueue
from mirror.timing import deadline

Release = Callable[[TopicPartition, int], None]
Lost = Callable[[ProducerBatch, KafkaError], None]


class Accumulator:
    """Queues and deadlines. ``busy`` are the queues that hold something.

    ``release`` is called once for each batch with the bytes of memory that it held, when its buffer is free: on
    response or disconnect, never on expiry alone (KAFKA-17862, KAFKA-19012). ``lost`` hears of each batch that will
    not be delivered.
    """

    def __init__(
        self,
        delivery_timeout_ms: int,
        expiry: Expiry,
        release: Release,
        lost: Callable[[ProducerBatch, KafkaError], None],
    ) -> None:
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._delivery_timeout_ms = delivery_timeout_ms
        self._expiry = expiry
        self._release = release
        self._lost = lost
        self._alarms: DeadlineHeap[PartitionQueue] = DeadlineHeap()

    def append(self, batch: ProducerBatch) -> None:
        """Take ``batch`` in, behind those of its partition; it expires no earlier than they do."""
        queue = self._queues.get(batch.tp)
        if queue is None:
            queue = self._queues[batch.tp] = PartitionQueue(batch.tp)
        if (broken := queue.broken_by(batch)) is not None:
            self.refuse(batch, broken)
            return
        batch.expires_ms = deadline(batch.created_ms, self._delivery_timeout_ms)
        before = queue.waiting or queue.in_flight
        if before:
            batch.expires_ms = max(batch.expires_ms, before[-1].expires_ms)
        queue.waiting.append(batch)
        self.busy[batch.tp] = queue
        self._alarms.sooner(queue, batch.expires_ms)

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """The queue that a batch of ``tp`` came from."""
        return self._queues[tp]

    def unfinished(self) -> bool:
        """Whether some caller waits for its answer."""
        return any(queue.oldest_untold() is not None for queue in self.busy.values())

    # --- time

    def expire(self, now: int) -> int:
        """Fail what outlived delivery.timeout.ms, in flight or not; ms until the next may (KIP-91)."""
        for queue in self._alarms.due(now):
            while (batch := queue.oldest_untold()) is not None and batch.expires_ms <= now:
                self._expire(queue, batch, now)
            if batch is not None:
                self._alarms.set(queue, batch.expires_ms)
        return self._alarms.next_ms() - now

    def _expire(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> None:
        error = self._expiry.error(queue, batch, now)
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            self._forget(queue, batch, error)
        else:
            # Its request is awaited all the same, for its full request.timeout.ms.
            queue.given_up(batch)
            self._tell(batch, error)

    # --- the ends of a batch

    def acknowledged(self, batch: ProducerBatch, base_offset: int, throttle_ms: int, now: int) -> None:
        """``batch``, in flight, is in the log."""
        queue = self._queues[batch.tp]
        queue.acknowledged(batch, now)
        self._free(batch)
        batch.succeed(base_offset, throttle_ms)
        self.settle(queue)

    def give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """``batch``, in flight until now, will not be sent again."""
        queue = self._queues[batch.tp]
        queue.in_flight.remove(batch)
        self._forget(queue, batch, error)

    def fail_behind(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Acknowledged data is gone: what was sent in the belief that it is there fails, too. ``batch`` is in flight.

        Whoever sends after this answer knows of the loss, and begins in a new epoch.
        """
        queue = self._queues[batch.tp]
        for other in queue.in_flight:
            if other is not batch:
                queue.given_up(other)
                self._tell(other, error)
        self.drop_waiting(queue, error)

    def drop_waiting(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Fail what waits in ``queue``."""
        while queue.waiting:
            self._forget(queue, queue.waiting.popleft(), error)

    def abandon(self, error: KafkaError) -> None:
        """Fail everything. What is in flight is left to its requests.

        Where a transaction is aborted, a new epoch sees to it that what was left is written into it or not at all.
        """
        for queue in list(self.busy.values()):
            self.drop_waiting(queue, error)
            for batch in queue.in_flight:
                self._tell(batch, error)
            queue.in_flight = []
            self.settle(queue)

    def came_back(self, batch: ProducerBatch) -> None:
        """A batch that had been abandoned: nobody waits, but now its buffer is free."""
        self._free(batch)

    def refuse(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch that never came in."""
        batch.fail(error)
        self._free(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], *, transactional: bool) -> None:
        """``batch`` was cut: its parts have its deadline, and share its memory."""
        queue = self._queues[batch.tp]
        queue.replace(batch, parts, transactional=transactional)
        for part in parts:
            part.expires_ms = batch.expires_ms
        batch.let_go()

    def _forget(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        queue.given_up(batch)
        self._free(batch)
        self._tell(batch, error)
        self.settle(queue)

    def _free(self, batch: ProducerBatch) -> None:
        """Its memory is counted as free from here on, so nothing may hold on to it: neither a gap nor a future."""
        self._release(batch.tp, batch.size)
        batch.let_go()

    def _tell(self, batch: ProducerBatch, error: KafkaError) -> None:
        if not batch.told:
            batch.fail(error)
            self._lost(batch, error)
            if batch.chain is not None:
                self._break(self._queues[batch.tp], batch.chain, error)

    def _break(self, queue: PartitionQueue, chain: int, error: KafkaError) -> None:
        """A batch was lost that others were chained to: none of them is sent, now or later."""
        if chain not in queue.broken:
            queue.break_chain(chain, error)
            for other in [one for one in queue.waiting if one.chain == chain]:
                queue.waiting.remove(other)
                self._forget(queue, other, error)

    def settle(self, queue: PartitionQueue) -> None:
        """An empty queue is not busy."""
        if not queue.waiting and not queue.in_flight:
            self.busy.pop(queue.tp, None)
            self._alarms.clear(queue)
