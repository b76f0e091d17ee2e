"""Plans the jobs of one run of one flow: what the plans of a run have in common."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.spark.planning.broker_retention import recommit_after_ms
from mirror.spark.planning.snapshot import DrainBounds, PlanRequest, make_plan
from mirror.spark.planning.unknown_origin import deciding_registry

if TYPE_CHECKING:
    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.open_transactions import OpenTransactions
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.status_table import StatusTable
    from mirror.timing import Clock

_OFFSETS_TIMEOUT_MS: Final = 10_000
"""A partition whose leader does not return its offsets by then waits for the next plan; the others do not wait."""


class FlowPlanner:
    """Plans for one run of one flow. For one thread at a time."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        targets: TargetTopics,
        clock: Clock,
        *,
        parallelism: int,
        drains: bool,
        status: StatusTable,
    ) -> None:
        """``status`` is what the flow's runs have reported, and is kept up to date.

        ``targets`` is the preparation that the run begins with: what appears later is copied from its first record.

        ``parallelism`` is the largest number of tasks. A run that ``drains`` copies up to where the source ended at its
        first plan, and gives up a range that did not complete.
        """
        self._config: Final = config
        self._flow: Final = flow
        self._clock: Final = clock
        self._parallelism: Final = parallelism
        self._drains: Final = drains
        self._status: Final = status
        self._initial: Final = PreparedPartitions(targets)
        self._bounds: DrainBounds | None = None
        self._withheld: OpenTransactions | None = None
        self._registry = deciding_registry(config, flow)

    @property
    def follows(self) -> bool:
        """Whether the ranges of its plans have no end."""
        flow = self._flow
        limited = flow.end_position or flow.max_bytes_per_job or flow.max_partitions_in_parallel
        return not (self._drains or limited)

    def is_initial(self, tp: TopicPartition) -> bool:
        """Whether the source had ``tp`` when the run began."""
        return tp in self._initial

    def renew_ms(self, target: Admin) -> int:
        """Return the age at which progress is committed again. Raises KafkaError."""
        return recommit_after_ms(target)

    def plan(self, source: Admin, target: Admin, targets: TargetTopics, number: int) -> Plan:
        """Plan the job, or the period, ``number`` with what is prepared on the target now.

        Raises FlowError if no topic matches, KafkaError if a cluster does not answer.
        """
        began_ms = self._clock.now()
        request = PlanRequest(
            flow=self._flow,
            now_ms=self._clock.unix_ms(),
            parallelism=self._parallelism,
            epoch=number,
            turns=self._status.turns,
            unhealthy=self._status.health,
            lanes=True,
            follow=self.follows,
            initial_partitions=self._initial,
            bounds=self._bounds,
            call_timeout_ms=None if self._drains else _OFFSETS_TIMEOUT_MS,
            withheld=self._withheld,
            targets=targets,
            registry=self._registry,
        )
        plan = make_plan(request, source, target)
        plan = replace(plan, took_ms=self._clock.now() - began_ms)
        self._withheld = plan.withheld
        if self._drains and self._bounds is None:
            items: list[Range | RangeResult] = [*plan.ranges, *plan.results_without_task]
            self._bounds = {source_partition(item): drain_bound(plan, item) for item in items}
        return plan

    def note(self, attempts: list[Attempt]) -> None:
        """Take the results of a job into account."""
        if self._bounds is not None:
            final = {
                source_partition(attempt.result): attempt.result
                for attempt in sorted(attempts, key=lambda one: one.attempt)
            }
            given_up = {
                tp: (result.outcome, result.error)
                for tp, result in final.items()
                if result.outcome is not Outcome.COMPLETE
            }
            self._bounds = {**self._bounds, **given_up}


class PreparedPartitions(Container[TopicPartition]):
    """The partitions that the source had when target topics were prepared, whether they could be copied or not."""

    def __init__(self, targets: TargetTopics) -> None:
        self._targets: Final = targets

    def __contains__(self, tp: object) -> bool:
        return isinstance(tp, TopicPartition) and self._targets.covers(tp.topic, tp.partition)


def drain_bound(plan: Plan, item: Range | RangeResult) -> int | tuple[Outcome, str | None]:
    """Return the end offset of a partition for a run that drains, or the outcome with which it is given up.

    A partition that cannot be copied when the run begins is given up, unless a limit only defers it.
    """
    tp = str(source_partition(item))
    if isinstance(item, RangeResult) and item.outcome is not Outcome.COMPLETE and tp not in plan.truncated_at:
        return item.outcome, item.error
    return plan.truncated_at.get(tp, item.end)


def source_partition(item: Range | RangeResult) -> TopicPartition:
    """Return the partition of the source that ``item`` is of."""
    return TopicPartition(item.topic, item.partition)
