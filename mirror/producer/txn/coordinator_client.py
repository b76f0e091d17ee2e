"""Sends one producer's requests to its coordinators, one at a time, with retries. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.cluster.loop import ClusterLoop
from mirror.cluster.request_state import RequestState
from mirror.cluster.requests import IDLE, Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError, NotRetriable
from mirror.producer.txn.coordinator_requests import CoordinatorRequest
from mirror.timing import FOREVER_MS
from mirror.wire.error_codes import CONCURRENT_TRANSACTIONS

CONCURRENT_BACKOFF_MS: Final = 20
"""The wait after CONCURRENT_TRANSACTIONS: the control batches of the last transaction are being written."""
CONCURRENT_ATTEMPTS: Final = 25
"""How often in a row that wait applies; after half a second the exponential backoff of KIP-580 does."""
_SIZE: Final = 256
"""The approximate size of a request: for the choice of the connection only their number matters."""


class CoordinatorClient:
    """Finds the coordinator of each request and sends it."""

    def __init__(self, settings: ClusterSettings, loop: ClusterLoop) -> None:
        self._settings = settings
        self._metadata = loop.metadata
        self._coordinators = loop.coordinators
        self._network = loop.network
        self._pool = loop.coordinator_pool
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, loop.rng))
        self._concurrent = 0
        self._request_number = 0
        self._unreachable: KafkaError | None = None
        self._wanted_request: CoordinatorRequest | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return self._state.in_flight

    def wait_ms(self, now: int) -> int:
        """Return ms until the next request may be sent; 0 if it may now."""
        return self._state.wait_ms(now)

    def begin(
        self,
        coordinator_request: CoordinatorRequest,
        *,
        answered: Callable[[CoordinatorRequest, Any, int], None],
        failed: Callable[[CoordinatorRequest, KafkaError, int], None],
        max_version: int | None,
        now: int,
    ) -> Poll:
        """Send ``coordinator_request`` if its coordinator is known and can be reached; otherwise look for it.

        ``answered`` or ``failed`` is called at its end, unless it was dropped meanwhile. Raises KafkaError if no retry
        can help.
        """
        self._wanted_request = coordinator_request
        node = self._coordinators.node(coordinator_request.kind, coordinator_request.key)
        if node is None:
            return IDLE
        if node not in self._metadata.brokers:
            self._metadata.request_brokers()
            return IDLE
        slot = self._pool.pick(node, now)
        if slot is None:
            self._on_unreachable(coordinator_request, node)
            return IDLE
        self._state.sent()
        self._request_number += 1
        ticket = self._request_number
        request = Request(
            api=coordinator_request.api,
            body=coordinator_request.body,
            node=node,
            lane=Lane.COORDINATOR,
            timeout_ms=self._settings.request_timeout_ms,
            on_response=lambda response, at: self._on_response(
                ticket, partial(answered, coordinator_request, response), at
            ),
            on_failure=lambda error, at: self._on_failure(ticket, partial(failed, coordinator_request, error), at),
            max_version=max_version,
        )
        return Poll([self._pool.carry(slot, request, _SIZE, now)], FOREVER_MS)

    def why_waiting(self) -> KafkaError | None:
        """Return the last error of the search for the coordinator."""
        sought = self._wanted_request
        unknown = None if sought is None else self._coordinators.why_unknown(sought.kind, sought.key)
        return self._unreachable or unknown or self._metadata.last_error

    def drop(self) -> None:
        """Ignore the response of the request in flight."""
        self._request_number += 1
        self._state.succeeded()

    def succeeded(self) -> None:
        """The request succeeded: reset the backoff."""
        self._state.succeeded()
        self._concurrent = 0

    def retry(
        self, coordinator_request: CoordinatorRequest, now: int, *, code: int | None = None, elsewhere: bool = False
    ) -> None:
        """Schedule a retry; ``elsewhere``: look up the coordinator first, which may have moved."""
        if elsewhere:
            self._coordinators.forget(coordinator_request.kind, coordinator_request.key)
        self._concurrent = self._concurrent + 1 if code == CONCURRENT_TRANSACTIONS else 0
        if 0 < self._concurrent <= CONCURRENT_ATTEMPTS:
            self._state.succeeded()
            self._state.not_before_ms = now + CONCURRENT_BACKOFF_MS
        else:
            self._state.failed(now)

    def _on_unreachable(self, coordinator_request: CoordinatorRequest, node: int) -> None:
        """The coordinator cannot be reached: look it up again, as it may have moved, once for each failure."""
        trouble = self._network.trouble(node)
        if isinstance(trouble, NotRetriable):
            raise trouble
        if trouble is not None and trouble is not self._unreachable:
            self._unreachable = trouble
            self._coordinators.forget(coordinator_request.kind, coordinator_request.key)
            self._metadata.request_brokers()  # it may also be the same broker at another address

    def _on_response(self, ticket: int, answered: Callable[[int], None], now: int) -> None:
        if ticket == self._request_number:
            self._unreachable = None
            answered(now)

    def _on_failure(self, ticket: int, failed: Callable[[int], None], now: int) -> None:
        if ticket == self._request_number:
            failed(now)
