"""Decides which name a source's topic has on the target. Pure.

The functions are methods of :class:`FlowConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.mirrormaker.names import DefaultPolicy

if TYPE_CHECKING:
    from mirror.config.flow_settings import FlowSettings

_NAMES: Final = DefaultPolicy()


def carries_heartbeats(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied because it has heartbeats, whatever ``topics`` says."""
    return flow.mirrormaker.heartbeats and _NAMES.carries_heartbeats(topic, flow.target)


def target_topic(flow: FlowSettings, topic: str) -> str:
    """Return the name of the source's ``topic`` on the target. Heartbeats have a prefix also with ``identity``."""
    if flow.naming == "prefix" or carries_heartbeats(flow, topic):
        return _NAMES.remote_topic(flow.source, topic)
    return topic
