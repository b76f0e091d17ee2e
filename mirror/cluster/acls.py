"""ACLs as values: bindings and filters (``AclBinding``, ``AclBindingFilter``)."""

from __future__ import annotations

from typing import Final, NamedTuple

from mirror.cluster.open_enum import OpenEnum
from mirror.wire.messages.base import OPERATIONS_NOT_TOLD

EVERYONE: Final = "User:*"


class ResourceType(OpenEnum):
    """The type of a resource. ANY is for filters; UNKNOWN is a type newer than this client."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(OpenEnum):
    """How the name of a resource is matched (KIP-290). For filters: ANY, and MATCH for patterns that match a name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(OpenEnum):
    """An operation. ANY is for filters, ALL is a permission."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Decode a field of authorized operations (KIP-430), a bit for each; None if it is not set.

    Operations newer than this client are left out.
    """
    if bits == OPERATIONS_NOT_TOLD:
        return None
    return frozenset(op for op in AclOperation if op > AclOperation.ALL and bits >> op & 1)


class AclPermission(OpenEnum):
    """Allowed or denied; a denial wins. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL. ``principal`` is like "User:alice", or "User:*" for all; ``host`` an address, or "*".

    The cluster's name is "kafka-cluster"; the name "*" with LITERAL is every resource of its type.
    """

    resource_type: ResourceType
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        return _described(self)


def write_denial(topic: str) -> AclBinding:
    """Return the ACL that denies WRITE on ``topic`` to everyone: the fence of a switch."""
    return AclBinding(ResourceType.TOPIC, topic, EVERYONE, AclOperation.WRITE, AclPermission.DENY)


def read_denial(group: str) -> AclBinding:
    """Return the ACL that denies READ on ``group`` to everyone: its consumers commit nothing more."""
    return AclBinding(ResourceType.GROUP, group, EVERYONE, AclOperation.READ, AclPermission.DENY)


class AclFilter(NamedTuple):
    """A filter of ACLs; None and ANY match everything. Without arguments it matches every ACL of the cluster."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None

    def __str__(self) -> str:
        return _described(self)


def _described(acl: AclBinding | AclFilter) -> str:
    """One line for errors."""
    name = "any name" if acl.name is None else repr(acl.name)
    return (
        f"{acl.permission.name} {acl.operation.name} on {acl.resource_type.name} {name} ({acl.pattern.name})"
        f" for {acl.principal or 'anyone'} from {acl.host or 'anywhere'}"
    )
