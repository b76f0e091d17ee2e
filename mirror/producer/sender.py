"""Drains batches into Produce requests (``Sender``, ``RecordAccumulator.drain``). No I/O."""

from __future__ import annotations

from typing import NamedTuple

from mirror.cluster.connection.pools import Slot
from mirror.cluster.loop import ClusterLoop
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.errors import BrokerError, NotRetriable, TopicRecreated
from mirror.producer.batch.accumulator import Accumulator
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.queue import PartitionQueue
from mirror.producer.id_gate import ProducerIdGate
from mirror.producer.identity import ProducerIdentity
from mirror.producer.produce_responses import ProduceResponseHandler
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, verdict
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic


class _Route(NamedTuple):
    """The way of a queue's next batch; queues with the same route share a request."""

    node: int
    bound: Slot | None
    """The connection of its batches in flight, which it has to use."""
    slow: bool
    """It uses a connection for partitions whose requests time out."""
    new: bool
    """No batch of the partition was acknowledged yet: its first request has a connection of its own."""
    isolated_tp: TopicPartition | None
    """Keeps other partitions out of that request: they would wait with it for replicas that may never answer. The
    partitions of a transaction wait for each other anyway."""


class Sender:
    """Drains queues into requests. Batches created by ``flushed_ms`` do not linger."""

    def __init__(
        self,
        settings: ProducerSettings,
        loop: ClusterLoop,
        batches: Accumulator,
        responses: ProduceResponseHandler,
        identity: ProducerIdentity,
        gate: ProducerIdGate | None = None,
    ) -> None:
        self._settings = settings
        self._metadata = loop.metadata
        self._network = loop.network
        self._pool = loop.produce_pool
        self._batches = batches
        self._responses = responses
        self._identity = identity
        self._gate = gate
        self.flushed_ms = -1

    def drain(self, now: int) -> Poll:
        """Return the requests to send now, and ms until a batch that lingers or backs off may be sent."""
        requests: list[Request] = []
        wait = FOREVER_MS
        # A turn sends up to max.in.flight requests for a partition, each with one batch of it.
        for _ in range(self._settings.max_in_flight):
            routes, routes_wait = self._routes(now)
            wait = min(wait, routes_wait)
            left = len(requests)
            for route, queues in routes.items():
                requests += self._send(route, queues, now)
            if len(requests) == left:
                break
        return Poll(requests, wait)

    def _routes(self, now: int) -> tuple[dict[_Route, list[PartitionQueue]], int]:
        routes: dict[_Route, list[PartitionQueue]] = {}
        wait = FOREVER_MS
        busy = list(self._batches.busy.values())
        # A leader verifies the partitions that join a transaction in one request at a time.
        several = len(busy) > 1 and self._identity.transactional_id is not None
        joining = [queue for queue in busy if queue.is_joining] if several else ()
        verifying = {queue.slot.node for queue in joining if queue.slot is not None}
        for queue in busy:
            if not queue.waiting:
                continue
            route, queue_wait = self._route(queue, now)
            wait = min(wait, queue_wait)
            if route is not None and not (
                route.node in verifying and route.bound is None and self._identity.joins_transaction(queue)
            ):
                routes.setdefault(route, []).append(queue)
        return routes, wait

    # Invariant: A batch is drained only for a connection that stands, is authenticated and is not throttled, so that
    #   one that expires in the queue was never written.
    # Test: tests/producer/
    #   test_unready_leaders.py::test_expired_unsent_never_written_while_its_connection_is_being_set_up
    def _route(self, queue: PartitionQueue, now: int) -> tuple[_Route | None, int]:
        """Return the route of the queue's next batch, or None and ms to wait."""
        if not queue.sendable(self._settings.max_in_flight, now):
            return None, FOREVER_MS
        leader = self._metadata.leader(queue.tp)
        if leader is None:
            self._request_leader(queue)
            return None, FOREVER_MS
        if (wait := self._delay_ms(queue, leader, now)) > 0:
            return None, wait
        if not self._may_send_to(queue, leader):
            return None, FOREVER_MS
        bound = queue.slot if queue.in_flight else None
        # Requests to the old leader must have ended first: the new leader would receive their successors out of order.
        # And only one connection keeps two requests in order.
        if bound is not None and (bound.node != leader.node or not self._pool.accepts_more(bound, now)):
            return None, FOREVER_MS
        # The replicas of a partition with an adopted identity have just acknowledged the marker of its fence.
        new = queue.adopted is None and not queue.has_acknowledgement
        isolated_tp = queue.tp if new and self._identity.transactional_id is None else None
        return _Route(leader.node, bound, queue.slow, new, isolated_tp), FOREVER_MS

    def _may_send_to(self, queue: PartitionQueue, leader: Leader) -> bool:
        topic_id = self._metadata.topic_id(queue.tp.topic)
        if queue.adopted is not None and queue.is_recreated(topic_id):
            # A log that does not know the identity accepts any sequence.
            self._batches.drop_waiting(queue, TopicRecreated(f"{queue.tp}: the topic was created again ({topic_id})"))
            return False
        queue.use_topic_id(topic_id)
        return queue.may_use_leader(leader.epoch) and self._identity.may_send(queue) and self._is_admitted(queue)

    # Invariant: No batch is sent under a producer id before the id is registered.
    # Test: tests/producer/test_id_gate.py::test_no_batch_is_sent_under_a_producer_id_before_it_is_admitted
    def _is_admitted(self, queue: PartitionQueue) -> bool:
        return self._gate is None or queue.identity is None or self._gate.admits(queue.identity.producer_id)

    def _request_leader(self, queue: PartitionQueue) -> None:
        error = self._metadata.why_unknown(queue.tp)
        if isinstance(error, BrokerError) and verdict(error.code) is ErrorAction.FATAL and not queue.in_flight:
            self._batches.drop_waiting(queue, error)  # forbidden, or an invalid topic name: waiting does not help
            return
        self._metadata.want((queue.tp.topic,))
        self._metadata.request_update((queue.tp.topic,))

    def _delay_ms(self, queue: PartitionQueue, leader: Leader, now: int) -> int:
        """Return how long the first batch still lingers or backs off, in ms."""
        # No backoff before a request to a newer leader than the one that failed (KAFKA-14253).
        backoff_ms = queue.not_before_ms - now if leader.epoch <= queue.retry_epoch else 0
        return max(backoff_ms, queue.ready_in_ms(self._settings.linger_ms, self.flushed_ms, now))

    def _send(self, route: _Route, queues: list[PartitionQueue], now: int) -> list[Request]:
        requests: list[Request] = []
        for group in self._split_by_size(queues):
            if requests and route.bound is None and any(self._identity.joins_transaction(queue) for queue in group):
                break
            slot = route.bound or self._pool.pick(route.node, now, slow=route.slow, dedicated=route.new)
            if slot is None:
                self._on_unreachable(group, route.node)
                continue
            transactional = self._identity.transactional_id is not None
            batches = [queue.drain(slot, now, transactional=transactional) for queue in group]
            requests.append(self._request(slot, batches, now))
        return requests

    def _split_by_size(self, queues: list[PartitionQueue]) -> list[list[PartitionQueue]]:
        """Split ``queues`` so that a request has at most max.request.size; a larger batch is sent alone."""
        if len(queues) == 1:
            return [queues]
        groups: list[list[PartitionQueue]] = []
        room = 0
        for queue in queues:
            size = queue.waiting[0].seal().size
            if not groups or size > room:
                groups.append([])
                room = self._settings.max_request_size
            groups[-1].append(queue)
            room -= size
        return groups

    def _on_unreachable(self, queues: list[PartitionQueue], node: int) -> None:
        """Keep the connection error of the leader, and request metadata once for each failure."""
        error = self._network.trouble(node)
        for queue in queues:
            if isinstance(error, NotRetriable):
                self._batches.drop_waiting(queue, error)
            elif error is not None and error is not queue.last_error:
                queue.last_error = queue.waiting[0].last_error = error
                self._metadata.request_update()

    def _request(self, slot: Slot, batches: list[ProducerBatch], now: int) -> Request:
        topics: dict[str, list[ProducePartition]] = {}
        size = 0
        for batch in batches:
            self._identity.batch_sent(batch.tp)
            sealed = batch.seal()
            size += sealed.size
            part = ProducePartition(batch.tp.partition, Records((sealed.view,)))
            topics.setdefault(batch.tp.topic, []).append(part)
        body = ProduceRequest(
            acks=-1,
            timeout=self._settings.ack_timeout_ms,
            topic_data=tuple(ProduceTopic(t, self._metadata.topic_id(t), tuple(p)) for t, p in topics.items()),
            transactional_id=self._identity.transactional_id,
        )
        request = Request(
            api=Api.PRODUCE,
            body=body,
            node=slot.node,
            lane=Lane.PRODUCE,
            timeout_ms=self._settings.cluster.request_timeout_ms,
            on_response=lambda response, at: self._responses.on_response(response, batches, at),
            on_failure=lambda error, at: self._responses.on_failure(error, batches, at),
            max_version=self._identity.max_produce_version,
        )
        return self._pool.carry(slot, request, size, now)
