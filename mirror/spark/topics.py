"""The target's topics, made ready before anything is copied: created, given partitions, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import Admin, ConfigResource, NewTopic, TopicDescription
from mirror.errors import BrokerError, FlowError, KafkaError
from mirror.relay.progress_log import topic_of
from mirror.relay.topic_config import TopicConfig, readable
from mirror.spark import offsets_retention, preflight
from mirror.spark.planner import select_topics

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from mirror.config.models import FlowConfig

TOPIC_ALREADY_EXISTS: Final = 36
"""Kafka's error code (``Errors.TOPIC_ALREADY_EXISTS``)."""

PROPAGATION_S: Final = 15
"""How long a topic may take from the controller's answer to the brokers' metadata."""

NOT_COPIED: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Topic configurations that name the source's own brokers (MirrorMaker's DefaultConfigPropertyFilter has them too)."""


PROGRESS_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""As Kafka Connect's own topics; in segments small enough to be compacted (the one being written never is)."""


def prepare_topics(flow: FlowConfig, source: Admin, target: Admin) -> list[str]:
    """Make every target topic of ``flow`` ready; idempotent.

    Missing ones are created with the source topic's partition count and explicitly set configuration, and the flow's
    replication factor; those with fewer partitions get more. So is the topic that notes the flow's progress.

    Returns warnings of one line each, also about what the two sides' configurations will make of the records. Raises
    FlowError where no topic matches, KafkaError where a cluster cannot be asked or refuses.
    """
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    _create_missing(flow, wanted, source, target)
    made = _await_topics(flow, [flow.target_topic(name) for name in wanted], target)
    _add_partitions(flow, wanted, made, target)
    configs = _configs(target, sorted(made))
    sources = _configs(source, list(wanted), partial=True)
    pairs = {
        flow.target_topic(name): (TopicConfig.of(there), TopicConfig.of(configs[flow.target_topic(name)]))
        for name, there in sources.items()
    }
    return [
        *(line for name in sorted(made) for line in _warnings(made[name], configs[name])),
        *preflight.warnings(flow, pairs),
        *_prepare_progress_topic(flow, target),
        *offsets_retention.warnings(target),
    ]


@dataclass(frozen=True, slots=True)
class TopicsOutlook:
    """What :func:`prepare_topics` would find and do. ``changes`` are lines.

    ``pairs``: target topic -> the source's configuration and its own, or the one that it would be made with. ``there``
    are the target topics that exist.
    """

    changes: list[str]
    warnings: list[str]
    pairs: dict[str, tuple[TopicConfig, TopicConfig]]
    there: Mapping[str, TopicDescription]


def inspect_topics(
    flow: FlowConfig, wanted: Mapping[str, TopicDescription], source: Admin, target: Admin
) -> TopicsOutlook:
    """Look at both sides' topics and change nothing. Raises KafkaError.

    Topics that are not there yet are not warned about: what the target's brokers will make of them is seen then.
    """
    there = target.describe_topics([flow.target_topic(name) for name in wanted])
    new = {topic.name: topic for topic in _new_topics(flow, wanted, there, source)}
    configs = _configs(target, sorted(there))
    pairs = {
        name: (TopicConfig.of(found), TopicConfig.of(configs[name] if name in configs else new[name].configs))
        for topic, found in _configs(source, list(wanted), partial=True).items()
        for name in [flow.target_topic(topic)]
    }
    notes = topic_of(flow.name)
    noted = notes in target.describe_topics([notes])
    changes = [
        *(_creation(topic) for topic in new.values()),
        *(
            f"topic {name} gets {total} partitions (now {len(there[name].partitions)})"
            for name, total in _lacking_partitions(flow, wanted, there).items()
        ),
        *([] if noted else [_creation(_progress_topic(flow))]),
    ]
    warnings = [
        *(line for name in sorted(there) for line in _warnings(there[name], configs[name])),
        *preflight.warnings(flow, {name: pair for name, pair in pairs.items() if name in there}),
        *(preflight.progress_topic_warnings(notes, _configs(target, [notes])[notes]) if noted else []),
        *offsets_retention.warnings(target),
    ]
    return TopicsOutlook(changes, warnings, pairs, there)


def _creation(topic: NewTopic) -> str:
    replicas = "the target's default" if topic.replication_factor < 0 else str(topic.replication_factor)
    configs = "".join(f", {key} = {value}" for key, value in sorted(topic.configs.items()))
    return f"topic {topic.name} is created: partitions {topic.partitions}, replicas {replicas}{configs}"


def _progress_topic(flow: FlowConfig) -> NewTopic:
    return NewTopic(topic_of(flow.name), 1, flow.replication_factor, PROGRESS_TOPIC_CONFIGS)


def _configs(admin: Admin, topics: Sequence[str], *, partial: bool = False) -> dict[str, dict[str, str]]:
    """Each topic's configuration, with its brokers' defaults.

    What the source does not tell (``partial``) cannot be compared; whether that permission matters is found out when a
    topic is created.
    """
    found = admin.describe_configs([ConfigResource.topic(name) for name in topics], partial=partial)
    return {resource.name: readable(entries) for resource, entries in found.items()}


def _prepare_progress_topic(flow: FlowConfig, target: Admin) -> list[str]:
    """Create the topic of notes, or look at the one that is there.

    Only warns: without it everything works until the target forgets a progress (offsets.retention.minutes).
    """
    name = topic_of(flow.name)
    try:
        if name in target.describe_topics([name]):
            return list(preflight.progress_topic_warnings(name, _configs(target, [name])[name]))
        target.create_topics([_progress_topic(flow)])
    except KafkaError as error:
        if isinstance(error, BrokerError) and error.code == TOPIC_ALREADY_EXISTS:
            return []
        line = (
            f"topic {name} cannot be made ready, so that a progress that the target forgets is not restored: {error}"
            " (one partition, cleanup.policy = compact)"
        )
        return [line]
    return []


def _create_missing(flow: FlowConfig, wanted: Mapping[str, TopicDescription], source: Admin, target: Admin) -> None:
    """Create the target topics that are not there; one that appears meanwhile was made by a neighbour, and is fine."""
    for _ in range(3):
        there = target.describe_topics([flow.target_topic(name) for name in wanted])
        new = _new_topics(flow, wanted, there, source)
        if not new:
            return
        try:
            target.create_topics(new)
        except BrokerError as error:
            if error.code != TOPIC_ALREADY_EXISTS:
                raise
        else:
            return


def _new_topics(
    flow: FlowConfig, wanted: Mapping[str, TopicDescription], there: Container[str], source: Admin
) -> list[NewTopic]:
    """The target topics that are not ``there``, as they are to be made."""
    missing = [name for name in wanted if flow.target_topic(name) not in there]
    if not missing:
        return []
    configs = source.describe_topic_configs(missing)
    return [
        NewTopic(
            flow.target_topic(name),
            len(wanted[name].partitions),
            flow.replication_factor,
            {key: value for key, value in configs.get(name, {}).items() if key not in NOT_COPIED},
        )
        for name in missing
    ]


def _lacking_partitions(
    flow: FlowConfig, wanted: Mapping[str, TopicDescription], there: Mapping[str, TopicDescription]
) -> dict[str, int]:
    """Target topics with fewer partitions than their source, with how many they are to have."""
    return {
        target: len(topic.partitions)
        for name, topic in wanted.items()
        for target in [flow.target_topic(name)]
        if target in there and len(there[target].partitions) < len(topic.partitions)
    }


def _await_topics(flow: FlowConfig, names: Sequence[str], target: Admin) -> dict[str, TopicDescription]:
    """Describe the target topics, once the brokers know of those that the controller has just created."""
    give_up = time.monotonic() + PROPAGATION_S
    while True:
        made = target.describe_topics(names)
        lacking = [name for name in names if name not in made]
        if not lacking:
            return made
        if time.monotonic() > give_up:
            raise FlowError(
                f"flow {flow.name}: target topic {lacking[0]} is not to be seen on cluster {flow.target}"
                f" {PROPAGATION_S} s after it was created; run again, or look for who deletes it"
            )
        time.sleep(0.1)


def _add_partitions(
    flow: FlowConfig,
    wanted: Mapping[str, TopicDescription],
    made: Mapping[str, TopicDescription],
    target: Admin,
) -> None:
    totals = _lacking_partitions(flow, wanted, made)
    if totals:
        target.create_partitions(totals)


def _warnings(topic: TopicDescription, configs: Mapping[str, str]) -> list[str]:
    """What a user should know about one target topic; not errors, the copy goes on."""
    replicas = min((len(partition.replicas) for partition in topic.partitions), default=0)
    warnings = []
    if replicas == 1:
        warnings.append(
            f"target topic {topic.name} has one replica: when its broker loses the disk, acknowledged records are gone"
            " (KIP-185); set replication-factor to 3 before the topic is created"
        )
    least = int(configs.get("min.insync.replicas", "1"))
    if least > replicas:
        warnings.append(
            f"target topic {topic.name} asks for min.insync.replicas = {least} but has {replicas} replicas:"
            " nothing can be written to it; lower that, or add replicas"
        )
    return warnings
