"""When a broker may be connected to again, and how long that may take (``ClusterConnectionStates``, KIP-144)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError

_NEVER_FAILED: Final = 0


@dataclass(slots=True)
class _State:
    failures: int = _NEVER_FAILED
    not_before_ms: int = 0
    error: KafkaError | None = None


class ConnectionStates:
    """Failures in a row of each node, and what follows from them. A success forgets them."""

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._reconnect = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng)
        self._setup = Backoff(settings.connection_setup_timeout_ms, settings.connection_setup_timeout_max_ms, rng)
        self._states: dict[int, _State] = {}

    def setup_timeout_ms(self, node: int) -> int:
        """How long the next attempt at ``node`` may take; doubles with failures in a row (KIP-601)."""
        return self._setup.after(self._state(node).failures + 1)

    def failed(self, node: int, now: int, error: KafkaError | None = None) -> None:
        """An attempt failed, or a connection broke."""
        state = self._state(node)
        state.error = error
        state.failures += 1
        state.not_before_ms = now + self._reconnect.after(state.failures)

    def succeeded(self, node: int) -> None:
        """A connection stands and has answered."""
        self._states.pop(node, None)

    def error(self, node: int) -> KafkaError | None:
        """The last failure, until a connection stands again."""
        return self._state(node).error

    def failures(self, node: int) -> int:
        """How many there were in a row."""
        return self._state(node).failures

    def wait_ms(self, node: int, now: int) -> int:
        """Milliseconds until ``node`` may be tried again; 0 where it may be at once."""
        return max(0, self._state(node).not_before_ms - now)

    def _state(self, node: int) -> _State:
        return self._states.setdefault(node, _State())
