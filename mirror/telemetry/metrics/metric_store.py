"""Values of instruments, as they come together in one process: what exporters read. Not thread-safe. No I/O.

Aggregated here, and not by OpenTelemetry's SDK: the tasks count by themselves (:mod:`mirror.meters`), and only sums of
theirs reach this process, which an SDK's histogram cannot take in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mirror.meters import Histogram
from mirror.telemetry.metrics.instruments import Instrument, Kind

Attributes = tuple[tuple[str, str], ...]
MOST_POINTS: Final = 5_000
"""Of one instrument. What comes beyond is counted under ``other``, so that no sum is wrong."""
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value: a number, or a histogram of ms."""

    attributes: Attributes
    value: float | Histogram


class MetricStore:
    """Counters rise for as long as this lives, gauges are as they were last set."""

    def __init__(self) -> None:
        self._values: dict[Instrument, dict[Attributes, float | Histogram]] = {}
        self.lock: Final = threading.RLock()

    def add(self, what: Instrument, value: float, **about: object) -> None:
        """Count ``value`` more of a counter; nothing of 0."""
        if value:
            points, key = self._place(what, Kind.COUNTER, about)
            before = points.get(key, 0)
            assert not isinstance(before, Histogram)  # noqa: S101 - a counter's points are numbers
            points[key] = before + value

    def set(self, what: Instrument, value: float | None, **about: object) -> None:
        """A gauge is at ``value``; None: nothing is known of it any more."""
        points, key = self._place(what, Kind.GAUGE, about)
        if value is None:
            points.pop(key, None)
        else:
            points[key] = value

    def remove(self, what: Instrument, **about: object) -> None:
        """All points of a gauge that have these attributes: what they were about may be gone."""
        gone = {(name, str(value)) for name, value in about.items()}
        points = self._values.get(what, {})
        for key in [key for key in points if gone <= set(key)]:
            del points[key]

    def merge(self, what: Instrument, more: Histogram, **about: object) -> None:
        """What a histogram has counted elsewhere."""
        if more.count:
            points, key = self._place(what, Kind.HISTOGRAM, about)
            before = points.get(key)
            points[key] = more.plus(before) if isinstance(before, Histogram) else more.copy()

    def _place(
        self, what: Instrument, kind: Kind, about: dict[str, object]
    ) -> tuple[dict[Attributes, float | Histogram], Attributes]:
        assert what.kind is kind, f"{what.name} is a {what.kind}"  # noqa: S101
        named = {name: str(value) for name, value in about.items()}
        assert named.keys() <= set(what.attributes), f"{what.name} has {what.attributes}"  # noqa: S101
        points = self._values.setdefault(what, {})
        key = tuple((name, named[name]) for name in what.attributes if name in named)
        if key not in points and len(points) >= MOST_POINTS:
            key = tuple((name, value if name == "flow" else OTHER) for name, value in key)
        return points, key

    def points(self) -> Iterator[tuple[Instrument, list[MetricPoint]]]:
        """All of them, by instrument."""
        for what, points in self._values.items():
            if points:
                yield what, [MetricPoint(key, _copy(value)) for key, value in points.items()]


def _copy(value: float | Histogram) -> float | Histogram:
    return value.copy() if isinstance(value, Histogram) else value
