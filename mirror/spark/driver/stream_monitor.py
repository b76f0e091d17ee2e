"""Looks after one flow of a stream while Spark runs its epochs: orders from elsewhere, and target topics."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.progress.control import ASK_MS, SEEN_EVERY_MS
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
_WITHIN_MS: Final = 10_000


class StreamMonitor:
    """Two threads for each flow: neither a cluster that does not answer nor the look for topics holds up orders.

    ``fenced_by`` are the orders of another run that has taken over, or None; ``told_to_stop`` is whether this one is to
    end, by :meth:`stop` or by somebody else's word.
    """

    def __init__(
        self,
        options: FlowOptions,
        ledger: Ledger,
        prepare: Callable[[MirrorConfig, FlowConfig], None],
        warn: Callable[[str], None],
        *,
        claimed: bool,
    ) -> None:
        """``prepare`` makes the target's topics ready, and leaves what came of it in the ledger.

        ``warn`` is called from both threads.

        ``claimed`` is whether this run's own orders have been in force already.
        """
        self.fenced_by: RunControl | None = None
        self.told_to_stop = False
        self._options: Final = options
        self._ledger: Final = ledger
        self._prepare: Final = prepare
        self._warn: Final = warn
        self._own_were_there = claimed
        self._wall: Final = SystemClock().unix_ms
        self._over: Final = threading.Event()
        self._threads: Final = [
            threading.Thread(target=self._go_on, args=(each,), name=f"mirror-watch-{options.flow}", daemon=True)
            for each in (self._follow_orders, self._look_for_topics)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def stop(self) -> None:
        """Have the tasks told to end in order, as soon as the target answers."""
        self.told_to_stop = True

    def _go_on(self, watch: Callable[[MirrorConfig, FlowConfig], None]) -> None:
        """Whatever happens: what is wrong is told once, until something else is."""
        said = ""
        while not self._over.is_set():
            try:
                watch(*self._options.load_in_force())
                said = ""
            except Exception as error:  # noqa: BLE001 - without this thread nothing could end the stream in order
                line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
                if line != said:
                    self._warn(line)
                said = line
                self._over.wait(ASK_MS / 1000)

    # --- orders

    def _follow_orders(self, config: MirrorConfig, flow: FlowConfig) -> None:
        with Admin(config.clusters[flow.target].client_options()) as target:
            orders = RunControlClient(target, flow.name, self._options.run)
            while not self._over.wait(ASK_MS / 1000):
                self._hear(orders)

    def _hear(self, orders: RunControlClient) -> None:
        told = orders.read()
        if told is not None and told.run == self._options.run:
            self._own_were_there = True
            self.told_to_stop = self.told_to_stop or told.stop
            if self.told_to_stop and not told.stop:
                orders.stop()
            elif (told.silent_ms(self._wall()) or 0) >= SEEN_EVERY_MS:
                orders.renew_from(told)
        elif told is not None and told.fences(self._options.run):
            # Before the own ones are in force, those of a run that died may still be there: it began earlier.
            self.fenced_by = told if self._own_were_there or told.run > self._options.run else None
        elif self.told_to_stop:
            orders.claim()  # forgotten by the target, or somebody had it meanwhile: the tasks are to hear it

    # --- topics

    def _look_for_topics(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """The target topics are made ready again, and what a running epoch's plan lacks of them is planned.

        The target itself is asked, and not the last plan: a plan has seen what is on the source, not what was created.
        """
        if self._over.wait(flow.refresh_ms / 1000):
            return
        self._prepare(config, flow)
        targets, epoch = self._ledger.targets(), self._ledger.last_planned_epoch()
        plan = None if epoch is None else self._ledger.plan(epoch)
        if epoch is not None and plan is not None and targets is not None and plan.targets_version < targets.version:
            with Admin(config.clusters[flow.target].client_options()) as target:
                RunControlClient(target, flow.name, self._options.run).request_new_plan(epoch)
