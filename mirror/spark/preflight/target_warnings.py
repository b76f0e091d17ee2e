"""Warnings about the target topics as they are; none of them stops the copy.

Pure: takes descriptions and configurations, returns lines. Topics with the same warning share one line.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mirror.broker_settings import SEGMENT_BYTES
from mirror.errors import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.client import TopicDescription

_LOG_OVERHEAD: Final = 12
"""Kafka's default of ``max.message.bytes`` is 1 MiB and the offset and size of a batch (``Records.LOG_OVERHEAD``).
Segments of 1 MiB are common, and not worth a warning for that."""


def warnings(
    topics: Mapping[str, TopicDescription], configs: Mapping[str, Mapping[str, str]], sources: Mapping[str, int]
) -> list[str]:
    """Return the lines about the target ``topics``; ``sources`` maps a target topic to its source's partition count."""
    unreplicated: list[str] = []
    unwritable: dict[tuple[int, int], list[str]] = defaultdict(list)
    wider: list[str] = []
    segments: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, topic in sorted(topics.items()):
        replicas = min((len(partition.replicas) for partition in topic.partitions), default=0)
        if replicas == 1:
            unreplicated.append(name)
        min_isr = int(configs.get(name, {}).get("min.insync.replicas", "1"))
        if min_isr > replicas:
            unwritable[min_isr, replicas].append(name)
        sizes = [int(configs.get(name, {}).get(key, "0")) for key in (SEGMENT_BYTES.key, "max.message.bytes")]
        if 0 < sizes[0] < sizes[1] - _LOG_OVERHEAD:
            segments[sizes[0], sizes[1]].append(name)
        if len(topic.partitions) > sources.get(name, len(topic.partitions)):
            wider.append(name)
    return [
        *_unreplicated(unreplicated),
        *_unwritable(unwritable),
        *_small_segments(segments),
        *_wider(wider, topics, sources),
    ]


def _unreplicated(names: list[str]) -> Iterator[str]:
    if names:
        has = "has" if len(names) == 1 else f"({len(names)} in all) have"
        yield (
            f"{named('target topic', names)} {has} one replica: if its broker loses the disk, acknowledged records are"
            " lost (KIP-185); set replication-factor to 3 before a topic is created, and give an existing topic more"
            " replicas with kafka-reassign-partitions"
        )


def _unwritable(topics: Mapping[tuple[int, int], list[str]]) -> list[str]:
    return [
        f"{named('target topic', names)}: min.insync.replicas = {min_isr}, with {replicas} replicas: nothing can be"
        " written there; lower min.insync.replicas, or add replicas"
        for (min_isr, replicas), names in topics.items()
    ]


def _small_segments(topics: Mapping[tuple[int, int], list[str]]) -> list[str]:
    return [
        f"{named('target topic', names)}: {SEGMENT_BYTES.key} = {segment}, below max.message.bytes = {batch}:"
        f" {SEGMENT_BYTES.words}"
        for (segment, batch), names in topics.items()
    ]


def _wider(names: list[str], topics: Mapping[str, TopicDescription], sources: Mapping[str, int]) -> Iterator[str]:
    if names:
        first = names[0]
        counts = f" ({first} has {len(topics[first].partitions)}, its source {sources[first]})"
        yield (
            f"{named('target topic', names)}: more partitions than the source topic{counts}: nothing is copied into the"
            " additional ones, and another producer to this topic puts the same keys into other partitions"
        )
