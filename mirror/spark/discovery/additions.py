"""Decides which new partitions are added to a running epoch, to which task, and from which offset.

::

    TargetTopics before, after ──grown──► partitions, by version ──lacking──► of the epoch's plan
                                          ──plan_additions──► ranges ──assign──► tasks
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.committed import ProgressStore
from mirror.relay.task.added_ranges import AddedRange
from mirror.spark.ledger.partition_health import is_unhealthy
from mirror.spark.planning.range_planner import NO_LEADER, plan_range
from mirror.spark.planning.source_offsets import SourceOffsets

if TYPE_CHECKING:
    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.plan import Plan

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


def grown(before: TargetTopics | None, after: TargetTopics) -> dict[TopicPartition, int]:
    """Return the source partitions that can be copied since ``before``, with the version that they came with."""
    had = {} if before is None else before.copyable
    return {
        TopicPartition(topic, partition): after.version
        for topic, count in after.copyable.items()
        for partition in range(had.get(topic, 0), count)
    }


def lacking(plan: Plan, new: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Return those of the ``new`` partitions, as :func:`grown` returns them, that came after ``plan`` was made."""
    return {tp for tp, version in new.items() if version > plan.targets_version}


def lasting_tasks(plan: Plan) -> list[int]:
    """Return the tasks that are sure to last until the epoch's end.

    The ranges of a limited flow have ends, and a task whose partitions are all unhealthy may end with them.
    """
    return [
        number
        for number, ranges in enumerate(plan.tasks)
        if any(range_.open_ended and not is_unhealthy(range_) for range_ in ranges)
    ]


def assign(plan: Plan, added: Iterable[Range], run: str) -> list[AddedRange]:
    """Return ``added`` with a task each, of those tasks of the epoch of ``plan`` that last; there are some."""
    lasting = lasting_tasks(plan)
    return [
        AddedRange(run, plan.epoch, lasting[crc32(f"{one.topic}-{one.partition}".encode()) % len(lasting)], one)
        for one in added
    ]


def plan_additions(
    flow: FlowConfig,
    wanted: Collection[TopicPartition],
    is_initial: Callable[[TopicPartition], bool],
    source: Admin,
    target: Admin,
) -> tuple[list[Range], set[TopicPartition]]:
    """Return the ranges to copy of the ``wanted`` source partitions, and those that may be copied later.

    Their leaders do not answer yet, or the broker that answers does not know them yet, as others do.

    A partition in neither has nothing to copy now, or cannot be copied: the next epoch's plan has the reason. One that
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
        partitions = offsets.partitions([tp for tp in wanted if is_initial(tp)])
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
