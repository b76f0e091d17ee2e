"""Warnings about the target topics as they are; none of them stops the copy.

Pure: takes descriptions and configurations, returns lines. Topics with the same warning share one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.causes import SEGMENT_BYTES
from mirror.spark.preflight.topic_compare import shared_lines

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
    return shared_lines({name: _about(one, configs.get(name, {}), sources.get(name)) for name, one in topics.items()})


def _about(topic: TopicDescription, configs: Mapping[str, str], needed: int | None) -> Iterator[str]:
    replicas = min((len(partition.replicas) for partition in topic.partitions), default=0)
    if replicas == 1:
        yield (
            "one replica: if its broker loses the disk, acknowledged records are lost (KIP-185); set replication-factor"
            " to 3 before a topic is created, and give an existing topic more replicas with kafka-reassign-partitions"
        )
    min_isr = int(configs.get("min.insync.replicas", "1"))
    if min_isr > replicas:
        yield (
            f"min.insync.replicas = {min_isr}, with {replicas} replicas: nothing can be written there; lower"
            " min.insync.replicas, or add replicas"
        )
    segment, batch = (int(configs.get(key, "0")) for key in (SEGMENT_BYTES.key, "max.message.bytes"))
    if 0 < segment < batch - _LOG_OVERHEAD:
        yield f"{SEGMENT_BYTES.key} = {segment}, below max.message.bytes = {batch}: {SEGMENT_BYTES.words}"
    if needed is not None and len(topic.partitions) > needed:
        yield (
            f"more partitions than the source topic ({len(topic.partitions)}, and not {needed}): nothing is copied into"
            " the additional ones, and another producer to this topic puts the same keys into other partitions:"
            " give the source topic as many, or create the target topic with as many as the source has"
        )
