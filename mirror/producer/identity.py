"""The producer id of an idempotent producer: asked for before its first batch (``InitProducerId``, KIP-98)."""

from __future__ import annotations

import random
from typing import Protocol

from mirror.backoff import Backoff
from mirror.cluster.request_state import RequestState
from mirror.cluster.requests import IDLE, Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError, NotRetriable
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, broker_error, verdict
from mirror.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse


class ProducerIdentity(Protocol):
    """Under which id and epoch batches go out; what an idempotent and a transactional producer differ in."""

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether the queue's batches may be stamped and sent now; sees to the queue's identity."""
        ...

    def joins(self, queue: PartitionQueue) -> bool:
        """Whether the leader has to ask a coordinator about the queue's next batch."""
        ...

    def produce_to(self, tp: TopicPartition) -> None:
        """A batch for ``tp`` goes out."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """None: not in transactions."""
        ...

    @property
    def produce_at_most(self) -> int | None:
        """The highest version of Produce to use; None: whatever the broker knows."""
        ...


class IdempotentIdentity:
    """Request manager of one idempotent producer's ids. ``fatal`` is why there will be none."""

    transactional_id: str | None = None
    produce_at_most: int | None = None

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng))
        self.identity: ProducerId | None = None
        self.last_error: KafkaError | None = None
        self.fatal: KafkaError | None = None

    def may_send(self, queue: PartitionQueue) -> bool:
        """Sees to the queue's id, epoch and first sequence: anew where a gap could not be resolved (KIP-360)."""
        if queue.needs_new_epoch and not queue.exhausted:
            queue.bump()
        if queue.needs_new_epoch and self.identity is not None and queue.identity is not None:
            if self.identity.producer_id == queue.identity.producer_id:
                self.identity = None  # its epochs are used up
            else:
                queue.restart(self.identity)
        if queue.identity is None and self.identity is not None:
            queue.restart(self.identity)
        return queue.identity is not None and not queue.needs_new_epoch

    def joins(self, queue: PartitionQueue) -> bool:
        """There is nothing to join."""
        del queue
        return False

    def produce_to(self, tp: TopicPartition) -> None:
        """Nobody needs to know."""

    def poll(self, now: int) -> Poll:
        """The request for an id, while there is none."""
        if self.identity is not None or self.fatal is not None:
            return IDLE
        if not self._state.can_send(now):
            return Poll([], self._state.wait_ms(now))
        self._state.sent()
        request = Request(
            api=Api.INIT_PRODUCER_ID,
            # The time-out belongs to transactions; brokers want a legal value all the same.
            body=InitProducerIdRequest(None, 2**31 - 1),
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._request_timeout_ms,
            on_response=self._on_response,
            on_failure=self._on_failure,
        )
        return Poll([request], FOREVER_MS)

    def _on_response(self, response: InitProducerIdResponse, now: int) -> None:
        if not response.error_code:
            self.identity = ProducerId(response.producer_id, response.producer_epoch)
            self._state.succeeded()
            self.last_error = None
            return
        error = broker_error(response.error_code, "getting a producer id", needs="IdempotentWrite")
        if verdict(response.error_code) in {ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE}:
            self.fatal = error
        else:
            self._retry(error, now)

    def _on_failure(self, error: KafkaError, now: int) -> None:
        if isinstance(error, NotRetriable):
            self.fatal = error
        else:
            self._retry(error, now)

    def _retry(self, error: KafkaError, now: int) -> None:
        self.last_error = error
        self._state.failed(now)
