"""The entries of a job's assignments among the offsets of a flow's control group. Pure.

Spark's tasks are fixed when their job begins, and a job lasts for months. So what changes is stored where the control
record is stored: as a committed offset of the control group, for the target partition that is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.model.assignments import RELEASED, Entry
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.control_record import control_partition, from_offset

ENTRIES_PER_REQUEST: Final = 500
"""With the longest names, a request of so many entries stays below 1 MB."""


def entries_of(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], flow: str, run: str, job: int
) -> dict[TopicPartition, Entry]:
    """Return the entries of ``job`` of ``run``, from the offsets of the flow's control group. Never raises.

    What another program, run or job has committed is left out.
    """
    found = (_entry(flow, target, committed, run, job) for target, committed in offsets.items())
    return {entry.target: entry for entry in found if entry is not None}


def requests_of(entries: Iterable[Entry]) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    """Return the offsets to commit, one dictionary per request. The last entry of a partition counts."""
    offsets = {entry.target: entry.to_offset() for entry in entries}
    targets = list(offsets)
    for start in range(0, len(targets), ENTRIES_PER_REQUEST):
        yield {target: offsets[target] for target in targets[start : start + ENTRIES_PER_REQUEST]}


def outdated(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    flow: str,
    run: str,
    job: int,
    settled: Collection[TopicPartition] = (),
) -> list[TopicPartition]:
    """Return the target partitions whose offsets in the flow's control group are not of ``job`` of ``run``, or settled.

    The run that has claimed the flow deletes them: they count for nothing, and every read would return them. None if
    the control record, which was read with them, is another run's: they may be of that run.
    """
    valid = entries_of(offsets, flow, run, job)
    _, control = control_partition(flow)
    record = from_offset(offsets.get(control))
    if record is None or record.run != run:
        return []
    return [target for target in offsets if target != control and (target not in valid or target in settled)]


def _entry(flow: str, target: TopicPartition, committed: OffsetAndMetadata, run: str, job: int) -> Entry | None:
    metadata = stored.parse_object(committed.metadata)
    topic, version = stored.text(metadata.get("topic")), stored.number(metadata.get("ver"))
    start, end = stored.number(metadata.get("start")), stored.number(metadata.get("end"))
    owner = RELEASED if metadata.get("task") == RELEASED else stored.number(metadata.get("task"))
    own = metadata.get("run") == run and committed.offset == job
    if not own or not topic or version is None or owner is None or start is None or end is None:
        return None
    copied = Range(
        flow=flow,
        topic=topic,
        target_topic=target.topic,
        partition=target.partition,
        start=start,
        end=OPEN_END,
        source_cluster_id=stored.text(metadata.get("cluster")),
        topic_id=stored.text(metadata.get("id")),
        source_end=end,
        source_epoch=stored.number(metadata.get("leader")),
        first=stored.number(metadata.get("first")),
    )
    return Entry(run, job, version, owner, copied, stored.number(metadata.get("from")))
