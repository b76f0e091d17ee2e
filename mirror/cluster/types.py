"""The values of the admin and client APIs: topics, brokers, groups, transactions, configurations. ACLs: ``acls.py``."""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from mirror.cluster.open_enum import OpenEnum
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from mirror.cluster.acls import AclOperation

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

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


_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether a topic can have that name (``Topic.validate``)."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, the epoch of the last record read, and a text of the committer's.

    ``topic_id`` is the topic that the offset belongs to, where that is known: a seek takes it, a commit does not.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    topic_id: uuid.UUID | None = None


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ends in a log."""

    leader_epoch: int
    """The largest epoch that the log has, up to the requested one; -1 if it has none."""
    end_offset: int
    """The first offset of a later epoch, or the log's end; -1 if the leader does not know the requested epoch."""


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """An offset found by time or position; ``offset`` is -1 where no record is that young."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition's leader remembers it (KIP-664).

    ``last_timestamp_ms`` is the time of its last record, which the producer chose. ``transaction_start`` is the offset
    where its open transaction begins in this partition, None where none is open.
    """

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it; ``state`` is the broker's word (``Ongoing``, ``Empty``, ...)."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it; ``start_ms`` is None where no transaction is open."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None


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
    """One topic and its partitions, in order.

    ``authorized_operations``: what this client may do with it; None where that was not asked for (KIP-430).
    """

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """The topics of a cluster, if they may have changed."""

    digest: bytes
    """Of the broker's response: equal only if it says the same about topics, partitions, leaders and brokers."""
    topics: dict[str, TopicDescription] | None
    """By name; None if the digest was known."""


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


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of an entity: of ``user``, ``client-id``, or both, whose name is None for the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]
    """Such as ``producer_byte_rate``, in bytes per second and broker."""


class Outcomes(dict[K, V]):
    """The results of a call over many keys: key -> result, for those that succeeded.

    ``failed`` is key -> error for the others; looking up one of them raises its error. A key that was not requested
    raises KeyError, as in every dict.
    """

    __slots__ = ("failed",)

    def __init__(self, found: Mapping[K, V], failed: Mapping[K, KafkaError]) -> None:
        super().__init__(found)
        self.failed: dict[K, KafkaError] = dict(failed)

    def __missing__(self, key: K) -> V:
        raise self.failed.get(key) or KeyError(key)

    def __repr__(self) -> str:
        return f"Outcomes({super().__repr__()}, failed={self.failed!r})"


class ConfigKind(enum.IntEnum):
    """What a configuration is of (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A topic by its name, or a broker by its id as text; of brokers, "" is the default of all of them."""

    kind: ConfigKind
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """One topic."""
        return cls(ConfigKind.TOPIC, name)

    @classmethod
    def broker(cls, node: int | None = None) -> ConfigResource:
        """One broker; None: what holds for all of them."""
        return cls(ConfigKind.BROKER, "" if node is None else str(node))

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}" if self.name else "all brokers"


class ConfigSource(OpenEnum):
    """Where a value comes from (``ConfigEntry.ConfigSource``), the first that has one; later ones are defaults."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    BROKER_FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration as a broker describes it. The value of a ``sensitive`` one is None.

    ``source`` shows whether it was set on the resource itself (``TOPIC``, ``BROKER``) or is a default.
    """

    value: str | None
    source: ConfigSource
    sensitive: bool
    read_only: bool


class ConfigOperation(enum.IntEnum):
    """What to do with a configuration (KIP-339). APPEND and SUBTRACT are for lists: "a,b" are two items."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one key; DELETE goes back to the default and has no value. The value may be a secret."""

    key: str
    value: str | None = field(default=None, repr=False)
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica's log in a directory, in bytes; ``offset_lag`` in records behind the high watermark.

    ``future``: a copy being made, which will replace the log in another directory of this broker.
    """

    size_bytes: int
    offset_lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker; ``error`` is why it is offline.

    ``total_bytes`` and ``usable_bytes`` are its volume's (KIP-827), None where the broker is older than that (3.3).
    """

    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    logs: dict[TopicPartition, ReplicaLog]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group. ``kind`` is "classic", "consumer" (KIP-848) or a newer one; ``state`` as in Kafka: "Stable"."""

    group: str
    kind: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member and the partitions it has; ``instance_id`` where its membership is static (KIP-345)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group and its members; ``assignor`` is the strategy that they share partitions by."""

    group: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
