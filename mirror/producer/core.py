"""The producer's part of the network thread: expire, resolve, drain, send (``Sender.runOnce``)."""

from __future__ import annotations

from collections.abc import Callable

from mirror.backoff import Backoff
from mirror.cluster.events import Event, as_kafka_error
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.metadata import Leader
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.topics import TopicPartition
from mirror.errors import ClientClosed, DeliveryTimeout, Hopeless, KafkaError
from mirror.producer.batches import PartitionQueue, ProducerBatch, RecordMetadata
from mirror.producer.identity import Identity
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS, deadline
from mirror.wire.api import Api
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceTopic,
)
from mirror.wire.verdicts import OUT_OF_ORDER_SEQUENCE, Verdict, broker_error, verdict


class ProducerCore:
    """Queues, sequences and requests of one producer. Touched by the network thread only.

    ``release`` is called with a batch's size once its buffer is free: on response or disconnect, never on expiry
    alone (KAFKA-17862, KAFKA-19012).
    """

    def __init__(self, settings: ProducerSettings, loop: ClusterLoop, release: Callable[[int], None]) -> None:
        self._settings = settings
        self._metadata = loop.metadata
        self._network = loop.network
        self._backoff = Backoff(settings.cluster.retry_backoff_ms, settings.cluster.retry_backoff_max_ms, loop.rng)
        self._identity = Identity(settings.cluster, loop.rng)
        self._release = release
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._gone: KafkaError | None = None

    def enqueue(self, batch: ProducerBatch) -> None:
        """Take a batch into its partition's queue."""
        queue = self._queues.get(batch.tp)
        if queue is None:
            queue = self._queues[batch.tp] = PartitionQueue(batch.tp)
            self._metadata.want((batch.tp.topic,))
        if queue.broken is not None or self._gone is not None:
            self._drop(batch, queue.broken or self._gone or KafkaError("the producer is gone"))
            return
        queue.waiting.append(batch)
        self._busy[batch.tp] = queue

    # --- one turn

    def poll(self, now: int) -> Poll:
        """Expire before drain, so that nothing expired is ever sent; then one batch per partition and request."""
        wait = self._expire(now)
        if not self._busy:
            return Poll([], FOREVER_MS)
        fatal = self._identity.fatal or self._metadata.hopeless
        if fatal is not None:
            self._fail_all(fatal)
            return Poll([], FOREVER_MS)
        if not self._identity.known:
            requests, identity_wait = self._identity.poll(now)
            return Poll(requests, min(wait, identity_wait))
        requests, drain_wait = self._drain(now)
        return Poll(requests, min(wait, drain_wait))

    def _expire(self, now: int) -> int:
        """Fail what outlived delivery.timeout.ms, in flight or not; ms until the next may (KIP-91)."""
        next_ms = FOREVER_MS
        for queue in list(self._busy.values()):
            # Oldest first: one that waits for its retry may be older than one in flight.
            for batch in sorted((*queue.in_flight, *queue.waiting), key=lambda batch: batch.created_ms):
                expiry = deadline(batch.created_ms, self._settings.delivery_timeout_ms)
                if batch.future.done():
                    continue
                if expiry > now:
                    next_ms = min(next_ms, expiry - now)
                    break
                self._expire_batch(queue, batch, now)
        return next_ms

    def _expire_batch(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> None:
        cause = batch.last_error or self._metadata.why_unknown(batch.tp) or self._identity.last_error
        error = DeliveryTimeout(
            f"{batch.tp}: a batch of {batch.batch.count} records was not acknowledged within "
            f"{self._settings.delivery_timeout_ms} ms (age {now - batch.created_ms} ms, {batch.attempts} attempts)"
            + (f": {cause}" if cause else ""),
            may_have_been_written=batch.may_have_been_written,
        )
        error.__cause__ = cause
        batch.fail(error)
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            self._release(batch.batch.size)
        if batch.sequence is not None:
            self._break(queue, error)
        self._settle(queue)

    def _drain(self, now: int) -> Poll:
        requests: list[Request] = []
        wait = FOREVER_MS
        # Up to max.in.flight requests per partition leave in one turn, each with one batch of a partition.
        for _ in range(self._settings.max_in_flight):
            by_node: dict[int, list[ProducerBatch]] = {}
            for queue in list(self._busy.values()):
                node, queue_wait = self._destination(queue, now)
                wait = min(wait, queue_wait)
                if node is not None:
                    batch = queue.drain(node, self._identity.producer_id, self._identity.producer_epoch)
                    by_node.setdefault(node, []).append(batch)
            if not by_node:
                break
            for node, batches in by_node.items():
                requests += [self._request(node, part) for part in self._portions(batches)]
        return Poll(requests, wait)

    def _destination(self, queue: PartitionQueue, now: int) -> tuple[int | None, int]:
        """The broker to send the queue's next batch to, or None and ms to wait."""
        if not queue.sendable(self._settings.max_in_flight):
            return None, FOREVER_MS
        leader = self._metadata.leader(queue.tp)
        if leader is None:
            self._metadata.want((queue.tp.topic,))
            self._metadata.request_update()
            return None, FOREVER_MS
        # A leader newer than the one that failed is asked at once: the backoff was for the old one (KAFKA-14253).
        if queue.not_before_ms > now and leader.epoch <= queue.retry_epoch:
            return None, queue.not_before_ms - now
        if queue.in_flight and queue.node != leader.node:
            # What the old leader was sent must be settled first: the new one would take what follows it out of order.
            return None, FOREVER_MS
        if not self._network.ready(leader.node, Lane.PRODUCE, now):
            self._note_trouble(queue, leader.node)
            return None, FOREVER_MS
        return leader.node, FOREVER_MS

    def _note_trouble(self, queue: PartitionQueue, node: int) -> None:
        """The leader cannot be reached: keep why, and ask whether there is another, once for each failure."""
        trouble = self._network.trouble(node)
        if isinstance(trouble, Hopeless):
            self._break(queue, trouble)
        elif trouble is not None and trouble is not queue.trouble:
            queue.trouble = queue.waiting[0].last_error = trouble
            self._metadata.request_update()

    def _portions(self, batches: list[ProducerBatch]) -> list[list[ProducerBatch]]:
        portions: list[list[ProducerBatch]] = []
        room = 0
        for batch in batches:
            if not portions or batch.batch.size > room:
                portions.append([])
                room = self._settings.max_request_size
            portions[-1].append(batch)
            room -= batch.batch.size
        return portions

    def _request(self, node: int, batches: list[ProducerBatch]) -> Request:
        topics: dict[str, list[ProducePartition]] = {}
        for batch in batches:
            part = ProducePartition(batch.tp.partition, Records.of((batch.batch.view,)))
            topics.setdefault(batch.tp.topic, []).append(part)
        body = ProduceRequest(
            acks=-1,
            timeout=self._settings.cluster.request_timeout_ms,
            topic_data=tuple(ProduceTopic(t, self._metadata.topic_id(t), tuple(p)) for t, p in topics.items()),
        )
        return Request(
            api=Api.PRODUCE,
            body=body,
            node=node,
            lane=Lane.PRODUCE,
            timeout_ms=self._settings.cluster.request_timeout_ms,
            on_response=lambda response, now: self._on_response(response, batches, now),
            on_failure=lambda error, now: self._on_failure(error, batches, now),
        )

    # --- what comes back

    def _on_failure(self, error: KafkaError, batches: list[ProducerBatch], now: int) -> None:
        self._metadata.request_update()
        for batch in batches:
            if isinstance(error, Hopeless):
                self._give_up(batch, error)
            else:
                self._retry(batch, error, now)

    def _on_response(self, response: ProduceResponse, batches: list[ProducerBatch], now: int) -> None:
        told: dict[TopicPartition, ProduceResponsePartition] = {}
        for topic in response.responses:
            name = topic.name or (self._metadata.topic_name(topic.topic_id) if topic.topic_id else None) or ""
            for part in topic.partition_responses:
                told[TopicPartition(name, part.index)] = part
        for batch in batches:
            answer = told.get(batch.tp)
            if answer is None:
                self._retry(batch, KafkaError(f"{batch.tp}: the broker's answer leaves it out"), now)
            else:
                self._answered(batch, answer, now)

    def _answered(self, batch: ProducerBatch, answer: ProduceResponsePartition, now: int) -> None:
        outcome = verdict(answer.error_code)
        if outcome in {Verdict.OK, Verdict.DUPLICATE}:
            self._acknowledged(batch, answer.base_offset if outcome is Verdict.OK else -1)
            return
        error = broker_error(answer.error_code, f"writing to {batch.tp}", _detail(answer), needs="Write")
        queue = self._queues[batch.tp]
        # Behind a batch that is being retried, out of order is what must come; as the first it means lost data.
        expected = answer.error_code == OUT_OF_ORDER_SEQUENCE and not queue.is_first(batch)
        if outcome in {Verdict.FATAL, Verdict.FENCED, Verdict.FIND_COORDINATOR} and not expected:
            self._give_up(batch, error)
            return
        # The retry first: it notes the leader that failed, whose backoff the new one is not to wait for.
        self._retry(batch, error, now)
        if outcome is Verdict.REFRESH_METADATA:
            leader = answer.current_leader
            if leader is not None and leader.leader_id >= 0:
                self._metadata.moved(batch.tp, Leader(leader.leader_id, leader.leader_epoch))
            self._metadata.request_update()

    def _acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        queue = self._queues[batch.tp]
        queue.in_flight.remove(batch)
        queue.failures = queue.not_before_ms = 0
        self._release(batch.batch.size)
        if not batch.future.done():
            batch.future.set_result(RecordMetadata(batch.tp, base_offset))
        self._settle(queue)

    def _retry(self, batch: ProducerBatch, error: KafkaError, now: int) -> None:
        queue = self._queues[batch.tp]
        batch.last_error = error
        if batch.future.done() or queue.broken is not None:
            self._give_up(batch, queue.broken or error)
            return
        if batch.attempts > self._settings.retries:
            self._give_up(batch, error)
            return
        if queue.is_first(batch):
            queue.failures += 1
            queue.not_before_ms = now + self._backoff.after(queue.failures)
            leader = self._metadata.leader(batch.tp)
            queue.retry_epoch = leader.epoch if leader is not None else -1
        queue.requeue(batch)

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """The batch is lost to its caller; what follows it would be a gap, so its partition stops."""
        queue = self._queues[batch.tp]
        queue.in_flight.remove(batch)
        self._drop(batch, error)
        self._break(queue, error)
        self._settle(queue)

    def _break(self, queue: PartitionQueue, error: KafkaError) -> None:
        queue.broken = queue.broken or error
        while queue.waiting:
            self._drop(queue.waiting.popleft(), queue.broken)

    def _drop(self, batch: ProducerBatch, error: KafkaError) -> None:
        batch.fail(error)
        self._release(batch.batch.size)

    def _settle(self, queue: PartitionQueue) -> None:
        if not queue.waiting and not queue.in_flight:
            self._busy.pop(queue.tp, None)

    # --- the end

    def _fail_all(self, error: KafkaError) -> None:
        self._gone = error
        for queue in list(self._busy.values()):
            for batch in queue.in_flight:
                batch.fail(error)
            self._break(queue, error)
            self._settle(queue)

    def leave(self, event: LeaveEvent, now: int) -> None:
        """The producer closed: what is not acknowledged by now is not told to be."""
        del now
        self._fail_all(ClientClosed("the producer was closed before the batch was acknowledged"))
        event.complete(None)

    def gone(self) -> None:
        """Its connections are everybody's."""

    def fail(self, error: BaseException) -> None:
        """The network thread is dying."""
        self._fail_all(as_kafka_error(error))


def _detail(answer: ProduceResponsePartition) -> str | None:
    texts = [e.batch_index_error_message for e in answer.record_errors if e.batch_index_error_message]
    return answer.error_message or (texts[0] if texts else None)


class SendEvent(Event):
    """A batch to deliver."""

    def __init__(self, batch: ProducerBatch) -> None:
        self._batch = batch

    def fail(self, error: BaseException) -> None:
        """It was never sent."""
        self._batch.fail(as_kafka_error(error))

    def apply(self, core: ProducerCore, now: int) -> None:
        """Into its queue."""
        del now
        core.enqueue(self._batch)
