"""The records of a flow's inventory topic about ACLs: which ones the flow has created on the target. Pure.

The ACLs of a resource share a record. Those of target topics' configurations have other keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from mirror.alignment.permissions.decision import Known, Mark
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from mirror.relay.progress import stored_json as stored

_VERSION: Final = 1
_KEY: Final = 3
_ENTRY: Final = 5


class Resource(NamedTuple):
    """What a record is about."""

    kind: ResourceType
    pattern: PatternType
    name: str


def resource_of(acl: AclBinding) -> Resource:
    """Return what an ACL is about."""
    return Resource(acl.resource_type, acl.pattern, acl.name)


class StoredAcls:
    """What the inventory topic says: each record that is read replaces an earlier one of its key."""

    def __init__(self) -> None:
        self._resources: dict[Resource, dict[AclBinding, Mark]] = {}

    def clear(self) -> None:
        """Forget everything: the topic is read from its beginning."""
        self._resources.clear()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic. What cannot be parsed is not in the inventory."""
        resource = parse_key(key)
        if resource is not None:
            self.put(resource, parse_acls(resource, value))

    def put(self, resource: Resource, acls: Mapping[AclBinding, Mark]) -> None:
        """Set what is known about a resource."""
        if acls:
            self._resources[resource] = dict(acls)
        else:
            self._resources.pop(resource, None)

    def known(self) -> dict[AclBinding, Mark]:
        """Return what is known about all ACLs."""
        return {acl: mark for acls in self._resources.values() for acl, mark in acls.items()}

    def changed(self, known: Known) -> Iterator[tuple[Resource, dict[AclBinding, Mark]]]:
        """Yield what is to be stored so that exactly ``known`` is known."""
        wanted: dict[Resource, dict[AclBinding, Mark]] = {}
        for acl, mark in known.items():
            wanted.setdefault(resource_of(acl), {})[acl] = mark
        for resource in sorted({*wanted, *self._resources}):
            acls = wanted.get(resource, {})
            if acls != self._resources.get(resource, {}):
                yield resource, acls


def encode_key(resource: Resource) -> bytes:
    """Return the key of a resource's record."""
    fields = [resource.kind.name, resource.pattern.name, resource.name]
    return json.dumps({"acls": fields}, separators=(",", ":")).encode()


def parse_key(key: bytes | None) -> Resource | None:
    """Parse :func:`encode_key`; None for anything else."""
    fields = stored.parse_object(key).get("acls")
    if not isinstance(fields, list) or len(fields) != _KEY or not all(isinstance(one, str) for one in fields):
        return None
    try:
        return Resource(ResourceType[fields[0]], PatternType[fields[1]], fields[2])
    except KeyError:
        return None


def encode_acls(acls: Mapping[AclBinding, Mark]) -> bytes | None:
    """Return the record of a resource as JSON; None, which deletes it, if nothing is known."""
    if not acls:
        return None
    entries = sorted(
        [acl.principal, acl.host, acl.operation.name, acl.permission.name, mark.value] for acl, mark in acls.items()
    )
    return json.dumps({"v": _VERSION, "acls": entries}, separators=(",", ":")).encode()


def parse_acls(resource: Resource, value: bytes | None) -> dict[AclBinding, Mark]:
    """Parse :func:`encode_acls`, without what cannot be parsed."""
    fields = stored.parse_object(value)
    entries = fields.get("acls")
    if fields.get("v") != _VERSION or not isinstance(entries, list):
        return {}
    found = (_entry(resource, given) for given in entries)
    return dict(one for one in found if one is not None)


def _entry(resource: Resource, given: Any) -> tuple[AclBinding, Mark] | None:
    if not isinstance(given, list) or len(given) != _ENTRY or not all(isinstance(one, str) for one in given):
        return None
    principal, host, operation, permission, mark = given
    try:
        known = AclOperation[operation], AclPermission[permission], Mark(mark)
    except (KeyError, ValueError):
        return None
    kind, pattern, name = resource
    return AclBinding(kind, name, principal, known[0], known[1], pattern, host), known[2]
