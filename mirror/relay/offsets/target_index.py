"""The offsets of one partition by what the target alone has, while the source does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirror.client import EARLIEST, Admin, TopicPartition
from mirror.errors import FlowError
from mirror.relay.batches.appended import Unproved
from mirror.relay.offsets.epoch_ends import EpochEndCalls, known
from mirror.relay.offsets.index import Hole, OffsetIndex
from mirror.relay.offsets.log_answers import LogStarts, ids_of
from mirror.relay.offsets.offset_topic import OffsetTopic
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.segments import EpochEnds, standing
from mirror.relay.progress.committed import read_each_progress
from mirror.relay.progress.flow_topic import cluster_options

if TYPE_CHECKING:
    from mirror.relay.model.policy import CopyPolicy
    from mirror.relay.offsets.extents import Extent

WITHOUT_SOURCE = (
    "the source does not answer: the offsets are those of its log as it was when it was copied, and what the offset"
    " index lacks is unknown"
)


def open_on_target(
    flow: str,
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    topic: str,
    target: TopicPartition,
    timeout_ms: int,
) -> PartitionOffsets:
    """Return the offsets of a target partition, as a copy of source ``topic``.

    Raises FlowError if the flow has no progress of that, KafkaError.

    ``target_options`` are dotted keys, of which those of the cluster are used; ``timeout_ms`` limits each call.
    """
    options = cluster_options(target_options)
    segments = OffsetTopic(options, flow).read([target], timeout_ms)[target]
    with Admin(options) as admin:
        progress = read_each_progress(admin, flow, [target], timeout_ms).get(target)
        if progress is None:
            raise FlowError(f"flow {flow} has no progress of {target}, and its source does not answer")
        if not progress.is_of_topic(topic):
            raise FlowError(f"{target} is a copy of source topic {progress.source_topic}, not of {topic}")
        topic_id = ids_of(admin.describe_topics([target.topic], timeout_ms=timeout_ms)).get(target.topic, "")
        epochs = {target: known({one.end.target.leader_epoch for one in segments})}
        ends = EpochEndCalls(admin, epochs, timeout_ms).read()[target]
        start = admin.list_offsets({target: EARLIEST}, timeout_ms=timeout_ms)[target].offset
    exactly_once = policy.exactly_once
    standing_segments = standing(
        segments, progress, EpochEnds({}, ends), target_topic_id=topic_id, exactly_once=exactly_once
    )
    index = OffsetIndex(
        standing_segments,
        progress.offset,
        exactly_once=exactly_once,
        beginning=progress.beginning,
        target_end=None if (mark := progress.target) is None else mark.indexed_end(exactly_once=exactly_once),
    )
    offsets = PartitionOffsets(index, _unread, LogStarts(0, start), standing_segments)
    offsets.reason = WITHOUT_SOURCE
    return offsets


def _unread(hole: Hole) -> list[Extent]:
    raise Unproved(f"{hole} is in the source's log only")
