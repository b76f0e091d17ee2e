"""Looks after one flow of a stream while Spark runs its epochs: new topics, and other runs of the flow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from mirror.client import Admin
from mirror.errors import MirrorError
from mirror.relay.orders import ASK_MS
from mirror.runtime.clock import SystemClock
from mirror.spark.planner import select_topics
from mirror.spark.run_orders import RunOrders

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.orders import Orders
    from mirror.spark.ledger import Ledger
    from mirror.spark.options import FlowOptions

_JOIN_S: Final = 5.0


class StreamWatch:
    """A thread of its own for each flow: a cluster that does not answer keeps nobody else waiting.

    ``fenced_by`` are the orders of another run that has taken over, or None; ``told_to_stop`` is whether this one is to
    end, by :meth:`stop` or by somebody else's word.
    """

    def __init__(
        self,
        options: FlowOptions,
        ledger: Ledger,
        prepare: Callable[[FlowConfig], None],
        warn: Callable[[str], None],
    ) -> None:
        """``prepare`` makes the target's topics ready."""
        self.fenced_by: Orders | None = None
        self.told_to_stop = False
        self._options: Final = options
        self._ledger: Final = ledger
        self._prepare: Final = prepare
        self._warn: Final = warn
        self._clock: Final = SystemClock()
        self._shape: dict[str, int] | None = None
        self._said = ""
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name=f"mirror-watch-{options.flow}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)

    def stop(self) -> None:
        """Have the tasks told to end in order: by the thread, as soon as the target answers."""
        self.told_to_stop = True

    def _watch(self) -> None:
        refresh_at = self._clock.now()
        while not self._over.is_set():
            try:
                config, flow = self._options.in_force().load()
                with Admin(config.clusters[flow.target].client_options()) as target:
                    orders = RunOrders(target, flow.name, self._options.run)
                    while not self._over.wait(ASK_MS / 1000):
                        self._follow_orders(orders)
                        if self._clock.now() >= refresh_at:
                            refresh_at = self._clock.now() + flow.refresh_ms
                            self._look_for_topics(orders)
            except MirrorError as error:
                self._say(str(error))
                self._over.wait(ASK_MS / 1000)

    def _follow_orders(self, orders: RunOrders) -> None:
        told = orders.read()
        if told is not None and told.fences(self._options.run):
            self.fenced_by = told
        elif told is not None and told.run == self._options.run and told.stop:
            self.told_to_stop = True
        elif self.told_to_stop and told is not None:
            orders.stop()

    def _look_for_topics(self, orders: RunOrders) -> None:
        """As the configuration in force has it: it may have been edited."""
        config, flow = self._options.in_force().load()
        shape = _shape(config, flow)
        before, self._shape = self._shape, shape
        if before is None or shape == before:
            return
        self._prepare(flow)
        if (epoch := self._ledger.planned()) is not None:
            orders.plan_anew(epoch)

    def _say(self, line: str) -> None:
        """Once, until something else is wrong."""
        if line != self._said:
            self._said = line
            self._warn(line)


def _shape(config: MirrorConfig, flow: FlowConfig) -> dict[str, int]:
    """The topics that are copied, with their numbers of partitions."""
    with Admin(config.clusters[flow.source].client_options()) as source:
        topics = source.list_topics()
    return {name: len(topics[name].partitions) for name in select_topics(flow, topics)}
