"""All permissions that a flow needs: what is looked up, the lines about it, and config/README.md's table follow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from mirror.client import AclOperation, TopicPartition
from mirror.groups.watching.commit_watch import COMMITS_TOPIC
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.relay.batches.exactly_once_way import EXPIRATION
from mirror.relay.model.way import Way
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress import fenced_writer, flow_topic
from mirror.relay.progress.committed import SHARDS, group_of, lazy_group_of
from mirror.relay.progress.control_record import control_partition
from mirror.spark.planning.opposite_flows import brought_back_by, opposite_of
from mirror.spark.preflight.permissions import FlowPermissions, Kind, Permission, Refuses, Resource, Side, Use

_ALTER, _ALTER_CONFIGS = AclOperation.ALTER, AclOperation.ALTER_CONFIGS
_CREATE, _DELETE = AclOperation.CREATE, AclOperation.DELETE
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_ALL, _ONE = Refuses.IF_ALL_LACK_IT, Refuses.IF_ONE_LACKS_IT
_SAMPLE: Final = 1_000
"""How many ids and consumer groups are looked up: enough to name what is missing, and the requests stay small."""


def progress_groups(found: FlowPermissions) -> list[str]:
    """Return the groups of the progress, as many as the partitions of the source topics need."""
    exact: dict[str, None] = {}
    lazy: dict[str, None] = {}
    for target, topic in found.targets.items():
        for partition in range(found.partitions(Side.SOURCE, topic)):
            tp = TopicPartition(target, partition)
            exact[group_of(found.flow.name, tp)] = lazy[lazy_group_of(found.flow.name, tp)] = None
        if len(exact) == SHARDS:
            break
    return [*sorted(exact), *(sorted(lazy) if found.uses_sequences else ())]


def transactional_ids(found: FlowPermissions) -> list[str]:
    """Return one transactional id per topic, up to a maximum: they are granted by prefix."""
    there = [target for target, topic in found.targets.items() if found.partitions(Side.SOURCE, topic)]
    return [transactional_id(found.flow.name, TopicPartition(target, 0)) for target in there[:_SAMPLE]]


def _consumer_groups(found: FlowPermissions) -> list[str]:
    return list(found.groups or ())[:_SAMPLE]


def _consumer_groups_copied(found: FlowPermissions) -> list[str]:
    return [*map(found.flow.groups.target_group, _consumer_groups(found))]


def _way_back_topics(found: FlowPermissions) -> list[str]:
    """Return the topics of flows in the other direction, on the flow's source, which it reads for their groups."""
    opposite, copying = opposite_of(found.config, found.flow), brought_back_by(found.config, found.flow)
    stored = [*([] if opposite is None else [opposite]), *(one for one in copying if one.groups.sync)]
    topics = [flow_topic.group_topic_of(one.name) for one in stored]
    return list(dict.fromkeys([*topics, *(flow_topic.offset_topic_of(one.name) for one in copying)]))


def _way_back_prefixes(found: FlowPermissions) -> list[str]:
    return [f"mirror.{one.name}." for one in brought_back_by(found.config, found.flow)]


# --- what asks for permissions

_CREATES: Final = Use("target topics are to be created", lambda found, name: found.is_created(name))
_EXTENDS: Final = Use("topics get more partitions", lambda found, name: found.is_extended(name))
_HEARTBEATS: Final = Use("[`heartbeats`](#for-mirrormaker-2s-tools)", lambda f, _: f.flow.mirrormaker.heartbeats)
_CHECKPOINTS: Final = Use("[`checkpoints`](#for-mirrormaker-2s-tools)", lambda f, _: f.flow.mirrormaker.checkpoints)
_LOCAL: Final = Use('`origin = "local"`', lambda found, _: found.flow.only_local)
_REGISTERS: Final = Use("`register-producers`", lambda found, _: found.flow.registers_producers)
_EXACT: Final = Use('`delivery = "exactly-once"`', lambda found, _: found.flow.exactly_once)
_SEQUENCES: Final = Use("[sequences](#exactly-once)", lambda found, _: found.uses_sequences)
_FORCED: Final = Use(f'`exactly-once-by = "{Way.SEQUENCES}"`', lambda found, _: found.forces_sequences)
_ASIDE: Final = Use("[`aside`](#records-aside)", lambda found, _: bool(found.flow.aside))
_FOLLOWS: Final = Use("[`groups`](#consumer-groups)", lambda found, _: found.flow.follows_groups)
_GROUPS: Final = Use("[`groups`](#consumer-groups)", lambda found, _: found.flow.groups.sync)
_GROUP_DELETED: Final = Use(
    '`on-group-deleted = "delete"`', lambda f, _: f.flow.groups.sync and f.flow.groups.on_group_deleted == "delete"
)
_BACK: Final = Use("[`groups`](#consumer-groups) in both directions", lambda found, _: found.flow.groups.sync)
_CONFIGS: Final = Use('[`configs = "sync"`](#topic-configurations)', lambda found, _: found.flow.configs == "sync")
_DELETES: Final = Use('[`on-topic-deleted = "delete"`](#deleted-topics)', lambda found, _: found.flow.deletes_topics)
_ACLS: Final = Use("[`acls`](#acls)", lambda found, _: found.flow.acls.sync)
_REVERSE: Final = Use("`mirror groups --reverse --commit`")
_ASIDE_COMMAND: Final = Use("`mirror aside`")
_HOLD: Final = Use("`mirror hold`")
_ASIDE_FENCE: Final = Use("`mirror aside`, and `mirror hold` with `aside`")
_SWITCH: Final = Use("[`switches`](#switches)", lambda found, _: bool(found.switches))
_DENIES: Final = Use(
    '[`switches`](#switches) with `fence = "acl"`',
    lambda found, _: any(found.config.switches[name].fence == "acl" for name in found.switches),
)
_ABORTS: Final = Use("`mirror cutover --abort-open`")
_EXPORTS: Final = Use("`mirror failback --export`")
_TAKEOVER: Final = Use("a [takeover](../mirror/migration/README.md#afterwards)")

# --- what they are on

_WRITTEN: Final = (_DESCRIBE_CONFIGS, _CREATE)
"""For topics that the flow itself writes: without Describe, brokers hide whether one has to be created."""
_on_source = partial(Resource, Side.SOURCE)
_on_target = partial(Resource, Side.TARGET)


def _own(kind: Kind, name_of: Callable[[str], str]) -> Resource:
    """Return what a flow alone uses on its target; ``name_of`` makes its name of the flow's."""
    also = {Kind.TOPIC: _WRITTEN, Kind.TRANSACTIONAL_ID: (_WRITE,)}.get(kind, ())
    return _on_target(kind, f"{kind.word} `{name_of('NAME')}`", lambda found: [name_of(found.flow.name)], also)


def _same(name: str) -> Callable[[FlowPermissions], Collection[str]]:
    return lambda _: (name,)


def _prefix(found: FlowPermissions) -> list[str]:
    return [f"mirror.{found.flow.name}."]


_topic, _group, _id = Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID
_source_topics = _on_source(_topic, "the topics", lambda found: found.topics)
_target_topics = _on_target(_topic, "the topics", lambda found: found.targets, (_CREATE,))
_progress = _own(_topic, flow_topic.topic_of)
_inventory = flow_topic.inventory_topic_of
_checkpoints = _on_target(
    _topic,
    "topic `SOURCE.checkpoints.internal`",
    lambda f: [DefaultPolicy().checkpoints_topic(f.flow.source)],
    _WRITTEN,
)
_heartbeats = _on_source(_topic, f"topic `{HEARTBEATS}`", _same(HEARTBEATS), _WRITTEN)
_heartbeats_copy = _on_target(
    _topic, f"the copy of `{HEARTBEATS}`", lambda found: [found.flow.target_topic(HEARTBEATS)], _WRITTEN
)
_aside = _on_target(_topic, "the topic `aside`", lambda found: [found.flow.aside] if found.flow.aside else [], _WRITTEN)
_registries = [
    on(_topic, f"topic `{REGISTRY_TOPIC}`", _same(REGISTRY_TOPIC), _WRITTEN) for on in (_on_source, _on_target)
]
_groups = _on_target(_group, "groups with the prefix `mirror.NAME.`", progress_groups, (), _prefix)
_ids = _on_target(_id, "transactional ids with the prefix `mirror.NAME.`", transactional_ids, (_WRITE,), _prefix)
_consumers = _on_source(_group, "the consumer groups", _consumer_groups)
_commits = _on_source(_topic, f"topic `{COMMITS_TOPIC}`", _same(COMMITS_TOPIC))
_consumers_copy = _on_target(_group, "the same groups", _consumer_groups_copied)
_back_topics = _on_source(
    _topic, "topics `mirror-groups.OTHER.internal`, `mirror-offsets.OTHER.internal`", _way_back_topics
)
_back_groups = _on_source(
    _group,
    "groups with the prefix `mirror.OTHER.`",
    lambda found: [f"{prefix}0" for prefix in _way_back_prefixes(found)],
    prefixes=_way_back_prefixes,
)
_source_cluster = _on_source(Kind.CLUSTER, "the cluster", _same("kafka-cluster"))
_target_cluster = _on_target(Kind.CLUSTER, "the cluster", _same("kafka-cluster"))
_brokers = _on_target(Kind.BROKERS, "the cluster", _same("kafka-cluster"))


def _written(topic: Callable[[str], str], id_of: Callable[[str], str], when: Use, why: str) -> list[Permission]:
    """Return the permissions on a topic that the flow writes in transactions, and on the id of these."""
    return [
        Permission(_own(_topic, topic), (_WRITE, _READ), why, when),
        Permission(_own(_id, id_of), (_DESCRIBE,), why, when),
    ]


def _of_switches(on: Callable[..., Resource], cluster: Resource) -> list[Permission]:
    """Return the permissions of the switches of a flow on one of its clusters."""
    topic = on(
        _topic,
        "topic `mirror-progress.SWITCH.switch.internal`",
        lambda found: [flow_topic.switch_topic_of(name) for name in found.switches],
        _WRITTEN,
    )
    ids = on(
        _id,
        "transactional id `mirror.SWITCH.switch`",
        lambda found: [fenced_writer.switch_transactional_id(name) for name in found.switches],
        (_WRITE,),
    )
    why = "its clients cannot be switched"
    return [
        Permission(topic, (_WRITE, _READ), why, _SWITCH),
        Permission(ids, (_DESCRIBE,), why, _SWITCH),
        Permission(cluster, (_DESCRIBE, _ALTER), why, _DENIES),
    ]


_IN_TRANSACTIONS: Final = "all records go in transactions"
_NOT_AGAIN: Final = "what went aside is not listed, nor copied again"
_NOT_FENCED: Final = "what went aside is not copied again, and the flow cannot be held"
_NOT_ALIGNED: Final = "their configurations are not brought in step"
_NOT_BACK: Final = "groups that come back from there are not followed"
WRITE_BACK: Final = Permission(_consumers, (_READ,), "their positions are not written back", _REVERSE)
"""Not looked up beforehand: only the command needs it."""

PERMISSIONS: Final[list[Permission]] = [
    # What is copied.
    Permission(_source_topics, (_READ,), "their records cannot be read", refuses=_ALL),
    Permission(_source_topics, (_DESCRIBE_CONFIGS,), "their copies are to have their configuration", _CREATES, _ALL),
    Permission(_target_topics, (_DESCRIBE_CONFIGS,), "they cannot be prepared", refuses=_ALL),
    Permission(_target_topics, (_ALTER,), "they cannot be prepared", _EXTENDS, _ALL),
    Permission(_target_topics, (_WRITE, _READ), "their records cannot be written", refuses=_ALL),
    # The flow's own topics.
    Permission(_progress, (_READ,), "no partition can start before its progress is read", refuses=_ONE),
    Permission(_progress, (_WRITE,), "progress that the target forgets is not restored"),
    Permission(
        _own(_topic, flow_topic.status_topic_of),
        (_WRITE, _READ),
        "other hosts do not see the flow's state, and its runs do not know of earlier ones",
    ),
    Permission(
        _own(_topic, flow_topic.latch_topic_of),
        (_WRITE, _READ),
        "the flow cannot be held, and without Read no run begins",
    ),
    Permission(
        _own(_topic, flow_topic.offset_topic_of),
        (_WRITE, _READ),
        "offsets cannot be translated, and mirror offsets shows none",
    ),
    Permission(_checkpoints, (_WRITE, _READ), "checkpoints are not written", _CHECKPOINTS),
    Permission(_heartbeats, (_WRITE, _READ), "heartbeats are not written and copied", _HEARTBEATS),
    Permission(_heartbeats_copy, (_WRITE, _READ), "heartbeats are not copied", _HEARTBEATS),
    Permission(_registries[0], (_READ, _WRITE), "nothing says which records were produced there", _LOCAL, _ONE),
    Permission(
        _registries[1], (_READ, _WRITE), "no batch may be sent before its producer is registered", _REGISTERS, _ONE
    ),
    Permission(_aside, (_WRITE,), "a record that is to go aside stops its partition", _ASIDE, _ONE),
    # Progress, control, and exactly once.
    Permission(_groups, (_READ,), "progress is committed there", refuses=_ONE),
    Permission(
        _own(_group, lambda flow: control_partition(flow)[0]),
        (_READ,),
        "this run does not notice other runs of the flow, nor mirror stop",
    ),
    Permission(
        _ids,
        (_DESCRIBE,),
        'their partitions cannot be copied exactly once (delivery = "at-least-once" needs none)',
        _EXACT,
        _ALL,
    ),
    Permission(
        _brokers,
        (_DESCRIBE_CONFIGS,),
        f'{EXPIRATION} cannot be read, and nothing can be copied with exactly-once-by = "{Way.SEQUENCES}"',
        _FORCED,
        _ONE,
    ),
    Permission(_brokers, (_DESCRIBE_CONFIGS,), f"{EXPIRATION} cannot be read, and {_IN_TRANSACTIONS}", _SEQUENCES),
    Permission(
        _source_topics,
        (_DESCRIBE_CONFIGS,),
        f'whether they are compacted cannot be read, as exactly-once-by = "{Way.SEQUENCES}" needs',
        _FORCED,
        _ALL,
    ),
    Permission(
        _source_topics,
        (_DESCRIBE_CONFIGS,),
        "whether they are compacted cannot be read, and their records go in transactions",
        _SEQUENCES,
    ),
    # Consumer groups.
    Permission(_consumers, (_DESCRIBE,), "their positions are not read", _FOLLOWS),
    Permission(_commits, (_READ,), "each round of a stream asks for all groups, and positions arrive later", _GROUPS),
    Permission(_consumers_copy, (_READ,), "their positions are not written", _GROUPS),
    Permission(_consumers_copy, (_DELETE,), "their positions are not deleted", _GROUP_DELETED),
    *_written(
        flow_topic.group_topic_of, fenced_writer.groups_transactional_id, _GROUPS, "no group's position is written"
    ),
    Permission(_back_topics, (_READ,), _NOT_BACK, _BACK),
    Permission(_back_groups, (_DESCRIBE,), _NOT_BACK, _BACK),
    # Configurations, deletions, and ACLs.
    Permission(_source_topics, (_DESCRIBE_CONFIGS,), _NOT_ALIGNED, _CONFIGS),
    Permission(_target_topics, (_ALTER_CONFIGS,), _NOT_ALIGNED, _CONFIGS),
    *_written(_inventory, fenced_writer.transactional_id, _CONFIGS, "no configuration is brought in step"),
    Permission(_target_topics, (_DELETE,), "they are not deleted when their source topics are", _DELETES),
    *_written(_inventory, fenced_writer.transactional_id, _DELETES, "no topic is deleted"),
    Permission(_source_cluster, (_DESCRIBE,), "ACLs are not brought in step", _ACLS),
    Permission(_target_cluster, (_DESCRIBE, _ALTER), "ACLs are not brought in step", _ACLS),
    *_written(_inventory, fenced_writer.transactional_id, _ACLS, "ACLs are not brought in step"),
    # Switches.
    *_of_switches(_on_source, _source_cluster),
    *_of_switches(_on_target, _target_cluster),
]

NOT_LOOKED_UP: Final[list[Permission]] = [
    WRITE_BACK,
    Permission(_aside, (_READ,), _NOT_AGAIN, _ASIDE_COMMAND),
    Permission(_own(_id, fenced_writer.aside_transactional_id), (_DESCRIBE,), _NOT_FENCED, _ASIDE_FENCE),
    Permission(_own(_id, fenced_writer.transactional_id), (_DESCRIBE,), "it cannot be held", _HOLD),
    Permission(
        _on_source(Kind.CLUSTER, "the cluster"),
        (_DESCRIBE,),
        "backlogs are compared by records, and `mirror plan` shows no bytes",
    ),
    Permission(
        _on_source(_id, "transactional ids of the source's producers"),
        (_DESCRIBE,),
        "it is not shown since when a transaction is open",
    ),
    Permission(
        _on_source(_id, "transactional ids of the source's producers"),
        (_WRITE,),
        "open transactions keep a switch waiting",
        _ABORTS,
    ),
    Permission(
        _on_target(_topic, "topics `TOPIC.tail.GENERATION`"),
        (_CREATE, _DESCRIBE_CONFIGS, _WRITE, _READ),
        "what only a lost source has is not exported",
        _EXPORTS,
    ),
    Permission(
        _on_target(_id, "transactional id `mirror.SWITCH.tail`"),
        (_DESCRIBE, _WRITE),
        "what only a lost source has is not exported",
        _EXPORTS,
    ),
    Permission(_on_source(_topic, "topic `mirror-progress.OTHER.internal`"), (_READ,), _NOT_BACK, _BACK),
    Permission(_on_source(_topic, "the copies of flows in the other direction"), (_READ,), _NOT_BACK, _BACK),
    Permission(_on_target(_topic, "what flows in the other direction copy"), (_READ,), _NOT_BACK, _BACK),
    Permission(
        _on_target(_topic, "MirrorMaker 2's topics of positions and states"),
        (_READ,),
        "a MirrorMaker 2 that starts again is not seen",
        _TAKEOVER,
    ),
    Permission(
        _on_target(Kind.BROKERS, "the cluster"),
        (_DESCRIBE_CONFIGS,),
        "seven days are assumed for how long brokers remember offsets",
    ),
]
"""Parts of a flow go on without these, and report it."""
