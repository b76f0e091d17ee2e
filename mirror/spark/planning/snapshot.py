"""The snapshot of both clusters, and the plan that follows from it: the ranges of one period, packed into tasks.

::

    PlanRequest ──take_snapshot──► ClusterSnapshot ──plan_from_snapshot──► Plan
                  (asks both clusters, changes nothing)      (pure)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.client import TopicDescription, TopicPartition
from mirror.config.models import FlowConfig
from mirror.observation import Sides
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.origin.records import Registry
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions
from mirror.spark.ledger.partition_health import UnhealthyPartitions, is_unhealthy, with_health
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.broker_retention import recommit_after_ms
from mirror.spark.planning.flow_observation import Needs, observe_flow
from mirror.spark.planning.limits import Backlog, LimitResult, apply_limits
from mirror.spark.planning.log_sizes import RecordSizes, record_sizes
from mirror.spark.planning.open_transactions import look_up_withheld
from mirror.spark.planning.packing import no_lane, pack, steady_size
from mirror.spark.planning.range_planner import (
    SourcePartition,
    plan_range,
    result_without_task,
)
from mirror.spark.planning.unknown_origin import unknown_origins

FAR_BEHIND_BYTES: Final = 64 * 1024 * 1024
"""A partition with this backlog or more is far behind: it fills transactions of its own (MAX_TRANSACTION_BYTES)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned: a flow, and what the planner has to consider beside the clusters' state."""

    flow: FlowConfig
    now_ms: int
    """The time by which the age of progress is measured, in ms since 1970."""
    parallelism: int = 1
    """The largest number of tasks."""
    period: int = 0
    turns: Mapping[TopicPartition, int] = field(default_factory=dict)
    """When source partitions were given to a task the last time, in ms since 1970."""
    unhealthy: UnhealthyPartitions = field(default_factory=dict)
    """The source partitions that fail."""
    follow: bool = False
    """Whether every partition that can be copied gets a range without an end.

    Then partitions that are unhealthy, or :data:`FAR_BEHIND_BYTES` or more behind, share no task with the others. A job
    whose ranges have ends ends with its last one, and a lane of few ranges would leave processors idle.
    """
    is_initial: Callable[[TopicPartition], bool] | None = None
    """Whether the source had a partition when the flow started; None: all. Later ones are copied from their start."""
    call_timeout_ms: int | None = None
    """The time-out of each look-up of offsets; None: that of the cluster's configuration."""
    withheld: OpenTransactions | None = None
    """The open transactions that the plan before this one saw; None if there was none."""
    targets: TargetTopics | None = None
    """Nothing is planned of partitions whose target topic is not prepared. None: all are."""
    registry: Registry | None = None
    """That of the source, if partitions fail whose next record is from before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The state of both clusters, and the decision for each source partition before limits and packing."""

    topics: Mapping[str, TopicDescription]
    """The source topics that the flow copies."""
    partitions: list[SourcePartition]
    progress: dict[TopicPartition, Progress]
    """By target partition."""
    decisions: list[Range | RangeResult]
    """One for each of ``partitions``: the range to copy, or the result if there is nothing to copy."""
    sizes: RecordSizes
    """Only read if there is something to copy."""
    withheld: dict[TopicPartition, OpenTransaction] = field(default_factory=dict)
    """As in :class:`Plan`."""

    @property
    def ranges(self) -> list[Range]:
        """The ranges to copy."""
        return [decision for decision in self.decisions if isinstance(decision, Range)]

    def with_targets(self, flow: FlowConfig, targets: TargetTopics) -> ClusterSnapshot:
        """Return a copy in which nothing is copied into target topics that are not prepared."""
        decisions: list[Range | RangeResult] = []
        for partition, decision in zip(self.partitions, self.decisions, strict=True):
            reason = targets.why_not_copied(partition.topic, partition.partition)
            decisions.append(decision if reason is None else result_without_task(flow, partition, *reason))
        return replace(self, decisions=decisions)

    def with_registry(self, flow: FlowConfig, registry: Registry) -> ClusterSnapshot:
        """Return a copy in which nothing is copied whose origin ``registry`` does not show."""
        unknown = unknown_origins(flow, registry, self.ranges, self.topics)
        decisions: list[Range | RangeResult] = []
        for partition, decision in zip(self.partitions, self.decisions, strict=True):
            error = unknown.get(partition.tp)
            at = decision.start
            decisions.append(
                decision if error is None else result_without_task(flow, partition, Outcome.FAILED, error, at=at)
            )
        return replace(self, decisions=decisions)


def make_plan(request: PlanRequest, sides: Sides) -> Plan:
    """Read the state of both clusters and plan a period. Changes nothing on either.

    Raises FlowError if no topic matches, KafkaError if a cluster does not answer.
    """
    return plan_from_snapshot(request, take_snapshot(request, sides))


def take_snapshot(request: PlanRequest, sides: Sides) -> ClusterSnapshot:
    """Read the state of both clusters. Changes nothing on either. Raises what :func:`make_plan` does."""
    flow = request.flow
    source, target = sides
    source_id = source.cluster.cluster_id
    needs = Needs(
        is_initial=request.is_initial,
        call_timeout_ms=request.call_timeout_ms,
        epochs=not request.follow,  # a followed partition is read behind its progress
    )
    seen = observe_flow(flow, sides, needs).whole()
    obstacles, progress, partitions = seen.unnameable, seen.progress, seen.partitions
    recommit_before_ms = request.now_ms - recommit_after_ms(target)
    decisions = [
        result_without_task(flow, partition, Outcome.FAILED, obstacles[partition.topic].reason)
        if partition.topic in obstacles
        else plan_range(
            flow,
            source_id,
            partition,
            progress.get(partition.target_tp),
            recommit_before_ms=recommit_before_ms,
            follow=request.follow,
        )
        for partition in partitions
    ]
    behind = any(isinstance(decision, Range) and decision.end > decision.start for decision in decisions)
    return ClusterSnapshot(
        topics=seen.topics,
        partitions=partitions,
        progress=progress,
        decisions=decisions,
        sizes=record_sizes(source, partitions) if behind else RecordSizes(),
        withheld=look_up_withheld(source, seen.stable_ends(), request.withheld, request.now_ms),
    )


def plan_from_snapshot(request: PlanRequest, snapshot: ClusterSnapshot) -> Plan:
    """Return the plan for the state of the clusters. Pure; see :func:`make_plan`."""
    flow, targets = request.flow, request.targets
    if targets is not None:
        snapshot = snapshot.with_targets(flow, targets)
    if request.registry is not None:
        snapshot = snapshot.with_registry(flow, request.registry)
    limit, idle = _limited(request, snapshot)
    ends, lags = Counter[str](), Counter[str]()
    for partition, decision in zip(snapshot.partitions, snapshot.decisions, strict=True):
        ends[partition.topic] += partition.end
        lags[partition.topic] += max(0, partition.stop - decision.start)
    tasks = _packed(request, snapshot.sizes, [*limit.ranges, *idle])
    return Plan(
        flow=flow.name,
        tasks=[[replace(range_, end=OPEN_END) for range_ in task] for task in tasks] if request.follow else tasks,
        results_without_task=[
            *(decision for decision in snapshot.decisions if isinstance(decision, RangeResult)),
            *limit.waiting,
        ],
        truncated_at={str(TopicPartition(range_.topic, range_.partition)): end for range_, end in limit.truncated},
        period=request.period,
        ends=dict(ends),
        lags=dict(lags),
        withheld=snapshot.withheld,
    )


def _limited(request: PlanRequest, snapshot: ClusterSnapshot) -> tuple[LimitResult, list[Range]]:
    """Return the ranges that the flow's limits permit, and those that only commit a position, which have no limit."""
    ranges = [with_health(range_, request.unhealthy) for range_ in snapshot.ranges]
    sizes = snapshot.sizes.bytes_of(ranges)
    backlogs, idle = [], []
    for range_ in ranges:
        tp = TopicPartition(range_.topic, range_.partition)
        if range_.end > range_.start:
            progress = snapshot.progress.get(TopicPartition(range_.target_topic, range_.partition))
            last_turn_ms = max(request.turns.get(tp, 0), progress.time_ms if progress else 0)
            backlogs.append(Backlog(range_, max(1, sizes[tp]), last_turn_ms))
        else:
            idle.append(range_)
    return apply_limits(request.flow, backlogs), idle


def _packed(request: PlanRequest, record_sizes_: RecordSizes, ranges: list[Range]) -> list[list[Range]]:
    sizes = record_sizes_.bytes_of(ranges)

    def size_of(range_: Range) -> int:
        return sizes[TopicPartition(range_.topic, range_.partition)]

    def slow(range_: Range) -> bool:
        return is_unhealthy(range_) or size_of(range_) >= FAR_BEHIND_BYTES

    packed_size = steady_size(size_of) if request.follow else size_of
    return pack(ranges, request.parallelism, size_of=packed_size, slow=slow if request.follow else no_lane)
