"""What a cluster's ACLs allow, as Kafka's StandardAuthorizer decides it, and ACLs for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def named_by(target_topic: Callable[[str], str | None], namespace: str) -> Callable[[str], str | None]:
    """Return the reverse of ``target_topic``, which puts ``namespace`` in front of the names that it knows."""

    def source_topic(name: str) -> str | None:
        source = name.removeprefix(namespace)
        return source if target_topic(source) == name else None

    return source_topic


def allows(
    acls: Collection[AclBinding], kind: ResourceType, name: str, principal: str, host: str, operation: AclOperation
) -> bool:
    """A denial wins; without an ACL nothing is allowed."""
    about = [acl for acl in acls if _concerns(acl, kind, name, principal, host)]
    if any(acl.permission is AclPermission.DENY and acl.operation in {operation, AclOperation.ALL} for acl in about):
        return False
    enough = {operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())}
    return any(acl.permission is AclPermission.ALLOW and acl.operation in enough for acl in about)


def is_about(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    """Whether ``acl`` is about a resource, whoever asks."""
    prefixed = acl.pattern is PatternType.PREFIXED and name.startswith(acl.name)
    literal = acl.pattern is PatternType.LITERAL and acl.name in {name, "*"}
    return acl.resource_type is kind and (prefixed or literal)


def _concerns(acl: AclBinding, kind: ResourceType, name: str, principal: str, host: str) -> bool:
    return is_about(acl, kind, name) and acl.principal in {principal, "User:*"} and acl.host in {host, "*"}


def topic(
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    principal: str = "User:alice",
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> AclBinding:
    """An ACL of a topic."""
    return _acl(ResourceType.TOPIC, name, operation, principal, host, deny=deny, prefixed=prefixed)


def group(
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    principal: str = "User:alice",
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> AclBinding:
    """An ACL of a group."""
    return _acl(ResourceType.GROUP, name, operation, principal, host, deny=deny, prefixed=prefixed)


def _acl(
    kind: ResourceType, name: str, operation: AclOperation, principal: str, host: str, *, deny: bool, prefixed: bool
) -> AclBinding:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, principal, operation, permission, pattern, host)
