"""Finds MirrorMaker 2's positions and offset syncs on the clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.takeover.matching import Pair
from mirror.takeover.places import CONNECTOR, Deployment, dedicated_topic, offset_topics, possible_topics, sync_topics
from mirror.takeover.stored_formats import ADVICE, foreign_keys, foreign_value
from mirror.takeover.stored_offsets import Positions, Reach, TopicReader, gather, last_of_keys, pairs_of


class FoundPositions(NamedTuple):
    """Where the positions are, and which."""

    topic: str
    connector: str
    positions: Mapping[TopicPartition, int]


class FoundSyncs(NamedTuple):
    """Where the offset syncs are, and which."""

    topic: str
    """Empty if there are none."""
    pairs: Mapping[TopicPartition, Sequence[Pair]]


def find_positions(
    reader: TopicReader, deployment: Deployment, existing: Sequence[str], reach: Reach
) -> FoundPositions:
    """Return the positions of the deployment.

    Raises FlowError if they are not found, or several, or cannot be read; KafkaError.
    """
    topics = offset_topics(deployment, existing)
    records = {topic: last_of_keys(reader.records(topic, reach)) for topic in topics}
    found = {topic: gather(of_topic, deployment.source) for topic, of_topic in records.items()}
    for topic, of_topic in records.items():
        foreign = foreign_value(of_topic, deployment.source)
        # Where there are plain positions, MirrorMaker 2 reads these: the others are of a release before.
        if foreign or (not found[topic] and (foreign := foreign_keys(of_topic, deployment.source))):
            raise FlowError(f"topic {topic} on {deployment.positions_on} has {foreign}; {ADVICE}")
    return choose(found, deployment)


def choose(found: Mapping[str, Positions], deployment: Deployment) -> FoundPositions:
    """Return the positions if they are those of one connector in one topic. Raises FlowError otherwise. Pure.

    There may be none in the topic of a dedicated cluster of MirrorMaker 2.
    """
    choices = [
        FoundPositions(topic, connector, positions)
        for topic, by_connector in found.items()
        for connector, positions in by_connector.items()
        if deployment.connector in {None, connector}
    ]
    if len(choices) == 1:
        return choices[0]
    if choices:
        listed = ", ".join(sorted(f"{one.connector} in {one.topic}" for one in choices))
        raise FlowError(
            f"there are positions of more than one connector that copies from {deployment.source}: {listed}; name one"
            " with --connector, and its topic with --offsets-topic"
        )
    dedicated = dedicated_topic(deployment.source)
    if dedicated in found:
        # By its name it has only positions of this source: none were stored yet, or none are committed.
        return FoundPositions(dedicated, deployment.connector or CONNECTOR, {})
    connector = "" if deployment.connector is None else f" of connector {deployment.connector}"
    topics = ", ".join(found) if found else f"none of {', '.join(possible_topics(deployment))} exists"
    raise FlowError(
        f"no positions{connector} for the source {deployment.source} were found on {deployment.positions_on}"
        f" ({topics}); name the topic with --offsets-topic (offset.storage.topic of Kafka Connect), its cluster with"
        " --offsets-cluster if that is not the target, and the alias with --source-alias"
    )


def find_syncs(
    source: TopicReader,
    target: TopicReader,
    deployment: Deployment,
    existing: tuple[Sequence[str], Sequence[str]],
) -> FoundSyncs:
    """Return the offset syncs; ``existing`` are the topics of source and target. Raises KafkaError."""
    on_source, on_target = sync_topics(deployment)
    if on_source in existing[0]:
        return FoundSyncs(f"{on_source} on {deployment.source}", pairs_of(source.records(on_source)))
    if on_target in existing[1]:
        return FoundSyncs(f"{on_target} on {deployment.target}", pairs_of(target.records(on_target)))
    return FoundSyncs("", {})
