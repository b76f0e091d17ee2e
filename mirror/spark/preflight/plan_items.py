"""The items of a plan about topics and registries, as a check finds them, and what they allow a preparation. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from mirror.alignment.planned import Item
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.spark.preflight.allowance import PlannedTopics

if TYPE_CHECKING:
    from mirror.client import NewTopic, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.relay.origin.records import Registry
    from mirror.relay.origin.registry import Side
    from mirror.spark.preflight.target_topics import Prepared

_CREATE: Final = "create"
_EXTEND: Final = "extend"
_BEGIN: Final = "begin"
_REGISTRY: Final = f"the registry {REGISTRY_TOPIC}"


def topic_items(
    flow: FlowConfig,
    topics: Mapping[str, TopicDescription],
    found: Prepared,
    registries: Mapping[Side, Registry],
) -> Iterator[Item]:
    """Yield what a check has ``found`` to be created, extended or begun; ``topics`` are those of the source."""
    sources = {flow.target_topic(name): one for name, one in topics.items() if flow.includes(name)}
    for name, topic in found.new.items():
        yield Item(on=flow.target, what=_what(name), change=_CREATE, facts={**_facts(topic), **_source(sources[name])})
    for name, count in found.extended.items():
        there = found.existing[name]
        counts = {"partitions": count, "partitions_before": len(there.partitions), "topic_id": _id(there)}
        yield Item(on=flow.target, what=_what(name), change=_EXTEND, facts={**counts, **_source(sources[name])})
    for cluster, own in ((flow.source, found.own_on_source), (flow.target, found.own)):
        for one in own:
            yield Item(on=cluster, what=_what(one.name), change=_CREATE, facts=_facts(one))
    for side, registry in registries.items():
        if not registry.has_begun:
            yield Item(on=_cluster(flow, side), what=_REGISTRY, change=_BEGIN, facts={})


def planned_topics(flow: FlowConfig, items: Collection[Item], found: Prepared) -> PlannedTopics:
    """Return those topics of a check that a plan with these ``items`` has."""
    has = {(item.on, item.what, item.change) for item in items}
    return PlannedTopics(
        new={name: one for name, one in found.new.items() if (flow.target, _what(name), _CREATE) in has},
        extended={name: one for name, one in found.extended.items() if (flow.target, _what(name), _EXTEND) in has},
        own={one.name for one in found.own if (flow.target, _what(one.name), _CREATE) in has},
        own_on_source={one.name for one in found.own_on_source if (flow.source, _what(one.name), _CREATE) in has},
    )


def begins_registries(items: Collection[Item]) -> bool:
    """Return whether a plan with these ``items`` begins a registry."""
    return any(item.change == _BEGIN for item in items)


def _cluster(flow: FlowConfig, side: Side) -> str:
    return flow.source if side == "source" else flow.target


def _what(topic: str) -> str:
    return f"topic {topic}"


def _facts(topic: NewTopic) -> dict[str, Any]:
    replicas = topic.replication_factor if topic.replication_factor > 0 else None
    return {"partitions": topic.partitions, "replicas": replicas, "configs": dict(topic.configs)}


def _source(topic: TopicDescription) -> dict[str, Any]:
    return {"source": topic.name, "source_id": _id(topic)}


def _id(topic: TopicDescription) -> str | None:
    return None if topic.topic_id is None else str(topic.topic_id)
