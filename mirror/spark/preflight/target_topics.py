"""The target's topics, made ready before anything is copied: created, given partitions, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import Admin, ConfigResource, NewTopic, TopicDescription
from mirror.errors import BrokerError, KafkaError
from mirror.relay.batches.topic_config import TopicConfig, readable
from mirror.relay.progress.progress_topic import topic_of
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics, colliding, too_long
from mirror.spark.planning import offsets_retention
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight import target_warnings as target_topics
from mirror.spark.preflight import topic_compare as preflight
from mirror.spark.preflight.portions import failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.config.models import FlowConfig

TOPIC_ALREADY_EXISTS: Final = 36
"""Kafka's error code (``Errors.TOPIC_ALREADY_EXISTS``)."""
INVALID_PARTITIONS: Final = 37
"""The error code of a topic that has as many partitions as are asked for, or more."""

PROPAGATION_S: Final = 15
"""How long a topic may take from the controller's answer to the brokers' metadata."""

NOT_COPIED: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Topic configurations that name the source's own brokers (MirrorMaker's DefaultConfigPropertyFilter has them too)."""


PROGRESS_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""As Kafka Connect's own topics; in segments small enough to be compacted (the one being written never is)."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What :func:`prepare_topics` came to; ``warnings`` are lines."""

    targets: TargetTopics
    warnings: list[str]


def prepare_topics(flow: FlowConfig, source: Admin, target: Admin, before: TargetTopics | None = None) -> Prepared:
    """Make every target topic of ``flow`` ready; idempotent.

    Missing ones are created with the source topic's partition count and explicitly set configuration, and the flow's
    replication factor; those with fewer partitions get more. So is the topic that notes the flow's progress. What
    cannot be made ready is an obstacle of its own topic, and stops no other.

    Warnings are also about what the two sides' configurations will make of the records. With ``before``, what an
    earlier preparation came to, they are about topics that are new since: so the next one costs little more than the
    metadata of both sides, however many topics there are.

    Raises FlowError where no topic matches, KafkaError where a cluster cannot be asked.
    """
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    preparation = _Preparation(flow, wanted, source, target)
    preparation.create()
    preparation.grow()
    targets = preparation.targets().following(before)
    new = [name for name, count in targets.copyable.items() if count and not (before and before.copyable.get(name))]
    warnings = [*preparation.warnings(new), *_prepare_progress_topic(flow, target)[1]]
    if before is None:
        warnings += offsets_retention.warnings(target)
    return Prepared(targets, warnings)


@dataclass(frozen=True, slots=True)
class TargetTopicsForecast:
    """What :func:`prepare_topics` would find and do. ``changes`` are lines.

    ``pairs``: target topic -> the source's configuration and its own, or the one that it would be made with. ``there``
    are the target topics that exist, ``targets`` is what it would come to.
    """

    changes: list[str]
    warnings: list[str]
    pairs: dict[str, tuple[TopicConfig, TopicConfig]]
    there: Mapping[str, TopicDescription]
    targets: TargetTopics


def inspect_topics(
    flow: FlowConfig, wanted: Mapping[str, TopicDescription], source: Admin, target: Admin
) -> TargetTopicsForecast:
    """Look at both sides' topics and change nothing. Raises KafkaError.

    The target's brokers are asked whether they would create what is missing. Topics that are not there yet are not
    warned about: what the brokers will make of them is seen then.
    """
    preparation = _Preparation(flow, wanted, source, target)
    preparation.create(validate_only=True)
    preparation.grow(validate_only=True)
    there, new = preparation.there, preparation.new
    configs = _configs(target, sorted(there))
    pairs = {
        name: (TopicConfig.of(found), TopicConfig.of(configs[name] if name in configs else new[name].configs))
        for topic, found in _configs(source, list(wanted)).items()
        for name in [flow.target_topic(topic)]
        if name in configs or name in new
    }
    of_notes, about_notes = _prepare_progress_topic(flow, target, validate_only=True)
    changes = [
        *(_creation(topic) for topic in new.values()),
        *(
            f"topic {name} gets {total} partitions (now {len(there[name].partitions)})"
            for name, total in preparation.growing.items()
        ),
        *of_notes,
    ]
    warnings = [
        *target_topics.warnings(there, configs, _partitions(flow, wanted)),
        *preflight.warnings(flow, {name: pair for name, pair in pairs.items() if name in there}),
        *about_notes,
        *offsets_retention.warnings(target),
    ]
    return TargetTopicsForecast(changes, warnings, pairs, there, preparation.targets())


class _Preparation:
    """One flow's target topics on the way to be ready.

    ``obstacles`` are by source topic. ``there`` are the target topics that exist, ``new`` those that were created,
    ``growing`` those that got more partitions, with how many; by target topic.
    """

    def __init__(self, flow: FlowConfig, wanted: Mapping[str, TopicDescription], source: Admin, target: Admin) -> None:
        self.obstacles: Final[dict[str, Obstacle]] = too_long(flow, wanted)
        self.new: dict[str, NewTopic] = {}
        self.growing: dict[str, int] = {}
        self._flow: Final = flow
        self._wanted: Final = wanted
        self._source: Final = source
        self._target: Final = target
        self._topic_of: Final = {flow.target_topic(name): name for name in wanted if name not in self.obstacles}
        self.there: dict[str, TopicDescription] = self._describe(self._topic_of)
        """Of the target."""

    def _describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        found = self._target.describe_topics(names, partial=True)
        for name, error in found.failed.items():
            if not isinstance(error, BrokerError):
                raise error  # the cluster does not answer
            self._refuse(name, f"target topic {name} cannot be described: {error}; grant Describe on it")
        return found

    def _refuse(self, name: str, reason: str, first: int = 0) -> None:
        """The obstacle of the one whose target topic is called ``name``."""
        self.obstacles[self._topic_of[name]] = Obstacle(" ".join(reason.split()), first)

    def create(self, *, validate_only: bool = False) -> None:
        """Create what is missing; what appears meanwhile was created by a neighbour, and is taken."""
        missing = [
            topic for name, topic in self._topic_of.items() if name not in self.there and topic not in self.obstacles
        ]
        if not missing:
            return
        flow, target = self._flow, self._target
        self.obstacles.update(colliding(flow, missing, target.list_topics().keys()))
        configs = self._source.describe_topic_configs(
            [topic for topic in missing if topic not in self.obstacles], partial=True
        )
        for topic, error in configs.failed.items():
            self._refuse(
                flow.target_topic(topic),
                f"its target topic is to be created with the configuration that it has, and cluster {flow.source} does"
                f" not show that: {error}",
            )
        new = {each.name: each for each in (self._like(topic, found) for topic, found in configs.items())}
        if not new:
            return
        refused = failures(
            {name: 1 + each.partitions + len(each.configs) for name, each in new.items()},
            lambda names: target.create_topics(
                [new[name] for name in names], partial=True, validate_only=validate_only
            ),
        )
        taken = {name for name, error in refused.items() if _code(error) == TOPIC_ALREADY_EXISTS}
        for name in refused.keys() - taken:
            self._refuse(
                name,
                f"target topic {name} cannot be created: {refused[name]}; mend that, or create it yourself with"
                f" {new[name].partitions} partitions",
            )
        self.new = {name: each for name, each in new.items() if name not in refused}
        if not validate_only:
            self._await({name: new[name].partitions if name in self.new else 1 for name in {*self.new, *taken}})

    def _like(self, topic: str, configs: Mapping[str, str]) -> NewTopic:
        """The target topic that ``topic`` is to have."""
        return NewTopic(
            self._flow.target_topic(topic),
            len(self._wanted[topic].partitions),
            self._flow.replication_factor,
            {key: value for key, value in configs.items() if key not in NOT_COPIED},
        )

    def grow(self, *, validate_only: bool = False) -> None:
        """Give those more partitions that have fewer than their source; a neighbour may have done it meanwhile."""
        lacking = {
            name: total
            for name, topic in self._topic_of.items()
            for total in [len(self._wanted[topic].partitions)]
            if name in self.there and len(self.there[name].partitions) < total
        }
        if not lacking:
            return
        failed = failures(
            {name: total - len(self.there[name].partitions) for name, total in lacking.items()},
            lambda names: self._target.create_partitions(
                {name: lacking[name] for name in names}, partial=True, validate_only=validate_only
            ),
        )
        refused = {name: error for name, error in failed.items() if _code(error) != INVALID_PARTITIONS}
        for name, error in refused.items():
            has = len(self.there[name].partitions)
            self._refuse(
                name,
                f"target topic {name} has {has} partitions and cannot be given {lacking[name]}: {error}; mend that, or"
                " add them yourself",
                first=has,
            )
        self.growing = {name: total for name, total in lacking.items() if name not in refused}
        if not validate_only:
            self._await(self.growing)

    def _await(self, expected: Mapping[str, int]) -> None:
        """Describe target topics until the brokers know of what the controller has just created: partitions by name."""
        give_up = time.monotonic() + PROPAGATION_S
        lacking = dict(expected)
        while lacking:
            self.there = {**self.there, **self._describe(lacking)}
            lacking = {
                name: total
                for name, total in lacking.items()
                if self._topic_of[name] not in self.obstacles
                and (name not in self.there or len(self.there[name].partitions) < total)
            }
            if lacking and time.monotonic() > give_up:
                break
            if lacking:
                time.sleep(0.1)
        for name in lacking:
            has = len(self.there[name].partitions) if name in self.there else 0
            self._refuse(
                name,
                f"target topic {name} has {has} partitions {PROPAGATION_S} s after {lacking[name]} were created; find"
                " out what deletes it",
                first=has,
            )

    def targets(self) -> TargetTopics:
        """What it came to, or would come to."""
        has = {name: len(each.partitions) for name, each in self.there.items()}
        has |= {name: each.partitions for name, each in self.new.items()} | self.growing
        made = {
            topic: min(has[name], len(self._wanted[topic].partitions))
            for name, topic in self._topic_of.items()
            if name in has
        }
        made |= {topic: min(made.get(topic, 0), each.first_partition) for topic, each in self.obstacles.items()}
        return TargetTopics(copyable=made, obstacles=dict(sorted(self.obstacles.items())))

    def warnings(self, topics: Sequence[str]) -> list[str]:
        """About these source topics, whose target topics are there, and what they will make of the records."""
        flow = self._flow
        there = {name: self.there[name] for name in sorted(flow.target_topic(topic) for topic in topics)}
        configs = _configs(self._target, list(there))
        sources = _configs(self._source, topics)
        pairs = {
            name: (TopicConfig.of(found), TopicConfig.of(configs[name]))
            for topic, found in sources.items()
            for name in [flow.target_topic(topic)]
            if name in configs
        }
        return [
            *target_topics.warnings(there, configs, _partitions(flow, self._wanted)),
            *preflight.warnings(flow, pairs),
        ]


def _code(error: KafkaError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None


def _creation(topic: NewTopic) -> str:
    replicas = "the target's default" if topic.replication_factor < 0 else str(topic.replication_factor)
    configs = "".join(f", {key} = {value}" for key, value in sorted(topic.configs.items()))
    return f"topic {topic.name} is created: partitions {topic.partitions}, replicas {replicas}{configs}"


def _progress_topic(flow: FlowConfig) -> NewTopic:
    return NewTopic(topic_of(flow.name), 1, flow.replication_factor, PROGRESS_TOPIC_CONFIGS)


def _configs(admin: Admin, topics: Sequence[str], *, partial: bool = True) -> dict[str, dict[str, str]]:
    """Each topic's configuration, with its brokers' defaults.

    What brokers do not show (``partial``) cannot be compared; whether that permission matters is found out when a topic
    is created.
    """
    if not topics:
        return {}
    found = admin.describe_configs([ConfigResource.topic(name) for name in topics], partial=partial)
    return {resource.name: readable(entries) for resource, entries in found.items()}


def _prepare_progress_topic(
    flow: FlowConfig, target: Admin, *, validate_only: bool = False
) -> tuple[list[str], list[str]]:
    """Create the topic of notes, or look at the one that is there; what changes, and what to warn of.

    Only warns: without it everything works until the target forgets a progress (offsets.retention.minutes).
    """
    topic = _progress_topic(flow)
    name = topic.name
    try:
        if name in target.describe_topics([name]):
            return [], list(preflight.progress_topic_warnings(name, _configs(target, [name], partial=False)[name]))
        target.create_topics([topic], validate_only=validate_only)
    except KafkaError as error:
        if _code(error) == TOPIC_ALREADY_EXISTS:
            return [], []
        line = (
            f"topic {name} cannot be made ready, so that a progress that the target forgets is not restored: {error}"
            " (one partition, cleanup.policy = compact)"
        )
        return [], [line]
    return [_creation(topic)], []


def _partitions(flow: FlowConfig, wanted: Mapping[str, TopicDescription]) -> dict[str, int]:
    """How many partitions the source of each target topic has."""
    return {flow.target_topic(name): len(topic.partitions) for name, topic in wanted.items()}
