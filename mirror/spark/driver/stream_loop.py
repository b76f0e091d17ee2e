"""Runs the flows of a stream, each in a thread, and begins again with those that have failed."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.spark.datasource.options import FlowOptions
from mirror.spark.driver.one_stream import OneStream
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import FlowReport
from mirror.spark.preflight.flow_checks import check_flows
from mirror.spark.run_control import new_run_id
from mirror.spark.supervision.states import Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.spark.driver.job_options import JobOptions
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.supervision.states import Event
    from mirror.telemetry.run import RunTelemetry

_PAUSE_S: Final = 2.0


class LoopedFlow:
    """One flow, run after run, in a thread of its own."""

    def __init__(
        self,
        context: Callable[[], SparkContext],
        config: MirrorConfig,
        flow: FlowConfig,
        options: JobOptions,
        consoles: Consoles,
        telemetry: RunTelemetry,
        *,
        parallelism: int,
    ) -> None:
        self._context: Final = context
        self._config: Final = config
        self._flow: Final = flow
        self._options: Final = options
        self._consoles: Final = consoles
        self._telemetry: Final = telemetry
        self._parallelism: Final = parallelism
        self._asked: Final = threading.Event()
        self._lock: Final = threading.Lock()
        self._stream: OneStream | None = None
        self.report = FlowReport(flow.name, datetime.now(UTC))
        self.event: Event | None = None
        """Why it has ended for good."""
        self._thread: Final = threading.Thread(target=self._run, name=f"mirror-flow-{flow.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have it end in order."""
        self._asked.set()
        with self._lock:
            if self._stream is not None:
                self._stream.stop()

    @property
    def ended(self) -> bool:
        """Whether it has ended for good."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self.event = event = self._run_once()
            again = isinstance(event, Lost | Refused) and not self._options.available_now
            if isinstance(event, Lost | Refused):
                error = event.error if isinstance(event, Lost) else event.reason
                self.report.error = self.report.error or error
                self._consoles.error(f"flow {self._flow.name}: {error}")
            if not again or self._asked.wait(_PAUSE_S):
                return

    def _run_once(self) -> Event:
        run = new_run_id()
        try:
            ledger = Ledger.open(self._options.report_dir, self._flow.name, run)
            findings = check_flows(self._config, [self._flow])
        except Exception as error:  # noqa: BLE001 - it is tried again
            return Lost(str(error))
        secrets_dir = self._options.secrets_dir.absolute() if self._options.secrets_dir else None
        options = FlowOptions(
            self._options.config.absolute(), self._flow.name, ledger.path, secrets_dir, self._parallelism, run
        )
        report = FlowReport(self._flow.name, datetime.now(UTC), run=run)
        stream = OneStream(
            self._context,
            self._config,
            self._flow,
            options,
            report,
            consoles=self._consoles,
            telemetry=self._telemetry,
            findings=findings,
            available_now=self._options.available_now,
            debug=self._options.debug,
        )
        with self._lock:
            self.report, self._stream = report, stream
            if self._asked.is_set():
                stream.stop()
        return stream.run(lambda _: None)


def follow(flows: list[LoopedFlow], signum: Callable[[], int | None], summarize: Callable[[], None]) -> None:
    """Wait until all flows have ended; a signal has them end."""
    last_s = 0.0
    while not all(flow.ended for flow in flows):
        if signum() is not None:
            for flow in flows:
                flow.stop()
        if time.monotonic() >= last_s + 2:
            last_s = time.monotonic()
            summarize()
        time.sleep(0.2)
    summarize()
