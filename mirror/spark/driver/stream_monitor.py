"""Monitor one flow of a stream while Spark runs its epochs: follow control commands, and prepare new target topics."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.progress.control import HEARTBEAT_INTERVAL_MS, POLL_INTERVAL_MS
from mirror.runtime.clock import SystemClock
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control import RunControl
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.ledger import Ledger

_JOIN_S: Final = 5.0


class StreamMonitor:
    """Two threads for one flow, so that the preparation of topics does not delay control commands."""

    def __init__(
        self,
        options: FlowOptions,
        ledger: Ledger,
        prepare: Callable[[MirrorConfig, FlowConfig], None],
        warn: Callable[[str], None],
        *,
        claimed: bool,
    ) -> None:
        """``prepare`` prepares the target topics and writes the result into the ledger.

        ``warn`` is called from both threads. ``claimed`` is whether this run has claimed the flow already.
        """
        self.fenced_by: RunControl | None = None
        """The control record of another run that has taken over."""
        self.stop_requested = False
        """Whether this run is to end, by :meth:`stop` or by a command of another process."""
        self._options: Final = options
        self._ledger: Final = ledger
        self._prepare: Final = prepare
        self._warn: Final = warn
        self._claimed = claimed
        self._unix_ms: Final = SystemClock().unix_ms
        self._ended: Final = threading.Event()
        self._threads: Final = [
            threading.Thread(target=self._repeat, args=(monitor,), name=f"mirror-watch-{options.flow}", daemon=True)
            for monitor in (self._follow_control, self._refresh_topics)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def stop(self) -> None:
        """Request that the tasks end in order. The target receives the command as soon as it answers."""
        self.stop_requested = True

    def _repeat(self, monitor: Callable[[MirrorConfig, FlowConfig], None]) -> None:
        """Call ``monitor`` until the end. An error is reported once, until another one occurs or a call succeeds."""
        reported = ""
        while not self._ended.is_set():
            try:
                monitor(*self._options.load_live())
                reported = ""
            except Exception as error:  # noqa: BLE001 - without this thread nothing could end the stream in order
                line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
                if line != reported:
                    self._warn(line)
                reported = line
                self._ended.wait(POLL_INTERVAL_MS / 1000)

    # --- control commands

    def _follow_control(self, config: MirrorConfig, flow: FlowConfig) -> None:
        with Admin(config.clusters[flow.target].client_options()) as target:
            client = RunControlClient(target, flow.name, self._options.run)
            while not self._ended.wait(POLL_INTERVAL_MS / 1000):
                self._follow_once(client)

    def _follow_once(self, client: RunControlClient) -> None:
        control = client.read()
        if control is not None and control.run == self._options.run:
            self._claimed = True
            self.stop_requested = self.stop_requested or control.stop
            if self.stop_requested and not control.stop:
                client.stop()
            elif (control.silent_ms(self._unix_ms()) or 0) >= HEARTBEAT_INTERVAL_MS:
                client.renew_from(control)
        elif control is not None and control.other_run_active(self._options.run):
            # Before this run has claimed the flow, the record of a dead run may still exist; it began earlier.
            self.fenced_by = control if self._claimed or control.run > self._options.run else None
        elif self.stop_requested:
            client.claim()  # the target forgot the record, or another run had it: the tasks need the command

    # --- topics

    def _refresh_topics(self, config: MirrorConfig, flow: FlowConfig) -> None:
        if not self._ended.wait(flow.refresh_ms / 1000):
            self.prepare_new_topics(config, flow)

    def prepare_new_topics(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Prepare the target topics again, and request a new plan if the running epoch's plan lacks some of them.

        Compares with the last preparation, and not with the last plan: a plan has the source's topics, and not those
        that were created on the target.
        """
        self._prepare(config, flow)
        targets, epoch = self._ledger.targets(), self._ledger.last_planned_epoch()
        plan = None if epoch is None else self._ledger.plan(epoch)
        if epoch is not None and plan is not None and targets is not None and plan.targets_version < targets.version:
            with Admin(config.clusters[flow.target].client_options()) as target:
                RunControlClient(target, flow.name, self._options.run).request_new_plan(epoch)
