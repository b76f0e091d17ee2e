"""Decides which of its source's topics a flow copies, and says why another one is left out. Pure.

They are methods of :class:`FlowConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.config.patterns import matches
from mirror.config.reserved_topics import why_reserved
from mirror.config.topic_names import carries_heartbeats, target_topic
from mirror.mirrormaker.names import DefaultPolicy

if TYPE_CHECKING:
    from mirror.config.flow_settings import FlowSettings

_NAMES: Final = DefaultPolicy()


def includes(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied."""
    return selects(flow, topic) or carries_heartbeats(flow, topic)


def source_topic(flow: FlowSettings, name: str) -> str | None:
    """Return the source's topic that is copied into the target's topic ``name``, if the source has it, or None.

    No cluster is asked: this tries each name that the source's topic can have.
    """
    found = (topic for topic in (name, name.removeprefix(f"{flow.source}.")) if includes(flow, topic))
    return next((topic for topic in found if target_topic(flow, topic) == name), None)


def selects(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is wanted and not left out."""
    return wants(flow, topic) and left_out(flow, topic) is None


def wants(flow: FlowSettings, topic: str) -> bool:
    """Return whether a pattern matches the whole name of the source's ``topic``, and no exclusion does."""
    return matches(flow.topics, topic) and not matches(flow.topics_exclude, topic)


def left_out(flow: FlowSettings, topic: str) -> str | None:
    """Return why the source's ``topic`` is never copied, wanted or not; None if it may be."""
    if flow.naming == "prefix" and _NAMES.has_passed(topic, flow.target):
        return f"by its name it came from {flow.target}"
    if reserved := why_reserved(topic) or why_reserved(target_topic(flow, topic)):
        return reserved
    return "it has checkpoints" if _NAMES.is_checkpoints(topic) else None


def why_not_copied(flow: FlowSettings, topic: str) -> str | None:
    """Return the rule by which a ``topic`` is not copied though a pattern of ``topics`` matches it, or None.

    It is None, too, for topics of brokers, of flows and of checkpoints that ``topics-exclude`` has.
    """
    if includes(flow, topic) or not matches(flow.topics, topic):
        return None
    reason = left_out(flow, topic)
    pattern = next((one for one in flow.topics_exclude if matches((one,), topic)), None)
    if pattern is None:
        return reason
    is_internal = why_reserved(topic) is not None or _NAMES.is_checkpoints(topic)
    default = "" if "topics_exclude" in flow.model_fields_set else ", by default"
    return None if is_internal else reason or f"topics-exclude has {pattern!r}{default}"


def carries_only_heartbeats(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied for its heartbeats alone, and not selected."""
    return carries_heartbeats(flow, topic) and not selects(flow, topic)
