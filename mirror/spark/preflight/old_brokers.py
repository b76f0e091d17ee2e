"""Brokers that are too old: which cannot be a target, and what a source without topic ids does not show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from mirror.wire.versions import TARGET_SINCE, BrokerVersions

if TYPE_CHECKING:
    from mirror.observation import Side

_MOST_REPLICAS: Final = 3


def why_no_target(cluster: str, versions: Mapping[str, BrokerVersions]) -> str | None:
    """Return why ``cluster`` cannot be a target, with the first broker that is too old; None if it can. Pure."""
    for broker, one in versions.items():
        if (why := one.why_no_target()) is not None:
            return f"{cluster} cannot be a target, which needs Apache Kafka {TARGET_SINCE} or newer: {broker}: {why}"
    return None


def replicas_without_default(side: Side) -> int:
    """Return how many replicas to request for a new topic: -1, the cluster's default, or 3 where that is refused.

    Brokers before Apache Kafka 2.4 refuse it (KIP-464); of fewer than three, each has a replica. Raises KafkaError.
    """
    if all(one.has_default_replicas for one in side.versions.values()):
        return -1
    return min(_MOST_REPLICAS, len(side.cluster.brokers))


def topics_without_ids(cluster: str, topics: Collection[str]) -> list[str]:
    """Return a warning about source ``topics`` that have no id, if there are any. Pure."""
    if not topics:
        return []
    first = min(topics)
    which = f"topic {first}" if len(topics) == 1 else f"{len(topics)} topics, such as {first},"
    has = "has no id" if len(topics) == 1 else "have no ids"
    line = (
        f"{which} of {cluster} {has} (Apache Kafka before 2.8, or brokers with its inter.broker.protocol.version): one"
        " that is deleted and made again is recognized only if its log ends before what was copied, or lacks its leader"
        " epoch; delete the copied topic, too, whenever you make one of them again"
    )
    return [line]
