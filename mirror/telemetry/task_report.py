"""What one attempt of a task reports besides its results: where and when it ran, and its measurements.

The report travels as plain values with the results and is stored in the ledger (``task-reports-<epoch>.json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mirror.meters import Histogram, NetworkSnapshot, RequestMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """Times are ms since 1970."""

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
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Largest number of bytes at a time: ``buffer`` of ``buffer_size``, ``in_flight``, ``held``."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """By signal, the number of items that no backend accepted."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskReport:
        """Return the report that :meth:`to_json` wrote."""
        networks = {
            cluster: NetworkSnapshot(
                {
                    api: RequestMeter(Histogram(**meter["took"]), meter["lost"], meter["throttled_ms"])
                    for api, meter in snapshot["requests"].items()
                },
                snapshot["busy_ms"],
            )
            for cluster, snapshot in values["networks"].items()
        }
        return cls(**{**values, "networks": networks, "commits": Histogram(**values["commits"])})
