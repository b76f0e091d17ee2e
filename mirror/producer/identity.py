"""The producer id: asked for once, before the first batch (``InitProducerId``, KIP-98)."""

from __future__ import annotations

import random

from mirror.backoff import Backoff
from mirror.cluster.request_state import RequestState
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.errors import Hopeless, KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from mirror.wire.verdicts import Verdict, broker_error, verdict


class Identity:
    """Request manager of one idempotent producer's id and epoch. ``fatal`` is why there will be none."""

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng))
        self.producer_id = -1
        self.producer_epoch = -1
        self.last_error: KafkaError | None = None
        self.fatal: KafkaError | None = None

    @property
    def known(self) -> bool:
        """Whether batches can be stamped."""
        return self.producer_id >= 0

    def poll(self, now: int) -> Poll:
        """The request for an id, while there is none."""
        if self.known or self.fatal is not None:
            return Poll([], FOREVER_MS)
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
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._state.succeeded()
            self.last_error = None
            return
        error = broker_error(response.error_code, "getting a producer id", needs="IdempotentWrite")
        if verdict(response.error_code) in {Verdict.FATAL, Verdict.FENCED}:
            self.fatal = error
        else:
            self._retry(error, now)

    def _on_failure(self, error: KafkaError, now: int) -> None:
        if isinstance(error, Hopeless):
            self.fatal = error
        else:
            self._retry(error, now)

    def _retry(self, error: KafkaError, now: int) -> None:
        self.last_error = error
        self._state.failed(now)
