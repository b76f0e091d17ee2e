"""Decides which of its source's topics a flow copies, under which name, and why another one is left out. Pure.

They are methods of :class:`FlowConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.config.patterns import matches
from mirror.config.reserved_topics import why_reserved
from mirror.config.topic_names import carries_heartbeats, possible_sources, wanted_name
from mirror.mirrormaker.names import DefaultPolicy

if TYPE_CHECKING:
    from mirror.config.flow_settings import FlowSettings

_NAMES: Final = DefaultPolicy()


def includes(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied."""
    return concerns(flow, topic) and why_no_name(flow, topic) is None


def selects(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is copied because ``topics`` says so."""
    return _is_selected(flow, topic) and why_no_name(flow, topic) is None


def concerns(flow: FlowSettings, topic: str) -> bool:
    """Return whether the source's ``topic`` is to be copied, also if it cannot get its name on the target."""
    return _is_selected(flow, topic) or carries_heartbeats(flow, topic)


def _is_selected(flow: FlowSettings, topic: str) -> bool:
    return wants(flow, topic) and left_out(flow, topic) is None


def target_topic(flow: FlowSettings, topic: str) -> str:
    """Return the name of the source's ``topic`` on the target: of no two topics the same.

    One that cannot have its name gets one that no topic of a broker can have.
    """
    name = wanted_name(flow, topic)
    return name if why_no_name(flow, topic) is None else f"{name} ({topic})"


def source_topic(flow: FlowSettings, name: str) -> str | None:
    """Return the source's topic that is copied into the target's topic ``name``, if the source has it, or None.

    No cluster is asked: this tries each name that the source's topic can have.
    """
    found = _owner(flow, name)
    return found if found is not None and why_no_name(flow, found) is None else None


def _owner(flow: FlowSettings, name: str) -> str | None:
    """Return the source's topic to which the ``name`` belongs on the target: of several, the first by the rules."""
    found = (topic for topic in possible_sources(flow, name) if wanted_name(flow, topic) == name)
    return next((topic for topic in found if concerns(flow, topic)), None)


# Invariant: A topic of the target is the copy of one topic of the source at most, whatever topics there are: of those
#   that would have its name, all but one are refused by name.
# Test: tests/config/test_names.py::test_no_two_copied_topics_have_one_name_and_each_name_leads_back
def why_no_name(flow: FlowSettings, topic: str) -> str | None:
    """Return why the source's ``topic``, which is to be copied, cannot have its name on the target; None if it can."""
    if not flow.names and not flow.is_within_one_cluster:
        return None
    name = wanted_name(flow, topic)
    advice = "give it another name in names, or leave it out by topics-exclude"
    if flow.is_within_one_cluster and name == topic:
        return f"its copy would have its own name, and both ends of the flow are cluster {flow.source}: {advice}"
    if flow.is_within_one_cluster and concerns(flow, name):
        return (
            f"its copy {name} is selected by topics, too, and would be copied again: leave {name} out by topics-exclude"
        )
    if not name.strip("."):
        return f"its copy would have the name {name!r}, which brokers refuse: {advice}"
    owner = _owner(flow, name)
    return None if owner == topic else f"its copy would be {name}, which is kept for the copy of {owner}: {advice}"


def wants(flow: FlowSettings, topic: str) -> bool:
    """Return whether a pattern matches the whole name of the source's ``topic``, and no exclusion does."""
    return matches(flow.topics, topic) and not matches(flow.topics_exclude, topic)


def left_out(flow: FlowSettings, topic: str) -> str | None:
    """Return why the source's ``topic`` is never copied, wanted or not; None if it may be."""
    if flow.naming == "prefix" and _NAMES.has_passed(topic, flow.target):
        return f"by its name it came from {flow.target}"
    copy = wanted_name(flow, topic)
    if reserved := why_reserved(topic) or why_reserved(copy):
        return reserved
    for cluster, name in ((flow.target, copy), (flow.source, topic)):
        if flow.is_aside(name, cluster):
            return f"{name} on {cluster} is kept for records that go aside"
    return "it has checkpoints" if _NAMES.is_checkpoints(topic) or _NAMES.is_checkpoints(copy) else None


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
    return carries_heartbeats(flow, topic) and not _is_selected(flow, topic)
