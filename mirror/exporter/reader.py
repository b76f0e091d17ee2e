"""Reads the flows again and again, each in a thread of its own: a cluster that is slow delays its flows only.

::

    clusters ──StatusReader──► Readings ──► page, probes
                                  └───────► MetricStore ──► Prometheus, OTLP
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.closing import Closing
from mirror.errors import MirrorError
from mirror.exporter.readings import FlowReading, Readings
from mirror.exporter.recording import record_cluster, record_flow
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.concurrent_calls import call_concurrently
from mirror.spark.status.status_reader import WATCH_CALL_TIMEOUT_MS, StatusReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side, Sides
    from mirror.telemetry.metrics.metric_store import MetricStore

_log: Final = logging.getLogger(__name__)

_CLOSE_MS: Final = 1_000
_MAX_LOAD_FRACTION: Final = 5
"""A reading takes at most a fifth of the time, in which it mostly waits for clusters. One that fails has waited for its
time-out: at most half."""
_LONGEST_PAUSE_MS: Final = 60_000
HEALTHY_MS: Final = 300_000
"""Each call to a cluster ends after 10 s: a flow without a round that has ended for so long has lost its thread."""
_HEALTHY_INTERVALS: Final = 5


class FlowsReader(Closing):
    """Reads all flows until it is closed."""

    def __init__(
        self, config: MirrorConfig, flows: Sequence[FlowConfig], metrics: MetricStore, interval_ms: int
    ) -> None:
        self.readings: Final = Readings(
            {flow.name: FlowReading(flow=flow.name, source=flow.source, target=flow.target) for flow in flows}
        )
        self._metrics: Final = metrics
        self._interval_ms: Final = interval_ms
        self._clock: Final = SystemClock()
        self._began_ms: Final = self._clock.now()
        self._closing: Final = threading.Event()
        self._threads: Final = [
            threading.Thread(target=self._run, args=(config, flow), name=f"mirror-read-{flow.name}", daemon=True)
            for flow in flows
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop reading. Does not wait for clusters that do not answer."""
        self._closing.set()
        until_ms = self._clock.now() + _CLOSE_MS
        for thread in self._threads:
            thread.join(max(0, until_ms - self._clock.now()) / 1000)

    def late(self) -> list[str]:
        """Return the flows whose rounds do not end; empty if the process works."""
        now_ms, within_ms = self._clock.now(), max(HEALTHY_MS, _HEALTHY_INTERVALS * self._interval_ms)
        return self.readings.late(now_ms - within_ms) if now_ms - self._began_ms >= within_ms else []

    # --- a flow's thread

    def _run(self, config: MirrorConfig, flow: FlowConfig) -> None:
        while not self._closing.is_set():
            try:
                self._rounds(config, flow)
            except Exception:  # noqa: BLE001 - a bug, and without this thread the flow's values would never change
                _log.exception("flow %s could not be read", flow.name)
                self._closing.wait(self._interval_ms / 1000)

    def _rounds(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Read a flow until the reader is closed. Raises what is no error of a reading."""
        wait_s = 0.0
        with (
            Clusters(config, WATCH_CALL_TIMEOUT_MS) as clusters,
            StatusReader(config, flow, clusters=clusters, call_timeout_ms=WATCH_CALL_TIMEOUT_MS) as reader,
        ):
            while not self._closing.wait(wait_s):
                began_ms = self._clock.now()
                is_whole = self._round(flow, clusters, reader)
                if not is_whole:
                    clusters.close()  # what has waited for a cluster connects again
                ended_ms = self._clock.now()
                self.readings.ended(flow.name, ended_ms)
                wait_s = pause_ms(self._interval_ms, ended_ms - began_ms, failed=not is_whole) / 1000

    def _round(self, flow: FlowConfig, clusters: Clusters, reader: StatusReader) -> bool:
        """Read a flow once, and record what is known then; return whether both of its clusters have answered."""
        sides: Sides | None = None
        try:
            sides = clusters.of(flow).again()
            return self._read(reader, sides)
        except Exception as error:  # noqa: BLE001 - without this thread the flow's values would never change
            line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
            away = {} if sides is None else {name: _line(one) for name, one in sides.away.items()}
            found = self.readings.failed(flow.name, _line(line), away, self._clock.unix_ms())
            record_flow(self._metrics, found)
            return False

    def _read(self, reader: StatusReader, sides: Sides) -> bool:
        """Read a flow once; return whether both of its clusters have answered. Raises MirrorError."""

        def describe(side: Side) -> None:
            side.cluster  # noqa: B018 - a fact that is read

        asked = call_concurrently("cluster", {side.name: partial(describe, side) for side in sides})
        for name, error in asked.items():
            line = "" if error is None else _line(error)
            record_cluster(self._metrics, self.readings.asked(name, line, self._clock.unix_ms()))
        status = reader.read(sides)
        record_flow(self._metrics, self.readings.read(status))
        return not status.away


def pause_ms(interval_ms: int, took_ms: int, *, failed: bool) -> int:
    """Return the pause after a reading that took ``took_ms``."""
    pause = took_ms if failed else took_ms * (_MAX_LOAD_FRACTION - 1)
    return max(interval_ms, min(pause, _LONGEST_PAUSE_MS))


def _line(error: object) -> str:
    return " ".join(str(error).split())
