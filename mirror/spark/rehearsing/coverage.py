"""Reads what a switch concerns and the flow does not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.own_groups import is_own_group
from mirror.groups.reader import GroupReader
from mirror.rehearsal.coverage import Flows, ReadingGroup, of_others, old_only, target_only, uncovered
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.topic_obstacles import unnameable
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.rehearsing.target_logs import CALL_TIMEOUT_MS, log_bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.positions import GroupState
    from mirror.groups.translation.logs import PartitionLogs
    from mirror.observation import Side, Sides
    from mirror.rehearsal.values import Blocker


def coverage(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    partitions: Collection[TopicPartition],
    only: Collection[str] = (),
) -> Iterator[Blocker]:
    """Yield what the flow does not cover of groups, only those that are named, and of ``partitions`` of its source.

    Raises KafkaError if a cluster does not answer.
    """
    source, target = sides
    groups = reading_groups(source)
    yield from uncovered((one for one in groups if not only or one.group in only), _flows(config, flow))
    wanted = {TopicPartition(flow.target_topic(tp.topic), tp.partition) for tp in partitions}
    names = {tp.topic for tp in partitions}
    possible = {flow.target_topic(name) for name in names - unnameable(flow, names).keys()}
    topics = target.describe(possible, CALL_TIMEOUT_MS)
    there = {TopicPartition(name, one.partition) for name, topic in topics.items() for one in topic.partitions}
    bounds = log_bounds(target, there - wanted)
    yield from target_only(_sizes(there - wanted, bounds), flow.source, flow.target)


def coverage_back(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    backs: Collection[FlowConfig],
    only: Collection[str] = (),
) -> Iterator[Blocker]:
    """Yield the same for the way back, from the flow's target to its source; ``backs`` are the flows that copy back.

    Raises KafkaError if a cluster does not answer.
    """
    source, target = sides
    groups = reading_groups(target)
    originals, copies = source.topics, target.topics
    flows = _flows_back(config, flow, originals.keys())
    named = (one for one in groups if not only or flow.groups.source_group(one.group) in only)
    yield from uncovered(named, flows)
    here, there = set[TopicPartition](), set[TopicPartition]()
    for name in select_topics(flow, originals):
        copy = copies.get(flow.target_topic(name))
        if copy is not None:
            here |= {TopicPartition(name, one.partition) for one in originals[name].partitions}
            there |= {TopicPartition(name, one.partition) for one in copy.partitions}
    bounds = log_bounds(source, here - there)
    yield from target_only(_sizes(here - there, bounds), flow.target, flow.source)
    left = {TopicPartition(flow.target_topic(tp.topic), tp.partition) for tp in there - here}
    left = {tp for tp in left if not any(back.includes(tp.topic) for back in backs)}
    yield from old_only(_sizes(left, log_bounds(target, left)), flow.target, flow.source)


def _sizes(
    tps: Collection[TopicPartition], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    return {tp: bounds[tp][1] - bounds[tp][0] if tp in bounds else None for tp in tps}


def reading_groups(side: Side) -> list[ReadingGroup]:
    """Return the consumer groups of a cluster, without those of this program. Raises KafkaError."""
    reader = GroupReader(side.admin, SystemClock(), CALL_TIMEOUT_MS)
    names = [name for name, one in reader.list_groups().items() if one.is_supported and not is_own_group(name)]
    found = []
    for name, committed in reader.offsets(names).items():
        if isinstance(committed, KafkaError):
            found.append(ReadingGroup(group=name, error=f"what it has committed could not be read: {committed}"))
        else:
            topics = {tp.topic for tp in (*committed, *committed.failed)}
            found.append(ReadingGroup(group=name, topics=frozenset(topics & side.topics.keys())))
    return found


def _flows(config: MirrorConfig, flow: FlowConfig) -> Flows:
    alike = [one for one in config.flows.values() if (one.source, one.target) == (flow.source, flow.target)]
    return Flows(
        flow=flow.name,
        new=flow.target,
        copies=flow.includes,
        is_copied=lambda topic: any(one.includes(topic) for one in alike),
        is_brought=lambda group, topic: any(one.groups.includes(group) and one.includes(topic) for one in alike),
    )


def _flows_back(config: MirrorConfig, flow: FlowConfig, originals: Collection[str]) -> Flows:
    """Return what is covered of the target: copies whose originals the source has, and what is copied back."""
    ahead = [one for one in config.flows.values() if (one.source, one.target) == (flow.source, flow.target)]
    back = [one for one in config.flows.values() if (one.source, one.target) == (flow.target, flow.source)]

    def is_brought(group: str, topic: str) -> bool:
        return any(one.groups.source_group(group) and one.source_topic(topic) for one in ahead) or any(
            one.groups.includes(group) and one.includes(topic) for one in back
        )

    return Flows(
        flow=flow.name,
        new=flow.source,
        copies=lambda topic: flow.source_topic(topic) is not None,
        is_copied=lambda topic: (
            any(one.source_topic(topic) in originals for one in ahead) or any(one.includes(topic) for one in back)
        ),
        is_brought=is_brought,
    )


def others_in_front(
    flow: FlowConfig, groups: Iterable[GroupState], logs: Mapping[TopicPartition, PartitionLogs]
) -> Iterator[Blocker]:
    """Yield the partitions of the target with records of others in front of positions that groups have there.

    What cannot be counted is not known to be there: the moves of the groups say so. At most two parts of a log are
    read for each position.
    """
    positions: dict[TopicPartition, set[int]] = {}
    for state in groups:
        for one in state.positions:
            if one.target_offset is not None and one.source_offset is not None:
                positions.setdefault(one.target, set()).add(one.target_offset)
    counts: dict[TopicPartition, int] = {}
    for tp, offsets in positions.items():
        try:
            count = max((logs[tp].of_others(offset) for offset in offsets), default=0) if tp in logs else 0
        except KafkaError:
            continue
        if count:
            counts[tp] = count
    yield from of_others(counts, flow.name)
