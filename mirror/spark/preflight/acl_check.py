"""Find the permissions that a flow lacks before anything is copied (KIP-430: brokers return authorized operations).

::

    both clusters ──look_up_permissions──► FlowPermissions ──missing_permissions──► problems: the flow cannot run
                                                                                    warnings: a part cannot be copied

Pure. Permissions that the brokers did not return are not reported: if one is missing, the copy fails with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import AclOperation, TopicPartition
from mirror.errors import named
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.relay.batches.way_rules import EXPIRATION
from mirror.relay.model.way import Way
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.partition.writers.takeover import transactional_id
from mirror.relay.progress.committed import SHARDS, group_of, lazy_group_of
from mirror.relay.progress.control import control_partition
from mirror.relay.progress.flow_topic import offset_topic_of, status_topic_of, topic_of
from mirror.spark.preflight.acl_permissions import AclPermissions, acl_warnings
from mirror.spark.preflight.config_permissions import ConfigPermissions, config_warnings, deletion_warnings
from mirror.spark.preflight.group_permissions import GroupPermissions, group_warnings
from mirror.spark.preflight.permission_lines import (
    NO_OPERATIONS,
    TARGET_TOPIC_OPERATIONS,
    Operations,
    TopicPermissions,
    absent_of,
    is_all,
    line_about,
    topic_lines,
    topics_lacking,
)

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_MAX_IDS_CHECKED: Final = 1_000
"""Transactional ids are granted by prefix, so a sample is enough and keeps the request small."""
_PREFIXED: Final = "--resource-pattern-type prefixed"
_HEARTBEATS_OPERATIONS: Final = (
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,
)
_GROUP_OPERATIONS: Final = (AclOperation.READ,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPermissions:
    """The permissions on everything that a flow uses, by name. Names that the brokers did not answer for are absent."""

    source: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The source topics that the flow's ``topics`` select; None for a topic that does not exist."""
    target: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The target topics, with the flow's own topics; None for a topic that does not exist."""
    heartbeats: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The source's topic of heartbeats, if the flow writes to it."""
    registry: Mapping[str, TopicPermissions | None] = field(default_factory=dict)
    """The source's registry of producer ids, if the flow copies local records only."""
    groups: Mapping[str, Operations] = field(default_factory=dict)
    """The target's groups."""
    ids: Mapping[str, Operations] = field(default_factory=dict)
    """The target's transactional ids."""
    consumer_groups: GroupPermissions | None = None
    """What is needed for consumer groups; None if the flow does not bring them to the target."""
    configs: ConfigPermissions | None = None
    """What is needed to keep target topics in step; None if the flow does not."""
    acls: AclPermissions | None = None
    """What is needed to keep ACLs in step; None if the flow does not."""
    broker_configs: bool | None = None
    """Whether the configuration of the target's brokers may be read; None if that is not known."""


@dataclass(slots=True)
class MissingPermissions:
    """Lines about missing permissions: ``problems`` prevent the flow from running, ``warnings`` do not."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def groups_to_check(flow: FlowConfig, source: Mapping[str, TopicPermissions | None]) -> list[str]:
    """Return the groups that a flow uses: the groups of its progress, and as the last one its control group."""
    found: dict[str, None] = {}
    lazy: dict[str, None] = {}
    for name, topic in source.items():
        for partition in range(topic.partitions if topic is not None else 0):
            target = TopicPartition(flow.target_topic(name), partition)
            found[group_of(flow.name, target)] = lazy[lazy_group_of(flow.name, target)] = None
        if len(found) == SHARDS:
            break
    return [*sorted(found), *(sorted(lazy) if uses_sequences(flow) else ()), control_partition(flow.name)[0]]


def uses_sequences(flow: FlowConfig) -> bool:
    """Return whether batches of ``flow`` may go by sequence."""
    return flow.exactly_once and flow.exactly_once_by != Way.TRANSACTIONS.value


def ids_to_check(flow: FlowConfig, source: Mapping[str, TopicPermissions | None]) -> list[str]:
    """Return one transactional id per topic, up to a maximum; none if the flow uses no transactions."""
    if not flow.exactly_once:
        return []
    targets = [TopicPartition(flow.target_topic(name), 0) for name, topic in source.items() if topic is not None]
    return [transactional_id(flow.name, tp) for tp in targets[:_MAX_IDS_CHECKED]]


def missing_permissions(flow: FlowConfig, permissions: FlowPermissions) -> MissingPermissions:
    """Return what ``flow`` lacks.

    Each problem begins with the flow's name, because the problems of all flows are printed in one list.
    """
    missing = MissingPermissions()
    _check_source(flow, permissions, missing)
    _check_target(flow, permissions, missing)
    _check_progress_topic(flow, permissions, missing)
    for own_topic, why in (
        (
            status_topic_of(flow.name),
            "other hosts do not see the flow's state, and its runs do not know of earlier ones",
        ),
        (offset_topic_of(flow.name), "offsets cannot be translated, and mirror offsets shows none"),
    ):
        _check_optional_topic(flow, permissions, missing, own_topic, why)
    _check_checkpoints_topic(flow, permissions, missing)
    _check_heartbeats(flow, permissions, missing)
    _check_registries(flow, permissions, missing)
    _check_groups(flow, permissions, missing)
    _check_ids(flow, permissions, missing)
    if uses_sequences(flow):
        _check_sequences(flow, permissions, missing)
    if permissions.consumer_groups is not None:
        missing.warnings += group_warnings(flow, permissions.consumer_groups)
    if permissions.configs is not None and flow.configs == "sync":
        missing.warnings += _config_warnings(flow, permissions, permissions.configs)
    if permissions.configs is not None and flow.deletes_topics:
        names = [flow.target_topic(name) for name in permissions.source]
        targets = {name: permissions.target[name] for name in names if name in permissions.target}
        missing.warnings += deletion_warnings(flow, permissions.configs, targets)
    if permissions.acls is not None:
        missing.warnings += acl_warnings(flow, permissions.acls)
    missing.problems = [f"flow {flow.name}: {line}" for line in missing.problems]
    return missing


def _config_warnings(flow: FlowConfig, permissions: FlowPermissions, configs: ConfigPermissions) -> list[str]:
    """Return what is missing to keep configurations in step.

    Source topics whose configuration is needed for more than that are named by the other checks.
    """
    of_target = {name: flow.target_topic(name) for name in permissions.source}
    targets = {name: permissions.target[name] for name in of_target.values() if name in permissions.target}
    checked = uses_sequences(flow)
    sources = {
        name: topic
        for name, topic in permissions.source.items()
        if not checked and targets.get(of_target[name]) is not None
    }
    return config_warnings(flow, configs, sources, targets)


def _check_source(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    cluster = flow.source
    unreadable = topics_lacking(permissions.source, AclOperation.READ)
    if is_all(unreadable, permissions.source):
        missing.problems += topic_lines(cluster, unreadable, "nothing can be copied")
    else:
        why = "their records are not copied; the flow's other topics are"
        missing.warnings += topic_lines(cluster, unreadable, why)
    to_create = {name for name, topic in permissions.target.items() if topic is None}
    models = {name: topic for name, topic in permissions.source.items() if flow.target_topic(name) in to_create}
    hidden = topics_lacking(models, AclOperation.DESCRIBE_CONFIGS)
    why = "the target topics are to be created with their configuration"
    if is_all(hidden, permissions.source):
        missing.problems += topic_lines(cluster, hidden, why)
    else:
        missing.warnings += topic_lines(cluster, hidden, f"{why}; the flow's other topics are copied")


def _check_target(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    cluster = flow.target
    sources = {flow.target_topic(name): topic for name, topic in permissions.source.items()}
    targets = {name: permissions.target[name] for name in sources if name in permissions.target}
    visible = {name: topic for name, topic in targets.items() if topic is None or topic.operations != NO_OPERATIONS}
    hidden = topics_lacking({name: topic for name, topic in targets.items() if name not in visible})
    to_extend = {
        name: topic
        for name, topic in visible.items()
        for source in [sources[name]]
        if topic is not None and source is not None and topic.partitions < source.partitions
    }
    why = "they cannot be prepared"
    for unprepared in (
        hidden,
        topics_lacking(visible, AclOperation.DESCRIBE_CONFIGS),
        topics_lacking(to_extend, AclOperation.ALTER),
    ):
        if is_all(unprepared, sources):
            lines, consequence = missing.problems, f"{why}, and the flow does not start"
        else:
            lines, consequence = missing.warnings, f"{why}; the flow's other topics are copied"
        lines += topic_lines(cluster, unprepared, consequence, also_needed=TARGET_TOPIC_OPERATIONS)
    unwritable = topics_lacking(visible, AclOperation.WRITE, AclOperation.READ)
    if is_all(unwritable, sources):
        missing.problems += topic_lines(cluster, unwritable, "nothing can be copied")
    else:
        why = "nothing is copied into them; the flow's other topics are copied"
        missing.warnings += topic_lines(cluster, unwritable, why)


def _check_progress_topic(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    """Check the progress topic: Read is required, because each partition looks its progress up there; Write is not."""
    name = topic_of(flow.name)
    topics = {name: permissions.target[name]} if name in permissions.target else {}
    unreadable = topics_lacking(topics, AclOperation.READ)
    why = "no partition can start before its progress is read"
    missing.problems += topic_lines(flow.target, unreadable, why, also_needed=TARGET_TOPIC_OPERATIONS)
    if not unreadable:
        unwritable = topics_lacking(topics, AclOperation.WRITE)
        why = "progress that the target forgets is not restored"
        missing.warnings += topic_lines(flow.target, unwritable, why)


def _check_optional_topic(
    flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions, name: str, why: str
) -> None:
    """Check a topic of the flow on the target without which records are copied; ``why`` says what is lost."""
    topics = {name: permissions.target[name]} if name in permissions.target else {}
    lacking = topics_lacking(topics, AclOperation.WRITE, AclOperation.READ)
    missing.warnings += topic_lines(flow.target, lacking, why, also_needed=TARGET_TOPIC_OPERATIONS)


def _check_checkpoints_topic(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    """Check the topic of checkpoints: records are copied without it."""
    name = DefaultPolicy().checkpoints_topic(flow.source)
    topics = {name: permissions.target[name]} if flow.mirrormaker.checkpoints and name in permissions.target else {}
    lacking = topics_lacking(topics, AclOperation.WRITE, AclOperation.READ)
    missing.warnings += topic_lines(
        flow.target, lacking, "checkpoints are not written", also_needed=TARGET_TOPIC_OPERATIONS
    )


def _check_heartbeats(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    """Check the topics of heartbeats on both clusters: a flow's own topics are copied without them."""
    selected = HEARTBEATS in permissions.source  # then its copy is checked with those of the other topics
    needed = [AclOperation.WRITE] if selected else [AclOperation.WRITE, AclOperation.READ]
    lacking = topics_lacking(permissions.heartbeats, *needed)
    missing.warnings += topic_lines(
        flow.source, lacking, "heartbeats are not written and copied", also_needed=_HEARTBEATS_OPERATIONS
    )
    name = flow.target_topic(HEARTBEATS)
    if permissions.heartbeats and not selected and name in permissions.target:
        lacking = topics_lacking({name: permissions.target[name]}, AclOperation.WRITE, AclOperation.READ)
        missing.warnings += topic_lines(
            flow.target, lacking, "heartbeats are not copied", also_needed=TARGET_TOPIC_OPERATIONS
        )


def _check_registries(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    """Check the registries of producer ids: a source's is only read once it has begun."""
    needed = (AclOperation.READ, AclOperation.WRITE)
    on_target = permissions.target.get(REGISTRY_TOPIC) if flow.registers_producers else None
    for cluster, topics, why in (
        (flow.source, permissions.registry, "nothing says which records were produced there"),
        (flow.target, {REGISTRY_TOPIC: on_target}, "no batch may be sent before its producer is registered"),
    ):
        lacking = topics_lacking(topics, *needed)
        missing.problems += topic_lines(cluster, lacking, why, also_needed=TARGET_TOPIC_OPERATIONS)


def _check_groups(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    lacking = {
        group: absent
        for group, allowed in permissions.groups.items()
        if (absent := absent_of(allowed, _GROUP_OPERATIONS))
    }
    if not lacking:
        return
    control_group = control_partition(flow.name)[0]
    operations = list(dict.fromkeys(operation for absent in lacking.values() for operation in absent))
    lines, resource, why = missing.problems, f"groups with the prefix {_prefix(flow)}", "progress is committed there"
    if lacking.keys() == {control_group}:
        # Runs work without control commands, but do not notice each other.
        lines, resource = missing.warnings, f"group {control_group}"
        why = "this run does not notice other runs of the flow, nor mirror stop"
    grant = f"--group {_prefix(flow)} {_PREFIXED}"
    lines.append(line_about(operations, resource, flow.target, why, grant, also_needed=_GROUP_OPERATIONS))


def _check_ids(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    hidden = [name for name, allowed in permissions.ids.items() if AclOperation.DESCRIBE not in allowed]
    if not hidden:
        return
    lines, resource = missing.problems, f"transactional ids with the prefix {_prefix(flow)}"
    why = 'nothing can be copied exactly once (delivery = "at-least-once" needs none)'
    if len(hidden) < len(permissions.ids):
        lines, resource = missing.warnings, named("transactional id", hidden)
        why = "their partitions are not copied; the flow's other partitions are"
    grant = f"--transactional-id {_prefix(flow)} {_PREFIXED}"
    lines.append(
        line_about([AclOperation.DESCRIBE], resource, flow.target, why, grant, also_needed=[AclOperation.WRITE])
    )


def _check_sequences(flow: FlowConfig, permissions: FlowPermissions, missing: MissingPermissions) -> None:
    """Check what decides whether a batch may go by sequence. With "auto", records go in transactions without it.

    Read on the target topics, which the search for an exact position needs, is needed for their progress, too.
    """
    forced = flow.exactly_once_by == Way.SEQUENCES.value
    refused = f'with exactly-once-by = "{Way.SEQUENCES}"'
    configs = [AclOperation.DESCRIBE_CONFIGS]
    if permissions.broker_configs is False:
        consequence = f"nothing can be copied {refused}" if forced else "all records go in transactions"
        why = f"{EXPIRATION} cannot be read, and {consequence}"
        lines = missing.problems if forced else missing.warnings
        lines.append(line_about(configs, "the brokers", flow.target, why, "--cluster", also_needed=()))
    # Topics that are not visible, or whose configuration a new target topic needs, are named by _check_source.
    visible = {
        name: topic
        for name, topic in permissions.source.items()
        if topic is not None and topic.operations is not None and AclOperation.DESCRIBE in topic.operations
        if permissions.target.get(flow.target_topic(name), topic) is not None
    }
    hidden = topics_lacking(visible, AclOperation.DESCRIBE_CONFIGS)
    lines, consequence = missing.warnings, "their records go in transactions"
    if forced and is_all(hidden, permissions.source):
        lines, consequence = missing.problems, f"nothing can be copied {refused}"
    elif forced:
        consequence = f"they cannot be copied {refused}; the flow's other topics are"
    lines += topic_lines(flow.source, hidden, f"whether they are compacted cannot be read, and {consequence}")


def _prefix(flow: FlowConfig) -> str:
    return f"mirror.{flow.name}."
