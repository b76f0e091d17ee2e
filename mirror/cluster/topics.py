"""Values that name things in a cluster."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final, NamedTuple

EARLIEST: Final = -2
"""ListOffsets' timestamp for the log's start."""
LATEST: Final = -1
"""ListOffsets' timestamp for the log's end: the last stable offset at read_committed."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read, the epoch of the last record read, and a text of the committer's."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """An offset found by time or position; ``offset`` is -1 where no record is that young."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; ``leader`` -1 where there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic and its partitions, in order."""

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; ``replication_factor`` -1 is the cluster's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster's identity and brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]
