"""What lookups at the target find out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.client import TopicDescription, TopicPartition
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.progress.target_loss import TargetLoss


class LogBounds(NamedTuple):
    """The offsets ``[first, end)`` of a log, open transactions included."""

    first: int
    end: int
    leader_epoch: int | None = None
    """The leader epoch at ``end``; None if the broker does not report it."""


class TargetTopics:
    """The descriptions of the target's topics, taken with one call."""

    def __init__(self, topics: Mapping[str, TopicDescription]) -> None:
        self._topics: Final = topics

    def topic_id(self, tp: TopicPartition) -> str:
        """Return the id of the topic of ``tp``; empty if the topic does not exist, or has no id."""
        topic = self._topics.get(tp.topic)
        return "" if topic is None else str(topic.topic_id or "")

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        """Return the leader epoch of ``tp``; None if it is not known."""
        topic = self._topics.get(tp.topic)
        partitions = () if topic is None else topic.partitions
        epoch = next((partition.leader_epoch for partition in partitions if partition.partition == tp.partition), -1)
        return None if epoch < 0 else epoch


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a copy starts."""

    progress: Progress | None
    """Found or restored progress; None: at the start of the flow."""
    target_end: int
    """The end of the target's log."""
    mark: TargetMark | None = None
    """What is known about the target's log."""
    deferred_check: Future[None] | None = None
    """Set if the copy starts before the progress topic was read: fails with FlowError if the target held records."""
    loss: TargetLoss | None = None
    """What the target has lost, if the copy mends it: ``progress`` is then an anchor, or None to begin again."""
