"""Find the partitions of a flow of local records that fail: nothing says who wrote their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.client import TopicPartition
from mirror.relay.origin.records import LogKey, unknown_origin
from mirror.relay.origin.registry import read_registry, registry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.model.ranges import Range
    from mirror.relay.origin.records import Registry


def unknown_origins(
    flow: FlowConfig, registry: Registry, ranges: Iterable[Range], topics: Mapping[str, TopicDescription]
) -> dict[TopicPartition, str]:
    """Return the errors of the source partitions that would be read from before ``registry`` began. Pure.

    ``registry`` is that of the source. If it has not begun, the next run begins it, where the logs end then.
    """
    if not flow.only_local or flow.origin_from:
        return {}
    found: dict[TopicPartition, str] = {}
    for range_ in ranges:
        tp = TopicPartition(range_.topic, range_.partition)
        log = LogKey.of(tp, str(topics[range_.topic].topic_id or ""))
        known_from = registry.log_ends.get(log, 0) if registry.has_begun else range_.end
        if range_.start < known_from and registry.whole.get(log, 0) < known_from:
            found[tp] = unknown_origin(tp, known_from)
    return found


def deciding_registry(config: MirrorConfig, flow: FlowConfig) -> Registry | None:
    """Return the registry of the source if ``flow`` fails at what is from before it; None also if it has not begun.

    Raises KafkaError.
    """
    if not flow.only_local or flow.origin_from:
        return None
    topic = registry_topic(config.clusters[flow.source].client_options())
    registry = read_registry(topic, topic.settings.default_api_timeout_ms, flow.name)
    registry.producer_ids.clear()  # a stream keeps the rest, and there may be millions
    return registry if registry.has_begun else None
