"""Says which ACLs the target is to have, by those of the source. Pure.

On a copied topic the target grants what the source grants on its topic, or less; on all others nothing. So an ACL
about all topics, or about those with a prefix, is applied to the copied ones alone. It stays a prefix where every topic
of the target that has it is a copy; else each copied topic gets an ACL of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

WILDCARD: Final = "*"
"""The literal name that stands for every resource of its type."""
_READING: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
}
"""What may be allowed without changing a topic, or more of a group than its offsets."""
_OF_ALL: Final = (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
"""What of ALL is reading. READ includes DESCRIBE."""
_EVERY_NAME: Final = re.compile(r"((?:[A-Za-z0-9_-]|\\?\.|\\-|\\_)*?)\.[*+]")
"""A regular expression of topics that matches every name with a plain prefix, or all but the prefix alone."""


@dataclass(frozen=True, slots=True)
class AclRules:
    """Which ACLs a flow brings to the target."""

    target_topic: Callable[[str], str | None]
    """The target topic of a source topic; None if the flow does not copy it."""
    namespace: str = ""
    """What the names of all target topics begin with; empty if they have the source's names."""
    prefixes: tuple[str, ...] = ()
    """The source topics with one of these prefixes are copied, unless they are excluded.

    Empty without a ``namespace``: then the target's own topics may have such names, too.
    """
    takes_group: Callable[[str], bool] | None = None
    """Whether the ACLs of a group are brought to the target; None: those of no group."""
    write: bool = False
    """Whether permissions to change topics and groups are, too."""
    most: int = 10_000
    """How many ACLs the flow has created on the target at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What both clusters have."""

    source: Sequence[AclBinding] = ()
    source_topics: Collection[str] = ()
    target_topics: Collection[str] = ()
    source_groups: Collection[str] = ()
    known: Collection[AclBinding] = ()
    """The ACLs of the target that the inventory has."""


@dataclass(slots=True)
class Wanted:
    """What the target is to have."""

    acls: dict[AclBinding, None] = field(default_factory=dict)
    """In the order of the source; the values mean nothing."""
    changing: int = 0
    """How many of the source's ACLs are left out, in whole or in part, because they allow to change something."""
    unknown: list[AclBinding] = field(default_factory=list)
    """Those of the source with a type or an operation that this version does not know."""
    topics: frozenset[str] = frozenset()
    """The target topics that are copies."""


def prefixes_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes with which every name is matched by one of the regular expressions ``patterns``."""
    found = (_EVERY_NAME.fullmatch(pattern) for pattern in patterns)
    return tuple(dict.fromkeys(one.group(1).replace("\\", "") for one in found if one is not None))


def wanted(rules: AclRules, sides: Sides) -> Wanted:
    """Return what the target is to have."""
    result = Wanted()
    topics = _Topics(rules, sides)
    result.topics = frozenset(topics.names.values())
    places: dict[ResourceType, _Place] = {ResourceType.TOPIC: topics}
    if rules.takes_group is not None:
        places[ResourceType.GROUP] = _Groups(rules, sides)
    for acl in sides.source:
        place = places.get(acl.resource_type)
        if place is None:
            continue
        at_target = list(place.of(acl))
        if acl.pattern is PatternType.UNKNOWN or (at_target and _is_unknown(acl)):
            result.unknown.append(acl)
            continue
        operations = _operations(acl, write=rules.write)
        if at_target and operations != (acl.operation,):
            result.changing += 1
        for one in at_target:
            result.acls.update(dict.fromkeys(one._replace(operation=operation) for operation in operations))
    return result


def _is_unknown(acl: AclBinding) -> bool:
    return acl.permission is AclPermission.UNKNOWN or acl.operation is AclOperation.UNKNOWN


def _operations(acl: AclBinding, *, write: bool) -> tuple[AclOperation, ...]:
    """Return what the target is to allow or deny where the source has ``acl``."""
    if write or acl.permission is AclPermission.DENY:
        return (acl.operation,)
    if acl.operation is AclOperation.ALL:
        return _OF_ALL
    return (acl.operation,) if acl.operation in _READING[acl.resource_type] else ()


class _Place:
    """The resources of one type: where the ACLs of the source are on the target."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names: Final = names
        """The target's names of what is brought there, by the source's."""

    def literal(self, acl: AclBinding) -> str | None:
        """Return the target's name for that of ``acl``; None if it is not brought there."""
        return self.names.get(acl.name)

    def prefixed(self, prefix: str, permission: AclPermission) -> Iterator[tuple[str, str]]:
        """Yield the prefixes of names on the source that ``prefix`` covers, each with that of the target."""
        del prefix, permission
        yield from ()

    def of(self, acl: AclBinding) -> Iterator[AclBinding]:
        """Yield the ACLs of the target."""
        every = acl.pattern is PatternType.LITERAL and acl.name == WILDCARD
        if acl.pattern is PatternType.LITERAL and not every:
            name = self.literal(acl)
            if name is not None:
                yield acl._replace(name=name)
            return
        prefix = "" if every else acl.name
        covered = tuple(self.prefixed(prefix, acl.permission))
        for _, name in covered:
            yield acl._replace(name=name, pattern=PatternType.PREFIXED)
        for source, name in self.names.items():
            if source.startswith(prefix) and not source.startswith(tuple(one for one, _ in covered)):
                yield acl._replace(name=name, pattern=PatternType.LITERAL)


class _Topics(_Place):
    def __init__(self, rules: AclRules, sides: Sides) -> None:
        self._rules: Final = rules
        self._foreign: Final = [name for name in sides.target_topics if not _is_copy(rules, name)]
        super().__init__(_copied(rules, sides))

    def literal(self, acl: AclBinding) -> str | None:
        """Return the target's name. What is denied is also about excluded topics: a prefix may cover their names."""
        covered = acl.permission is AclPermission.DENY and acl.name.startswith(self._rules.prefixes)
        return self._rules.namespace + acl.name if covered else super().literal(acl)

    def prefixed(self, prefix: str, permission: AclPermission) -> Iterator[tuple[str, str]]:
        """Yield prefixes that the flow copies as a whole.

        What is allowed by a prefix must not cover a topic of the target that is no copy. What is denied may: that is
        about names that stand for topics of the source, and a copy that is created later must not be readable at once.
        """
        longest = {
            max(prefix, one, key=len)
            for one in self._rules.prefixes
            if one.startswith(prefix) or prefix.startswith(one)
        }
        for one in sorted(longest):
            name = self._rules.namespace + one
            nested = any(one.startswith(other) for other in longest - {one})
            clear = permission is AclPermission.DENY or not any(each.startswith(name) for each in self._foreign)
            if clear and not nested:
                yield one, name


def _is_copy(rules: AclRules, name: str) -> bool:
    """Return whether the target's topic has the name of a copy."""
    return name.startswith(rules.namespace) and rules.target_topic(name.removeprefix(rules.namespace)) == name


def _copied(rules: AclRules, sides: Sides) -> dict[str, str]:
    """Return the target topics by source topic.

    A copy whose source topic is gone, or is not visible for a moment, keeps its ACLs. A topic that only ACLs of
    the source name gets them before it is created, unless the target has one of that name: this is no copy.
    """
    at_target = set(sides.target_topics)
    named = _literal_names(sides.source, ResourceType.TOPIC)
    names = {*sides.source_topics, *(name for name in named if rules.target_topic(name) not in at_target)}
    kept = _literal_names(sides.known, ResourceType.TOPIC) & at_target
    names |= {name.removeprefix(rules.namespace) for name in kept if _is_copy(rules, name)}
    found = ((name, rules.target_topic(name)) for name in sorted(names))
    return {name: target for name, target in found if target is not None}


class _Groups(_Place):
    """Groups have the same names on both sides. A prefix would also be about groups that the target has by itself."""

    def __init__(self, rules: AclRules, sides: Sides) -> None:
        assert rules.takes_group is not None  # noqa: S101 - else there is no such place
        names = set(sides.source_groups)
        for acls in (sides.source, sides.known):
            names |= _literal_names(acls, ResourceType.GROUP)
        super().__init__({name: name for name in sorted(names) if rules.takes_group(name)})


def _literal_names(acls: Iterable[AclBinding], kind: ResourceType) -> set[str]:
    literal = (acl for acl in acls if acl.resource_type is kind and acl.pattern is PatternType.LITERAL)
    return {acl.name for acl in literal if acl.name != WILDCARD}
