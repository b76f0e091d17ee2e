"""Monitors the lag of a stream in a thread of the driver's.

It reads both clusters, as ``mirror status`` does (:mod:`.status_reader`), and sends nothing to the tasks: so the lag is
right also if tasks are lost, and between periods.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol, Self

from mirror.errors import FlowError, MirrorError
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.status.index_size import read_index_size
from mirror.spark.status.status_reader import WATCH_CALL_TIMEOUT_MS, StatusReader
from mirror.telemetry.lag import lag_metrics
from mirror.telemetry.metrics.record_results import record_evidence, record_index_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.spark.status.status_reader import Reports
    from mirror.telemetry.evidence import Evidence
    from mirror.telemetry.run_telemetry import RunTelemetry

_MAX_INTERVAL_MS: Final = 15_000
"""Lags are measured this often, or more often if ``OTEL_METRIC_EXPORT_INTERVAL`` is shorter."""
_MAX_LOAD_FRACTION: Final = 50
"""A reading takes at most a fiftieth of the time: 10,000 partitions are read about every half minute. One that fails
takes at most half of it: it has waited for a cluster, which the next one is to notice soon when it is back."""
_JOIN_S: Final = 5.0


class StatusListener(Protocol):
    """Shows the status of a flow. Its methods are called from the monitor's thread."""

    @property
    def interval_ms(self) -> int:
        """How often to read the status, in ms."""
        ...

    def on_status(self, status: FlowStatus) -> None:
        """Handle a new status."""
        ...

    def on_error(self, error: MirrorError) -> None:
        """Handle a failed reading: a cluster did not answer, or refused."""
        ...


class LagMonitor:
    """Reads the status of one flow until the block ends, for a listener and for telemetry.

    If a cluster does not answer, the next reading tries again; until then telemetry has no lags of the flow.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        telemetry: RunTelemetry,
        listener: StatusListener,
        reports: Reports,
        on_read: Callable[[FlowStatus, int], None] = lambda _, __: None,
    ) -> None:
        """``reports`` returns what the driver knows of the status topic.

        ``on_read`` gets, as often as lags are measured, the status of both clusters, and when its reading began (ms
        since 1970).
        """
        self._listener: Final = listener
        self._flow: Final = flow
        self._telemetry: Final = telemetry
        self._on_read: Final = on_read
        self._reader: Final = StatusReader(config, flow, reports=reports, call_timeout_ms=WATCH_CALL_TIMEOUT_MS)
        self._clock: Final = SystemClock()
        self._stopped: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-lag-{flow.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end(error)
        self._thread.join(_JOIN_S)

    def end(self, error: BaseException | None) -> None:
        """Have it end, which the end of the block waits for; ``error`` is what ends the block."""
        del error
        self._stopped.set()

    def _run(self) -> None:
        measure_interval_ms = min(_MAX_INTERVAL_MS, self._telemetry.export_interval_ms)
        measure_due_ms, wait_s, first = 0, 0.0, True
        with self._reader:
            while not self._stopped.wait(wait_s):
                began_ms, unix_ms = self._clock.now(), self._clock.unix_ms()
                try:
                    status = self._reader.read()
                    self._listener.on_status(status)
                except Exception as error:  # noqa: BLE001 - without this thread the last lags would stay for ever
                    status = None
                    self._listener.on_error(
                        error if isinstance(error, MirrorError) else FlowError(f"{type(error).__name__}: {error}")
                    )
                if began_ms >= measure_due_ms:
                    measure_due_ms = began_ms + measure_interval_ms
                    self._measure(status, unix_ms)
                # The first reading opens the connections.
                took_ms = 0 if first else self._clock.now() - began_ms
                first = False
                interval_ms = min(measure_interval_ms, self._listener.interval_ms)
                wait_s = pause_ms(interval_ms, took_ms, failed=status is None) / 1000

    def _measure(self, status: FlowStatus | None, began_ms: int) -> None:
        if status is not None and not status.away:
            self._on_read(status, began_ms)
        if not self._telemetry.enabled:
            return
        record_last_evidence(self._telemetry, self._flow.name, self._reader.table.evidence)
        if status is None:
            self._telemetry.remove_lags(self._flow.name)
        else:
            record_lags(self._telemetry, status)


def pause_ms(interval_ms: int, took_ms: int, *, failed: bool) -> int:
    """Return the pause after a reading that took ``took_ms``."""
    return max(interval_ms, took_ms if failed else took_ms * _MAX_LOAD_FRACTION)


def record_last_evidence(telemetry: RunTelemetry, flow: str, evidence: Evidence) -> None:
    """Record what the last verification and rehearsal of a flow came to in the metrics."""
    with telemetry.metrics.lock:
        record_evidence(telemetry.metrics, flow, evidence)


def measure_once(config: MirrorConfig, flow: FlowConfig, telemetry: RunTelemetry, reports: Reports) -> int | None:
    """Record the lags of a flow once, if telemetry is on; return the size of its offset index in bytes.

    Raises MirrorError if a cluster does not answer.
    """
    if not telemetry.enabled:
        with Clusters(config) as clusters:
            return read_index_size(clusters.side(flow.target), flow.name)
    with StatusReader(config, flow, reports=reports, call_timeout_ms=WATCH_CALL_TIMEOUT_MS) as reader:
        status = reader.read()
    record_lags(telemetry, status)
    record_last_evidence(telemetry, flow.name, reader.table.evidence)
    return status.index_bytes


def partition_lags(status: FlowStatus) -> list[lag_metrics.PartitionLag]:
    """Return the lags of a flow's partitions, for the metrics."""
    return [
        lag_metrics.PartitionLag(partition.topic, partition.partition, partition.lag, partition.withheld)
        for partition in status.partitions
    ]


def record_lags(telemetry: RunTelemetry, status: FlowStatus) -> None:
    """Record the lags of a flow's partitions, and the size of its offset index, in the metrics."""
    with telemetry.metrics.lock:
        lag_metrics.record_lags(telemetry.metrics, status.flow, partition_lags(status))
        record_index_size(telemetry.metrics, status.flow, status.index_bytes)
