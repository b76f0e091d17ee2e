"""Reads, once per task, what the configurations of both clusters say about the topics that it copies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from mirror.client import Admin, ConfigResource, Outcomes
from mirror.cluster.types import ConfigEntry
from mirror.errors import KafkaError
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.batches.way_rules import EXPIRATION, WayRules
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.model.way import Way

_TIMEOUT_MS: Final = 10_000
_BROKERS_TIMEOUT_MS: Final = 3_000
"""A broker that hangs must not delay the partitions of the others for longer."""

Configs = Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What applies to each target topic, by its name."""

    limits: Mapping[str, TargetLimits]
    ways: Mapping[str, WayRules]


def read_topic_rules(
    source: Admin, target: Admin, ranges: Sequence[Range], policy: CopyPolicy, delivery_ms: int
) -> TopicRules:
    """Return the rules for the target topics of ``ranges``; what is not permitted to be read is taken for unknown.

    Limits that are unknown have their defaults: the brokers then refuse what is too large. ``delivery_ms`` is how long
    a batch that is sent may still be appended.
    """
    topics = {copied.target_topic: copied.topic for copied in ranges}
    if not policy.exactly_once or policy.exactly_once_by == Way.TRANSACTIONS:
        configs = _topic_configs(target, topics)
        return TopicRules(_limits(configs), dict.fromkeys(topics, WayRules()))
    with ThreadPoolExecutor(3, "mirror-configs") as executor:
        target_configs = executor.submit(_topic_configs, target, topics)
        source_configs = executor.submit(_topic_configs_or_none, source, set(topics.values()))
        expiration = executor.submit(_expiration_ms, target)
        configs, expiration_ms = target_configs.result(), expiration.result()
        ways = {
            name: WayRules.of(
                policy.exactly_once_by,
                source_configs.result()[topic],
                configs[name],
                expiration_ms,
                delivery_ms,
                skips_gaps=policy.on_gap == "skip",
            )
            for name, topic in topics.items()
        }
        return TopicRules(_limits(configs), ways)


def _limits(configs: Mapping[str, Configs]) -> dict[str, TargetLimits]:
    return {topic: TargetLimits.of(entries) for topic, entries in configs.items()}


def _topic_configs(admin: Admin, topics: Collection[str]) -> dict[str, Configs]:
    """Return the configuration of each topic; empty for one whose configuration this client may not read."""
    resources = {topic: ConfigResource.topic(topic) for topic in topics}
    found = admin.describe_configs(resources.values(), partial=True, timeout_ms=_TIMEOUT_MS)
    return {topic: found.get(resource, {}) for topic, resource in resources.items()}


def _topic_configs_or_none(admin: Admin, topics: Collection[str]) -> dict[str, Configs]:
    """Return what :func:`_topic_configs` does; all empty if the cluster does not answer, which the copies report."""
    try:
        return _topic_configs(admin, topics)
    except KafkaError:
        return {topic: {} for topic in topics}


def _expiration_ms(admin: Admin) -> int | None:
    """Return the smallest ``producer.id.expiration.ms`` of the brokers; None if it is unknown.

    Brokers that do not answer in time are left out if others answer: their partitions are not available now, and the
    brokers of a cluster seldom differ. A refusal, or a broker that does not have the key, makes it unknown.
    """
    try:
        brokers = admin.describe_cluster(timeout_ms=_BROKERS_TIMEOUT_MS).brokers
        resources = [ConfigResource.broker(broker.node_id) for broker in brokers]
        found = admin.describe_configs(resources, partial=True, timeout_ms=_BROKERS_TIMEOUT_MS)
    except KafkaError:
        return None
    return smallest_expiration_ms(found)


def smallest_expiration_ms(found: Outcomes[ConfigResource, dict[str, ConfigEntry]]) -> int | None:
    """Return the smallest ``producer.id.expiration.ms`` in the configurations of brokers; None if it is unknown."""
    refused = any(not isinstance(error, TimeoutError) for error in found.failed.values())
    values = [entries[EXPIRATION].value if EXPIRATION in entries else None for entries in found.values()]
    if refused or not values:
        return None
    known = [int(value) for value in values if value is not None]
    return min(known) if len(known) == len(values) else None
