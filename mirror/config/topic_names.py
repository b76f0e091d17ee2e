"""Says which name a source's topic is to have on the target, by ``names`` and ``naming``. Pure.

Whether it gets that name, and the reverse, depend on which topics are copied: :mod:`mirror.config.topic_selection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mirror.config.patterns import new_name, old_names
from mirror.mirrormaker.names import DefaultPolicy

if TYPE_CHECKING:
    from mirror.config.flow_settings import FlowSettings

_NAMES: Final = DefaultPolicy()


def carries_heartbeats(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied because it has heartbeats, whatever ``topics`` says."""
    return flow.mirrormaker.heartbeats and _NAMES.carries_heartbeats(topic, flow.target)


def wanted_name(flow: FlowSettings, topic: str) -> str:
    """Return the name that the copy of ``topic`` is to have. Heartbeats have a prefix, whatever the flow says."""
    if carries_heartbeats(flow, topic):
        return _NAMES.remote_topic(flow.source, topic)
    renamed = new_name(flow.names, topic) if flow.names else None
    return name_by_naming(flow, topic) if renamed is None else renamed


def name_by_naming(flow: FlowSettings, topic: str) -> str:
    """Return the name of a ``topic`` that no rule of ``names`` matches."""
    return _NAMES.remote_topic(flow.source, topic) if flow.naming == "prefix" else topic


def possible_sources(flow: FlowSettings, name: str) -> Iterator[str]:
    """Yield the topics of the source that may have ``name`` on the target."""
    yield from old_names(flow.names, name)
    yield name
    yield name.removeprefix(f"{flow.source}.")
