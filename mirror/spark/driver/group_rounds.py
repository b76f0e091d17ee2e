"""The rounds that bring a flow's consumer groups to the target, and how their reports are shown."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from mirror.config.flow_rules import source_options, target_options
from mirror.groups.own_groups import is_own_group
from mirror.groups.positions import GroupsReport
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.runtime.clock import SystemClock
from mirror.spark.planning.range_planner import source_topic_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.way_back import FedBy

_KNOWN_NAMES: Final = 50_000
"""Groups and topics whose names are matched with a flow's patterns once."""


def open_sync(config: MirrorConfig, flow: FlowConfig, *, beside_copies: bool = False) -> GroupSync:
    """Return the rounds of ``flow``, to be closed. Raises MirrorError."""
    rules = rules_of(flow, patience_ms=flow.groups.interval_ms if beside_copies else 0)
    options = source_options(config, flow), target_options(config, flow)
    partners = partners_of(config, flow)
    return GroupSync(flow.name, *options, flow.copy_policy(), rules, SystemClock(), partners)


def rules_of(flow: FlowConfig, *, patience_ms: int = 0) -> GroupRules:
    """Return which groups and topics ``flow`` brings to its target; ``patience_ms`` is that of :class:`GroupRules`."""

    def target_topic(topic: str) -> str | None:
        return flow.target_topic(topic) if flow.includes(topic) else None

    # Each round asks for each partition of a group; matching the patterns took a sixth of its CPU time.
    known = functools.lru_cache(_KNOWN_NAMES)
    return GroupRules(
        includes=known(lambda group: flow.groups.includes(group) and not is_own_group(group)),
        target_topic=known(target_topic),
        source_topic=known(lambda topic: source_topic_for(flow, topic)),
        delete=flow.groups.on_group_deleted == "delete",
        patience_ms=patience_ms,
    )


def partners_of(config: MirrorConfig, flow: FlowConfig) -> Partners:
    """Return the flows in the other direction that concern the groups of ``flow``.

    The first flow of a direction that brings groups over does it for all copies that came the other way.
    """
    opposite = _first_opposite(config, flow)
    copying = [other for other in config.flows.values() if _first_opposite(config, other) is flow]
    return Partners(
        opposite=None if opposite is None else opposite.name,
        copying=tuple(
            CopyingFlow(
                name=other.name,
                source_options=source_options(config, other),
                target_options=target_options(config, other),
                policy=other.copy_policy(),
                rules=rules_of(other),
                writes=other.groups.sync,
            )
            for other in copying
        ),
    )


def feeding_flow(config: MirrorConfig, flow: FlowConfig) -> FedBy:
    """Return what finds the flow that copies, to a topic of ``flow``'s source, one of its target; None if none does."""
    others = [one for one in config.flows.values() if (one.source, one.target) == (flow.target, flow.source)]

    def find(source_topic: str, target_topic: str) -> str | None:
        feeding = (
            one for one in others if one.includes(target_topic) and one.target_topic(target_topic) == source_topic
        )
        return next((one.name for one in feeding), None)

    return find


def _first_opposite(config: MirrorConfig, flow: FlowConfig) -> FlowConfig | None:
    ends = (flow.target, flow.source)
    return next((one for one in config.flows.values() if (one.source, one.target) == ends and one.groups.sync), None)


class GroupReports:
    """How the reports of groups are shown."""

    subject = "consumer groups"

    def problems(self, report: GroupsReport) -> Iterable[str]:
        """Return the lines to warn of."""
        return report.problems

    def failed(self, last: GroupsReport | None, problem: str) -> GroupsReport:
        """Return the report of a round that failed: the groups are where they were."""
        return (last or GroupsReport()).failed(problem, SystemClock().unix_ms())
