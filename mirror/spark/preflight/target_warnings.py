"""What a user should know about the target's topics as they are; not errors, the copy goes on.

Pure: descriptions and configurations in, lines out. Topics that share a line are named in one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mirror.spark.preflight.topic_compare import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.client import TopicDescription


def warnings(
    topics: Mapping[str, TopicDescription], configs: Mapping[str, Mapping[str, str]], sources: Mapping[str, int]
) -> list[str]:
    """The lines about the target ``topics``; ``sources`` has the number of partitions of each one's source."""
    alone: list[str] = []
    starved: dict[tuple[int, int], list[str]] = defaultdict(list)
    wider: list[str] = []
    for name, topic in sorted(topics.items()):
        replicas = min((len(partition.replicas) for partition in topic.partitions), default=0)
        if replicas == 1:
            alone.append(name)
        least = int(configs.get(name, {}).get("min.insync.replicas", "1"))
        if least > replicas:
            starved[least, replicas].append(name)
        if len(topic.partitions) > sources.get(name, len(topic.partitions)):
            wider.append(name)
    return [*_alone(alone), *_starved(starved), *_wider(wider, topics, sources)]


def _alone(names: list[str]) -> Iterator[str]:
    if names:
        has = "has" if len(names) == 1 else f"({len(names)} in all) have"
        yield (
            f"{named(names)} {has} one replica: when its broker loses the disk, acknowledged records are gone"
            " (KIP-185); set replication-factor to 3 before a topic is created, and give a topic that exists more"
            " replicas with kafka-reassign-partitions"
        )


def _starved(starved: Mapping[tuple[int, int], list[str]]) -> list[str]:
    return [
        f"{named(names)}: min.insync.replicas = {least}, with {replicas} replicas: nothing can be written there; lower"
        " that, or add replicas"
        for (least, replicas), names in starved.items()
    ]


def _wider(names: list[str], topics: Mapping[str, TopicDescription], sources: Mapping[str, int]) -> Iterator[str]:
    if names:
        first = names[0]
        of_first = f" (of {first}: {len(topics[first].partitions)}, the source's {sources[first]})"
        yield (
            f"{named(names)}: more partitions than the source topic{of_first}: nothing is copied into the others, and"
            " a producer of the target's own puts the same keys into other partitions"
        )
