"""Brings consumer groups to the target: at the end of a scheduled run, and in a thread of a stream's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.flow_rules import source_options, target_options
from mirror.groups.own_groups import is_own_group
from mirror.groups.sync import GroupRules, GroupSync
from mirror.runtime.clock import SystemClock
from mirror.spark.planning.range_planner import source_topic_for

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig


def open_sync(config: MirrorConfig, flow: FlowConfig) -> GroupSync:
    """Return the rounds of ``flow``, to be closed. Raises MirrorError."""
    rules = GroupRules(
        includes=lambda group: flow.groups.includes(group) and not is_own_group(group),
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        source_topic=lambda topic: source_topic_for(flow, topic),
        delete=flow.groups.on_group_deleted == "delete",
    )
    options = source_options(config, flow), target_options(config, flow)
    return GroupSync(flow.name, *options, flow.copy_policy(), rules, SystemClock())
