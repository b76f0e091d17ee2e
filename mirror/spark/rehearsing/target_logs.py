"""Reads where the logs begin and end to which consumers would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.spark.planning.flow_observation import read_logs

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.client import TopicPartition
    from mirror.observation import Side

CALL_TIMEOUT_MS: Final = 10_000


def log_bounds(side: Side, tps: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the log start offset and the high watermark of the partitions that exist and whose leaders answer.

    Raises KafkaError if the cluster does not answer.
    """
    logs = read_logs(side, tps, CALL_TIMEOUT_MS) if tps else {}
    found = {tp: logs[tp] for tp in tps if logs[tp].exists and not logs[tp].error}
    return {tp: (log.start, log.high_watermark) for tp, log in found.items()}
