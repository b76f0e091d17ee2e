"""The permissions that are needed to bring consumer groups to the target: records are copied without them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import AclOperation
from mirror.errors import named
from mirror.groups.writer import transactional_id
from mirror.relay.progress.flow_topic import group_topic_of, offset_topic_of
from mirror.spark.planning.opposite_flows import brought_back_by, opposite_of
from mirror.spark.preflight.permission_lines import (
    Operations,
    TopicPermissions,
    absent_of,
    flags,
    flow_writer_lines,
    line_about,
    topic_lines,
    topics_lacking,
)

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

MAX_GROUPS_CHECKED: Final = 1_000
"""A sample is enough to name what is missing, and keeps the requests small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBackPermissions:
    """The permissions on what a flow reads, on its source, of flows in the other direction."""

    topics: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """Their intents and their indexes; None if one does not exist."""
    progress: Mapping[str, Operations] = field(default_factory=dict)
    """A group with the progress of each flow that it reads the index of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPermissions:
    """The permissions on what is used for consumer groups. What the brokers did not answer for is absent."""

    selected: int | None = None
    """How many groups of the source are brought to the target; None if they could not be listed."""
    source: Mapping[str, Operations] = field(default_factory=dict)
    """These groups on the source: who has Describe on the cluster sees those, too, that it may not describe."""
    target: Mapping[str, Operations] = field(default_factory=dict)
    """Groups of these names on the target, which need not exist."""
    ids: Mapping[str, Operations] = field(default_factory=dict)
    """The transactional id under which intents are stored."""
    topic: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The group topic; None if it does not exist."""
    way_back: WayBackPermissions = field(default_factory=WayBackPermissions)


def group_warnings(flow: FlowConfig, found: GroupPermissions) -> list[str]:
    """Return a line for each kind of permission that ``flow`` lacks for consumer groups."""
    lines = []
    if found.selected == 0:
        lines.append(
            f"no consumer group of cluster {flow.source} is one of [flows.{flow.name}.groups]: there is none yet, or"
            " the permission Describe on the groups is missing; grant to this client's user: kafka-acls --add"
            " --allow-principal User:... --operation Describe --group '*'"
        )
    if unread := sorted(group for group, allowed in found.source.items() if absent_of(allowed, ())):
        resource, grant = named("group", unread), flags("--group", unread)
        why = "their positions are not read"
        lines.append(line_about([AclOperation.DESCRIBE], resource, flow.source, why, grant, also_needed=()))
    needed = [AclOperation.READ]
    if flow.groups.on_group_deleted == "delete":
        needed.append(AclOperation.DELETE)
    by_operations: dict[tuple[AclOperation, ...], list[str]] = {}
    for group, allowed in sorted(found.target.items()):
        if absent := absent_of(allowed, needed):
            by_operations.setdefault(tuple(absent), []).append(group)
    lines += [
        line_about(
            absent,
            named("group", groups),
            flow.target,
            "their positions are not " + ("deleted" if absent == (AclOperation.DELETE,) else "written"),
            flags("--group", groups),
            also_needed=needed,
        )
        for absent, groups in by_operations.items()
    ]
    lines += flow_writer_lines(flow.target, found.topic, found.ids, "no group's position is written")
    return lines + _way_back_lines(flow, found.way_back)


def _way_back_lines(flow: FlowConfig, found: WayBackPermissions) -> list[str]:
    why = "groups that come back from there are not followed"
    lines = topic_lines(flow.source, topics_lacking(found.topics, AclOperation.READ), why)
    prefixes = [name.removesuffix("0") for name, allowed in sorted(found.progress.items()) if absent_of(allowed, ())]
    if prefixes:
        grant = flags("--group", prefixes) + " --resource-pattern-type prefixed"
        resource = f"groups with the prefix {', '.join(prefixes)}"
        lines.append(line_about([AclOperation.DESCRIBE], resource, flow.source, why, grant, also_needed=()))
    return lines


def way_back_topics(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """Return the topics of flows in the other direction, on the source of ``flow``, which it reads for their groups."""
    opposite, copying = opposite_of(config, flow), brought_back_by(config, flow)
    stored = [*([] if opposite is None else [opposite]), *(one for one in copying if one.groups.sync)]
    names = [*(group_topic_of(one.name) for one in stored), *(offset_topic_of(one.name) for one in copying)]
    return list(dict.fromkeys(names))


def way_back_progress(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """Return one group with the progress of each flow whose index ``flow`` reads on its source."""
    return [f"mirror.{one.name}.0" for one in brought_back_by(config, flow)]


def names_of(flow: FlowConfig) -> tuple[str, str]:
    """Return the group topic and the transactional id of ``flow``."""
    return group_topic_of(flow.name), transactional_id(flow.name)
