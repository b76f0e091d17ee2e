"""Forecast a run of a flow: how much it would copy, along which path, and how long it takes. Changes nothing."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from mirror.client import LATEST, TopicPartition
from mirror.errors import named
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.latch import read_latch
from mirror.relay.progress.open_transactions import OpenTransaction, describe_oldest
from mirror.spark.ledger.copy_rate import RUN_START_S
from mirror.spark.ledger.status_table import read_reported
from mirror.spark.planning.range_planner import NO_LEADER
from mirror.spark.planning.snapshot import PlanRequest, plan_from_snapshot, take_snapshot
from mirror.spark.planning.unknown_origin import unknown_origins
from mirror.spark.preflight.drift import FlowDrift, compare
from mirror.spark.preflight.flow_groups import compare_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.forecast import GroupsForecast
    from mirror.observation import Side, Sides
    from mirror.relay.batches.topic_config import TopicConfig
    from mirror.relay.progress.committed import Progress
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.planning.log_sizes import RecordSizes
    from mirror.spark.planning.snapshot import ClusterSnapshot
    from mirror.spark.preflight.target_topics import Prepared


_LOST: Final = (
    "it has no progress, but the target partition holds records, or did: a run restores its progress from the progress"
    " topic, or the partition fails with progress-lost (mirror takeover goes on where MirrorMaker 2 stopped, start-over"
    " = true begins again)"
)


class Action(enum.StrEnum):
    """What a run would do with a partition."""

    COPY = "copy"
    BEGIN = "begin"
    """Nothing to copy yet; the position where the flow begins would be committed."""
    RENEW = "renew"
    """Nothing to copy; the progress would be committed again, before the target forgets it."""
    WAIT = "wait"
    """A limit of the flow defers the partition to a later run."""
    FAIL = "fail"
    NOTHING = "nothing"


class CopyPath(enum.StrEnum):
    """How batches are copied: passed on as bytes (shallow), decoded and re-encoded (deep), or some of each."""

    SHALLOW = "shallow"
    PARTLY_DEEP = "partly deep"
    DEEP = "deep"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionForecast:
    """The forecast for one partition; the field names are keys of the JSON output."""

    topic: str
    target_topic: str
    partition: int
    action: Action
    start: int
    """The first offset that the run copies; for a partition that waits, that a later run copies."""
    end: int
    """The offset after the last one."""
    records: int
    """The number of offsets in ``[start, end)``."""
    bytes: int | None
    """An estimate; None if nothing is known about the size of records."""
    way: CopyPath
    reasons: list[str]
    """Why ``way`` is not shallow, or not known."""
    error: str | None = None
    """Why the partition fails, may fail or waits, or what a limit leaves to later runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowForecast:
    """The forecast for one flow; the field names are keys of the JSON output."""

    drift: FlowDrift
    """What a run would create and change, besides what it copies."""
    partitions: list[PartitionForecast]
    records: int
    """The number of offsets that a run would copy."""
    bytes: int | None
    """Their estimated size; None if it is not known."""
    bytes_per_second: float | None
    """The rate of earlier runs, limited by the flow; None if neither is known."""
    seconds: float | None
    """The time that the run would take; None if ``bytes`` or the rate is not known."""
    overhead_seconds: float
    """The part of ``seconds`` that Spark needs to start, as measured elsewhere."""
    warnings: list[str]
    limits: dict[str, int] = field(default_factory=dict)
    """How much the source can make the flow do on the target, by the key of the limit."""
    withheld: list[OpenTransaction] = field(default_factory=list)
    """The source's open transactions that keep records from being copied."""
    groups: GroupsForecast | None = None
    """What would be committed for consumer groups on the target; None if the flow commits nothing for them."""

    @property
    def to_do(self) -> bool:
        """Whether a run would copy, commit or change something, or a partition needs attention.

        Renewing progress is no reason to run: every flow that runs at all does it in time.
        """
        idle = {Action.NOTHING, Action.RENEW}
        drift = self.drift
        reports = (*drift.kinds, self.groups)
        pending = any(found is not None and found.pending for found in reports)
        return bool(drift.changes or pending) or any(partition.action not in idle for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with those of ``drift``, and ``to_do`` as plain values."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "drift"}
        own["partitions"] = [asdict(one) for one in self.partitions]
        own["withheld"] = [asdict(one) for one in self.withheld]
        own["groups"] = None if self.groups is None else self.groups.to_json()
        return {**self.drift.to_json(), **own, "to_do": self.to_do}


def forecast(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    *,
    wall_ms: int,
    adopt: bool = False,
    max_deletions: int | None = None,
) -> FlowForecast:
    """Read the flow's clusters and forecast a run at ``wall_ms`` (ms since 1970).

    ``adopt`` and ``max_deletions`` are those of :func:`.drift.apply`.
    Raises FlowError if no topic matches, and KafkaError if a cluster cannot be read.
    """
    options = config.clusters[flow.target].client_options()
    reported, unread = read_reported(options, flow.name)
    latch = read_latch(options, flow.name)
    held = [f"it is {latch.held_line(flow.name)}; until then no run copies"] if latch.is_held else []
    request = PlanRequest(flow=flow, now_ms=wall_ms, turns=reported.turns)
    snapshot = take_snapshot(request, sides)
    drift, topics, registries = compare(config, flow, sides, adopt=adopt, max_deletions=max_deletions)
    snapshot = snapshot.with_targets(flow, topics.targets)
    # Others produce into the targets of a flow that copies local records only.
    lost = set() if flow.start_over or flow.only_local else _without_progress(snapshot, topics, sides.target)
    unknown = (
        unknown_origins(flow, registries["source"], snapshot.ranges, snapshot.topics) if "source" in registries else {}
    )
    groups = compare_groups(config, flow)
    plan = plan_from_snapshot(request, snapshot)
    partitions = [
        _with_error(partition, unknown.get(TopicPartition(partition.topic, partition.partition)), Action.FAIL)
        for partition in partition_forecasts(flow, snapshot, plan, topics.pairs)
    ]
    partitions = [
        _with_error(partition, _LOST if TopicPartition(partition.topic, partition.partition) in lost else None)
        for partition in partitions
    ]
    copied = [partition for partition in partitions if partition.action is Action.COPY]
    sizes = [partition.bytes for partition in copied if partition.bytes is not None]
    size = sum(sizes) if len(sizes) == len(copied) else None
    rate = _rate(None if reported.rate is None else reported.rate.bytes_per_second, flow.max_bytes_per_second)
    return FlowForecast(
        drift=drift,
        partitions=partitions,
        records=sum(partition.records for partition in copied),
        bytes=size,
        bytes_per_second=rate,
        seconds=None if rate is None or size is None else RUN_START_S + size / rate,
        overhead_seconds=RUN_START_S,
        warnings=[
            *held,
            *unread,
            *_without_metadata(snapshot.progress),
            *drift.warnings,
            *drift.problems,
            *(() if groups is None else groups.problems),
            *describe_oldest({tp: open_ for tp, open_ in snapshot.withheld.items() if open_.is_noteworthy}),
        ],
        limits=flow.limits,
        withheld=list(snapshot.withheld.values()),
        groups=groups,
    )


def _without_metadata(progress: Mapping[TopicPartition, Progress]) -> list[str]:
    """Return a line about progress that is only an offset: not all implementations of the protocol keep the rest."""
    bare = sorted(tp for tp, one in progress.items() if not one.source_cluster_id)
    if not bare:
        return []
    line = (
        f"the progress of {named('target partition', list(map(str, bare)))} has no metadata: another program has"
        " committed it, or the target's brokers do not keep the metadata of committed offsets; then set"
        ' exactly-once-by = "transactions", and nothing shows that a topic was made again or that the target has lost'
        " records"
    )
    return [line]


def _with_error(partition: PartitionForecast, error: str | None, action: Action | None = None) -> PartitionForecast:
    if error is None:
        return partition
    return replace(
        partition, action=action or partition.action, error="; ".join(filter(None, [error, partition.error]))
    )


def _without_progress(snapshot: ClusterSnapshot, topics: Prepared, target: Side) -> set[TopicPartition]:
    """Return the source partitions without progress whose target partitions hold records, or did."""
    source_of = {
        TopicPartition(range_.target_topic, range_.partition): TopicPartition(range_.topic, range_.partition)
        for range_ in snapshot.ranges
        if TopicPartition(range_.target_topic, range_.partition) not in snapshot.progress
    }
    with_leader = {
        TopicPartition(topic.name, partition.partition)
        for topic in topics.existing.values()
        for partition in topic.partitions
        if partition.leader != NO_LEADER
    }
    wanted = dict.fromkeys(source_of.keys() & with_leader, LATEST)
    ends = target.admin.list_offsets(wanted, partial=True) if wanted else {}
    return {source_of[tp] for tp, end in ends.items() if end.offset > 0}


def _rate(measured: float | None, limit: int) -> float | None:
    return min((rate for rate in (measured, float(limit)) if rate), default=None)


def partition_forecasts(
    flow: FlowConfig, snapshot: ClusterSnapshot, plan: Plan, pairs: dict[str, tuple[TopicConfig, TopicConfig]]
) -> list[PartitionForecast]:
    """Return the forecast of every partition, sorted by topic and number. Pure."""
    backlog = {(range_.topic, range_.partition): range_ for range_ in snapshot.ranges}
    sizes = snapshot.sizes
    paths = {topic: copy_path(flow, pairs.get(topic)) for topic in {seen.target_topic for seen in snapshot.partitions}}
    forecasts = [
        *(_of_range(range_, snapshot, plan, paths[range_.target_topic]) for range_ in plan.ranges),
        *(
            _of_result(result, backlog.get((result.topic, result.partition)), sizes, paths[result.target_topic])
            for result in plan.results_without_task
        ),
    ]
    return sorted(forecasts, key=lambda partition: (partition.topic, partition.partition))


def _of_range(
    range_: Range, snapshot: ClusterSnapshot, plan: Plan, path: tuple[CopyPath, list[str]]
) -> PartitionForecast:
    if range_.end > range_.start:
        action = Action.COPY
    else:
        committed = TopicPartition(range_.target_topic, range_.partition) in snapshot.progress
        action = Action.RENEW if committed else Action.BEGIN
    end = plan.truncated_at.get(str(TopicPartition(range_.topic, range_.partition)), range_.end)
    left = f"max-bytes-per-run leaves about {end - range_.end} records to later runs" if end > range_.end else None
    return _forecast(range_, action, snapshot.sizes, path, left)


def _of_result(
    result: RangeResult, waiting: Range | None, sizes: RecordSizes, path: tuple[CopyPath, list[str]]
) -> PartitionForecast:
    """Return the forecast of a partition that gets no task; ``waiting`` is its range if a later run copies it."""
    if waiting is not None:
        return _forecast(waiting, Action.WAIT, sizes, path, result.error)
    action = Action.FAIL if result.outcome is Outcome.FAILED else Action.NOTHING
    if action is Action.FAIL and path[0] is CopyPath.UNKNOWN:
        path = CopyPath.UNKNOWN, []  # the error says why there is no target topic
    return _forecast(result, action, sizes, path, result.error)


def _forecast(
    span: Range | RangeResult, action: Action, sizes: RecordSizes, path: tuple[CopyPath, list[str]], error: str | None
) -> PartitionForecast:
    records = span.end - span.start
    tp = TopicPartition(span.topic, span.partition)
    record_size = sizes.bytes_per_offset.get(tp, sizes.average() if sizes.bytes_per_offset else None)
    return PartitionForecast(
        topic=span.topic,
        target_topic=span.target_topic,
        partition=span.partition,
        action=action,
        start=span.start,
        end=span.end,
        records=records,
        bytes=int(records * record_size) if record_size is not None else None if records else 0,
        way=path[0],
        reasons=path[1],
        error=error,
    )


def copy_path(flow: FlowConfig, pair: tuple[TopicConfig, TopicConfig] | None) -> tuple[CopyPath, list[str]]:
    """Return how batches are copied, and why; ``pair`` has the configurations of the source and the target topic.

    Some batches may be re-encoded for reasons that no configuration shows: message formats 0 and 1, small batches in a
    row.
    """
    policy = flow.copy_policy()
    keys = [
        *([f'compression = "{flow.compression}"'] if policy.compression is not None else []),
        *(["headers"] if policy.headers else []),
        *(["transform"] if policy.transform else []),
        *(["test-copy"] if policy.masking else []),
    ]
    if keys:
        return CopyPath.DEEP, [f"the flow has {key}" for key in keys]
    if pair is None:
        return CopyPath.UNKNOWN, ["the source topic's configuration cannot be read (it needs DescribeConfigs)"]
    source, target = pair
    reasons = []
    if "compact" in source.cleanup:
        reasons.append("the source's cleanup.policy has compact: batches with gaps are re-encoded")
    if target.max_message_bytes < source.max_message_bytes:
        reasons.append(
            f"max.message.bytes = {target.max_message_bytes}, the source's is {source.max_message_bytes}: larger"
            " batches are re-encoded"
        )
    if source.append_time and not target.append_time:
        why = "message.timestamp.type: the source's LogAppendTime has to be written into each record, as its CreateTime"
        return CopyPath.DEEP, [why, *reasons]
    return (CopyPath.PARTLY_DEEP if reasons else CopyPath.SHALLOW), reasons
