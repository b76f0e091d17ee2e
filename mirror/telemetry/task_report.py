"""What one attempt of a task reports besides its results: where and when it ran, and its measurements.

The report travels with the results; a task of a stream sends it to the flow's status topic while it lives, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.meters import BOUNDS_MS, Histogram, NetworkSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """Times are ms since 1970. All but ``peaks`` is counted since the task began."""

    run: str = ""
    """The run that the task belongs to."""
    task: int
    attempt: int
    host: str
    pid: int
    began_ms: int
    ended_ms: int
    exported: bool = False
    """The task has exported its spans to a backend itself."""
    networks: Mapping[str, NetworkSnapshot] = field(default_factory=dict)
    """By "source" and "target"."""
    commits: Histogram = field(default_factory=Histogram)
    latency: Histogram = field(default_factory=Histogram)
    """How long records took from the source's append to the target's acknowledgement."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Largest number of bytes at a time: ``buffer`` of ``buffer_size``, ``in_flight``, ``held``.

    Since the task's last report, or since it began.
    """
    phases: Mapping[str, int] = field(default_factory=dict)
    """Ms that partitions have spent in each :class:`mirror.relay.model.timeline.CopyPhase`."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """By signal, the number of items that no backend accepted."""

    @property
    def is_sound(self) -> bool:
        """Whether its histograms can be added: any program may have written it to the status topic."""
        meters = (meter.took for network in self.networks.values() for meter in network.requests.values())
        return all(len(one.counts) == len(BOUNDS_MS) + 1 for one in (self.commits, self.latency, *meters))

    def since(self, earlier: TaskReport) -> TaskReport:
        """Return what the task has measured since an ``earlier`` report of the same attempt."""
        nothing = NetworkSnapshot({}, 0)
        return replace(
            self,
            began_ms=earlier.ended_ms,
            networks={name: one.since(earlier.networks.get(name, nothing)) for name, one in self.networks.items()},
            commits=self.commits.minus(earlier.commits),
            latency=self.latency.minus(earlier.latency),
            phases={phase: ms - earlier.phases.get(phase, 0) for phase, ms in self.phases.items()},
            dropped={signal: count - earlier.dropped.get(signal, 0) for signal, count in self.dropped.items()},
        )


class MeasuredTasks:
    """The last report of each task of one run, to count what it adds to the one before. Not thread-safe.

    Reports may be lost, repeated, or from an attempt that was replaced.
    """

    def __init__(self, run: str) -> None:
        self._run: Final = run
        self._last: Final = dict[int, TaskReport]()

    def take(self, report: TaskReport) -> TaskReport | None:
        """Return what ``report`` adds; None if it adds nothing."""
        before = self._last.get(report.task)
        is_new = before is None or (before.attempt, before.ended_ms) < (report.attempt, report.ended_ms)
        if report.run != self._run or not is_new or not report.is_sound:
            return None
        self._last[report.task] = report
        return report if before is None or before.attempt != report.attempt else report.since(before)

    def between(self, began_ms: int, ended_ms: int) -> list[TaskReport]:
        """Return the last reports with these times, for the spans of a period."""
        return [
            replace(report, began_ms=max(began_ms, report.began_ms), ended_ms=ended_ms)
            for report in self._last.values()
        ]
