"""Plan one epoch after the other, in one process that keeps its connections and the last valid configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaError, is_outage
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.open_transactions import StuckTransactions
from mirror.spark.control_decision import Decision, fences
from mirror.spark.datasource.live_config import LiveConfig
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.partition_health import UnhealthyPartitions, unhealthy_after
from mirror.spark.planning.broker_retention import recommit_after_ms
from mirror.spark.planning.flow_planner import PreparedPartitions, drain_bound, source_partition
from mirror.spark.planning.history import RunHistory, read_history
from mirror.spark.planning.snapshot import DrainBounds, PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry
from mirror.spark.run_control import RunControlClient, RunRecord, new_run_id, takeover_message

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.model.ranges import Range
    from mirror.relay.origin.records import Registry
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.runtime.clock import SystemClock
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan

_RENEW_MS: Final = 3_600_000
"""Idle partitions' progress is committed again once an hour, or sooner if the target forgets offsets sooner."""
_OFFSETS_TIMEOUT_MS: Final = 10_000
"""A partition whose leader does not return its offsets by then waits for the next plan; the others do not wait."""


class EpochPlanner:
    """Plans the epochs of one flow, for one query."""

    def __init__(self, options: FlowOptions, ledger: Ledger, clock: SystemClock) -> None:
        self.run: Final = options.run or new_run_id()
        """The id of the query among the flow's runs."""
        self.epoch_ms = 0
        """The length of an epoch."""
        self.renew_ms = 0
        """The age at which progress is committed again."""
        self.follows = False
        """Whether the ranges of the last plan have no end."""
        self.last_epoch_fruitless = False
        """Whether the last completed epoch copied no record and completed no range."""
        self._options: Final = options
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._live_config: Final = LiveConfig(options, self._add_message_once, ledger.add_message)
        self._resources = ExitStack()
        self._admins: tuple[Admin, Admin] | None = None
        self._heartbeat: Heartbeat | None = None
        self._flow: str | None = None
        self._config: MirrorConfig | None = None
        self._run_record: Final = RunRecord(self.run)
        self._messages: set[str] = set()
        self._idle: list[RangeResult] = []
        self._initial: Container[TopicPartition] | None = None
        self._bounds: DrainBounds | None = None
        self._last_read_epoch = 0
        self._unhealthy_after: tuple[tuple[str, int], UnhealthyPartitions] | None = None
        """The last run and epoch whose results were read, and what is known by them."""
        self._withheld: OpenTransactions | None = None
        self._registry: Registry | None = None
        self._stuck: Final = StuckTransactions()

    def plan(self, epoch: int, *, drains: bool, early: bool = False) -> Plan | None:
        """Plan ``epoch`` and, unless it is planned ``early``, write the plan into the ledger; None if this run is over.

        A query that ``drains`` copies up to where the source ended at its first plan, and does not retry a range that
        did not complete. Raises ConfigError (for the first plan only), FlowError, KafkaError.
        """
        began_ms = self._clock.now()
        config, flow = self._live_config.load()
        source, target = self._clusters(config, flow)
        self._flow = flow.name
        if self._is_over(flow, target):
            return None
        if not self._options.run and self._heartbeat is None:
            # In a notebook no driver script of this project sends the heartbeat.
            self._heartbeat = self._resources.enter_context(Heartbeat(self._control(target, flow.name)))
        self.epoch_ms = flow.epoch_ms
        self.renew_ms = min(_RENEW_MS, recommit_after_ms(target))
        # A flow with an end or a limit per epoch gets ranges with an end.
        limited = flow.end_position or flow.max_bytes_per_epoch or flow.max_partitions_in_parallel
        self.follows = follows = not (drains or limited)
        unhealthy = self.unhealthy_after_last(epoch)
        targets = self._ledger.targets()
        if self._initial is None and (first := self._ledger.first_targets()) is not None:
            # Others appeared while the stream ran: they are copied from their beginning.
            self._initial = PreparedPartitions(first)
        request = PlanRequest(
            flow=flow,
            now_ms=self._clock.unix_ms(),
            parallelism=self._options.parallelism,
            epoch=epoch,
            history=RunHistory(
                last_planned_ms=read_history(flow, self._ledger.path.parent).last_planned_ms, unhealthy=unhealthy
            ),
            lanes=True,
            follow=follows,
            initial_partitions=self._initial,
            bounds=self._bounds,
            call_timeout_ms=None if drains else _OFFSETS_TIMEOUT_MS,
            withheld=self._withheld,
            targets=targets,
            registry=self._deciding_registry(config, flow),
        )
        plan = make_plan(request, source, target)
        self._withheld = plan.withheld
        self._warn_of_open_transactions(plan)
        plan = replace(plan, took_ms=self._clock.now() - began_ms)
        partitions: list[Range | RangeResult] = [*plan.ranges, *plan.results_without_task]
        if self._initial is None:
            self._initial = frozenset(map(source_partition, partitions))  # in a notebook nothing is prepared before
        if drains and self._bounds is None:
            self._bounds = {source_partition(item): drain_bound(plan, item) for item in partitions}
        if not early:
            self._record(plan, drains=drains)
        return plan

    def finish_early_plan(self, plan: Plan) -> Plan | None:
        """Complete an early ``plan`` with the results of the last epoch, and write it.

        None if this run is over, or the last epoch was ended because another plan is needed. Raises KafkaError.
        """
        config, flow = self._live_config.load()
        target = self._clusters(config, flow)[1]
        if self._is_over(flow, target) or self._is_replanned(flow, target, plan.epoch):
            return None
        plan = plan.with_health(self.unhealthy_after_last(plan.epoch))
        self._record(plan, drains=False)
        return plan

    def close(self) -> None:
        """Disconnect from both clusters, and mark the run as ended unless a driver script does that."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._admins is not None and self._flow is not None and not self._options.run:
            with contextlib.suppress(KafkaError):
                self._control(self._admins[1], self._flow).end()
        self._resources.close()
        self._live_config.close()

    def _deciding_registry(self, config: MirrorConfig, flow: FlowConfig) -> Registry | None:
        """Return the registry that decides which partitions fail. Where it began does not change: it is read once."""
        if self._registry is None:
            self._registry = deciding_registry(config, flow)
        return self._registry

    def _record(self, plan: Plan, *, drains: bool) -> None:
        """Write ``plan`` into the ledger, without which a stream goes on. Raises OSError if the query drains."""
        try:
            self._write(plan, drains=drains)
        except OSError:
            if drains:
                raise
        failed = [result for result in plan.results_without_task if result.outcome is Outcome.FAILED]
        self._idle = [] if plan.tasks else plan.results_without_task
        if failed and not drains:
            first = failed[0]
            self._add_message_once(
                f"{len(failed)} partitions cannot be copied, such as {source_partition(first)}: {first.error}"
            )

    def _write(self, plan: Plan, *, drains: bool) -> None:
        if plan.tasks:
            self._ledger.write_plan(plan)
        elif drains and plan.results_without_task:
            # Spark runs no task for this epoch, so no task reports these results.
            self._ledger.write_plan(plan)
            self._ledger.write_attempts([], plan.epoch)
        elif plan.results_without_task != self._idle:
            self._ledger.write_idle_plan(plan)

    def _warn_of_open_transactions(self, plan: Plan) -> None:
        """Warn once of each transaction that holds back a last stable offset."""
        for line in self._stuck.lines(plan.withheld, self.epoch_ms):
            self._ledger.add_message(line)

    # --- clusters, and control of the flow

    def _clusters(self, config: MirrorConfig, flow: FlowConfig) -> tuple[Admin, Admin]:
        if self._config is None or config.clusters != self._config.clusters:
            self._resources.close()
            self._resources, self._admins, self._heartbeat = ExitStack(), None, None
            self._messages.clear()
            self._registry = None
        self._config = config
        if self._admins is None:
            source, target = (config.clusters[name].client_options() for name in (flow.source, flow.target))
            self._admins = self._resources.enter_context(Admin(source)), self._resources.enter_context(Admin(target))
        return self._admins

    def _control(self, target: Admin, flow: str) -> RunControlClient:
        return RunControlClient(target, flow, record=self._run_record)

    def _is_over(self, flow: FlowConfig, target: Admin) -> bool:
        """Return whether this run was stopped, or another run has taken over."""
        client = self._control(target, flow.name)
        try:
            decision = self._read_control(client) if self._options.run else client.sync()
        except KafkaError as error:
            if not (self._options.run and is_outage(error)):  # the driver of a run follows the record, too
                self._add_message_once(
                    f"whether another run copies this flow, and whether this run is to stop, cannot be read: {error}"
                )
            return False
        if decision.took_over is not None:
            self._add_message_once(takeover_message(decision.took_over))
        return decision.stop or decision.fenced_by is not None

    def _is_replanned(self, flow: FlowConfig, target: Admin, epoch: int) -> bool:
        """Return whether the epoch before ``epoch`` was ended for a new plan: an early one was made before."""
        with contextlib.suppress(KafkaError):
            control = self._control(target, flow.name).read()
            return control is not None and control.run == self.run and control.epoch >= epoch
        return False

    def _read_control(self, client: RunControlClient) -> Decision:
        """Decide without a change: where a driver's script claims the flow, no other process writes the record."""
        control = client.read()
        if control is None:
            return Decision()
        if control.run == self.run:
            self._run_record.claim(control)
            self._run_record.claimed = True
            return Decision(stop=control.stop)
        return Decision(
            fenced_by=control if fences(control, self._run_record.wanted, claimed=self._run_record.claimed) else None
        )

    def _add_message_once(self, line: str) -> None:
        """Add a message to the ledger, once until the clusters' configuration changes."""
        if line not in self._messages:
            self._ledger.add_message(line)
        self._messages.add(line)

    # --- results of the last epoch

    def unhealthy_after_last(self, epoch: int) -> UnhealthyPartitions:
        """Read the results of the epoch before ``epoch``, and return the partitions that did not complete in it.

        For a run's first epoch that is the last epoch of the previous run. A query that drains gives up ranges that did
        not complete.
        """
        ledger: Ledger | None = self._ledger
        last = self._ledger.last_completed_epoch()
        if last is None or last >= epoch:
            ledger = self._ledger.previous_run()
            last = None if ledger is None else ledger.last_completed_epoch()
        if ledger is None or last is None:
            return {}
        key = ledger.path.name, last
        if self._unhealthy_after is not None and self._unhealthy_after[0] == key:
            return self._unhealthy_after[1]  # 0.25 s for 10,000 partitions
        attempts = ledger.attempts(last)
        results = [attempt.result for attempt in attempts]
        if ledger is self._ledger and last > self._last_read_epoch:
            self._last_read_epoch = last
            self.last_epoch_fruitless = bool(results) and not any(
                result.outcome is Outcome.COMPLETE or result.records for result in results
            )
            if self._bounds is not None:
                in_order = sorted(attempts, key=lambda attempt: attempt.attempt)
                final = {source_partition(attempt.result): attempt.result for attempt in in_order}
                given_up = {
                    tp: (result.outcome, result.error)
                    for tp, result in final.items()
                    if result.outcome is not Outcome.COMPLETE
                }
                self._bounds = {**self._bounds, **given_up}
        unhealthy = unhealthy_after(attempts, ledger.path.name, last)
        self._unhealthy_after = key, unhealthy
        return unhealthy
