"""Which broker coordinates a group or a transactional id."""

from __future__ import annotations

import enum
import random
from collections import defaultdict
from collections.abc import Collection

from mirror.backoff import Backoff
from mirror.cluster.request_state import RequestState
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
    """Request manager and store of coordinators, looked up in batches (KIP-699), one for all clients of a cluster.

    ``answers`` counts the look-ups that went well; ``changes`` rises with every answer and every failure.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._states = {kind: RequestState(backoff) for kind in KeyType}
        self._nodes: dict[tuple[KeyType, str], int] = {}
        self._wanted: dict[KeyType, set[str]] = defaultdict(set)
        self.answers = 0
        self.changes = 0
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

    def retain(self, nodes: Collection[int]) -> None:
        """The cluster's brokers are these: what another one coordinated is to be looked up again."""
        self._nodes = {key: node for key, node in self._nodes.items() if node in nodes}

    def poll(self, now: int) -> Poll:
        """A FindCoordinator for each kind that has keys to look up."""
        requests: list[Request] = []
        wait = FOREVER_MS
        for kind, keys in self._wanted.items():
            if not keys:
                continue
            if self._states[kind].can_send(now):
                self._states[kind].sent()
                requests.append(self._request(kind, keys))
            else:
                wait = min(wait, self._states[kind].wait_ms(now))
        return Poll(requests, wait)

    def _request(self, kind: KeyType, keys: set[str]) -> Request:
        body = FindCoordinatorRequest(int(kind), tuple(sorted(keys)))
        return Request(
            api=Api.FIND_COORDINATOR,
            body=body,
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._request_timeout_ms,
            on_response=lambda response, now: self._learn(kind, response, now),
            on_failure=lambda error, now: self._failed(kind, error, now),
        )

    def _learn(self, kind: KeyType, response: FindCoordinatorResponse, now: int) -> None:
        failed: KafkaError | None = None
        self.changes += 1
        for told in response.coordinators:
            if not told.error_code:
                self._nodes[kind, told.key] = told.node_id
                self._wanted[kind].discard(told.key)
                continue
            what = "group" if kind is KeyType.GROUP else "transactional id"
            about = f"looking up the coordinator of {what} {told.key!r}"
            error = broker_error(told.error_code, about, told.error_message, needs="Describe")
            if verdict(told.error_code) is Verdict.FATAL:
                self._refused[kind, told.key] = error
                self._wanted[kind].discard(told.key)
            else:
                failed = error
        if failed is not None:
            self._failed(kind, failed, now)
        else:
            self._states[kind].succeeded()
            self.answers += 1
            self.last_error = None

    def _failed(self, kind: KeyType, error: KafkaError, now: int) -> None:
        self._states[kind].failed(now)
        self.last_error = error
        self.changes += 1
