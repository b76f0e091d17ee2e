"""Decides which new partitions are prepared, and from which offset they are copied.

::

    the source's topics ──unprepared──► prepare ──plan_additions──► ranges, for the tasks of the running job
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.committed import ProgressStore
from mirror.spark.planning.range_planner import NO_LEADER, plan_range
from mirror.spark.planning.source_offsets import SourceOffsets

if TYPE_CHECKING:
    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.obstacles import TargetTopics

_OFFSETS_TIMEOUT_MS: Final = 3_000
"""A new partition whose leader does not answer by then is looked up again; others do not wait for it."""


def unprepared(
    flow: FlowConfig, topics: Mapping[str, TopicDescription], targets: TargetTopics
) -> dict[str, TopicDescription]:
    """Return those of the source's ``topics`` that ``flow`` copies, and that the last preparation lacked in part."""
    return {
        name: topic
        for name, topic in topics.items()
        if topic.partitions
        and not targets.covers(name, len(topic.partitions) - 1)
        and (name in targets.copyable or flow.includes(name))
    }


def plan_additions(
    flow: FlowConfig,
    wanted: Collection[TopicPartition],
    is_initial: Callable[[TopicPartition], bool],
    source: Admin,
    target: Admin,
) -> tuple[list[Range], set[TopicPartition]]:
    """Return the ranges to copy of the ``wanted`` source partitions, and those that may be copied later.

    Their leaders do not answer yet, or the broker that answers does not know them yet, as others do.

    A partition in neither has nothing to copy now, or cannot be copied: the next plan has the reason. One that
    is not initial is copied from its first record. Raises KafkaError if a cluster does not answer.
    """
    numbers: dict[str, set[int]] = {}
    for tp in wanted:
        numbers.setdefault(tp.topic, set()).add(tp.partition)
    found = source.describe_topics(numbers, partial=True)
    topics = {
        name: replace(topic, partitions=tuple(each for each in topic.partitions if each.partition in numbers[name]))
        for name, topic in found.items()
    }
    try:
        offsets = SourceOffsets(flow, topics, source, call_timeout_ms=_OFFSETS_TIMEOUT_MS)
    except KafkaTimeout:
        return [], set(wanted)
    progress = ProgressStore(target, flow.name).read(offsets.target_partitions())
    try:
        partitions = offsets.partitions(is_initial)
    except KafkaTimeout:
        return [], set(wanted)
    cluster_id = source.describe_cluster().cluster_id
    shown = {TopicPartition(name, each.partition) for name, topic in topics.items() for each in topic.partitions}
    ranges, waiting = list[Range](), set(wanted) - shown
    for partition in partitions:
        committed = progress.get(TopicPartition(partition.target_topic, partition.partition))
        planned = plan_range(flow, cluster_id, partition, committed, follow=True)
        if partition.leader == NO_LEADER:
            waiting.add(TopicPartition(partition.topic, partition.partition))
        elif isinstance(planned, Range):
            ranges.append(replace(planned, end=OPEN_END))
    return ranges, waiting
