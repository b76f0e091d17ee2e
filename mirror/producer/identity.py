"""The producer id of an idempotent producer, obtained before its first batch (``InitProducerId``, KIP-98). No I/O."""

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
from mirror.wire.integers import INT32_MAX
from mirror.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse


class ProducerIdentity(Protocol):
    """The id and epoch of a producer's batches, in which idempotent and transactional producers differ."""

    def may_send(self, queue: PartitionQueue) -> bool:
        """Return whether batches of ``queue`` may be sent now; sets the queue's identity."""
        ...

    def joins_transaction(self, queue: PartitionQueue) -> bool:
        """Whether the leader verifies the next batch of ``queue`` with a coordinator."""
        ...

    def batch_sent(self, tp: TopicPartition) -> None:
        """Record that a batch for ``tp`` is sent."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; None for an idempotent producer."""
        ...

    @property
    def max_produce_version(self) -> int | None:
        """The highest version of Produce to use; None: the highest that the broker supports."""
        ...


class IdempotentIdentity:
    """The ids of one idempotent producer. ``fatal`` is the error after which it gets none."""

    transactional_id: str | None = None
    max_produce_version: int | None = None

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng))
        self.identity: ProducerId | None = None
        self.wanted = False
        """Whether a partition sends under it: those that have adopted an identity need none."""
        self.last_error: KafkaError | None = None
        self.fatal: KafkaError | None = None

    def may_send(self, queue: PartitionQueue) -> bool:
        """Set the queue's id, epoch and first sequence; bump the epoch if a gap could not be resolved (KIP-360).

        An adopted epoch is never bumped: only the fence of an attempt may give the partition another one.
        """
        if queue.adopted is not None:
            return not queue.needs_new_epoch
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

    def joins_transaction(self, queue: PartitionQueue) -> bool:
        """Return False: there is no transaction."""
        del queue
        return False

    def batch_sent(self, tp: TopicPartition) -> None:
        """Do nothing."""

    def poll(self, now: int) -> Poll:
        """Return the request for an id, while there is none."""
        if not self.wanted or self.identity is not None or self.fatal is not None:
            return IDLE
        if not self._state.can_send(now):
            return Poll([], self._state.wait_ms(now))
        self._state.sent()
        request = Request(
            api=Api.INIT_PRODUCER_ID,
            # The timeout belongs to transactions, but brokers require a valid value.
            body=InitProducerIdRequest(None, INT32_MAX),
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
