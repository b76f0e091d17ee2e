"""Look up which operations both clusters allow this client on what a flow uses. Needs no permission, changes nothing.

A few requests per flow are enough, whatever the number of its topics: brokers return a topic's authorized operations
with its metadata, and a group's with its description (KIP-430). For a transactional id, a successful describe shows
that Describe is granted.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.client import Admin, ConfigResource
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.groups.own_groups import is_own_group
from mirror.mirrormaker.names import HEARTBEATS
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.obstacles import too_long
from mirror.spark.preflight import acl_permissions, config_permissions, flow_topics
from mirror.spark.preflight.acl_check import FlowPermissions, groups_to_check, ids_to_check, uses_sequences
from mirror.spark.preflight.acl_permissions import AclPermissions
from mirror.spark.preflight.config_permissions import ConfigPermissions
from mirror.spark.preflight.group_permissions import (
    MAX_GROUPS_CHECKED,
    GroupPermissions,
    WayBackPermissions,
    names_of,
    way_back_progress,
    way_back_topics,
)
from mirror.spark.preflight.permission_lines import NO_OPERATIONS, Operations, TopicPermissions
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror.client import AclOperation, Outcomes
    from mirror.config.models import FlowConfig, MirrorConfig

V = TypeVar("V")

_LOOKUP_TIMEOUT_MS: Final = 10_000
"""For all requests about a flow. The copy reports a cluster that does not answer by then."""


def look_up_permissions(config: MirrorConfig, flow: FlowConfig, topics: Collection[str]) -> FlowPermissions:
    """Return the operations that brokers allow; ``topics`` are the source topics that ``flow`` selects.

    Leaves out what cannot be read (old brokers, no answer in time). Raises KafkaError if a cluster cannot be reached.
    """
    timer = Timer(SystemClock(), _LOOKUP_TIMEOUT_MS)
    source_options, target_options = (config.clusters[name].client_options() for name in (flow.source, flow.target))
    own_on_source = [topic.name for topic in flow_topics.on_source(flow)]
    heartbeats_topic = [name for name in own_on_source if name == HEARTBEATS]
    with Admin(source_options) as admin:
        source = _topics(admin, topics, timer)
        found_on_source = _topics(admin, own_on_source, timer)
        selected = _groups_to_bring(flow, admin, timer) if flow.follows_groups else None
        described = _on_groups(admin, selected or (), timer)
        on_source = _on_cluster(admin, timer) if flow.acls.sync else None
        way_back = _way_back_permissions(config, flow, admin, timer) if flow.groups.sync else WayBackPermissions()
    groups: Mapping[str, Operations] = {}
    ids: Mapping[str, Operations] = {}
    configs: ConfigPermissions | None = None
    acls: AclPermissions | None = None
    with Admin(target_options) as admin:
        impossible = too_long(flow, topics)
        own = [topic.name for topic in flow_topics.on_target(flow)]
        copied = dict.fromkeys([*(name for name in topics if name not in impossible), *heartbeats_topic])
        names = [*(flow.target_topic(name) for name in copied), *own]
        target = _topics(admin, names, timer)
        # Ids before groups: a new target creates its __consumer_offsets topic at the first request about groups.
        if wanted := ids_to_check(flow, source):
            with contextlib.suppress(KafkaError):
                found = admin.transactional_id_operations(wanted, partial=True, timeout_ms=timer.remaining_ms())
                ids = _operations(found)
        if flow.aligns_topics:
            topic, own_ids = config_permissions.names_of(flow)
            own_topic = {topic: target[topic]} if topic in target else {}
            configs = ConfigPermissions(topic=own_topic, ids=_on_ids(admin, own_ids, timer))
        if flow.acls.sync:
            topic, acl_id = acl_permissions.names_of(flow)
            own_topic = {topic: target[topic]} if topic in target and configs is None else {}
            on_id, on_target = _on_ids(admin, [acl_id], timer), _on_cluster(admin, timer)
            acls = AclPermissions(source=on_source, target=on_target, topic=own_topic, ids=on_id)
        with contextlib.suppress(KafkaError):
            wanted = groups_to_check(flow, source)
            found = admin.group_operations(wanted, partial=True, timeout_ms=timer.remaining_ms())
            groups = _operations(found)
        broker_configs = _may_read_brokers(admin, timer) if uses_sequences(flow) else None
        consumer_groups = None
        if flow.follows_groups:
            of_groups = _group_permissions(flow, admin, selected, way_back, timer)
            consumer_groups = replace(of_groups, source=described)
    return FlowPermissions(
        source=source,
        target=target,
        heartbeats={name: found_on_source[name] for name in heartbeats_topic if name in found_on_source},
        registry={name: topic for name, topic in found_on_source.items() if name == REGISTRY_TOPIC},
        groups=groups,
        ids=ids,
        consumer_groups=consumer_groups,
        configs=configs,
        acls=acls,
        broker_configs=broker_configs,
    )


def _groups_to_bring(flow: FlowConfig, source: Admin, timer: Timer) -> list[str] | None:
    """Return the groups of the source that this client may describe and the flow brings to the target."""
    try:
        listed = source.list_groups(kinds=["classic", "consumer"], timeout_ms=timer.remaining_ms())
    except KafkaError:
        return None
    return sorted(group for group in listed if flow.groups.includes(group) and not is_own_group(group))


def _way_back_permissions(config: MirrorConfig, flow: FlowConfig, source: Admin, timer: Timer) -> WayBackPermissions:
    progress: Mapping[str, Operations] = {}
    with contextlib.suppress(KafkaError):
        wanted = way_back_progress(config, flow)
        progress = _operations(source.group_operations(wanted, partial=True, timeout_ms=timer.remaining_ms()))
    return WayBackPermissions(topics=_topics(source, way_back_topics(config, flow), timer), progress=progress)


def _group_permissions(
    flow: FlowConfig, target: Admin, selected: list[str] | None, way_back: WayBackPermissions, timer: Timer
) -> GroupPermissions:
    count = None if selected is None else len(selected)
    if not flow.groups.sync:
        return GroupPermissions(selected=count)
    topic, transactional_id = names_of(flow)
    ids = _on_ids(target, [transactional_id], timer)
    groups = _on_groups(target, selected or (), timer)
    topics = _topics(target, [topic], timer)
    return GroupPermissions(selected=count, target=groups, ids=ids, topic=topics, way_back=way_back)


def _on_groups(admin: Admin, groups: Sequence[str], timer: Timer) -> Mapping[str, Operations]:
    """Return the permissions on a sample of consumer groups, as far as they are known."""
    if not groups:
        return {}
    with contextlib.suppress(KafkaError):
        wanted = groups[:MAX_GROUPS_CHECKED]
        return _operations(admin.group_operations(wanted, partial=True, timeout_ms=timer.remaining_ms()))
    return {}


def _on_ids(admin: Admin, transactional_ids: Collection[str], timer: Timer) -> dict[str, Operations]:
    """Return the permissions on transactional ids, as far as they are known."""
    try:
        found = admin.transactional_id_operations(transactional_ids, partial=True, timeout_ms=timer.remaining_ms())
    except KafkaError:
        return {}
    return _operations(found)


def _on_cluster(admin: Admin, timer: Timer) -> Operations | None:
    """Return the permissions on the cluster itself; None if they are not known."""
    try:
        return admin.cluster_operations(timeout_ms=timer.remaining_ms())
    except KafkaError:
        return None


def _may_read_brokers(admin: Admin, timer: Timer) -> bool | None:
    """Return whether the configuration of one of the brokers can be read: one permission is for all of them."""
    try:
        broker = ConfigResource.broker(admin.describe_cluster(timeout_ms=timer.remaining_ms()).brokers[0].node_id)
        admin.describe_configs([broker], timeout_ms=timer.remaining_ms())
    except AuthorizationFailed:
        return False
    except KafkaError:
        return None
    return True


def _topics(admin: Admin, names: Collection[str], timer: Timer) -> dict[str, TopicPermissions | None]:
    """Return the permissions by topic name; None for a topic that does not exist."""
    try:
        found = admin.describe_topics(
            names, include_authorized_operations=True, partial=True, timeout_ms=timer.remaining_ms()
        )
    except KafkaError:
        return {}
    topics: dict[str, TopicPermissions | None] = {name: None for name in names if name not in found.failed}
    for name, topic in found.items():
        topics[name] = TopicPermissions(len(topic.partitions), topic.authorized_operations)
    for name in _denied(found):
        topics[name] = TopicPermissions(0, NO_OPERATIONS)
    return topics


def _operations(found: Outcomes[str, frozenset[AclOperation]]) -> dict[str, Operations]:
    return {**found, **dict.fromkeys(_denied(found), NO_OPERATIONS)}


def _denied(found: Outcomes[str, V]) -> list[str]:
    return [name for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
