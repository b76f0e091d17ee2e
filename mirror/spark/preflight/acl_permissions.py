"""The permissions that are needed to keep ACLs in step: records are copied without them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.alignment.permissions.rounds import transactional_id
from mirror.client import AclOperation
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.preflight.permission_lines import (
    Operations,
    TopicPermissions,
    absent_of,
    flow_writer_lines,
    line_about,
)

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPermissions:
    """The permissions on what is used to keep ACLs in step. What the brokers did not answer for is absent, or None."""

    source: Operations | None = None
    """On the source cluster itself."""
    target: Operations | None = None
    """On the target cluster itself."""
    topic: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The inventory topic, unless it is checked elsewhere; None if it does not exist."""
    ids: Mapping[str, Operations] = field(default_factory=dict)
    """The transactional id under which ACLs are stored."""


def acl_warnings(flow: FlowConfig, found: AclPermissions) -> list[str]:
    """Return a line for each kind of permission that ``flow`` lacks for ACLs."""
    why = "ACLs are not brought in step"
    lines = []
    for cluster, allowed, needed in (
        (flow.source, found.source, [AclOperation.DESCRIBE]),
        (flow.target, found.target, [AclOperation.DESCRIBE, AclOperation.ALTER]),
    ):
        absent = [] if allowed is None else absent_of(allowed, needed)
        if absent:
            lines.append(line_about(absent, "the ACLs", cluster, why, "--cluster", also_needed=needed))
    return lines + flow_writer_lines(flow.target, found.topic, found.ids, why)


def names_of(flow: FlowConfig) -> tuple[str, str]:
    """Return the inventory topic and the transactional id of ``flow``."""
    return inventory_topic_of(flow.name), transactional_id(flow.name)
