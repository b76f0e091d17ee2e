"""The fence by ACLs: DENY WRITE for everyone on each topic, and what has to be so before. Pure.

A denial wins over each permission, but super users pass it. A topic without any ACL may be open to all
(``allow.everyone.if.no.acl.found``): its first one, also a denial, closes it to readers as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from mirror.client import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.acls import EVERYONE, read_denial, write_denial
from mirror.switch.record import SwitchRecord

_WRITES: Final = frozenset({AclOperation.WRITE, AclOperation.ALL})
DENIALS: Final = AclFilter(
    ResourceType.TOPIC, None, EVERYONE, AclOperation.WRITE, AclPermission.DENY, PatternType.LITERAL, "*"
)
"""Matches all denials of the fence, on all topics."""
GROUP_DENIALS: Final = DENIALS._replace(resource_type=ResourceType.GROUP, operation=AclOperation.READ)
"""Matches all denials of the fence, on all groups."""


def denials(record: SwitchRecord) -> list[AclBinding]:
    """Return the ACLs that a switch creates on its source: a failback, which comes after a failover, more of them."""
    topics, groups = {*record.denied, *record.failback.denied}, {*record.denied_groups, *record.failback.denied_groups}
    return [*map(write_denial, sorted(topics)), *map(read_denial, sorted(groups))]


def exactly(acl: AclBinding) -> AclFilter:
    """Return the filter that matches this ACL only."""
    return AclFilter(acl.resource_type, acl.name, acl.principal, acl.operation, acl.permission, acl.pattern, acl.host)


def denied(acls: Iterable[AclBinding]) -> frozenset[str]:
    """Return the topics, or the groups, that one of these ACLs fences."""
    return frozenset(acl.name for acl in acls if acl in {write_denial(acl.name), read_denial(acl.name)})


def is_about(acl: AclBinding, name: str) -> bool:
    """Whether ``acl`` concerns the topic or group of this name."""
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in {name, "*"}


# Invariant: A topic or group is fenced by an ACL only if it has one: the first one closes what is open to everyone.
# Test: tests/switch/test_acl_fence.py::test_a_topic_without_an_acl_is_not_fenced
def why_not_fenced(names: Collection[str], acls: Collection[AclBinding]) -> Iterator[tuple[str, str]]:
    """Yield each topic or group that an ACL would not fence as it should, and why; ``acls`` are those of its type."""
    for name in sorted(names):
        if not any(is_about(acl, name) for acl in acls):
            yield name, "no ACL of the source concerns it, so that its first one would close it to all others, too"


def lacking(
    topics: Collection[str], source: Collection[AclBinding], target: Collection[AclBinding]
) -> Mapping[str, list[str]]:
    """Return the principals that may write to a topic on the source and not on the target, by topic.

    :data:`EVERYONE` among them stands for all that no ACL names. The fence's own denials on the target do not count: a
    switch removes them when it opens.
    """
    found = {}
    for topic in sorted(topics):
        allowed, refused = _writers(topic, target, but=write_denial(topic))
        if EVERYONE in refused:
            allowed = set()
        wanted, unwanted = _writers(topic, source)
        missing = (wanted - unwanted) & refused if EVERYONE in allowed else wanted - unwanted - (allowed - refused)
        if missing and EVERYONE not in unwanted:
            found[topic] = sorted(missing)
    return found


def _writers(topic: str, acls: Collection[AclBinding], but: AclBinding | None = None) -> tuple[set[str], set[str]]:
    """Return the principals that ACLs allow to write, and those that ACLs refuse."""
    about = [acl for acl in acls if is_about(acl, topic) and acl.operation in _WRITES and acl != but]
    allowed = {acl.principal for acl in about if acl.permission is AclPermission.ALLOW}
    return allowed, {acl.principal for acl in about if acl.permission is AclPermission.DENY}
