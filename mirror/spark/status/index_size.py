"""How large a flow's offset index is: the size of its topic on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import offset_topic_of

if TYPE_CHECKING:
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
