"""Records readings in the instruments: the same ones as those of a stream's driver, and what only an observer knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.spark.status.lag_monitor import partition_lags
from mirror.telemetry.lag.lag_metrics import record_lags
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.record_results import (
    record_evidence,
    record_groups,
    record_index_size,
    record_state,
    record_sync,
)

if TYPE_CHECKING:
    from mirror.exporter.readings import ClusterReading, FlowReading
    from mirror.telemetry.metrics.metric_store import MetricStore


def record_cluster(metrics: MetricStore, reading: ClusterReading) -> None:
    """Record whether a cluster answers."""
    with metrics.lock:
        up = None if reading.answers is None else float(reading.answers)
        metrics.set(instruments.CLUSTER_UP, up, cluster=reading.name)
        metrics.set(instruments.CLUSTER_ANSWER, _seconds(reading.answered_ms), cluster=reading.name)


def record_flow(metrics: MetricStore, reading: FlowReading) -> None:
    """Record what is known of a flow.

    Of what the newest reading has not shown, the values stay, with the time of the last one that has.
    """
    flow, status, condition = reading.flow, reading.status, reading.condition
    with metrics.lock:
        metrics.set(instruments.FLOW_READ, _seconds(reading.lags_ms), flow=flow)
        if condition is not None:
            record_state(metrics, flow, condition.name.value)
        if condition is not None and condition.success_ms is not None:
            metrics.set(instruments.FLOW_SUCCESS, condition.success_ms / 1000, flow=flow)
        if status is None:
            return
        record_evidence(metrics, flow, status.evidence)
        record_groups(metrics, flow, status.groups)
        record_sync(metrics, flow, status.sync)
        if not status.away:
            record_lags(metrics, flow, partition_lags(status))
            record_index_size(metrics, flow, status.index_bytes)


def _seconds(time_ms: int) -> float | None:
    return time_ms / 1000 if time_ms else None
