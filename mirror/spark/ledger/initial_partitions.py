"""Which source partitions a stream found when it began: only these may begin at their ends (``start = "latest"``).

What appears later is copied from its first record, also if it appears between two starts of the flow, in one process
or in two: the status topic has what the first start found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.topic_obstacles import TargetTopics


@dataclass(frozen=True, slots=True)
class InitialCount:
    """How many partitions of a topic are initial."""

    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which topics a flow copied when it began the last time."""

    topics: list[str]
    topics_exclude: list[str]

    @classmethod
    def of(cls, flow: FlowConfig) -> Selection:
        """Return that of ``flow``."""
        return cls(topics=list(flow.topics), topics_exclude=list(flow.topics_exclude))

    def applied(self, flow: FlowConfig) -> FlowConfig:
        """Return ``flow`` with this selection."""
        changed = {"topics": tuple(self.topics), "topics_exclude": tuple(self.topics_exclude)}
        return flow.model_copy(update=changed)


# Invariant: With start = "latest" only what the source had at the stream's first start begins at its end, however often
#   the flow starts again.
# Test: tests/spark/ledger/test_initial_partitions.py::test_only_what_the_first_start_found_is_initial
class InitialPartitions:
    """Those of one flow. It may start many times."""

    def __init__(self) -> None:
        self._flow: FlowConfig | None = None
        self._counts = dict[str, int]()

    def restore(self, flow: FlowConfig, selection: Selection | None, counts: Mapping[str, int]) -> None:
        """Take what an earlier process has stored, unless this one knows it already."""
        if self._flow is None and selection is not None:
            self._flow, self._counts = selection.applied(flow), dict(counts)

    def on_start(self, flow: FlowConfig, targets: TargetTopics) -> None:
        """Take the preparation with which a start begins.

        That of the first start counts, and a later one for the topics that an edit has added to the flow since.
        """
        before, self._flow = self._flow, flow
        for topic, count in targets.on_source.items():
            if before is None or not before.includes(topic):
                self._counts[topic] = count

    def has(self, tp: TopicPartition) -> bool:
        """Whether the source had ``tp`` when the flow began, copyable or not."""
        return tp.partition < self._counts.get(tp.topic, 0)

    def counts(self, targets: TargetTopics) -> dict[str, int]:
        """Return how many partitions of each topic of ``targets`` are initial; none of topics that have come since."""
        return {topic: count for topic, count in self._counts.items() if topic in targets.topics}
