"""The lag of one partition from samples of its offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mirror.cluster.types import TopicPartition
from mirror.telemetry.lag.lags import Lag, LagTracker
from mirror.telemetry.lag.offset_history import PartitionOffsets

TP = TopicPartition("orders", 0)
T0 = 1_800_000_000_000

Line = Callable[[float], float]
"""An offset by seconds."""


def lag_of(
    samples: Iterable[tuple[float, int | None, int | None, int | None]],
    *,
    at_s: float | None = None,
    retention_s: float | None = None,
    stuck_after_s: float = 60.0,
) -> Lag:
    """Return the lag after samples of ``(seconds, earliest, end, progress)``, at ``at_s`` or at the last sample."""
    lags = LagTracker()
    last_s = 0.0
    for last_s, earliest, end, progress in samples:
        lags.add_sample(T0 + round(last_s * 1000), {TP: PartitionOffsets(earliest, end, progress)})
    now_ms = T0 + round((last_s if at_s is None else at_s) * 1000)
    retention = {"orders": None if retention_s is None else round(retention_s * 1000)}
    return lags.estimates(now_ms, retention, stuck_after_s=stuck_after_s)[TP]


def followed(
    end: Line, progress: Line, *, every_s: float = 2.0, for_s: float = 120.0, earliest: Line = lambda _: 0
) -> list[tuple[float, int, int, int]]:
    """Samples at even times, from 0 on."""
    times = [each * every_s for each in range(int(for_s / every_s) + 1)]
    return [(at, round(earliest(at)), round(end(at)), round(progress(at))) for at in times]
