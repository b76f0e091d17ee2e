"""The items of a plan about topics and registries. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from mirror.alignment.planned import Item
from mirror.relay.origin.records import REGISTRY_TOPIC

if TYPE_CHECKING:
    from mirror.client import NewTopic, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.relay.origin.records import Registry
    from mirror.relay.origin.registry import Side

_CREATE: Final = "create"
_EXTEND: Final = "extend"
_BEGIN: Final = "begin"
_REGISTRY: Final = f"the registry {REGISTRY_TOPIC}"


def creation(flow: FlowConfig, topic: NewTopic, source: TopicDescription) -> Item:
    """Return the item of a target topic that is created as a copy of ``source``."""
    return Item(on=flow.target, what=what_of(topic.name), change=_CREATE, facts={**_facts(topic), **_source(source)})


def extension(flow: FlowConfig, existing: TopicDescription, count: int, source: TopicDescription) -> Item:
    """Return the item of a target topic that is to have ``count`` partitions, as its ``source`` has."""
    counts = {"partitions": count, "partitions_before": len(existing.partitions), "topic_id": _id(existing)}
    return Item(on=flow.target, what=what_of(existing.name), change=_EXTEND, facts={**counts, **_source(source)})


def own_creation(cluster: str, topic: NewTopic) -> Item:
    """Return the item of a topic that is created on ``cluster``, as no copy of another."""
    return Item(on=cluster, what=what_of(topic.name), change=_CREATE, facts=_facts(topic))


def beginnings(flow: FlowConfig, registries: Mapping[Side, Registry]) -> Iterator[Item]:
    """Yield the items of the ``registries`` that have not begun."""
    for side, registry in registries.items():
        if not registry.has_begun:
            yield Item(on=_cluster(flow, side), what=_REGISTRY, change=_BEGIN, facts={})


def begins_registries(items: Collection[Item]) -> bool:
    """Return whether a plan with these ``items`` begins a registry."""
    return any(item.change == _BEGIN for item in items)


def _cluster(flow: FlowConfig, side: Side) -> str:
    return flow.source if side == "source" else flow.target


def what_of(topic: str) -> str:
    """Return what an item about ``topic`` changes."""
    return f"topic {topic}"


def _facts(topic: NewTopic) -> dict[str, Any]:
    replicas = topic.replication_factor if topic.replication_factor > 0 else None
    return {"partitions": topic.partitions, "replicas": replicas, "configs": dict(topic.configs)}


def _source(topic: TopicDescription) -> dict[str, Any]:
    return {"source": topic.name, "source_id": _id(topic)}


def _id(topic: TopicDescription) -> str | None:
    return None if topic.topic_id is None else str(topic.topic_id)
