"""What a run of a flow would do now: how much it would copy, in which way, and how long it takes. Changes nothing."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mirror.client import LATEST, Admin, TopicPartition
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.open_transactions import OpenTransaction, lines
from mirror.spark.planning.history import bytes_per_second, overhead_seconds, read_history
from mirror.spark.planning.range_planner import NO_LEADER
from mirror.spark.planning.snapshot import plan_from_snapshot, take_snapshot
from mirror.spark.preflight.target_topics import inspect_topics

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.batches.topic_config import TopicConfig
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.planning.log_sizes import RecordSizes
    from mirror.spark.planning.snapshot import ClusterSnapshot
    from mirror.spark.preflight.target_topics import TargetTopicsForecast


_LOST: Final = (
    "it has no progress, and the target partition holds records or did: restored from the topic of notes, or it fails"
    " with progress-lost (start-over = true begins again)"
)


OVERHEAD_S: Final = 13.0
"""What the smallest of runs took on a machine with two cores, a few records copied."""


class Action(enum.StrEnum):
    """What a run would do with a partition."""

    COPY = "copy"
    BEGIN = "begin"
    """Nothing to copy yet; where the flow begins would be kept."""
    RENEW = "renew"
    """Nothing to copy; its progress would be committed anew, before the target forgets it."""
    WAIT = "wait"
    """A limit of the flow leaves it to a later run."""
    FAIL = "fail"
    NOTHING = "nothing"


class CopyPath(enum.StrEnum):
    """How batches are copied: passed on as bytes, encoded anew, or each as it needs."""

    SHALLOW = "shallow"
    PARTLY_DEEP = "partly deep"
    DEEP = "deep"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionForecast:
    """One partition: ``records`` counts the offsets of ``[start, end)``, a run's or (where it waits) the next one's.

    ``bytes`` is an estimate, or None; ``error`` is why it would, or may, fail or wait, or what a limit leaves.
    """

    topic: str
    target_topic: str
    partition: int
    action: Action
    start: int
    end: int
    records: int
    bytes: int | None
    way: CopyPath
    reasons: list[str]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowForecast:
    """One flow. ``records`` and ``bytes`` (None: not known) are what a run would copy.

    ``seconds`` is the time it would take at ``bytes_per_second``; both None where nothing tells. Of it,
    ``overhead_seconds`` are not copying but Spark's start: as in earlier runs, or where ``overhead_measured`` is False,
    as measured elsewhere. ``changes`` are those of the target's topics. ``withheld`` are the source's open transactions
    that keep records from being copied.
    """

    flow: str
    source: str
    target: str
    partitions: list[PartitionForecast]
    records: int
    bytes: int | None
    bytes_per_second: float | None
    seconds: float | None
    overhead_seconds: float
    overhead_measured: bool
    changes: list[str]
    warnings: list[str]
    withheld: list[OpenTransaction] = field(default_factory=list)

    @property
    def to_do(self) -> bool:
        """Whether a run would copy, keep or change something, or somebody must look after a partition.

        To renew progress is no reason to run: a flow that runs at all does it in time.
        """
        idle = {Action.NOTHING, Action.RENEW}
        return bool(self.changes) or any(each.action not in idle for each in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """As plain values, ``to_do`` among them."""
        return {**asdict(self), "to_do": self.to_do}


def forecast(config: MirrorConfig, flow: FlowConfig, *, wall_ms: int, ledger: Path) -> FlowForecast:
    """Look at the flow's clusters; ``ledger`` is its folder there, which may be missing.

    ``wall_ms`` is now, in ms since 1970. Raises FlowError where no topic matches, KafkaError where a cluster cannot be
    asked.
    """
    with (
        Admin(config.clusters[flow.source].client_options()) as source,
        Admin(config.clusters[flow.target].client_options()) as target,
    ):
        outlook = take_snapshot(flow, source, target, wall_ms=wall_ms)
        topics = inspect_topics(flow, outlook.topics, source, target)
        outlook = outlook.within(flow, topics.targets)
        lost = set() if flow.start_over else _without_progress(outlook, topics, target)
    plan = plan_from_snapshot(flow, outlook, 1, history=read_history(flow, ledger))
    partitions = [
        replace(each, error="; ".join(filter(None, [_LOST, each.error])))
        if TopicPartition(each.topic, each.partition) in lost
        else each
        for each in partition_forecasts(flow, outlook, plan, topics.pairs)
    ]
    copied = [each for each in partitions if each.action is Action.COPY]
    size = None if any(each.bytes is None for each in copied) else sum(each.bytes or 0 for each in copied)
    rate = _rate(bytes_per_second(ledger), flow.max_bytes_per_second)
    measured = overhead_seconds(ledger.parent)
    overhead = OVERHEAD_S if measured is None else measured
    return FlowForecast(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        partitions=partitions,
        records=sum(each.records for each in copied),
        bytes=size,
        bytes_per_second=rate,
        seconds=None if rate is None or size is None else overhead + size / rate,
        overhead_seconds=overhead,
        overhead_measured=measured is not None,
        changes=topics.changes,
        warnings=[*topics.warnings, *lines({tp: one for tp, one in outlook.withheld.items() if one.noted})],
        withheld=list(outlook.withheld.values()),
    )


def _without_progress(outlook: ClusterSnapshot, topics: TargetTopicsForecast, target: Admin) -> set[TopicPartition]:
    """The source partitions that a run would begin with, though their target partitions hold records, or did."""
    begun = {
        TopicPartition(each.target_topic, each.partition): TopicPartition(each.topic, each.partition)
        for each in outlook.ranges
        if TopicPartition(each.target_topic, each.partition) not in outlook.progress
    }
    led = {
        TopicPartition(topic.name, each.partition)
        for topic in topics.there.values()
        for each in topic.partitions
        if each.leader != NO_LEADER
    }
    asked = dict.fromkeys(begun.keys() & led, LATEST)
    found = target.list_offsets(asked, partial=True) if asked else {}
    return {begun[tp] for tp, end in found.items() if end.offset > 0}


def _rate(measured: float | None, limit: int) -> float | None:
    known = [rate for rate in (measured, float(limit)) if rate]
    return min(known, default=None)


def partition_forecasts(
    flow: FlowConfig, outlook: ClusterSnapshot, plan: Plan, pairs: dict[str, tuple[TopicConfig, TopicConfig]]
) -> list[PartitionForecast]:
    """Of every partition, by topic and number. Pure."""
    behind = {(each.topic, each.partition): each for each in outlook.ranges}
    sizes = outlook.sizes
    ways = {topic: way_of(flow, pairs.get(topic)) for topic in {each.target_topic for each in outlook.seen}}
    found = [
        *(_of_range(each, outlook, plan, ways[each.target_topic]) for each in plan.ranges),
        *(
            _of_result(each, behind.get((each.topic, each.partition)), sizes, ways[each.target_topic])
            for each in plan.results_without_task
        ),
    ]
    return sorted(found, key=lambda each: (each.topic, each.partition))


def _of_range(one: Range, outlook: ClusterSnapshot, plan: Plan, way: tuple[CopyPath, list[str]]) -> PartitionForecast:
    if one.end > one.start:
        action = Action.COPY
    else:
        known = TopicPartition(one.target_topic, one.partition) in outlook.progress
        action = Action.RENEW if known else Action.BEGIN
    stop = plan.truncated_at.get(str(TopicPartition(one.topic, one.partition)), one.end)
    left = f"max-bytes-per-epoch leaves about {stop - one.end} records to later runs" if stop > one.end else None
    return _forecast(one, action, outlook.sizes, way, left)


def _of_result(
    result: RangeResult, behind: Range | None, sizes: RecordSizes, way: tuple[CopyPath, list[str]]
) -> PartitionForecast:
    """Of a settled partition; where it waits, ``behind`` is the range that it waits with."""
    if behind is not None:
        return _forecast(behind, Action.WAIT, sizes, way, result.error)
    action = Action.FAIL if result.outcome is Outcome.FAILED else Action.NOTHING
    return _forecast(result, action, sizes, way, result.error)


def _forecast(
    one: Range | RangeResult, action: Action, sizes: RecordSizes, way: tuple[CopyPath, list[str]], error: str | None
) -> PartitionForecast:
    records = one.end - one.start
    tp = TopicPartition(one.topic, one.partition)
    known = sizes.bytes_per_offset.get(tp, sizes.average() if sizes.bytes_per_offset else None)
    return PartitionForecast(
        topic=one.topic,
        target_topic=one.target_topic,
        partition=one.partition,
        action=action,
        start=one.start,
        end=one.end,
        records=records,
        bytes=int(records * known) if known is not None else None if records else 0,
        way=way[0],
        reasons=way[1],
        error=error,
    )


def way_of(flow: FlowConfig, pair: tuple[TopicConfig, TopicConfig] | None) -> tuple[CopyPath, list[str]]:
    """How batches between two topics go, as far as configurations tell, and why. ``pair``: the source's, the target's.

    What only the batches tell (message formats 0 and 1, small ones in a row) comes on top.
    """
    policy = flow.copy_policy()
    asked = [
        *([f'compression = "{flow.compression}"'] if policy.compression is not None else []),
        *(["headers"] if policy.headers else []),
        *(["transform"] if policy.transform else []),
    ]
    if asked:
        return CopyPath.DEEP, [f"the flow has {each}" for each in asked]
    if pair is None:
        return CopyPath.UNKNOWN, ["the source's topic configuration may not be read (DescribeConfigs)"]
    source, target = pair
    reasons = []
    if "compact" in source.cleanup:
        reasons.append("the source's cleanup.policy has compact: batches with gaps go deep")
    if target.max_message_bytes < source.max_message_bytes:
        reasons.append(
            f"max.message.bytes = {target.max_message_bytes}, the source's {source.max_message_bytes}: larger batches"
            " go deep"
        )
    if source.append_time and not target.append_time:
        why = "message.timestamp.type: the source's LogAppendTime has to become each record's own in CreateTime"
        return CopyPath.DEEP, [why, *reasons]
    return (CopyPath.PARTLY_DEEP if reasons else CopyPath.SHALLOW), reasons
