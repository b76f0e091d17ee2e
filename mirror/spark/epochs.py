"""One epoch's plan after the other, in one process that keeps its connections and the last good configuration."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import ConfigError, KafkaError
from mirror.relay.ranges import Outcome
from mirror.spark.offsets_retention import commit_anew_after_ms
from mirror.spark.plan import make_plan
from mirror.spark.run_orders import RunOrders, new_run

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.runtime.clock import SystemClock
    from mirror.spark.ledger import Ledger
    from mirror.spark.options import FlowOptions
    from mirror.spark.plan import Plan

_log: Final = logging.getLogger(__name__)
_RENEW_MS: Final = 3_600_000
"""Idle partitions' progress is committed anew once an hour, or sooner where the target forgets soon."""


class Epochs:
    """Plans the epochs of one flow, for one query.

    ``run`` names the query among the flow's runs; ``epoch_ms`` is how long an epoch lasts; ``renew_ms`` is the age from
    which on progress is committed anew.
    """

    def __init__(self, options: FlowOptions, ledger: Ledger, clock: SystemClock) -> None:
        self.run: Final = options.run or new_run()
        self.epoch_ms = self.renew_ms = 0
        self._options: Final = options
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._open = ExitStack()
        self._config: tuple[MirrorConfig, FlowConfig] | None = None
        self._admins: tuple[Admin, Admin] | None = None
        self._claimed = False
        self._bounds: dict[tuple[str, int], int] | None = None

    def plan(self, epoch: int, *, drains: bool) -> Plan | None:
        """The plan of ``epoch``, also in the ledger; None where this run is over.

        ``drains``: with the ends that the source had when the first was planned, and without what was tried and did not
        complete. Raises ConfigError (at first only), FlowError, KafkaError.
        """
        flow = self._load()
        source, target = self._clusters(flow)
        if self._is_over(flow, target):
            return None
        self.epoch_ms = flow.epoch_ms
        self.renew_ms = min(_RENEW_MS, commit_anew_after_ms(target))
        plan = make_plan(
            flow,
            source,
            target,
            self._options.parallelism,
            wall_ms=self._clock.wall(),
            epoch=epoch,
            follow=not drains,
            stuck=self._stuck(epoch),
        )
        if drains:
            plan = self._what_is_left(plan)
        if plan.tasks:
            self._ledger.write_plan(plan)
        return plan

    def close(self) -> None:
        """Let go of both clusters."""
        self._open.close()
        self._ledger.forget_config()

    # --- the configuration in force

    def _load(self) -> FlowConfig:
        """As the file says now; where it was edited badly, as it said before. Raises ConfigError where it never did."""
        try:
            text = self._options.read()
            config, flow = self._options.load()
        except (ConfigError, OSError) as error:
            if self._config is None:
                raise
            for line in str(error).splitlines():
                _log.warning("flow %s goes on as before: %s", self._options.flow, line)
            return self._config[1]
        if self._config is not None and config.clusters != self._config[0].clusters:
            self._forget_clusters()
        self._config = config, flow
        self._ledger.write_config(text)
        return flow

    def _clusters(self, flow: FlowConfig) -> tuple[Admin, Admin]:
        assert self._config is not None  # noqa: S101 - it was loaded
        if self._admins is None:
            source, target = (self._config[0].clusters[name].client_options() for name in (flow.source, flow.target))
            self._admins = self._open.enter_context(Admin(source)), self._open.enter_context(Admin(target))
        return self._admins

    def _forget_clusters(self) -> None:
        self._open.close()
        self._open, self._admins = ExitStack(), None

    # --- whose turn it is

    def _is_over(self, flow: FlowConfig, target: Admin) -> bool:
        """Whether this run was told to stop, or another has taken over.

        The first plan claims the flow, where the driver's script has not done so; but not from a run that has begun
        since: both would then think that they are over.
        """
        orders = RunOrders(target, flow.name, self.run)
        try:
            if not self._claimed:
                told = orders.read()
                if told is not None and told.fences(self.run) and told.run > self.run:
                    return True
                before = orders.claim()
                self._claimed = True
                if before is not None:
                    _log.warning("flow %s: took over from run %s on %s", flow.name, before.run, before.host)
            told = orders.read()
        except KafkaError as error:
            _log.warning("flow %s: orders cannot be read: %s", flow.name, error)
            return False
        return told is not None and (told.stop or told.fences(self.run))

    # --- what is left

    def _stuck(self, epoch: int) -> dict[tuple[str, int], int]:
        """Since when what the epoch before left undelivered has waited; of the run before, where this is the first."""
        ledger: Ledger | None = self._ledger
        last = self._ledger.done()
        if last is None or last >= epoch:
            ledger = self._ledger.before()
            last = None if ledger is None else ledger.done()
        if ledger is None or last is None:
            return {}
        results = [each.result for each in ledger.attempts(last)]
        return {(one.topic, one.partition): one.stuck_since_ms for one in results if one.stuck_since_ms is not None}

    def _what_is_left(self, plan: Plan) -> Plan:
        """Up to the ends of the first plan, and without those that were tried and did not complete."""
        ranges = plan.ranges
        if self._bounds is None:
            self._bounds = {(one.topic, one.partition): one.end for one in ranges}
            return plan
        given_up = {
            (one.topic, one.partition)
            for number in range(1, plan.epoch)
            for one in (each.result for each in self._ledger.attempts(number))
            if one.outcome is not Outcome.COMPLETE
        }
        bounds = {key: end for key, end in self._bounds.items() if key not in given_up}
        return plan.within(bounds)
