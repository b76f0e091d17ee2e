"""When a broker may be connected to again, and how long that may take (``ClusterConnectionStates``, KIP-144)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from mirror.backoff import Backoff
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError


@dataclass(slots=True)
class ConnectAttempt:
    """One connection to ``node``, from its beginning to its end.

    ``ready`` from the moment when it stands. ``seen`` are the incidents of the node that there had been when it began,
    or when it last answered: what breaks it is a new one only where none has come since.
    """

    node: int
    seen: int
    ready: bool = False


@dataclass(slots=True)
class _State:
    """``failures`` in a row, of which ``setups`` before a connection stood; ``incidents`` are all that ever counted."""

    failures: int = 0
    setups: int = 0
    incidents: int = 0
    not_before_ms: int = 0
    error: KafkaError | None = None


class ConnectionStates:
    """Failures in a row of each node, and what follows from them. A connection that comes to stand forgets them.

    There are several connections to one node, and a node that goes away breaks all of them: that is one failure, also
    where they find out one after the other, and so are several attempts side by side that fail.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._reconnect = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng)
        self._setup = Backoff(settings.connection_setup_timeout_ms, settings.connection_setup_timeout_max_ms, rng)
        self._states: dict[int, _State] = {}

    def begin(self, node: int) -> ConnectAttempt:
        """A connection to ``node`` is begun; to be handed in with what becomes of it."""
        return ConnectAttempt(node, self._state(node).incidents)

    def setup_timeout_ms(self, node: int) -> int:
        """How long the next attempt at ``node`` may take; doubles with each in a row that did not succeed (KIP-601)."""
        return self._setup.after(self._state(node).setups + 1)

    def failed(self, attempt: ConnectAttempt, now: int, error: KafkaError | None = None) -> None:
        """It was in vain, or the connection that came of it broke."""
        state = self._state(attempt.node)
        state.error = error
        if state.failures and attempt.seen != state.incidents:
            return  # what broke it has been counted, and nothing has shown since that the node is back
        if attempt.ready:
            state.failures = state.setups = 0
        else:
            state.setups += 1
        state.failures += 1
        state.incidents += 1
        state.not_before_ms = now + self._reconnect.after(state.failures)

    def answered(self, attempt: ConnectAttempt) -> None:
        """Its connection stands, and something was received on it.

        Only the first time ends the backoff: a node that takes no more connections goes on answering on those that
        stand.
        """
        state = self._state(attempt.node)
        state.error = None
        attempt.seen = state.incidents
        if not attempt.ready:
            attempt.ready = True
            state.failures = state.setups = state.not_before_ms = 0

    def error(self, node: int) -> KafkaError | None:
        """The last failure, until something is received on a connection that stands."""
        return self._state(node).error

    def failures(self, node: int) -> int:
        """How many there were in a row."""
        return self._state(node).failures

    def given_up(self, node: int, now: int) -> bool:
        """Whether to ask others for the time being. One that failed once is tried again when its time has come."""
        state = self._state(node)
        return state.error is not None and (self.wait_ms(node, now) > 0 or state.failures > 1)

    def wait_ms(self, node: int, now: int) -> int:
        """Milliseconds until ``node`` may be tried again; 0 where it may be at once."""
        return max(0, self._state(node).not_before_ms - now)

    def _state(self, node: int) -> _State:
        return self._states.setdefault(node, _State())
