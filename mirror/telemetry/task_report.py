"""What one attempt of a task reports besides its results: where and when it ran, and its measurements.

The report travels with the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirror.meters import Histogram, NetworkSnapshot


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
