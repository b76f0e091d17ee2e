"""Flows in both directions between two clusters in memory, which copy a topic under one name."""

from __future__ import annotations

import time
from typing import Any, Final

from mirror.client import Admin, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.origin.registry import prepare_registries
from mirror.relay.progress.committed import read_progress
from mirror.relay.progress.flow_topic import group_topic_of, offset_topic_of, status_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import build, values_of
from tests.relay.fake_pair import FakePair

TP: Final = TopicPartition("both", 0)
FLOWS: Final = "there", "back"
"""The flow that copies from each side."""
A, B = 0, 1
_OPTIONS: Final = {"default.api.timeout.ms": 30_000, "request.timeout.ms": 2_000}


class CopiesBothWays:
    """The topic ``both`` on two clusters, and a flow of local records from each of them to the other."""

    def __init__(self, pair: FakePair, way: Way) -> None:
        self.clusters: Final[tuple[FakeCluster, FakeCluster]] = pair.source, pair.target
        self.policy: Final = CopyPolicy(only_local=True, registers_producers=True, exactly_once_by=way)
        for cluster, flow in zip(self.clusters, reversed(FLOWS), strict=True):
            cluster.add_topic(TP.topic)
            for topic in (topic_of(flow), status_topic_of(flow), offset_topic_of(flow), group_topic_of(flow)):
                cluster.add_topic(topic)
            cluster.add_topic(REGISTRY_TOPIC).configs["cleanup.policy"] = "compact"
        for side in (A, B):
            self.begin_run(side)

    def config(self, *lines: str, cluster_lines: str = "") -> str:
        """Return a configuration file with both flows, which have ``lines`` besides."""
        text = [
            f'[clusters.{name}]\n"bootstrap.servers" = "{cluster.bootstrap}"\n{cluster_lines}'
            for name, cluster in zip("ab", self.clusters, strict=True)
        ]
        for flow, source, target in ((FLOWS[A], "a", "b"), (FLOWS[B], "b", "a")):
            ends = [f'source = "{source}"', f'target = "{target}"', 'naming = "identity"', 'origin = "local"']
            own = [line.format(flow=flow) for line in lines]
            text += [f"[flows.{flow}]", *ends, f'topics = ["{TP.topic}"]', *own]
        return "\n".join(text) + "\n"

    def begin_run(self, side: int) -> None:
        """As each run of the flow that copies from ``side`` begins. Raises FlowError."""
        prepare_registries(FLOWS[side], *self.options(side), only_local=True)

    def options(self, side: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the flow that copies from ``side``: its source's, and its target's."""
        ends = [{"bootstrap.servers": cluster.bootstrap, **_OPTIONS} for cluster in self.clusters]
        return ends[side], ends[1 - side]

    def write(self, side: int, *values: bytes) -> None:
        """Young records, so that they go by sequence."""
        data = build(values, producer_id=7, producer_epoch=0, base_sequence=0, timestamp=int(time.time() * 1000))
        self.clusters[side].log(TP.topic).append(data)

    def progress(self, side: int) -> int:
        """Return the progress of the flow that copies from ``side``, as the planner finds it."""
        with Admin(self.options(side)[1]) as admin:
            kept = read_progress(admin, FLOWS[side], [TP]).get(TP)
        return 0 if kept is None else kept.offset

    def copy_from(self, side: int, policy: CopyPolicy | None = None) -> RangeResult:
        """Copy from the progress to the end of the log of ``side``."""
        source, ends, flow = self.clusters[side], self.options(side), FLOWS[side]
        copied = Range(
            flow=flow,
            topic=TP.topic,
            target_topic=TP.topic,
            partition=0,
            start=self.progress(side),
            end=source.log(TP.topic).end_offset,
            source_cluster_id=source.cluster_id,
            topic_id=str(source.topics[TP.topic].topic_id),
            first=0,
        )
        (result,) = copy_ranges([copied], source_options=ends[0], target_options=ends[1], policy=policy or self.policy)
        return result

    def values(self, side: int, start: int = 0, end: int | None = None) -> list[bytes]:
        """The records of these offsets."""
        return [
            value
            for one in self.clusters[side].log(TP.topic).batches()
            if not one.is_control
            for offset, value in enumerate(values_of(one.view), one.base_offset)
            if start <= offset and (end is None or offset < end)
        ]
