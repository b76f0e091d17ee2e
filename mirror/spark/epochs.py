"""One epoch's plan after the other, in one process that keeps its connections and the last good configuration."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from mirror.client import Admin, TopicPartition
from mirror.errors import ConfigError, KafkaError
from mirror.relay.ranges import Outcome
from mirror.spark.history import history_of
from mirror.spark.offsets_retention import commit_anew_after_ms
from mirror.spark.plan import History, make_plan
from mirror.spark.run_orders import RunOrders, new_run

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.ranges import Range, RangeResult
    from mirror.runtime.clock import SystemClock
    from mirror.spark.ledger import Ledger
    from mirror.spark.options import FlowOptions
    from mirror.spark.plan import Plan

_RENEW_MS: Final = 3_600_000
"""Idle partitions' progress is committed anew once an hour, or sooner where the target forgets soon."""


class Epochs:
    """Plans the epochs of one flow, for one query.

    ``run`` names the query among the flow's runs; ``epoch_ms`` is how long an epoch lasts; ``renew_ms`` is the age from
    which on progress is committed anew; ``follows`` is whether the last plan's ranges have no end.
    """

    def __init__(self, options: FlowOptions, ledger: Ledger, clock: SystemClock) -> None:
        self.run: Final = options.run or new_run()
        self.epoch_ms = self.renew_ms = 0
        self.follows = False
        self._options: Final = options
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._open = ExitStack()
        self._config: tuple[MirrorConfig, FlowConfig] | None = None
        self._admins: tuple[Admin, Admin] | None = None
        self._claimed = False
        self._said: set[str] = set()
        self._bounds: dict[TopicPartition, int] | None = None

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
        # What has an end, or a limit for each epoch, is planned up to there, epoch by epoch.
        limited = flow.ends or flow.max_bytes_per_epoch or flow.max_partitions_in_parallel
        self.follows = follows = not (drains or limited)
        plan = make_plan(
            flow,
            source,
            target,
            self._options.parallelism,
            wall_ms=self._clock.wall(),
            history=self._history(flow, epoch),
            lanes=True,
            epoch=epoch,
            follow=follows,
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
                self._say(f"{line}; until that is mended, the flow goes on as before")
            return self._config[1]
        if self._config is not None and config.clusters != self._config[0].clusters:
            self._forget_clusters()
        self._config = config, flow
        self._said.clear()
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
                    self._say(f"took over from run {before.run} on {before.host}, which had not said that it ended")
            told = orders.read()
        except KafkaError as error:
            self._say(f"who else runs this flow, and whether it is to stop, cannot be read: {error}")
            return False
        return told is not None and (told.stop or told.fences(self.run))

    def _say(self, line: str) -> None:
        """Once, until there is something else to say."""
        if line not in self._said:
            self._ledger.say(line)
        self._said.add(line)

    # --- what is left

    def _history(self, flow: FlowConfig, epoch: int) -> History:
        turns = history_of(flow, self._ledger.path.parent).turns
        return History(turns=turns, stuck=self._stuck(epoch))

    def _stuck(self, epoch: int) -> dict[TopicPartition, int]:
        """Since when what the epoch before left undelivered has waited; of the run before, where this is the first."""
        ledger: Ledger | None = self._ledger
        last = self._ledger.done()
        if last is None or last >= epoch:
            ledger = self._ledger.before()
            last = None if ledger is None else ledger.done()
        if ledger is None or last is None:
            return {}
        results = [each.result for each in ledger.attempts(last)]
        return {_tp(one): one.stuck_since_ms for one in results if one.stuck_since_ms is not None}

    def _what_is_left(self, plan: Plan) -> Plan:
        """Up to the ends of the first plan, and without those that were tried and did not complete."""
        if self._bounds is None:
            planned = {_tp(one): one.end for one in plan.ranges} | {_tp(one): one.end for one in plan.settled}
            self._bounds = {tp: plan.cut.get(str(tp), end) for tp, end in planned.items()}
            return plan
        given_up = {
            _tp(one)
            for number in range(1, plan.epoch)
            for one in (each.result for each in self._ledger.attempts(number))
            if one.outcome is not Outcome.COMPLETE
        }
        return plan.within({tp: end for tp, end in self._bounds.items() if tp not in given_up})


def _tp(one: Range | RangeResult) -> TopicPartition:
    return TopicPartition(one.topic, one.partition)
