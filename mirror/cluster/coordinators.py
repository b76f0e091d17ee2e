"""Which broker coordinates a group or a transactional id."""

from __future__ import annotations

import enum
import random
from collections import defaultdict

from mirror.backoff import Backoff
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from mirror.wire.verdicts import Verdict, broker_error, verdict


class KeyType(enum.IntEnum):
    """FindCoordinator's key types."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Request manager and store of coordinators, looked up in batches (KIP-699), one for all clients of a cluster."""

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._nodes: dict[tuple[KeyType, str], int] = {}
        self._wanted: dict[KeyType, set[str]] = defaultdict(set)
        self._in_flight: set[KeyType] = set()
        self._failures = 0
        self._not_before_ms = 0
        self._refused: dict[tuple[KeyType, str], KafkaError] = {}
        self.last_error: KafkaError | None = None

    def node(self, kind: KeyType, key: str) -> int | None:
        """The coordinator, or None: then it is looked up. Raises the error of a look-up that was refused for good."""
        refused = self._refused.pop((kind, key), None)
        if refused is not None:
            raise refused
        found = self._nodes.get((kind, key))
        if found is None:
            self._wanted[kind].add(key)
        return found

    def forget(self, kind: KeyType, key: str) -> None:
        """It is not there (any more): the next :meth:`node` looks it up again."""
        self._nodes.pop((kind, key), None)

    def poll(self, now: int) -> Poll:
        """A FindCoordinator for each kind that has keys to look up."""
        if self._not_before_ms > now:
            return Poll([], self._not_before_ms - now)
        requests = [self._request(kind, keys) for kind, keys in self._wanted.items() if keys]
        return Poll([request for request in requests if request is not None], FOREVER_MS)

    def _request(self, kind: KeyType, keys: set[str]) -> Request | None:
        if kind in self._in_flight:
            return None
        self._in_flight.add(kind)

        def on_response(response: FindCoordinatorResponse, now: int) -> None:
            self._in_flight.discard(kind)
            self._learn(kind, response, now)

        def on_failure(error: KafkaError, now: int) -> None:
            self._in_flight.discard(kind)
            self._failed(error, now)

        body = FindCoordinatorRequest(int(kind), tuple(sorted(keys)))
        return Request(
            api=Api.FIND_COORDINATOR,
            body=body,
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._request_timeout_ms,
            on_response=on_response,
            on_failure=on_failure,
        )

    def _learn(self, kind: KeyType, response: FindCoordinatorResponse, now: int) -> None:
        failed: KafkaError | None = None
        for told in response.coordinators:
            if not told.error_code:
                self._nodes[kind, told.key] = told.node_id
                self._wanted[kind].discard(told.key)
                continue
            what = "group" if kind is KeyType.GROUP else "transactional id"
            error = broker_error(told.error_code, f"coordinator of {what} {told.key!r}", told.error_message)
            if verdict(told.error_code) is Verdict.FATAL:
                self._refused[kind, told.key] = error
                self._wanted[kind].discard(told.key)
            else:
                failed = error
        if failed is not None:
            self._failed(failed, now)
        else:
            self._failures, self._not_before_ms, self.last_error = 0, 0, None

    def _failed(self, error: KafkaError, now: int) -> None:
        self._failures += 1
        self._not_before_ms = now + self._backoff.after(self._failures)
        self.last_error = error
