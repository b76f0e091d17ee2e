"""What is known of the flows and clusters, and as of when: what one reading does not show stays from earlier ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mirror.relay.progress.control_record import DEAD_AFTER_MS
from mirror.spark.status.condition import Condition, FlowCondition, condition_of
from mirror.spark.status.flow_status import FlowStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReading:
    """What is known of a flow. Times are ms since 1970; 0: never."""

    flow: str
    source: str
    target: str
    status: FlowStatus | None = None
    """With the lags of ``lags_ms``, and all else of ``state_ms``; None: nothing was read yet."""
    lags_ms: int = 0
    """When both clusters answered last."""
    state_ms: int = 0
    """When the target answered last."""
    error: str = ""
    """Why the newest reading lacks something; empty if it does not."""

    @property
    def condition(self) -> Condition | None:
        """The flow's condition as of ``state_ms``; None: nothing was read yet."""
        if self.status is None:
            return Condition(name=FlowCondition.UNKNOWN, reason=self.error) if self.error else None
        # What was not read since then may have gone on: its last sign of life is as old as the reading.
        known = condition_of(replace(self.status, time_ms=self.state_ms))
        if known.name is FlowCondition.UNKNOWN or self.status.time_ms - self.state_ms < DEAD_AFTER_MS:
            return known
        return Condition(
            name=FlowCondition.UNKNOWN, reason=self.error, follows=known.follows, success_ms=known.success_ms
        )


def after_reading(before: FlowReading, status: FlowStatus) -> FlowReading:
    """Return what is known after a reading, of one side perhaps."""
    now_ms, known, error = status.time_ms, before.status, "; ".join(status.away.values())
    if not status.away:
        return replace(before, status=status, lags_ms=now_ms, state_ms=now_ms, error="")
    if status.target in status.away:
        found = status if known is None else replace(known, away=status.away, time_ms=now_ms)
        return replace(before, status=found, error=error)
    found = status if known is None else replace(status, partitions=known.partitions, totals=known.totals)
    return replace(before, status=found, state_ms=now_ms, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """What is known of a cluster."""

    name: str
    answers: bool | None = None
    """None: it was not asked yet."""
    answered_ms: int = 0
    """When it answered last (ms since 1970); 0: never."""
    error: str = ""


class Readings:
    """The newest readings. For any thread."""

    def __init__(self, flows: Mapping[str, FlowReading]) -> None:
        self._lock: Final = threading.Lock()
        self._flows: Final = dict(flows)
        names = dict.fromkeys(name for one in flows.values() for name in (one.source, one.target))
        self._clusters: Final = {name: ClusterReading(name=name) for name in names}
        self._rounds: Final[dict[str, int]] = {}

    @property
    def flows(self) -> list[FlowReading]:
        """What is known of the flows, in the order of the configuration."""
        with self._lock:
            return list(self._flows.values())

    @property
    def clusters(self) -> list[ClusterReading]:
        """What is known of their clusters."""
        with self._lock:
            return list(self._clusters.values())

    def read(self, status: FlowStatus) -> FlowReading:
        """Take in a status; return what is known of the flow then."""
        with self._lock:
            found = after_reading(self._flows[status.flow], status)
            self._flows[status.flow] = found
        return found

    def failed(self, flow: str, error: str, away: Mapping[str, str], now_ms: int) -> FlowReading:
        """Take in why a flow could not be read, and which clusters do not answer; return what is known of it."""
        with self._lock:
            before = self._flows[flow]
            known = before.status if before.status is None else replace(before.status, away=away, time_ms=now_ms)
            self._flows[flow] = found = replace(before, status=known, error=error)
        return found

    def asked(self, name: str, error: str, now_ms: int) -> ClusterReading:
        """Take in the answer of a cluster, or its error, at ``now_ms`` (since 1970); return what is known of it."""
        with self._lock:
            before = self._clusters[name]
            answered_ms = before.answered_ms if error else now_ms
            found = replace(before, answers=not error, answered_ms=answered_ms, error=error)
            self._clusters[name] = found
        return found

    def ended(self, flow: str, monotonic_ms: int) -> None:
        """Note that a round of a flow has ended, read or not."""
        with self._lock:
            self._rounds[flow] = monotonic_ms

    @property
    def untried(self) -> list[str]:
        """The flows of which no round has ended yet."""
        with self._lock:
            return [name for name in self._flows if name not in self._rounds]

    def late(self, since_ms: int) -> list[str]:
        """Return the flows without a round that has ended since then (monotonic ms)."""
        with self._lock:
            return [name for name in self._flows if self._rounds.get(name, since_ms - 1) < since_ms]
