"""Looks up the coordinators of groups and transactional ids. No I/O."""

from __future__ import annotations

import enum
import random
from collections import defaultdict
from collections.abc import Collection, Mapping

from mirror.backoff import Backoff
from mirror.causes import COORDINATOR_OF, REFUSING_POLICY
from mirror.cluster.request_state import KeyStates
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import COORDINATOR_NOT_AVAILABLE, ErrorAction, broker_error, verdict
from mirror.wire.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse


class KeyType(enum.IntEnum):
    """FindCoordinator's key types."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """The known coordinators, looked up in batches (KIP-699), one instance for all clients of a cluster.

    One request of each kind is in flight at a time. A key whose lookup fails backs off alone: it does not delay
    others, and they do not reset its backoff (KIP-580). ``answers`` counts the responses that resolved some key;
    ``changes`` rises with every response and every failure.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._states: dict[KeyType, KeyStates[str]] = {kind: KeyStates(backoff) for kind in KeyType}
        self._in_flight: set[KeyType] = set()
        self._nodes: dict[tuple[KeyType, str], int] = {}
        self._wanted: dict[KeyType, set[str]] = defaultdict(set)
        self.answers = 0
        self.changes = 0
        self._refused: dict[tuple[KeyType, str], KafkaError] = {}
        self._errors: dict[tuple[KeyType, str], KafkaError] = {}

    def node(self, kind: KeyType, key: str) -> int | None:
        """Return the coordinator, or None and look it up. Raises the error of a lookup that was refused for good."""
        refused = self._refused.pop((kind, key), None)
        if refused is not None:
            raise refused
        found = self._nodes.get((kind, key))
        if found is None:
            self._wanted[kind].add(key)
        return found

    def forget(self, kind: KeyType, key: str) -> None:
        """Drop the coordinator: the next :meth:`node` looks it up again."""
        self._nodes.pop((kind, key), None)

    def why_unknown(self, kind: KeyType, key: str) -> KafkaError | None:
        """Return the error of the last lookup; None if it succeeded, or is pending."""
        return self._errors.get((kind, key))

    def retain(self, nodes: Collection[int]) -> None:
        """Drop the coordinators that are not among ``nodes``, the brokers of the cluster."""
        self._nodes = {key: node for key, node in self._nodes.items() if node in nodes}

    def poll(self, now: int) -> Poll:
        """Return a FindCoordinator for each kind that has keys to look up."""
        requests: list[Request] = []
        wait = FOREVER_MS
        for kind, wanted in self._wanted.items():
            if not wanted or kind in self._in_flight:
                continue
            states = self._states[kind]
            states.rested(now)
            if keys := wanted.difference(states.resting):
                self._in_flight.add(kind)
                requests.append(self._request(kind, tuple(sorted(keys))))
            else:
                wait = min(wait, states.wait_ms(now))
        return Poll(requests, wait)

    def _request(self, kind: KeyType, keys: tuple[str, ...]) -> Request:
        body = FindCoordinatorRequest(int(kind), keys)
        return Request(
            api=Api.FIND_COORDINATOR,
            body=body,
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._request_timeout_ms,
            on_response=lambda response, now: self._on_response(kind, keys, response, now),
            on_failure=lambda error, now: self._finish(kind, dict.fromkeys(keys, error), now),
        )

    def _on_response(self, kind: KeyType, keys: tuple[str, ...], response: FindCoordinatorResponse, now: int) -> None:
        left_out = "the broker's answer leaves it out"
        failed = {key: KafkaError(f"{_operation(kind, key)}: {left_out}") for key in keys}
        for answer in response.coordinators:
            if answer.key not in failed:
                continue
            if not answer.error_code:
                self._nodes[kind, answer.key] = answer.node_id
                self._resolve(kind, answer.key)
                del failed[answer.key]
                continue
            error = broker_error(
                answer.error_code, _operation(kind, answer.key), answer.error_message, needs="Describe"
            )
            if answer.error_code == COORDINATOR_NOT_AVAILABLE:
                setting = COORDINATOR_OF[_kind(kind)]
                error.args = (f"{error}; if this stays so: {setting.words}; {REFUSING_POLICY}",)
            if verdict(answer.error_code) is ErrorAction.FATAL:
                self._refused[kind, answer.key] = error
                self._resolve(kind, answer.key)
                del failed[answer.key]
            else:
                failed[answer.key] = error
        if len(failed) < len(keys):
            self.answers += 1
        self._finish(kind, failed, now)

    def _resolve(self, kind: KeyType, key: str) -> None:
        self._wanted[kind].discard(key)
        self._states[kind].succeeded((key,))
        self._errors.pop((kind, key), None)

    def _finish(self, kind: KeyType, failed: Mapping[str, KafkaError], now: int) -> None:
        """End the request in flight; the keys that ``failed`` are retried."""
        self._in_flight.discard(kind)
        self._states[kind].failed(failed, now)
        self._errors |= {(kind, key): error for key, error in failed.items()}
        self.changes += 1


def _operation(kind: KeyType, key: str) -> str:
    return f"looking up the coordinator of {_kind(kind)} {key!r}"


def _kind(kind: KeyType) -> str:
    return "group" if kind is KeyType.GROUP else "transactional id"
