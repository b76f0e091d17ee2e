"""Counters that the cores keep about their own work: plain integers that other threads may read at any time.

The cores count, and telemetry reads the counters. Calling an observer for each request would cost more than the
request's own bookkeeping: a histogram of OpenTelemetry's SDK takes about 5 us per value, this one 0.3 us.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000),
    *(60_000, 300_000, 1_800_000, 14_400_000),
)
"""The upper bounds of a histogram's buckets. One more bucket counts longer durations.

Requests take up to seconds, periods minutes, and a record that has waited for a scheduled run is hours old.
"""


@dataclass(slots=True)
class Histogram:
    """A histogram of durations in ms, with the buckets of :data:`BOUNDS_MS`."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ms: int = 0

    def add(self, took_ms: int, times: int = 1) -> None:
        """Count one duration, which has occurred so many ``times``."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += times
        self.sum_ms += took_ms * times

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(list(self.counts), self.sum_ms)

    def plus(self, other: Histogram) -> Histogram:
        """Return the sum of both histograms."""
        counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        return Histogram(counts, self.sum_ms + other.sum_ms)

    def minus(self, earlier: Histogram) -> Histogram:
        """Return what was counted since the ``earlier`` copy."""
        counts = [now - before for now, before in zip(self.counts, earlier.counts, strict=True)]
        return Histogram(counts, self.sum_ms - earlier.sum_ms)


@dataclass(slots=True)
class RequestMeter:
    """Counters for the requests of one API."""

    took: Histogram = field(default_factory=Histogram)
    """The time from sending a request to its response."""
    lost: int = 0
    """Requests without a response."""
    throttled_ms: int = 0
    """How long brokers asked the client to wait (KIP-219)."""

    def copy(self) -> RequestMeter:
        """Return an independent copy."""
        return RequestMeter(self.took.copy(), self.lost, self.throttled_ms)

    def plus(self, other: RequestMeter) -> RequestMeter:
        """Return the sum of both meters."""
        return RequestMeter(self.took.plus(other.took), self.lost + other.lost, self.throttled_ms + other.throttled_ms)

    def minus(self, earlier: RequestMeter) -> RequestMeter:
        """Return what was counted since the ``earlier`` copy."""
        return RequestMeter(
            self.took.minus(earlier.took), self.lost - earlier.lost, self.throttled_ms - earlier.throttled_ms
        )


@dataclass(frozen=True, slots=True)
class NetworkSnapshot:
    """The work of one cluster's network thread up to now."""

    requests: dict[str, RequestMeter]
    """By API name ("Produce")."""
    busy_ms: int
    """CPU time of the thread."""

    def since(self, earlier: NetworkSnapshot) -> NetworkSnapshot:
        """Return the work since the ``earlier`` snapshot."""
        none = RequestMeter()
        requests = {api: meter.minus(earlier.requests.get(api, none)) for api, meter in self.requests.items()}
        return NetworkSnapshot(requests, self.busy_ms - earlier.busy_ms)


class RequestMeters(dict[str, RequestMeter]):
    """Meters by API name as Kafka spells it ("EndTxn"). Only the network thread writes them."""

    def __missing__(self, api: str) -> RequestMeter:
        meter = self[api] = RequestMeter()
        return meter

    def snapshot(self) -> dict[str, RequestMeter]:
        """Return copies of all meters. Any thread may call this."""
        return {api: meter.copy() for api, meter in list(self.items())}
