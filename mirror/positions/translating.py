"""Translates positions of a flow's source, by the index of the flow and both logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.errors import FlowError
from mirror.groups.clusters import FlowAccess
from mirror.positions.places import SourcePosition, TargetPosition
from mirror.relay.offsets.index import UNKNOWN, Place
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.target_index import open_on_target
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import cluster_options

_UNKNOWN: Final = TargetPosition(None, Place.UNKNOWN, None)


def translate(
    flow: FlowAccess,
    target_topic: Callable[[str], str | None],
    positions: Iterable[SourcePosition],
    *,
    source_is_away: bool = False,
) -> dict[SourcePosition, TargetPosition]:
    """Return what each position is on the target. Waits for the clusters; raises KafkaError.

    ``target_topic`` returns the target's name of a topic, None if the flow does not copy it. If the source is away, it
    is what the target's index says of its log as it was copied.
    """
    wanted = sorted(set(positions))
    partitions = {
        one.tp: TopicPartition(name, one.partition) for one in wanted if (name := target_topic(one.topic)) is not None
    }
    with ExitStack() as stack:
        opened, reasons = (_on_target if source_is_away else _on_both)(stack, flow, partitions)
        found = dict[SourcePosition, TargetPosition]()
        for one in wanted:
            target = partitions.get(one.tp)
            if target is None:
                reason = f"flow {flow.name} does not copy topic {one.topic}"
                found[one] = _UNKNOWN._replace(reason=reason)
            elif one.tp in opened:
                found[one] = _position(opened[one.tp], one, target)
            else:
                found[one] = _UNKNOWN._replace(target=target, reason=reasons.get(one.tp, ""))
    return found


def _position(offsets: PartitionOffsets, one: SourcePosition, target: TopicPartition) -> TargetPosition:
    there = offsets.translate(one.offset)
    passed = offsets.passed(one.offset, there)
    reason = offsets.reason if there == UNKNOWN else ""
    return TargetPosition(target, there.place, there.offset, passed, reason)


_Opened = tuple[Mapping[TopicPartition, PartitionOffsets], Mapping[TopicPartition, str]]
"""The offsets of partitions, and why those of others cannot be read."""


def _on_both(stack: ExitStack, flow: FlowAccess, partitions: Mapping[TopicPartition, TopicPartition]) -> _Opened:
    # The brokers would be asked for a partition that does not exist until the timeout.
    with Admin(cluster_options(flow.source_options)) as admin:
        topics = admin.describe_topics({one.topic for one in partitions})
    there = {
        one: target
        for one, target in partitions.items()
        if one.topic in topics and one.partition < len(topics[one.topic].partitions)
    }
    reasons = {one: f"the source has no partition {one}" for one in partitions.keys() - there.keys()}
    if not there:
        return {}, reasons
    translator = stack.enter_context(OffsetTranslator(flow.name, flow.source_options, flow.target_options, flow.policy))
    opened = translator.open(there)
    return opened, reasons | {one: f"{error}" for one, error in opened.failed.items()}


def _on_target(_: ExitStack, flow: FlowAccess, partitions: Mapping[TopicPartition, TopicPartition]) -> _Opened:
    timeout_ms = ClusterSettings.parse(cluster_options(flow.target_options)).default_api_timeout_ms
    opened, reasons = dict[TopicPartition, PartitionOffsets](), dict[TopicPartition, str]()
    for one, target in partitions.items():
        try:
            opened[one] = open_on_target(flow.name, flow.target_options, flow.policy, one.topic, target, timeout_ms)
        except FlowError as error:
            reasons[one] = f"{error}"
    return opened, reasons
