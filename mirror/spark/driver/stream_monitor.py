"""Monitor one flow of a stream while Spark runs its epochs: follow control commands, and discover new topics."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.progress.control import HEARTBEAT_INTERVAL_MS, POLL_INTERVAL_MS
from mirror.runtime.clock import SystemClock
from mirror.spark.discovery.topic_watch import NewPartitions, TopicWatch
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.control import RunControl
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.obstacles import TargetTopics

    PrepareTopics = Callable[[MirrorConfig, FlowConfig, Mapping[str, TopicDescription] | None], TargetTopics]

_JOIN_S: Final = 5.0


class StreamMonitor:
    """Up to two threads for one flow, so that the preparation of topics does not delay control commands."""

    def __init__(
        self,
        options: FlowOptions,
        ledger: Ledger,
        prepare: PrepareTopics,
        warn: Callable[[str], None],
        report: Callable[[str], None],
        *,
        claimed: bool,
        finds_topics: bool = True,
    ) -> None:
        """``prepare`` prepares the target topics (None: all) and writes the result into the ledger.

        ``warn`` is called from both threads, ``report`` with a line about new partitions from one of them. ``claimed``
        is whether this run has claimed the flow already. ``finds_topics``: new topics are found and copied; a run that
        only copies what there is when it begins must not have its epochs ended early for them.
        """
        self.fenced_by: RunControl | None = None
        """The control record of another run that has taken over."""
        self.stop_requested = False
        """Whether this run is to end, by :meth:`stop` or by a command of another process."""
        self._options: Final = options
        self._ledger: Final = ledger
        self._prepare: Final = prepare
        self._warn: Final = warn
        self._report: Final = report
        self._refreshed_s = time.monotonic()
        """When all topics were prepared the last time; discovery that fails does not put it off."""
        self._new: Final = NewPartitions(ledger.targets())
        self._claimed = claimed
        self._unix_ms: Final = SystemClock().unix_ms
        self._ended: Final = threading.Event()
        self._threads: Final = [
            threading.Thread(target=self._repeat, args=(monitor,), name=f"mirror-watch-{options.flow}", daemon=True)
            for monitor in (self._follow_control, *([self._refresh_topics] if finds_topics else []))
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
        """Discover new topics for ``refresh_ms``, then prepare all, and return to load the live configuration."""
        source_options, target_options = (config.clusters[name].client_options() for name in (flow.source, flow.target))
        with Admin(source_options) as source, Admin(target_options) as target:
            watch = self._watch(config, flow, source, target)
            pause_ms = flow.discovery_interval_ms
            while (left_s := self._refreshed_s + flow.refresh_ms / 1000 - time.monotonic()) > 0:
                if self._ended.wait(min(left_s, pause_ms / 1000)):
                    return
                pause_ms = watch.discover()
            self._refreshed_s = time.monotonic()
            watch.refresh()

    def _watch(self, config: MirrorConfig, flow: FlowConfig, source: Admin, target: Admin) -> TopicWatch:
        def prepare(topics: Mapping[str, TopicDescription] | None = None) -> TargetTopics:
            return self._prepare(config, flow, topics)

        def cpu_ms() -> int:
            return time.thread_time_ns() // 1_000_000 + source.network().busy_ms + target.network().busy_ms

        control = RunControlClient(target, flow.name, self._options.run)
        return TopicWatch(flow, source, target, self._ledger, control, prepare, self._new, self._report, cpu_ms)
