"""Decides which name a source's topic has on the target. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.config.topic_selection import carries_heartbeats
from mirror.mirrormaker.names import DefaultPolicy

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_NAMES: Final = DefaultPolicy()


# Invariant: With naming = "identity" only copied heartbeats get a prefix: a user's topics keep their names, also
#   those that end in heartbeats.
# Test: tests/config/test_load.py::test_heartbeats_are_copied_whatever_topics_says_and_have_a_prefix
def target_topic(flow: FlowConfig, topic: str) -> str:
    """Return the name of the source's ``topic`` on the target. Heartbeats have a prefix also with ``identity``.

    It is a method of :class:`FlowConfig`.
    """
    if flow.naming == "prefix" or carries_heartbeats(flow, topic):
        return _NAMES.remote_topic(flow.source, topic)
    return topic
