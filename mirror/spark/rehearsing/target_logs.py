"""Reads where the logs begin and end to which consumers would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, TopicPartition
from mirror.spark.planning.range_planner import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.observation import Side

CALL_TIMEOUT_MS: Final = 10_000


def log_bounds(side: Side, tps: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the log start offset and the high watermark of the partitions that exist and whose leaders answer.

    Raises KafkaError if the cluster does not answer.
    """
    topics = side.describe({tp.topic for tp in tps})
    led = {
        TopicPartition(name, one.partition)
        for name, topic in topics.items()
        for one in topic.partitions
        if one.leader != NO_LEADER
    }
    wanted = led.intersection(tps)
    if not wanted:
        return {}
    starts, ends = (
        side.admin.list_offsets(
            dict.fromkeys(wanted, spec), isolation="read_uncommitted", partial=True, timeout_ms=CALL_TIMEOUT_MS
        )
        for spec in (EARLIEST, LATEST)
    )
    return {tp: (start.offset, ends[tp].offset) for tp, start in starts.items() if tp in ends}
