"""One epoch's plan after the other, in one process that keeps its connections and the last good configuration."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.open_transactions import lines
from mirror.spark.datasource.live_config import LiveConfig
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.partition_health import UnhealthyPartitions, unhealthy_after
from mirror.spark.planning.history import RunHistory, read_history
from mirror.spark.planning.offsets_retention import recommit_after_ms
from mirror.spark.planning.snapshot import DrainBounds, make_plan
from mirror.spark.run_control import RunControlClient, new_run_id, takeover_message

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.model.ranges import Range
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.runtime.clock import SystemClock
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan

_RENEW_MS: Final = 3_600_000
"""Idle partitions' progress, and the run's orders, are committed anew once an hour, or sooner where the target forgets
soon."""
_OFFSETS_WITHIN_MS: Final = 10_000
"""A partition whose leader does not tell its offsets by then waits for the next plan; the others do not wait."""


class Epochs:
    """Plans the epochs of one flow, for one query.

    ``run`` names the query among the flow's runs; ``epoch_ms`` is how long an epoch lasts; ``renew_ms`` is the age from
    which on progress is committed anew; ``follows`` is whether the last plan's ranges have no end. ``fruitless`` is
    whether the last epoch that was heard of copied nothing, and completed nothing.
    """

    def __init__(self, options: FlowOptions, ledger: Ledger, clock: SystemClock) -> None:
        self.run: Final = options.run or new_run_id()
        self.epoch_ms = self.renew_ms = 0
        self.follows = self.fruitless = False
        self._options: Final = options
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._force: Final = LiveConfig(options, self._say)
        self._open = ExitStack()
        self._admins: tuple[Admin, Admin] | None = None
        self._alive: Heartbeat | None = None
        self._flow: str | None = None
        self._config: MirrorConfig | None = None
        self._given_ms: int | None = None
        self._said: set[str] = set()
        self._idle: list[RangeResult] = []
        self._known: frozenset[TopicPartition] | None = None
        self._bounds: DrainBounds | None = None
        self._heard_of = 0
        self._withheld: OpenTransactions | None = None
        self._warned_of: set[tuple[TopicPartition, int]] = set()

    def plan(self, epoch: int, *, drains: bool, early: bool = False) -> Plan | None:
        """The plan of ``epoch``, also in the ledger (but for an ``early`` one); None where this run is over.

        ``drains``: with the ends that the source had when the first was planned, and without what was tried and did not
        complete. Raises ConfigError (at first only), FlowError, KafkaError.
        """
        began_ms = self._clock.now()
        config, flow = self._force.load()
        source, target = self._clusters(config, flow)
        self._flow = flow.name
        if self._is_over(flow, target):
            return None
        if not self._options.run and self._alive is None:
            # No script of ours is there to say that this query goes on, as in a notebook.
            self._alive = self._open.enter_context(Heartbeat(RunControlClient(target, flow.name, self.run)))
        self.epoch_ms = flow.epoch_ms
        self.renew_ms = min(_RENEW_MS, recommit_after_ms(target))
        # What has an end, or a limit for each epoch, is planned up to there, epoch by epoch.
        limited = flow.end_position or flow.max_bytes_per_epoch or flow.max_partitions_in_parallel
        self.follows = follows = not (drains or limited)
        sick = self.hear(epoch)
        targets = self._ledger.targets()
        plan = make_plan(
            flow,
            source,
            target,
            self._options.parallelism,
            wall_ms=self._clock.unix_ms(),
            history=RunHistory(
                last_planned_ms=read_history(flow, self._ledger.path.parent).last_planned_ms, unhealthy=sick
            ),
            lanes=True,
            epoch=epoch,
            follow=follows,
            known=self._known,
            bounds=self._bounds,
            within_ms=None if drains else _OFFSETS_WITHIN_MS,
            withheld=self._withheld,
            targets=targets,
        )
        self._withheld = plan.withheld
        self._warn_of_open_transactions(plan)
        plan = replace(plan, took_ms=self._clock.now() - began_ms)
        everything: list[Range | RangeResult] = [*plan.ranges, *plan.results_without_task]
        if self._known is None:
            # What came after the target's topics were prepared came while the flow ran.
            self._known = frozenset(
                _tp(one) for one in everything if targets is None or targets.covers(one.topic, one.partition)
            )
        if drains and self._bounds is None:
            self._bounds = {_tp(one): _bound(plan, one) for one in everything}
        if not early:
            self._tell(plan, drains=drains)
        return plan

    def with_news(self, plan: Plan) -> Plan | None:
        """``plan``, made early, with what is known of the epoch before it, and in the ledger; None where all is over.

        Raises KafkaError.
        """
        config, flow = self._force.load()
        if self._is_over(flow, self._clusters(config, flow)[1]):
            return None
        plan = plan.with_health(self.hear(plan.epoch))
        self._tell(plan, drains=False)
        return plan

    def is_current(self, plan: Plan) -> bool:
        """Whether no target topic has become ready since ``plan`` was made."""
        targets = self._ledger.targets()
        return targets is None or plan.targets_version >= targets.version

    def close(self) -> None:
        """Let go of both clusters; where no script of ours does it, say that the run has ended."""
        if self._alive is not None:
            self._alive.stop()
        if self._admins is not None and self._flow is not None and not self._options.run:
            with contextlib.suppress(KafkaError):
                RunControlClient(self._admins[1], self._flow, self.run).end()
        self._open.close()
        self._force.close()

    def _tell(self, plan: Plan, *, drains: bool) -> None:
        failed = [one for one in plan.results_without_task if one.outcome is Outcome.FAILED]
        if plan.tasks:
            self._ledger.write_plan(plan)
        elif drains and plan.results_without_task:
            # Spark runs no task for it, so nobody else would report it.
            self._ledger.write_plan(plan)
            self._ledger.write_attempts([], plan.epoch)
        elif plan.results_without_task != self._idle:
            self._ledger.write_idle_plan(plan)
        self._idle = [] if plan.tasks else plan.results_without_task
        if failed and not drains:
            first = failed[0]
            self._say(f"{len(failed)} partitions cannot be copied, such as {_tp(first)}: {first.error}")

    def _warn_of_open_transactions(self, plan: Plan) -> None:
        """Once for each that keeps a last stable offset where it is; in one line for those that do not fit."""
        still = {tp: one for tp, one in plan.withheld.items() if one.stands_still(self.epoch_ms)}
        new = {tp: one for tp, one in still.items() if (tp, one.offset) not in self._warned_of}
        self._warned_of = {(tp, one.offset) for tp, one in still.items()}
        for line in lines(new):
            self._ledger.add_message(line)

    # --- clusters, and whose turn it is

    def _clusters(self, config: MirrorConfig, flow: FlowConfig) -> tuple[Admin, Admin]:
        if self._config is None or config.clusters != self._config.clusters:
            self._open.close()
            self._open, self._admins, self._given_ms, self._alive = ExitStack(), None, None, None
            self._said.clear()
        self._config = config
        if self._admins is None:
            source, target = (config.clusters[name].client_options() for name in (flow.source, flow.target))
            self._admins = self._open.enter_context(Admin(source)), self._open.enter_context(Admin(target))
        return self._admins

    def _is_over(self, flow: FlowConfig, target: Admin) -> bool:
        """Whether this run was told to stop, or another has taken over.

        The first plan claims the flow, where the driver's script has not done so; but not from a run that has begun
        since: both would then think that they are over. Claimed again is what the target forgot, and what another run
        has had meanwhile and given up; and given anew, now and then, is what it would forget.
        """
        orders = RunControlClient(target, flow.name, self.run)
        try:
            told = orders.read()
            if told is not None and told.fences(self.run) and (self._given_ms is not None or told.run > self.run):
                return True
            if told is None or told.run != self.run:
                before = orders.claim()
                self._given_ms = self._clock.now()
                if before is not None:
                    self._say(takeover_message(before))
                return False
            if self._given_ms is not None and self._clock.now() - self._given_ms >= self.renew_ms:
                orders.renew()
                self._given_ms = None
            self._given_ms = self._given_ms or self._clock.now()
        except KafkaError as error:
            self._say(f"who else runs this flow, and whether it is to stop, cannot be read: {error}")
            return False
        return told.stop

    def _say(self, line: str) -> None:
        """Once, until the clusters' configuration changes."""
        if line not in self._said:
            self._ledger.add_message(line)
        self._said.add(line)

    # --- what became of the epoch before

    def hear(self, epoch: int) -> UnhealthyPartitions:
        """What became of the one before ``epoch``: who did not get through.

        That of the run before, where this is the first. A drain gives up what did not complete.
        """
        ledger: Ledger | None = self._ledger
        last = self._ledger.last_completed_epoch()
        if last is None or last >= epoch:
            ledger = self._ledger.previous_run()
            last = None if ledger is None else ledger.last_completed_epoch()
        if ledger is None or last is None:
            return {}
        attempts = ledger.attempts(last)
        results = [each.result for each in attempts]
        if ledger is self._ledger and last > self._heard_of:
            self._heard_of = last
            got_on = any(one.outcome is Outcome.COMPLETE or one.records for one in results)
            self.fruitless = bool(results) and not got_on
            if self._bounds is not None:
                ended = {_tp(each.result): each.result for each in sorted(attempts, key=lambda each: each.attempt)}
                wrong = {tp: one for tp, one in ended.items() if one.outcome is not Outcome.COMPLETE}
                self._bounds = {**self._bounds, **{tp: (one.outcome, one.error) for tp, one in wrong.items()}}
        return unhealthy_after(attempts, ledger.path.name, last)


def _bound(plan: Plan, one: Range | RangeResult) -> int | tuple[Outcome, str | None]:
    """Where a drain ends with it: what could not be copied when it began is given up, unless it only waits its turn."""
    tp = str(_tp(one))
    if isinstance(one, RangeResult) and one.outcome is not Outcome.COMPLETE and tp not in plan.truncated_at:
        return one.outcome, one.error
    return plan.truncated_at.get(tp, one.end)


def _tp(one: Range | RangeResult) -> TopicPartition:
    return TopicPartition(one.topic, one.partition)
