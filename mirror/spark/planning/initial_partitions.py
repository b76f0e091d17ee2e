"""Which source partitions a stream found when it began: only these may begin at their ends (``start = "latest"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.spark.ledger.obstacles import TargetTopics

if TYPE_CHECKING:
    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig


class InitialPartitions:
    """Those of one flow in one process: the flow may start many times, and what appears between two starts is new."""

    def __init__(self) -> None:
        self._flow: FlowConfig | None = None
        self._targets = TargetTopics()

    def on_start(self, flow: FlowConfig, targets: TargetTopics) -> None:
        """Take the preparation with which a start begins.

        That of the first start counts, and a later one for the topics that an edit has added to the flow since.
        """
        before, self._flow = self._flow, flow
        known = [] if before is None else [one for one in targets.topics if before.includes(one)]
        self._targets = targets.without(known).beside(self._targets)

    def has(self, tp: TopicPartition) -> bool:
        """Whether the source had ``tp`` when the flow began, copyable or not."""
        return self._targets.covers(tp.topic, tp.partition)
