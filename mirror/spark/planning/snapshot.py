"""A snapshot of both clusters, and the plan that follows from it: the ranges of one epoch, packed into tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.client import Admin, TopicDescription, TopicPartition
from mirror.config.models import FlowConfig
from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.progress.committed import Progress, ProgressStore
from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions, observed
from mirror.spark.ledger.obstacles import TargetTopics, too_long
from mirror.spark.ledger.partition_health import is_unhealthy, with_health
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.history import NO_HISTORY, RunHistory
from mirror.spark.planning.limits import Backlog, apply_limits
from mirror.spark.planning.log_sizes import RecordSizes, record_sizes
from mirror.spark.planning.offsets_retention import recommit_after_ms
from mirror.spark.planning.open_transactions import with_producers
from mirror.spark.planning.packing import no_lane, pack
from mirror.spark.planning.range_planner import (
    NO_LEADER,
    SourcePartition,
    plan_range,
    result_without_task,
    select_topics,
)
from mirror.spark.planning.source_offsets import SourceOffsets

FAR_BEHIND_BYTES: Final = 64 * 1024 * 1024
"""From here on a partition catches up: what it has to copy fills transactions of its own (COMMIT_BYTES)."""


DrainBounds = Mapping[TopicPartition, int | tuple[Outcome, str | None]]
"""By source partition, the offset where a drain ends; or with what it ended, where the drain has given it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """What a look at both clusters showed: ``starts`` of all partitions ``seen``, with nothing limited or packed yet.

    ``topics`` are the source's that the flow copies, ``progress`` is by target partition, ``sizes`` were asked for
    only where there is something to copy, ``withheld`` as in :class:`Plan`.
    """

    topics: dict[str, TopicDescription]
    seen: list[SourcePartition]
    progress: dict[TopicPartition, Progress]
    starts: list[Range | RangeResult]
    sizes: RecordSizes
    withheld: dict[TopicPartition, OpenTransaction] = field(default_factory=dict)

    @property
    def ranges(self) -> list[Range]:
        """What is to be copied."""
        return [each for each in self.starts if isinstance(each, Range)]

    def within(self, flow: FlowConfig, targets: TargetTopics) -> ClusterSnapshot:
        """The same, with nothing to copy into target topics that are not ready: these partitions are settled."""
        starts: list[Range | RangeResult] = []
        for seen, start in zip(self.seen, self.starts, strict=True):
            why = targets.why_not_copied(seen.topic, seen.partition)
            starts.append(start if why is None else result_without_task(flow, seen, *why))
        return replace(self, starts=starts)


def take_snapshot(
    flow: FlowConfig,
    source: Admin,
    target: Admin,
    *,
    wall_ms: int,
    follow: bool = False,
    known: Collection[TopicPartition] | None = None,
    within_ms: int | None = None,
    withheld: OpenTransactions | None = None,
) -> ClusterSnapshot:
    """Look at both clusters; changes nothing on either. See :func:`make_plan`."""
    source_id = source.describe_cluster().cluster_id
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    survey = SourceOffsets(flow, wanted, source, within_ms=within_ms)
    impossible = too_long(flow, wanted)
    progress = ProgressStore(target, flow.name).read(survey.targets(but_for=impossible))
    seen = survey.partitions(known)
    recommit_before_ms = wall_ms - recommit_after_ms(target)
    starts = [
        result_without_task(flow, each, Outcome.FAILED, impossible[each.topic].reason)
        if each.topic in impossible
        else plan_range(
            flow, source_id, each, progress.get(_target_of(each)), recommit_before_ms=recommit_before_ms, follow=follow
        )
        for each in seen
    ]
    behind = any(isinstance(each, Range) and each.end > each.start for each in starts)
    return ClusterSnapshot(
        topics=wanted,
        seen=seen,
        progress=progress,
        starts=starts,
        sizes=record_sizes(source, seen) if behind else RecordSizes(),
        withheld=_withheld(source, seen, withheld, wall_ms),
    )


def _withheld(
    source: Admin, seen: list[SourcePartition], before: OpenTransactions | None, wall_ms: int
) -> dict[TopicPartition, OpenTransaction]:
    """The first plan asks at once whose transactions are open, later ones where a last stable offset stood still."""
    stable = {TopicPartition(one.topic, one.partition): one.stable for one in seen if one.leader != NO_LEADER}
    found = observed(before or {}, stable, wall_ms)
    asked = {tp: one for tp, one in found.items() if before is None or one.since_ms < wall_ms}
    return found | with_producers(source, asked)


def make_plan(
    flow: FlowConfig,
    source: Admin,
    target: Admin,
    parallelism: int,
    *,
    wall_ms: int,
    history: RunHistory = NO_HISTORY,
    lanes: bool = False,
    epoch: int = 0,
    follow: bool = False,
    known: Collection[TopicPartition] | None = None,
    bounds: DrainBounds | None = None,
    within_ms: int | None = None,
    withheld: OpenTransactions | None = None,
    targets: TargetTopics | None = None,
) -> Plan:
    """Look at both clusters and plan; changes nothing on either.

    ``parallelism`` is the largest number of tasks, ``wall_ms`` the time (ms since 1970) that the age of progress is
    measured by, ``history`` what earlier runs tell. With ``lanes``, sick partitions and those that are
    :data:`FAR_BEHIND_BYTES` or more behind share no task with the others: for a stream, whose tasks go on with them.
    (A batch ends when its last range does, and a lane of few ranges would leave processors idle.) With ``follow``
    every partition that can be copied has a range without an end. ``known``, ``within_ms``: see ``SourceOffsets``. With
    ``bounds`` nothing is planned beyond them, and nothing of a partition that has none. With ``targets`` nothing is
    planned of a partition whose target topic is not ready. ``withheld`` are the open transactions that the plan before
    this one saw; None where there was none.

    Raises FlowError where no topic matches, KafkaError where a cluster cannot be asked.
    """
    outlook = take_snapshot(
        flow, source, target, wall_ms=wall_ms, follow=follow, known=known, within_ms=within_ms, withheld=withheld
    )
    if targets is not None:
        outlook = outlook.within(flow, targets)
    if bounds is not None:
        outlook = replace(outlook, starts=[_bounded(each, bounds) for each in outlook.starts])
    plan = replace(plan_from_snapshot(flow, outlook, parallelism, history=history, lanes=lanes), epoch=epoch)
    plan = replace(plan, targets_version=0 if targets is None else targets.version)
    return (
        replace(plan, tasks=[[replace(one, end=OPEN_END) for one in task] for task in plan.tasks]) if follow else plan
    )


def plan_from_snapshot(
    flow: FlowConfig,
    outlook: ClusterSnapshot,
    parallelism: int,
    *,
    history: RunHistory = NO_HISTORY,
    lanes: bool = False,
) -> Plan:
    """The plan for what was seen. Pure; see :func:`make_plan`."""
    ranges = [with_health(each, history.unhealthy) for each in outlook.ranges]
    sizes = outlook.sizes.bytes_of(ranges)
    backlogs, idle = [], []
    for each in ranges:
        tp = TopicPartition(each.topic, each.partition)
        if each.end > each.start:
            known = outlook.progress.get(TopicPartition(each.target_topic, each.partition))
            turn_ms = max(history.last_planned_ms.get(tp, 0), known.time_ms if known else 0)
            backlogs.append(Backlog(each, max(1, sizes[tp]), turn_ms))
        else:
            idle.append(each)  # it commits a place: nothing that a limit is about
    within = apply_limits(flow, backlogs)
    planned = [*within.ranges, *idle]
    sizes = outlook.sizes.bytes_of(planned)

    def size_of(one: Range) -> int:
        return sizes[TopicPartition(one.topic, one.partition)]

    def slow(one: Range) -> bool:
        return is_unhealthy(one) or size_of(one) >= FAR_BEHIND_BYTES

    ends, lags = Counter[str](), Counter[str]()
    for seen, start in zip(outlook.seen, outlook.starts, strict=True):
        ends[seen.topic] += seen.end
        lags[seen.topic] += max(0, seen.stop - start.start)
    return Plan(
        flow=flow.name,
        withheld=outlook.withheld,
        ends=dict(ends),
        lags=dict(lags),
        tasks=pack(planned, parallelism, size_of=size_of, slow=slow if lanes else no_lane),
        results_without_task=[*(each for each in outlook.starts if isinstance(each, RangeResult)), *within.waiting],
        truncated_at={str(TopicPartition(one.topic, one.partition)): end for one, end in within.truncated},
    )


def _bounded(each: Range | RangeResult, bounds: DrainBounds) -> Range | RangeResult:
    end = bounds.get(TopicPartition(each.topic, each.partition), 0)
    if isinstance(end, tuple):
        outcome, error = end
        return replace(_nothing_of(each), outcome=outcome, error=error)
    if isinstance(each, RangeResult) or each.end <= end:
        return each
    return replace(each, end=end) if end > each.start else RangeResult.begun(each, each.start, Outcome.COMPLETE)


def _nothing_of(each: Range | RangeResult) -> RangeResult:
    return each if isinstance(each, RangeResult) else RangeResult.begun(each, each.start)


def _target_of(each: SourcePartition) -> TopicPartition:
    return TopicPartition(each.target_topic, each.partition)
