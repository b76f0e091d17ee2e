"""Sees how far a stream is while it goes on, in a thread of the driver's: by the clusters, not by its tasks.

So it is true also where tasks are lost, and between epochs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol, Self

from mirror.errors import MirrorError
from mirror.runtime.clock import SystemClock
from mirror.spark.status.status import WATCH_CALL_TIMEOUT_MS, StatusReader
from mirror.telemetry.lag import lag_metrics

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.status.status import FlowStatus
    from mirror.telemetry.run import RunTelemetry

EVERY_MS: Final = 15_000
"""Or more often, where ``OTEL_METRIC_EXPORT_INTERVAL`` is shorter."""
_SHARE: Final = 50
"""A look takes at most this part of the time: 10,000 partitions are looked at every half a minute, or so."""
_JOIN_S: Final = 5.0


class StatusListener(Protocol):
    """What shows how far a flow is. It is called from the watch's thread."""

    @property
    def interval_ms(self) -> int:
        """How often to ask the clusters, in ms."""
        ...

    def on_status(self, status: FlowStatus) -> None:
        """Both clusters have answered."""
        ...

    def on_error(self, error: MirrorError) -> None:
        """A cluster did not answer, or refused."""
        ...


class LagMonitor:
    """Looks at one flow until the block ends, for ``shown`` and for telemetry.

    A cluster that does not answer is asked again: its flow's last values are forgotten meanwhile.
    """

    def __init__(
        self, config: MirrorConfig, flow: FlowConfig, telemetry: RunTelemetry, listener: StatusListener
    ) -> None:
        self._listener: Final = listener
        self._flow: Final = flow
        self._telemetry: Final = telemetry
        self._watch: Final = StatusReader(config, flow, within_ms=WATCH_CALL_TIMEOUT_MS)
        self._clock: Final = SystemClock()
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._go_on, name=f"mirror-lag-{flow.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)

    def _go_on(self) -> None:
        measured_ms = min(EVERY_MS, self._telemetry.export_interval_ms)
        due_ms, wait_s, first = 0, 0.0, True
        with self._watch:
            while not self._over.wait(wait_s):
                began_ms = self._clock.now()
                try:
                    status = self._watch.read()
                    self._listener.on_status(status)
                except MirrorError as error:
                    status = None
                    self._listener.on_error(error)
                if self._telemetry.enabled and began_ms >= due_ms:
                    due_ms = began_ms + measured_ms
                    self._measure(status)
                took_ms = 0 if first else self._clock.now() - began_ms  # the first one makes the connections
                first = False
                wait_s = max(min(measured_ms, self._listener.interval_ms), took_ms * _SHARE) / 1000

    def _measure(self, status: FlowStatus | None) -> None:
        if status is None:
            self._telemetry.remove_lags(self._flow.name)
        else:
            record_lags(self._telemetry, status)
        self._telemetry.export_metrics()


def record_lags(telemetry: RunTelemetry, status: FlowStatus) -> None:
    """Tell telemetry how far a flow is."""
    lags = [lag_metrics.PartitionLag(one.topic, one.partition, one.lag, one.withheld) for one in status.partitions]
    with telemetry.metrics.lock:
        lag_metrics.record_lags(telemetry.metrics, status.flow, lags)
