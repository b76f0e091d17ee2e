"""The registries of producer ids that a flow needs on its clusters: which are to begin, and their beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.origin.registry import prepare_registries, read_registry, registry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.origin.records import Registry
    from mirror.relay.origin.registry import Side


def read_registries(config: MirrorConfig, flow: FlowConfig) -> dict[Side, Registry]:
    """Return what the registries say that ``flow`` needs, which may not exist. Raises KafkaError."""
    clusters: dict[Side, str] = {}
    if flow.registers_producers:
        clusters["target"] = flow.target
    if flow.only_local:
        clusters["source"] = flow.source
    found: dict[Side, Registry] = {}
    for side, cluster in clusters.items():
        topic = registry_topic(config.clusters[cluster].client_options())
        found[side] = read_registry(topic, topic.settings.default_api_timeout_ms)
    return found


def to_begin(registries: dict[Side, Registry], side: Side) -> list[str]:
    """Return a line if the registry on ``side`` is needed, and has not begun."""
    registry = registries.get(side)
    if registry is None or registry.has_begun:
        return []
    return [f"{REGISTRY_TOPIC} begins: flows copy back nothing that flows write from then on"]


def begin_registries(config: MirrorConfig, flow: FlowConfig) -> list[Side]:
    """Begin the registries that ``flow`` needs, whose topics exist; return the sides of those that had not begun.

    Raises what :func:`.prepare_registries` does.
    """
    if not flow.registers_producers:
        return []
    source, target = (config.clusters[name].client_options() for name in (flow.source, flow.target))
    return prepare_registries(flow.name, source, target, only_local=flow.only_local)


def begun(sides: Iterable[Side], flow: FlowConfig) -> list[str]:
    """Return a line about each registry that was begun."""
    clusters: dict[Side, str] = {"source": flow.source, "target": flow.target}
    return [f"on {clusters[side]}: {REGISTRY_TOPIC} has begun" for side in sides]
