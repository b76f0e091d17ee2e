"""What a task shows of itself while it copies, to whoever watches; nothing of it waits, and nothing may be raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mirror.meters import Histogram, NetworkSnapshot
from mirror.relay.model.ranges import Range, RangeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSnapshot:
    """One look at a task.

    Bytes: ``buffer`` is used of ``buffer_size`` (``buffer.memory``), ``in_flight`` is under way to the target, ``held``
    was taken from the source and is still needed. ``networks`` are its network threads', by "source" and "target",
    ``commits`` how long commits took; both count from the task's beginning.
    """

    buffer: int
    buffer_size: int
    in_flight: int
    held: int
    networks: Mapping[str, NetworkSnapshot]
    commits: Histogram

    def since(self, earlier: TaskSnapshot) -> TaskSnapshot:
        """As this one, with what was counted since ``earlier``."""
        return replace(
            self,
            networks={name: look.since(earlier.networks[name]) for name, look in self.networks.items()},
            commits=self.commits.minus(earlier.commits),
        )


class TaskObserver(Protocol):
    """Told from the task's thread. Every call returns at once; what goes wrong in it is its own trouble."""

    def begins(self, look: Callable[[], TaskSnapshot]) -> None:
        """A task begins; ``look`` may be called from any thread, as long as the task goes on."""
        ...

    def passed(self, one: Range, span: Mapping[str, Any]) -> None:
        """A part of this copy is over: one of :attr:`mirror.relay.model.timeline.CopyTimeline.spans`."""
        ...

    def done(self, one: Range, result: RangeResult) -> None:
        """The result of this copy stands."""
        ...


class NullObserver:
    """Nobody looks."""

    def begins(self, look: Callable[[], TaskSnapshot]) -> None:
        """Nothing."""

    def passed(self, one: Range, span: Mapping[str, Any]) -> None:
        """Nothing."""

    def done(self, one: Range, result: RangeResult) -> None:
        """Nothing."""
