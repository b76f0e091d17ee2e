"""When to reconnect to a broker, and the timeout of that (``ClusterConnectionStates``, KIP-144, KIP-601). No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.backoff import Backoff
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from mirror.cluster.connection.session import BrokerSession


@dataclass(slots=True)
class ConnectAttempt:
    """One connection to ``node``, from its first attempt to its end."""

    node: int
    seen_incidents: int
    """The number of incidents of the node when the attempt began, or when the node last answered: its end is a new
    incident only if there was none since."""
    ready: bool = False
    """The connection is established."""


@dataclass(slots=True)
class _State:
    """``failures`` in a row, ``setups`` of them before a connection was established; ``incidents`` are all failures."""

    failures: int = 0
    setups: int = 0
    incidents: int = 0
    not_before_ms: int = 0
    error: KafkaError | None = None


class ConnectionStates:
    """The failures in a row of each node, and the backoff after them. An established connection resets them.

    A client has several connections to a node. A node that fails breaks all of them: that counts as one failure,
    also if they notice it one after the other, and so do several concurrent attempts that fail.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._reconnect = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng)
        self._setup = Backoff(settings.connection_setup_timeout_ms, settings.connection_setup_timeout_max_ms, rng)
        self._states: dict[int, _State] = {}

    def begin(self, node: int) -> ConnectAttempt:
        """Begin a connection to ``node``; pass the result to the other methods."""
        return ConnectAttempt(node, self._state(node).incidents)

    def setup_timeout_ms(self, node: int) -> int:
        """Return the timeout of the next attempt, which doubles after each failed one in a row (KIP-601)."""
        return self._setup.after(self._state(node).setups + 1)

    def failed(self, attempt: ConnectAttempt, now: int, error: KafkaError | None = None) -> None:
        """Record that the attempt failed, or that its connection broke."""
        state = self._state(attempt.node)
        state.error = error
        if state.failures and attempt.seen_incidents != state.incidents:
            return  # the same incident was counted already, and the node has not answered since
        if attempt.ready:
            state.failures = state.setups = 0
        else:
            state.setups += 1
        state.failures += 1
        state.incidents += 1
        state.not_before_ms = now + self._reconnect.after(state.failures)

    def answered(self, attempt: ConnectAttempt) -> None:
        """Record that something was received on its connection.

        Only the first time resets the backoff: a node that accepts no more connections still answers on existing ones.
        """
        state = self._state(attempt.node)
        state.error = None
        attempt.seen_incidents = state.incidents
        if not attempt.ready:
            attempt.ready = True
            state.failures = state.setups = state.not_before_ms = 0

    def error(self, node: int) -> KafkaError | None:
        """Return the last failure, until something is received on a connection."""
        return self._state(node).error

    def failures(self, node: int) -> int:
        """Return the number of failures in a row."""
        return self._state(node).failures

    def is_avoided(self, node: int, now: int) -> bool:
        """Whether to prefer other nodes for now.

        After a single failure it is not avoided once the backoff has passed.
        """
        state = self._state(node)
        return state.error is not None and (self.wait_ms(node, now) > 0 or state.failures > 1)

    def wait_ms(self, node: int, now: int) -> int:
        """Return ms until ``node`` may be tried again."""
        return max(0, self._state(node).not_before_ms - now)

    def least_busy(
        self,
        brokers: Iterable[int],
        bootstrap: Iterable[int],
        session_of: Callable[[int], BrokerSession | None],
        now: int,
    ) -> int:
        """Return the node for a request that any broker answers; connected ones come first.

        ``bootstrap`` are the nodes of the bootstrap addresses, which are negative: they serve as long as no broker is
        known, and while the best broker is avoided. ``session_of`` returns the session of a node's connection.
        """

        def rank(node: int) -> tuple[int, bool, bool, bool, int, int]:
            session = session_of(node)
            ready = session is not None and session.ready
            failed = self.error(node) is not None
            # Of several that failed, the one whose failure is the longest ago: otherwise the first would be tried for
            # ever, while another has recovered (or knows where the first one is now).
            failed_ms = self._state(node).not_before_ms if failed else 0
            # A node with this connection established needs no connect.
            wait_ms = 0 if ready and not failed else self.wait_ms(node, now)
            # A broker that hangs keeps its connection for request.timeout.ms; others answer.
            overdue = session is not None and session.overdue
            return (wait_ms, failed, overdue, not ready, 0 if session is None else session.load, failed_ms)

        best = min([*brokers] or [*bootstrap], key=rank)
        if best >= 0 and self.is_avoided(best, now):
            # No known broker can be reached: the bootstrap addresses may still lead to others.
            best = min([best, *bootstrap], key=rank)
        return best

    def _state(self, node: int) -> _State:
        return self._states.setdefault(node, _State())
