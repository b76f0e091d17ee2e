"""What a permission is: operations on resources, what they are needed for, and what brokers say of them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from mirror.client import AclOperation
from mirror.relay.model.way import Way

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig


class Side(enum.StrEnum):
    """The cluster of a flow that has a resource."""

    SOURCE = "source"
    TARGET = "target"


class Kind(enum.Enum):
    """A kind of resource: its word, its option of ``kafka-acls``, and since when brokers show what is allowed on it.

    Topics, groups and the cluster by KIP-430; of transactional ids, DescribeTransactions (KIP-664) shows whether
    Describe is granted; the configuration of a broker is read as a trial.
    """

    TOPIC = "topic", "--topic", "2.3"
    TRANSACTIONAL_ID = "transactional id", "--transactional-id", "3.0"
    GROUP = "group", "--group", "2.3"
    CLUSTER = "the ACLs", "--cluster", "2.3"
    BROKERS = "the brokers", "--cluster", "all"

    def __init__(self, word: str, option: str, since: str) -> None:
        self.word: Final = word
        self.option: Final = option
        self.since: Final = since

    @property
    def has_names(self) -> bool:
        """Whether there are several of them in a cluster."""
        return self.option != "--cluster"


Operations = frozenset[AclOperation]
NO_OPERATIONS: Final[Operations] = frozenset()
"""For a resource without the permission Describe: brokers return no other operation of it."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The operations that are allowed on a resource, and the number of partitions of a topic."""

    operations: Operations | None
    """None if the brokers do not return them."""
    partitions: int = 0


@dataclass(frozen=True, kw_only=True)
class FlowPermissions:
    """What a flow uses, and what it may do with it."""

    config: MirrorConfig
    flow: FlowConfig
    topics: Collection[str]
    """The source topics that the flow's ``topics`` select."""
    groups: Collection[str] | None = None
    """The groups of the source that the flow follows; None if it follows none, or they cannot be listed."""
    allowed: dict[tuple[Side, Kind], Mapping[str, Allowed | None]] = field(default_factory=dict)
    """By name. Absent: the brokers did not answer for it. None: a topic that does not exist."""

    @cached_property
    def targets(self) -> dict[str, str]:
        """The source topic by target topic."""
        return {self.flow.target_topic(name): name for name in self.topics}

    @property
    def uses_sequences(self) -> bool:
        """Whether batches may go by sequence."""
        return self.flow.exactly_once and self.flow.exactly_once_by != Way.TRANSACTIONS.value

    @property
    def forces_sequences(self) -> bool:
        """Whether all batches have to."""
        return self.flow.exactly_once and self.flow.exactly_once_by == Way.SEQUENCES.value

    @property
    def switches(self) -> list[str]:
        """The switches that move the clients of this flow."""
        return [name for name, one in self.config.switches.items() if self.flow.name in one.flows]

    def partitions(self, side: Side, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist, or is not known."""
        found = self.allowed.get((side, Kind.TOPIC), {}).get(topic)
        return 0 if found is None else found.partitions

    def is_created(self, topic: str) -> bool:
        """Return whether the target topic of a source topic is known not to exist."""
        found, target = self.allowed.get((Side.TARGET, Kind.TOPIC), {}), self.flow.target_topic(topic)
        return target in found and found[target] is None

    def is_extended(self, target: str) -> bool:
        """Return whether a target topic has fewer partitions than its source topic."""
        return 0 < self.partitions(Side.TARGET, target) < self.partitions(Side.SOURCE, self.targets[target])


@dataclass(frozen=True, slots=True)
class Resource:
    """Resources of one kind that a flow uses for one purpose."""

    side: Side
    kind: Kind
    words: str
    """In the document, as Markdown."""
    names: Callable[[FlowPermissions], Collection[str]] | None = None
    """None if what is allowed on them is not looked up."""
    also: tuple[AclOperation, ...] = ()
    """Operations that are needed, too, and that brokers do not show before they are used."""
    prefixes: Callable[[FlowPermissions], Collection[str]] = lambda _: ()
    """The prefixes by which they are granted; none: they are granted one by one."""


class Refuses(enum.Enum):
    """When a missing permission keeps the flow from running."""

    NEVER = ""
    IF_ALL_LACK_IT = "if all lack it"
    IF_ONE_LACKS_IT = "yes"


@dataclass(frozen=True, slots=True)
class Use:
    """What a permission is needed for, as Markdown, and which of its resources a flow needs it on."""

    words: str
    needs: Callable[[FlowPermissions, str], bool] = lambda _, __: True


@dataclass(frozen=True, slots=True)
class Permission:
    """Operations on resources, and what is prevented without them."""

    resource: Resource
    operations: tuple[AclOperation, ...]
    why: str
    when: Use = Use("")
    refuses: Refuses = Refuses.NEVER

    @property
    def place(self) -> tuple[Side, Kind]:
        """Where what is allowed is looked up."""
        return self.resource.side, self.resource.kind

    def cluster(self, flow: FlowConfig) -> str:
        """Return the name of the resources' cluster."""
        return flow.source if self.resource.side is Side.SOURCE else flow.target

    def names(self, found: FlowPermissions) -> list[str]:
        """Return the names of all its resources, also of those that do not need it."""
        return [] if self.resource.names is None else list(self.resource.names(found))

    def needing(self, found: FlowPermissions) -> list[str]:
        """Return the names of the resources that need it."""
        return [name for name in self.names(found) if self.when.needs(found, name)]


def name_of(operation: AclOperation) -> str:
    """Return the name that ``kafka-acls`` has for an operation: ``DescribeConfigs``."""
    return operation.name.title().replace("_", "")
