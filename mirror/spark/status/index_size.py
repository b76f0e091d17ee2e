"""How large a flow's offset index is, and when it was written last: the topic of it on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import FlowTopic, log_bounds, offset_topic_of
from mirror.relay.progress.log_reading import read_log
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.observation import Side

_CALL_TIMEOUT_MS: Final = 10_000


def read_index_size(target: Side, flow: str) -> int | None:
    """Return the size of the offset topic's log on its leader's disk, in bytes.

    This needs Describe on the cluster. None: it is not granted, the leader does not answer, or there is no topic yet.
    """
    topic = offset_topic_of(flow)
    try:
        found = target.describe([topic])
        leaders = {one.leader for one in found[topic].partitions if one.leader >= 0} if topic in found else set()
        if not leaders:
            return None
        log_dirs = target.admin.describe_log_dirs(leaders, partial=True, timeout_ms=_CALL_TIMEOUT_MS)
    except KafkaError:
        return None
    # A log that is being moved to another directory is listed twice.
    sizes = [
        log.size_bytes
        for dirs in log_dirs.values()
        for log_dir in dirs.values()
        for tp, log in log_dir.logs.items()
        if tp.topic == topic and not log.future
    ]
    return sum(sizes) if sizes else None


def read_index_time(target: Side, options: Mapping[str, object], flow: str) -> int | None:
    """Return when the flow has written its index last (ms since 1970); None if it has not, or that cannot be read.

    ``options`` are those of ``target``.
    """
    topic = FlowTopic(options, offset_topic_of(flow))
    timer = Timer(SystemClock(), _CALL_TIMEOUT_MS)
    try:
        if not target.describe([topic.tp.topic]):
            return None
        first, end = log_bounds(target.admin, topic.tp, timer)
        if first == end:
            return None
        with topic.consumer() as consumer:
            records = [
                one for fetched in read_log(consumer, topic.tp, end - 1, end, timer) for one in fetched.records()
            ]
    except KafkaError:
        return None
    return max((one.timestamp_ms for one in records), default=None)
