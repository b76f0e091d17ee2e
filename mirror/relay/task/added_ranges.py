"""Ranges that are added to a running epoch: how the driver passes new partitions to the epoch's tasks. Pure.

Spark's tasks are fixed when their epoch begins, and an epoch lasts for minutes. A new partition would wait for the next
one, or end this one early, which makes all partitions change hands. So its range is stored where the control record of
the run is stored: as a committed offset of the control group, for the target partition that the range is copied into.
:attr:`RunControl.added` counts the additions, so that tasks read these offsets only when there are new ones.

An addition is valid in one epoch of one run, and one task copies it. The next epoch's plan has the partition itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress import stored_json as stored


@dataclass(frozen=True, slots=True)
class AddedRange:
    """A range without an end, and the task that is to copy it."""

    run: str
    epoch: int
    task: int
    """The task's number in the epoch, from 0."""
    range: Range

    @property
    def target(self) -> TopicPartition:
        """The target partition, for which the offset is committed."""
        return TopicPartition(self.range.target_topic, self.range.partition)

    def to_offset(self) -> OffsetAndMetadata:
        """Return the addition as an offset to commit for :attr:`target`."""
        added = self.range
        metadata = {
            "v": 1,
            "run": self.run,
            "task": self.task,
            "topic": added.topic,
            "start": added.start,
            "first": added.first,
            "end": added.source_end,
            "leader": added.source_epoch,
            "cluster": added.source_cluster_id,
            "id": added.topic_id,
        }
        return OffsetAndMetadata(self.epoch, None, json.dumps(metadata, separators=(",", ":")))


Selection = Callable[[str], str | None]
"""Returns the target topic of a source topic, by the flow's configuration; None if the flow does not copy it."""


def added_ranges(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    flow: str,
    run: str,
    epoch: int,
    task: int,
    selection: Selection,
    left_out: Callable[[Range], object] = lambda _: None,
) -> list[Range]:
    """Return what was added to ``task`` of ``epoch``, from the offsets of the flow's control group.

    What another program, run or epoch has committed is left out. So is what the configuration does not select: a client
    that may commit offsets of that group must not have the flow copy other topics; ``left_out`` is called with it.
    """
    found = [
        _range(flow, tp, stored.parse_object(committed.metadata), run, task)
        for tp, committed in offsets.items()
        if committed.offset == epoch
    ]
    selected: list[Range] = []
    for added in found:
        if added is not None:
            (selected.append if selection(added.topic) == added.target_topic else left_out)(added)
    return selected


def _range(flow: str, tp: TopicPartition, metadata: Mapping[str, object], run: str, task: int) -> Range | None:
    topic, start, end = (
        stored.text(metadata.get("topic")),
        stored.number(metadata.get("start")),
        stored.number(metadata.get("end")),
    )
    own = metadata.get("run") == run and metadata.get("task") == task
    if not own or not topic or start is None or end is None:
        return None
    return Range(
        flow=flow,
        topic=topic,
        target_topic=tp.topic,
        partition=tp.partition,
        start=start,
        end=OPEN_END,
        source_cluster_id=stored.text(metadata.get("cluster")),
        topic_id=stored.text(metadata.get("id")),
        source_end=end,
        source_epoch=stored.number(metadata.get("leader")),
        first=stored.number(metadata.get("first")),
    )
