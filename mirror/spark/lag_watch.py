"""Measures a stream's lag while it goes on, in a thread of the driver's: by the clusters themselves, not by its tasks.

So it is true also where tasks are lost, and between epochs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.errors import MirrorError
from mirror.runtime.clock import SystemClock
from mirror.spark.status import WATCH_WITHIN_MS, StatusWatch
from mirror.telemetry.lag_points import Place, take_lags

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.status import FlowStatus
    from mirror.telemetry.run import RunTelemetry

EVERY_MS: Final = 15_000
"""Or more often, where ``OTEL_METRIC_EXPORT_INTERVAL`` is shorter."""
_SHARE: Final = 50
"""A look takes at most this part of the time: 10,000 partitions are looked at every half a minute, or so."""
_JOIN_S: Final = 5.0


class LagWatch:
    """Looks at one flow until the block ends; nothing where telemetry is switched off.

    A cluster that does not answer is asked again: its flow's last values are forgotten meanwhile.
    """

    def __init__(self, config: MirrorConfig, flow: FlowConfig, telemetry: RunTelemetry) -> None:
        self._flow: Final = flow
        self._telemetry: Final = telemetry
        self._watch: Final = StatusWatch(config, flow, within_ms=WATCH_WITHIN_MS)
        self._clock: Final = SystemClock()
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._go_on, name=f"mirror-lag-{flow.name}", daemon=True)

    def __enter__(self) -> Self:
        if self._telemetry.on:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _go_on(self) -> None:
        every_ms, wait_s = min(EVERY_MS, self._telemetry.every_ms), 0.0
        with self._watch:
            while not self._over.wait(wait_s):
                began_ms = self._clock.now()
                try:
                    show_lags(self._telemetry, self._watch.look())
                except MirrorError:
                    self._telemetry.forget_lags(self._flow.name)  # who asks the cluster for more says what is wrong
                self._telemetry.export_metrics()
                wait_s = max(every_ms, (self._clock.now() - began_ms) * _SHARE) / 1000


def show_lags(telemetry: RunTelemetry, status: FlowStatus) -> None:
    """Tell telemetry how far a flow is."""
    places = [Place(one.topic, one.partition, one.lag, one.withheld) for one in status.partitions]
    with telemetry.measured.lock:
        take_lags(telemetry.measured, status.flow, places)
