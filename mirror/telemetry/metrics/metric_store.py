"""The current values of instruments in one process, for exporters to read. No I/O.

Values are aggregated here instead of in OpenTelemetry's SDK because the tasks count by themselves
(:mod:`mirror.meters`): only their sums reach this process, and an SDK's histogram cannot add sums.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mirror.meters import Histogram
from mirror.telemetry.metrics.instruments import Instrument, Kind

Attributes = tuple[tuple[str, str], ...]
MAX_POINTS: Final = 5_000
"""Points per instrument. Values of further points are added under :data:`OTHER`, so that sums remain correct."""
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The value of an instrument for one combination of attributes: a number, or a histogram of ms."""

    attributes: Attributes
    value: float | Histogram


class MetricStore:
    """Counters only grow; gauges keep the value that was set last. Not thread-safe: callers hold ``lock``."""

    def __init__(self) -> None:
        self._values: dict[Instrument, dict[Attributes, float | Histogram]] = {}
        self._clusters: Final = dict[str, tuple[tuple[str, str], ...]]()
        """By flow, the attributes with the aliases of its clusters."""
        self.lock: Final = threading.RLock()

    def describe_flow(self, flow: str, source: str, target: str) -> None:
        """Have all points of ``flow``, also earlier ones, name its clusters by these aliases."""
        self._clusters[flow] = (("source", source), ("target", target))

    def add(self, instrument: Instrument, value: float, **attributes: object) -> None:
        """Add ``value`` to a counter; 0 creates no point."""
        if value:
            points, key = self._locate(instrument, Kind.COUNTER, attributes)
            before = points.get(key, 0)
            assert not isinstance(before, Histogram)  # noqa: S101 - a counter's points are numbers
            points[key] = before + value

    def set(self, instrument: Instrument, value: float | None, **attributes: object) -> None:
        """Set a gauge to ``value``; None removes the point, because its value is no longer known."""
        points, key = self._locate(instrument, Kind.GAUGE, attributes)
        if value is None:
            points.pop(key, None)
        else:
            points[key] = value

    def room(self, instrument: Instrument) -> int:
        """Return how many further points an instrument may have; gauges beyond are one, with the value set last."""
        return max(0, MAX_POINTS - len(self._values.get(instrument, ())))

    def remove_gauges(self, **attributes: object) -> None:
        """Remove all points of all gauges that have these attributes: what they describe has ended."""
        for instrument in self._values:
            if instrument.kind is Kind.GAUGE:
                self.remove(instrument, **attributes)

    def remove(self, instrument: Instrument, **attributes: object) -> None:
        """Remove all points of a gauge that have these attributes: what they describe may no longer exist."""
        required = {(name, str(value)) for name, value in attributes.items()}
        points = self._values.get(instrument, {})
        for key in [key for key in points if required <= set(key)]:
            del points[key]

    def merge(self, instrument: Instrument, durations: Histogram, **attributes: object) -> None:
        """Add ``durations`` that were counted elsewhere to a histogram."""
        if durations.count:
            points, key = self._locate(instrument, Kind.HISTOGRAM, attributes)
            before = points.get(key)
            points[key] = durations.plus(before) if isinstance(before, Histogram) else durations.copy()

    def _locate(
        self, instrument: Instrument, kind: Kind, attributes: dict[str, object]
    ) -> tuple[dict[Attributes, float | Histogram], Attributes]:
        assert instrument.kind is kind, f"{instrument.name} is a {instrument.kind}"  # noqa: S101
        texts = {name: str(value) for name, value in attributes.items()}
        assert texts.keys() <= set(instrument.attributes), f"{instrument.name} has {instrument.attributes}"  # noqa: S101
        points = self._values.setdefault(instrument, {})
        key = tuple((name, texts[name]) for name in instrument.attributes if name in texts)
        if key not in points and len(points) >= MAX_POINTS:
            key = tuple((name, value if name == "flow" else OTHER) for name, value in key)
        return points, key

    def points(self) -> Iterator[tuple[Instrument, list[MetricPoint]]]:
        """Return copies of all points, by instrument."""
        for instrument, points in self._values.items():
            if points:
                yield instrument, [MetricPoint(self._named(key), _copy(value)) for key, value in points.items()]

    def _named(self, key: Attributes) -> Attributes:
        """Return ``key`` with the aliases of the clusters of its flow, which is its first attribute."""
        clusters = self._clusters.get(key[0][1], ()) if key and key[0][0] == "flow" else ()
        return (*key[:1], *clusters, *key[1:]) if clusters else key


def _copy(value: float | Histogram) -> float | Histogram:
    return value.copy() if isinstance(value, Histogram) else value
