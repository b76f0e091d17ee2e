"""What a flow's configuration says about the ACLs of its target, and rounds by these rules."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from mirror.alignment.permissions.rounds import AclAlignment
from mirror.alignment.permissions.selection import AclRules, beginnings_of, prefixes_of
from mirror.config.flow_rules import target_options
from mirror.groups.kept_groups import KeptGroups
from mirror.groups.own_groups import is_own_group
from mirror.mirrormaker.names import DefaultPolicy
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import open_sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.alignment.permissions.report import AclReport
    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides


def acl_rules(config: MirrorConfig, flow: FlowConfig) -> AclRules:
    """Return which ACLs ``flow`` brings to the target."""
    prefixed = flow.naming == "prefix"

    def takes_group(group: str) -> bool:
        return flow.groups.includes(group) and not is_own_group(group)

    return AclRules(
        target_topic=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
        namespace=DefaultPolicy().remote_topic(flow.source, "") if prefixed else "",
        prefixes=prefixes_of(flow.topics) if prefixed else (),
        takes_group=takes_group if flow.acls.groups and flow.groups.sync else None,
        others=tuple(
            other.target_topic(beginning)
            for other in config.flows.values()
            if other.target == flow.target and other.name != flow.name
            for beginning in beginnings_of(other.topics)
        ),
        write=flow.acls.write,
        most=flow.max_acls,
    )


@contextmanager
def acls_of(config: MirrorConfig, flow: FlowConfig, source: Admin, target: Admin) -> Iterator[AclAlignment]:
    """Yield the rounds of ``flow`` over clients that the caller closes. Raises ConfigError."""
    options = target_options(config, flow)
    sides = (flow.source, source), (flow.target, target)
    others = [
        other.name
        for other in config.flows.values()
        if other.acls.sync and other.target == flow.target and other.name != flow.name
    ]
    rules, clock = acl_rules(config, flow), SystemClock()
    with (
        closing(KeptGroups(options, flow.name, clock)) as kept,
        closing(AclAlignment(flow.name, *sides, options, rules, clock, others, kept.names)) as rounds,
    ):
        yield rounds


@contextmanager
def open_acls(config: MirrorConfig, flow: FlowConfig) -> Iterator[AclAlignment]:
    """Yield the rounds of ``flow``, with clients of their own. Raises ConfigError."""
    with open_sides(config, flow) as sides, acls_of(config, flow, sides.source.admin, sides.target.admin) as rounds:
        yield rounds


def compare_acls(config: MirrorConfig, flow: FlowConfig, sides: Sides) -> AclReport | None:
    """Return how the ACLs of the target differ; None if the flow does not keep them in step. Raises KafkaError."""
    if not flow.acls.sync:
        return None
    with acls_of(config, flow, sides.source.admin, sides.target.admin) as rounds:
        return rounds.round(write=False)
