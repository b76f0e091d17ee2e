"""The permissions that are needed to keep target topics in step: records are copied without them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.alignment.deletions import deletion_rounds
from mirror.alignment.rounds import transactional_id
from mirror.client import AclOperation
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.preflight.permission_lines import (
    NO_OPERATIONS,
    Operations,
    TopicPermissions,
    flow_writer_lines,
    topic_lines,
    topics_lacking,
)

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPermissions:
    """The permissions on what is used to keep topics in step. What the brokers did not answer for is absent."""

    topic: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The inventory topic; None if it does not exist."""
    ids: Mapping[str, Operations] = field(default_factory=dict)
    """The transactional ids under which the inventory is stored."""


def config_warnings(
    flow: FlowConfig,
    found: ConfigPermissions,
    sources: Mapping[str, TopicPermissions | None],
    targets: Mapping[str, TopicPermissions | None],
) -> list[str]:
    """Return a line for each kind of permission that ``flow`` lacks for configurations.

    ``sources`` are the source topics whose configuration is not checked elsewhere, ``targets`` the target topics.
    Topics that are not visible are named by the other checks.
    """
    why = "their configurations are not brought in step"
    lines = topic_lines(flow.source, topics_lacking(_visible(sources), AclOperation.DESCRIBE_CONFIGS), why)
    lines += topic_lines(flow.target, topics_lacking(_visible(targets), AclOperation.ALTER_CONFIGS), why)
    ids = {name: one for name, one in found.ids.items() if name == transactional_id(flow.name)}
    return lines + flow_writer_lines(flow.target, found.topic, ids, "no configuration is brought in step")


def deletion_warnings(
    flow: FlowConfig, found: ConfigPermissions, targets: Mapping[str, TopicPermissions | None]
) -> list[str]:
    """Return a line for each kind of permission that ``flow`` lacks to delete topics on the target.

    ``targets`` are the target topics; those that are not visible are named by the other checks.
    """
    why = "they are not deleted when their source topics are"
    lines = topic_lines(flow.target, topics_lacking(_visible(targets), AclOperation.DELETE), why)
    ids = {name: one for name, one in found.ids.items() if name == deletion_rounds.transactional_id(flow.name)}
    topic = {} if flow.configs == "sync" else found.topic  # else it is named for the configurations
    return lines + flow_writer_lines(flow.target, topic, ids, "no topic is deleted")


def _visible(topics: Mapping[str, TopicPermissions | None]) -> dict[str, TopicPermissions | None]:
    return {name: topic for name, topic in topics.items() if topic is not None and topic.operations != NO_OPERATIONS}


def names_of(flow: FlowConfig) -> tuple[str, list[str]]:
    """Return the inventory topic and the transactional ids of ``flow``."""
    ids = [transactional_id(flow.name)] if flow.configs == "sync" else []
    return inventory_topic_of(flow.name), ids + (
        [deletion_rounds.transactional_id(flow.name)] if flow.deletes_topics else []
    )
