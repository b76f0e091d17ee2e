"""Which batches go out now, on which connection, in which request (``RecordAccumulator.drain``)."""

from __future__ import annotations

from typing import NamedTuple

from mirror.cluster.loop import ClusterLoop
from mirror.cluster.metadata import Leader
from mirror.cluster.pools import Slot
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, NotRetriable
from mirror.producer.batch.accumulator import Accumulator
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.queue import PartitionQueue
from mirror.producer.identity import ProducerIdentity
from mirror.producer.produce_responses import ProduceResponseHandler
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, verdict
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic


class _Route(NamedTuple):
    """How a queue's next batch goes: to ``node``, on the connection that it is ``bound`` to, if any, or a ``slow`` one.

    ``new``: nothing of the partition was acknowledged yet. Its first request has a connection of its own, and ``alone``
    keeps others out of that request: they would wait with it for replicas that may never answer. What is in one
    transaction waits for each other anyway.
    """

    node: int
    bound: Slot | None
    slow: bool
    new: bool
    alone: TopicPartition | None


class Sender:
    """Drains queues into requests. ``flushed_ms``: what was begun by then does not linger."""

    def __init__(
        self,
        settings: ProducerSettings,
        loop: ClusterLoop,
        batches: Accumulator,
        answers: ProduceResponseHandler,
        stamp: ProducerIdentity,
    ) -> None:
        self._settings = settings
        self._metadata = loop.metadata
        self._network = loop.network
        self._pool = loop.produce_pool
        self._batches = batches
        self._answers = answers
        self._stamp = stamp
        self.flushed_ms = -1

    def drain(self, now: int) -> Poll:
        """The requests that can leave now; ms until a batch that lingers or backs off may."""
        requests: list[Request] = []
        wait = FOREVER_MS
        # Up to max.in.flight requests per partition leave in one turn, each with one batch of a partition.
        for _ in range(self._settings.max_in_flight):
            ways, ways_wait = self._ways(now)
            wait = min(wait, ways_wait)
            left = len(requests)
            for way, queues in ways.items():
                requests += self._send(way, queues, now)
            if len(requests) == left:
                break
        return Poll(requests, wait)

    def _ways(self, now: int) -> tuple[dict[_Route, list[PartitionQueue]], int]:
        ways: dict[_Route, list[PartitionQueue]] = {}
        wait = FOREVER_MS
        busy = list(self._batches.busy.values())
        # One leader is asked to take in one transaction's partitions in one request at a time. One queue has no others.
        joining = [queue for queue in busy if queue.is_joining] if len(busy) > 1 else ()
        asked = {queue.slot.node for queue in joining if queue.slot is not None}
        for queue in busy:
            way, queue_wait = self._way(queue, now)
            wait = min(wait, queue_wait)
            if way is not None and not (way.node in asked and way.bound is None and self._stamp.joins(queue)):
                ways.setdefault(way, []).append(queue)
        return ways, wait

    def _way(self, queue: PartitionQueue, now: int) -> tuple[_Route | None, int]:
        """Where the queue's next batch can go, or None and ms to wait."""
        if not queue.sendable(self._settings.max_in_flight, now):
            return None, FOREVER_MS
        leader = self._metadata.leader(queue.tp)
        if leader is None:
            self._look_for_a_leader(queue)
            return None, FOREVER_MS
        if (wait := self._not_yet_ms(queue, leader, now)) > 0:
            return None, wait
        queue.use_topic_id(self._metadata.topic_id(queue.tp.topic))
        if not self._stamp.may_send(queue):
            return None, FOREVER_MS
        bound = queue.slot if queue.in_flight else None
        # What the old leader was sent must be settled first: the new one would take what follows it out of order. And
        # only one connection keeps two requests in order.
        if bound is not None and (bound.node != leader.node or not self._pool.stands(bound, now)):
            return None, FOREVER_MS
        new = not queue.has_acknowledgement
        alone = queue.tp if new and self._stamp.transactional_id is None else None
        return _Route(leader.node, bound, queue.slow, new, alone), FOREVER_MS

    def _look_for_a_leader(self, queue: PartitionQueue) -> None:
        error = self._metadata.why_unknown(queue.tp)
        if isinstance(error, BrokerError) and verdict(error.code) is ErrorAction.FATAL and not queue.in_flight:
            self._batches.drop_waiting(queue, error)  # forbidden, or no name for a topic: waiting mends nothing
            return
        self._metadata.want((queue.tp.topic,))
        self._metadata.request_update()

    def _not_yet_ms(self, queue: PartitionQueue, leader: Leader, now: int) -> int:
        """How long its first batch lingers still, or backs off."""
        # A leader newer than the one that failed is asked at once: the backoff was for the old one (KAFKA-14253).
        backoff_ms = queue.not_before_ms - now if leader.epoch <= queue.retry_epoch else 0
        return max(backoff_ms, queue.ready_in_ms(self._settings.linger_ms, self.flushed_ms, now))

    def _send(self, way: _Route, queues: list[PartitionQueue], now: int) -> list[Request]:
        requests: list[Request] = []
        for portion in self._portions(queues):
            if requests and way.bound is None and any(self._stamp.joins(queue) for queue in portion):
                break
            slot = way.bound or self._pool.pick(way.node, now, slow=way.slow, sole=way.new)
            if slot is None:
                self._note_trouble(portion, way.node)
                continue
            transactional = self._stamp.transactional_id is not None
            batches = [queue.drain(slot, now, transactional=transactional) for queue in portion]
            requests.append(self._request(slot, batches, now))
        return requests

    def _portions(self, queues: list[PartitionQueue]) -> list[list[PartitionQueue]]:
        """Parted so that a request has at most max.request.size; a larger batch goes alone."""
        if len(queues) == 1:
            return [queues]
        portions: list[list[PartitionQueue]] = []
        room = 0
        for queue in queues:
            size = queue.waiting[0].seal().size
            if not portions or size > room:
                portions.append([])
                room = self._settings.max_request_size
            portions[-1].append(queue)
            room -= size
        return portions

    def _note_trouble(self, queues: list[PartitionQueue], node: int) -> None:
        """The leader cannot be reached: keep why, and ask whether there is another, once for each failure."""
        trouble = self._network.trouble(node)
        for queue in queues:
            if isinstance(trouble, NotRetriable):
                self._batches.drop_waiting(queue, trouble)
            elif trouble is not None and trouble is not queue.last_error:
                queue.last_error = queue.waiting[0].last_error = trouble
                self._metadata.request_update()

    def _request(self, slot: Slot, batches: list[ProducerBatch], now: int) -> Request:
        topics: dict[str, list[ProducePartition]] = {}
        size = 0
        for batch in batches:
            self._stamp.produce_to(batch.tp)
            made = batch.seal()
            size += made.size
            part = ProducePartition(batch.tp.partition, Records((made.view,)))
            topics.setdefault(batch.tp.topic, []).append(part)
        body = ProduceRequest(
            acks=-1,
            timeout=self._settings.ack_timeout_ms,
            topic_data=tuple(ProduceTopic(t, self._metadata.topic_id(t), tuple(p)) for t, p in topics.items()),
            transactional_id=self._stamp.transactional_id,
        )
        request = Request(
            api=Api.PRODUCE,
            body=body,
            node=slot.node,
            lane=Lane.PRODUCE,
            timeout_ms=self._settings.cluster.request_timeout_ms,
            on_response=lambda response, at: self._answers.on_response(response, batches, at),
            on_failure=lambda error, at: self._answers.on_failure(error, batches, at),
            max_version=self._stamp.produce_at_most,
        )
        return self._pool.carry(slot, request, size, now)
