"""Counts that the cores keep of themselves, for whoever looks: plain integers, read from other threads as they are.

The cores count, telemetry looks: to call an observer for each request would cost more than the request's own
bookkeeping (a histogram of OpenTelemetry's SDK takes about 5 us a value, this one 0.3).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""The upper bounds of a histogram's buckets; one more bucket is for what took longer."""


@dataclass(slots=True)
class Histogram:
    """Durations in ms, by :data:`BOUNDS_MS`."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ms: int = 0

    def add(self, took_ms: int) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    def copy(self) -> Histogram:
        """As it is now."""
        return Histogram(list(self.counts), self.sum_ms)

    def plus(self, other: Histogram) -> Histogram:
        """Both together."""
        counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        return Histogram(counts, self.sum_ms + other.sum_ms)

    def minus(self, earlier: Histogram) -> Histogram:
        """What has come since ``earlier``."""
        counts = [one - before for one, before in zip(self.counts, earlier.counts, strict=True)]
        return Histogram(counts, self.sum_ms - earlier.sum_ms)


@dataclass(slots=True)
class RequestMeter:
    """Requests of one API: how long their answers took, how many got none, and what brokers had us wait (KIP-219)."""

    took: Histogram = field(default_factory=Histogram)
    lost: int = 0
    throttled_ms: int = 0

    def copy(self) -> RequestMeter:
        """As it is now."""
        return RequestMeter(self.took.copy(), self.lost, self.throttled_ms)

    def plus(self, other: RequestMeter) -> RequestMeter:
        """Both together."""
        return RequestMeter(self.took.plus(other.took), self.lost + other.lost, self.throttled_ms + other.throttled_ms)

    def minus(self, earlier: RequestMeter) -> RequestMeter:
        """What has come since ``earlier``."""
        return RequestMeter(
            self.took.minus(earlier.took), self.lost - earlier.lost, self.throttled_ms - earlier.throttled_ms
        )


@dataclass(frozen=True, slots=True)
class NetworkSnapshot:
    """What one cluster's network thread has done: its ``requests`` by API ("Produce"), and ``busy_ms`` of CPU."""

    requests: dict[str, RequestMeter]
    busy_ms: int

    def since(self, earlier: NetworkSnapshot) -> NetworkSnapshot:
        """What has come since ``earlier``."""
        none = RequestMeter()
        requests = {api: one.minus(earlier.requests.get(api, none)) for api, one in self.requests.items()}
        return NetworkSnapshot(requests, self.busy_ms - earlier.busy_ms)


class RequestMeters(dict[str, RequestMeter]):
    """By the API's name as Kafka spells it ("EndTxn"). Written by one thread, that of the network."""

    def __missing__(self, api: str) -> RequestMeter:
        meter = self[api] = RequestMeter()
        return meter

    def snapshot(self) -> dict[str, RequestMeter]:
        """As they are now; from any thread."""
        return {api: one.copy() for api, one in list(self.items())}
