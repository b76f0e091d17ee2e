"""What a task reports about itself while it copies. No call may block or raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mirror.meters import Histogram, NetworkSnapshot
from mirror.relay.model.ranges import Range, RangeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSnapshot:
    """The state of a task at one moment. ``networks``, ``commits`` and ``latency`` count from the start of the task."""

    buffer: int
    """Bytes of ``buffer_size`` that are in use."""
    buffer_size: int
    """``buffer.memory`` in bytes."""
    in_flight: int
    """Bytes that were sent to the target and are not acknowledged yet."""
    held: int
    """Bytes that were taken from the source and are still needed."""
    networks: Mapping[str, NetworkSnapshot]
    """The task's network threads, by "source" and "target"."""
    commits: Histogram
    """How long commits took."""
    latency: Histogram
    """How long records took from the source's append to the target's acknowledgement."""

    def since(self, earlier: TaskSnapshot) -> TaskSnapshot:
        """Return a copy with counts since ``earlier`` only."""
        return replace(
            self,
            networks={name: network.since(earlier.networks[name]) for name, network in self.networks.items()},
            commits=self.commits.minus(earlier.commits),
            latency=self.latency.minus(earlier.latency),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRecord:
    """The way of a record that was copied late and belongs to a trace. Times are ms since 1970."""

    trace: str
    """The W3C trace parent that its producer has written, which is sampled."""
    offset: int | None
    """In the source; None if the batch does not say it."""
    target_offset: int | None
    appended_ms: int
    """Its timestamp: when the source's broker has appended it, or its producer has made it."""
    received_ms: int
    """When the response of the source with it came."""
    sent_ms: int
    acknowledged_ms: int


class TaskObserver(Protocol):
    """Called by the task's thread. Every call returns at once and handles its own errors."""

    @property
    def slow_ms(self) -> int | None:
        """How late a record has to be for :meth:`record_was_slow`; None: never."""
        ...

    def record_was_slow(self, range_: Range, record: SlowRecord) -> None:
        """A record of this copy was acknowledged late: one of many, if many are."""
        ...

    def task_started(self, take_snapshot: Callable[[], TaskSnapshot]) -> None:
        """A task starts; ``take_snapshot`` may be called by any thread until the task ends."""
        ...

    def span_ended(self, range_: Range, span: Mapping[str, Any]) -> None:
        """A span of this copy has ended, one of :attr:`mirror.relay.model.timeline.CopyTimeline.spans`."""
        ...

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        """The result of this copy is final."""
        ...


class NullObserver:
    """An observer that ignores every call."""

    slow_ms: int | None = None

    def record_was_slow(self, range_: Range, record: SlowRecord) -> None:
        """Do nothing."""

    def task_started(self, take_snapshot: Callable[[], TaskSnapshot]) -> None:
        """Do nothing."""

    def span_ended(self, range_: Range, span: Mapping[str, Any]) -> None:
        """Do nothing."""

    def range_finished(self, range_: Range, result: RangeResult) -> None:
        """Do nothing."""
