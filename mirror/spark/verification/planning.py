"""Reads what both clusters have, and packs what is to be compared into tasks. Changes nothing on either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.relay.batches.topic_config import TopicConfig, readable
from mirror.relay.model.ranges import Range
from mirror.spark.planning.flow_observation import Needs, observe_flow
from mirror.spark.planning.log_sizes import RecordSizes, record_sizes
from mirror.spark.planning.packing import pack
from mirror.spark.planning.range_planner import NO_LEADER
from mirror.spark.verification.places import (
    Place,
    Start,
    TargetPlace,
    Topics,
    decide,
    decide_proved,
    decide_target_only,
)
from mirror.verify.partition_results import PartitionResult, VerifyRange
from mirror.verify.proof import Proof, ProvedRange

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.config.positions import Position
    from mirror.observation import Side, Sides
    from mirror.relay.progress.committed import Progress
    from mirror.spark.planning.flow_observation import TargetLog
    from mirror.spark.planning.range_planner import SourcePartition

_NO_CONFIG: Final = TopicConfig.of({})


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What is to be verified of a flow."""

    flow: FlowConfig
    position: Position | None = None
    """Where to begin; None: where the copies began, or behind the ``proof``."""
    proof: Proof | None = None
    """What was proved before."""
    checks: bool = False
    """Whether what the proof says is compared again, and nothing else."""
    has_others: bool = False
    """Whether others write to the target topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What is compared, and the results of the other partitions."""

    flow: str
    source_cluster_id: str
    target_cluster_id: str
    ranges: list[VerifyRange] = field(default_factory=list)
    results: list[PartitionResult] = field(default_factory=list)
    sizes: RecordSizes = field(default_factory=RecordSizes)

    def tasks(self, parallelism: int) -> list[list[VerifyRange]]:
        """Spread the ranges over at most ``parallelism`` tasks as a run does, by their size in bytes."""
        as_copied = [_as_range(self.flow, range_) for range_ in self.ranges]
        by_copy = {id(copied): range_ for copied, range_ in zip(as_copied, self.ranges, strict=True)}
        known, average = self.sizes.bytes_per_offset, self.sizes.average()

        def size_of(copied: Range) -> int:
            tp = TopicPartition(copied.topic, copied.partition)
            return int((copied.end - copied.start) * known.get(tp, average))

        return [[by_copy[id(copied)] for copied in task] for task in pack(as_copied, parallelism, size_of=size_of)]

    @property
    def offsets(self) -> int:
        """How many offsets of the source the ranges have."""
        return sum(max(0, one.bounds.source_end - one.bounds.source_start) for one in self.ranges)

    @property
    def size(self) -> int:
        """About how many bytes are compared of the source, as its log has them: compressed."""
        return sum(self.sizes.bytes_of(_as_range(self.flow, range_) for range_ in self.ranges).values())


def make_plan(request: VerifyRequest, sides: Sides) -> VerifyPlan:
    """Read both clusters. Raises FlowError if no topic matches, ProofError, and KafkaError if a cluster is silent."""
    flow, (source, target) = request.flow, sides
    plan = VerifyPlan(
        flow=flow.name,
        source_cluster_id=source.cluster.cluster_id,
        target_cluster_id=target.cluster.cluster_id,
    )
    if request.proof is not None:
        request.proof.check_flow(flow.name, plan.source_cluster_id, plan.target_cluster_id)
    seen = observe_flow(flow, sides, Needs(target_logs=True)).whole()
    partitions = [one for one in seen.partitions if one.topic not in seen.unnameable]
    progress, logs = seen.progress, seen.target_logs
    of_source = _configs(source, {one.topic for one in partitions})
    # A topic that is not there would be asked for until the call's deadline.
    of_target = _configs(target, {tp.topic for tp, log in logs.items() if log.exists})
    both = {
        one.topic: Topics(source=of_source[one.topic], target=of_target.get(one.target_topic, _NO_CONFIG))
        for one in partitions
    }
    places = _places(request, plan, partitions, (progress, logs), both, source)
    decisions = _decisions(request, places)
    if not request.checks:
        decisions += map(decide_target_only, _target_only(partitions, logs, both))
        decisions += [
            PartitionResult(
                topic=topic, target_topic=flow.target_topic(topic), partition=one.partition, error=obstacle.reason
            )
            for topic, obstacle in seen.unnameable.items()
            for one in seen.topics[topic].partitions
        ]
    plan.results.extend(one for one in decisions if isinstance(one, PartitionResult))
    plan.ranges.extend(one for one in decisions if isinstance(one, VerifyRange))
    return replace(plan, sizes=record_sizes(source, partitions)) if plan.ranges else plan


def _decisions(request: VerifyRequest, places: Sequence[Place]) -> list[VerifyRange | PartitionResult]:
    if not request.checks or request.proof is None:
        return [decide(place) for place in places]
    by_partition = {(place.source.topic, place.source.partition): place for place in places}
    decisions: list[VerifyRange | PartitionResult] = []
    for proved in request.proof.ranges():
        place = by_partition.get((proved.topic, proved.partition))
        decisions.append(_not_there(proved) if place is None else decide_proved(place, proved))
    return decisions


def _not_there(proved: ProvedRange) -> PartitionResult:
    return PartitionResult(
        topic=proved.topic,
        target_topic=proved.target_topic,
        partition=proved.partition,
        error="the flow does not copy it any more, or the source does not have it",
    )


# --- both clusters


def _places(
    request: VerifyRequest,
    plan: VerifyPlan,
    partitions: Sequence[SourcePartition],
    read: tuple[Mapping[TopicPartition, Progress], Mapping[TopicPartition, TargetLog]],
    topics: Mapping[str, Topics],
    source: Side,
) -> list[Place]:
    progress, logs = read
    starts = _starts(request, partitions, source)
    places = []
    for one in partitions:
        tp = one.target_tp
        places.append(
            Place(
                source=one,
                target=logs[tp],
                progress=progress.get(tp),
                topics=topics[one.topic],
                source_cluster_id=plan.source_cluster_id,
                start=starts.get(one.tp, Start()),
                has_others=request.has_others,
            )
        )
    return places


def _target_only(
    partitions: Sequence[SourcePartition], logs: Mapping[TopicPartition, TargetLog], topics: Mapping[str, Topics]
) -> Iterator[TargetPlace]:
    """Yield the partitions that no source topic of the flow has."""
    sources = {one.target_topic: one for one in partitions}
    for tp in sorted(logs.keys() - {one.target_tp for one in partitions}):
        one = sources[tp.topic]
        yield TargetPlace(
            topic=one.topic,
            target_topic=tp.topic,
            partition=tp.partition,
            source_topic_id=one.topic_id,
            target=logs[tp],
            topics=topics[one.topic],
        )


def _configs(side: Side, topics: set[str]) -> dict[str, TopicConfig]:
    """Return the configuration of each topic; the brokers' defaults if it may not be read."""
    try:
        found = side.configs(topics)
    except KafkaError:
        return dict.fromkeys(topics, _NO_CONFIG)
    return {topic: TopicConfig.of(readable(found[topic])) if topic in found else _NO_CONFIG for topic in topics}


def _starts(request: VerifyRequest, partitions: Sequence[SourcePartition], source: Side) -> dict[TopicPartition, Start]:
    """Return where partitions begin that do not begin where their copies did."""
    if request.position is None:
        ends = {} if request.proof is None else request.proof.ends()
        return {TopicPartition(*key): Start(proved=proved) for key, proved in ends.items()}
    tps = [one.tp for one in partitions if one.leader != NO_LEADER]
    if request.position.offset is not None:
        return {tp: Start(source_offset=request.position.offset) for tp in tps}
    times = dict.fromkeys(tps, request.position.timestamp_ms or 0)
    found = source.admin.list_offsets(times, partial=True)
    ends_of = {one.tp: one.end for one in partitions}
    # A time behind the last record has no offset: nothing of the partition is compared then.
    return {
        tp: Start(source_offset=result.offset if result.offset >= 0 else ends_of[tp]) for tp, result in found.items()
    }


def _as_range(flow: str, range_: VerifyRange) -> Range:
    return Range(
        flow=flow,
        topic=range_.topic,
        target_topic=range_.target_topic,
        partition=range_.partition,
        start=range_.bounds.source_start,
        end=max(range_.bounds.source_start, range_.bounds.source_end),
        source_cluster_id="",
        topic_id=range_.source_topic_id,
    )
