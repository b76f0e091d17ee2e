"""Find the partitions of a flow of local records that would fail: nothing says who wrote their records. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.client import TopicPartition
from mirror.relay.origin.records import LogKey, unknown_origin

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.relay.origin.records import Registry
    from mirror.spark.planning.snapshot import ClusterSnapshot


def unknown_origins(flow: FlowConfig, registry: Registry, snapshot: ClusterSnapshot) -> dict[TopicPartition, str]:
    """Return the errors of the source partitions that would be read from before ``registry`` began.

    ``registry`` is that of the source. If it has not begun, the next run begins it, where the logs end then.
    """
    if not flow.only_local or flow.origin_from:
        return {}
    found: dict[TopicPartition, str] = {}
    for range_ in snapshot.ranges:
        tp = TopicPartition(range_.topic, range_.partition)
        log = LogKey.of(tp, str(snapshot.topics[range_.topic].topic_id or ""))
        known_from = registry.log_ends.get(log, 0) if registry.has_begun else range_.end
        if range_.start < known_from:
            found[tp] = unknown_origin(tp, known_from)
    return found
