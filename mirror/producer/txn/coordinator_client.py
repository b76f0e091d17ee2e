"""One producer's requests to its coordinators: one at a time, found, sent, tried again."""

from __future__ import annotations

from collections.abc import Callable
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

CONCURRENT_MS: Final = 20
"""After CONCURRENT_TRANSACTIONS: the last transaction's markers are being written. Waiting, and no failure."""
PATIENCE: Final = 25
"""That often in a row; whatever takes longer than half a second is asked about less often, by KIP-580."""
_SIZE: Final = 256
"""Bytes of a request, about: what counts for its connection is that it is one."""


class CoordinatorClient:
    """``answered`` and ``failed`` hear of each request's end, but for one that was dropped meanwhile."""

    def __init__(
        self,
        settings: ClusterSettings,
        loop: ClusterLoop,
        answered: Callable[[CoordinatorRequest, Any, int], None],
        failed: Callable[[CoordinatorRequest, KafkaError, int], None],
    ) -> None:
        self._settings = settings
        self._metadata = loop.metadata
        self._coordinators = loop.coordinators
        self._network = loop.network
        self._pool = loop.coordinator_pool
        self._answered = answered
        self._failed = failed
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, loop.rng))
        self._concurrent = 0
        self._ticket = 0
        self._trouble: KafkaError | None = None
        self._sought: CoordinatorRequest | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._state.in_flight

    def wait_ms(self, now: int) -> int:
        """Milliseconds until the next request may go; 0 where it may."""
        return self._state.wait_ms(now)

    def begin(self, ask: CoordinatorRequest, *, at_most: int | None, now: int) -> Poll:
        """Send ``ask``, where its coordinator is known and can be reached; else see to that.

        Raises KafkaError where there is no hope.
        """
        self._sought = ask
        node = self._coordinators.node(ask.kind, ask.key)
        if node is None:
            return IDLE
        if node not in self._metadata.brokers:
            self._metadata.request_update()
            return IDLE
        slot = self._pool.pick(node, now)
        if slot is None:
            self._note_trouble(ask, node)
            return IDLE
        self._state.sent()
        self._ticket += 1
        ticket = self._ticket
        request = Request(
            api=ask.api,
            body=ask.body,
            node=node,
            lane=Lane.COORDINATOR,
            timeout_ms=self._settings.request_timeout_ms,
            on_response=lambda response, at: self._on_response(ticket, ask, response, at),
            on_failure=lambda error, at: self._on_failure(ticket, ask, error, at),
            max_version=at_most,
        )
        return Poll([self._pool.carry(slot, request, _SIZE, now)], FOREVER_MS)

    def why_waiting(self) -> KafkaError | None:
        """What the search for the coordinator met last."""
        sought = self._sought
        unknown = None if sought is None else self._coordinators.why_unknown(sought.kind, sought.key)
        return self._trouble or unknown or self._metadata.last_error

    def drop(self) -> None:
        """The answer under way is of no interest any more."""
        self._ticket += 1
        self._state.succeeded()

    def succeeded(self) -> None:
        """The answer was as hoped."""
        self._state.succeeded()
        self._concurrent = 0

    def retry(self, ask: CoordinatorRequest, now: int, *, code: int | None = None, elsewhere: bool = False) -> None:
        """The same again, later; ``elsewhere``: at whichever coordinator there is then."""
        if elsewhere:
            self._coordinators.forget(ask.kind, ask.key)
        self._concurrent = self._concurrent + 1 if code == CONCURRENT_TRANSACTIONS else 0
        if 0 < self._concurrent <= PATIENCE:
            self._state.succeeded()
            self._state.not_before_ms = now + CONCURRENT_MS
        else:
            self._state.failed(now)

    def _note_trouble(self, ask: CoordinatorRequest, node: int) -> None:
        """The coordinator cannot be reached: it may be another by now; asked once for each failure."""
        trouble = self._network.trouble(node)
        if isinstance(trouble, NotRetriable):
            raise trouble
        if trouble is not None and trouble is not self._trouble:
            self._trouble = trouble
            self._coordinators.forget(ask.kind, ask.key)
            self._metadata.request_update()  # or it is still this one, at another address

    def _on_response(self, ticket: int, ask: CoordinatorRequest, response: Any, now: int) -> None:
        if ticket == self._ticket:
            self._trouble = None
            self._answered(ask, response, now)

    def _on_failure(self, ticket: int, ask: CoordinatorRequest, error: KafkaError, now: int) -> None:
        if ticket == self._ticket:
            self._failed(ask, error, now)
