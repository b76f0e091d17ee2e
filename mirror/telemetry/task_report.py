"""What one attempt of a task tells of itself besides its results: where and when it ran, and what it measured.

It travels as plain values with the results, and lies in the ledger (``told-<epoch>.json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mirror.meters import Histogram, NetworkSnapshot, RequestMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """Times are ms since 1970. ``exported``: its spans went to a backend from where it ran.

    ``networks`` are by "source" and "target". ``peaks`` are the most bytes at a time: ``buffer`` of ``buffer_size``,
    ``in_flight``, ``held``. ``dropped`` counts by signal what no backend took.
    """

    task: int
    attempt: int
    host: str
    pid: int
    began_ms: int
    ended_ms: int
    exported: bool = False
    networks: Mapping[str, NetworkSnapshot] = field(default_factory=dict)
    commits: Histogram = field(default_factory=Histogram)
    peaks: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskReport:
        """The inverse of :meth:`to_json`."""
        networks = {
            cluster: NetworkSnapshot(
                {
                    api: RequestMeter(Histogram(**one["took"]), one["lost"], one["throttled_ms"])
                    for api, one in look["requests"].items()
                },
                look["busy_ms"],
            )
            for cluster, look in values["networks"].items()
        }
        return cls(**{**values, "networks": networks, "commits": Histogram(**values["commits"])})
