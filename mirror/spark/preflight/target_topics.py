"""Prepare the target topics before anything is copied: create them, add partitions, check their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

from mirror.client import NewTopic, TopicDescription
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning import broker_retention
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight import flow_topics
from mirror.spark.preflight.plan_items import creation, extension, own_creation, what_of
from mirror.spark.preflight.topic_preparation import Means, Pairs, TopicPreparation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.alignment.planned import Item
    from mirror.config.models import FlowConfig
    from mirror.observation import Side, Sides
    from mirror.spark.preflight.flow_topics import FlowTopic
    from mirror.spark.preflight.topic_preparation import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was prepared, or would be."""

    targets: TargetTopics
    warnings: list[str]
    existing: Mapping[str, TopicDescription]
    """The target topics that exist."""
    pairs: Pairs
    new: Mapping[str, NewTopic]
    """The target topics that were created."""
    extended: Mapping[str, int]
    """The new partition count by target topic."""
    own: list[NewTopic] = field(default_factory=list)
    """The topics that the flow itself writes, and that were created on the target."""
    own_on_source: list[NewTopic] = field(default_factory=list)

    @property
    def created(self) -> dict[str, dict[str, str]]:
        """The configurations of the target topics that were created, by topic."""
        return {name: dict(topic.configs) for name, topic in self.new.items()}

    @property
    def changes(self) -> list[str]:
        """Lines about topics that are created or extended on the target."""
        return [
            *map(flow_topics.creation, self.new.values()),
            *(
                f"topic {name} gets {count} partitions (now {len(self.existing[name].partitions)})"
                for name, count in self.extended.items()
            ),
            *map(flow_topics.creation, self.own),
        ]

    @property
    def source_changes(self) -> list[str]:
        """Lines about topics that are created on the source."""
        return [*map(flow_topics.creation, self.own_on_source)]

    def items(self, flow: FlowConfig, topics: Mapping[str, TopicDescription]) -> Iterator[Item]:
        """Yield what was created and extended, as a plan lists it; ``topics`` are those of the source."""
        sources = {flow.target_topic(name): one for name, one in topics.items() if flow.includes(name)}
        for name, topic in self.new.items():
            yield creation(flow, topic, sources[name])
        for name, count in self.extended.items():
            yield extension(flow, self.existing[name], count, sources[name])
        for cluster, own in ((flow.source, self.own_on_source), (flow.target, self.own)):
            yield from (own_creation(cluster, one) for one in own)


def prepare_topics(
    flow: FlowConfig,
    sides: Sides,
    *,
    validate_only: bool = False,
    **means: Unpack[Means],
) -> Prepared:
    """Prepare every target topic of ``flow``, and the topics that it writes itself on both clusters. Idempotent.

    A missing topic is created with the source topic's partition count, with the configuration that the flow's
    ``configs`` keys select, and with the flow's replication factor. A topic of the flow with fewer partitions than its
    source is extended. A topic that cannot be prepared becomes an obstacle, and does not stop the other topics.

    The warnings also say what the two configurations will do to the records. With ``validate_only`` nothing is changed:
    brokers only check what would be. Raises FlowError if no topic matches, and KafkaError if a cluster cannot be read.
    """
    planned, check = means.get("planned"), means.get("check", bool)
    # First, because heartbeats are copied, too.
    own_on_source, on_source = flow_topics.prepare(
        _planned(flow_topics.on_source(flow), sides.source, planned),
        sides.source,
        validate_only=validate_only,
        check=check,
    )
    if own_on_source and not validate_only:
        sides = sides.again()
    topics = sides.source.topics
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    # Before what is recorded there.
    own, on_target = flow_topics.prepare(
        _planned(flow_topics.on_target(flow), sides.target, planned),
        sides.target,
        validate_only=validate_only,
        check=check,
    )
    preparation = TopicPreparation(flow, wanted, sides, means, validate_only=validate_only)
    targets = preparation.targets()
    copyable = [name for name, count in targets.copyable.items() if count]
    pairs, warnings = preparation.compare(copyable)
    return Prepared(
        targets=targets,
        warnings=[*warnings, *on_target, *on_source, *broker_retention.warnings(flow, sides.target)],
        existing=preparation.existing,
        pairs=pairs,
        new=preparation.created,
        extended=preparation.extended,
        own=own,
        own_on_source=own_on_source,
    )


def _planned(topics: list[FlowTopic], side: Side, planned: Planned | None) -> list[FlowTopic]:
    """Return those of a flow's own ``topics`` that exist or are ``planned``; all of them if that is None.

    Their facts rest on the configuration and the cluster alone, which a plan's are the same as.
    """
    if planned is None:
        return topics
    existing = side.describe([topic.name for topic in topics])
    return [topic for topic in topics if (side.name, what_of(topic.name)) in planned or topic.name in existing]


def prepare_own_topics(flow: FlowConfig, sides: Sides) -> list[str]:
    """Prepare the topics that ``flow`` writes itself on both clusters, and return the warnings. Raises KafkaError."""
    _, on_source = flow_topics.prepare(flow_topics.on_source(flow), sides.source)
    _, on_target = flow_topics.prepare(flow_topics.on_target(flow), sides.target)
    return [*on_target, *on_source]


def prepare_new_topics(
    flow: FlowConfig,
    sides: Sides,
    before: TargetTopics,
    topics: Mapping[str, TopicDescription],
    **means: Unpack[Means],
) -> Prepared:
    """Prepare the target topics of these source ``topics``, which ``flow`` copies, as :func:`prepare_topics` does.

    The result has all other topics as the preparation ``before`` has them. Raises KafkaError.
    """
    # To list all topics of the target costs more than all else; brokers refuse collisions with others than the flow's.
    rivals = {flow.target_topic(name) for name in before.copyable}
    preparation = TopicPreparation(flow, topics, sides, means, rivals=rivals)
    targets = preparation.targets().beside(before)
    pairs, warnings = preparation.compare(
        [name for name in topics if targets.copyable.get(name) and not before.copyable.get(name)]
    )
    return Prepared(
        targets=targets,
        warnings=warnings,
        existing=preparation.existing,
        pairs=pairs,
        new=preparation.created,
        extended=preparation.extended,
    )
