"""Says which ACLs the target is to have, by those of the source. Pure.

On a topic that the flow owns, the target grants what the source grants on its topic, or less; on all others nothing.
So an ACL about all topics, or about those with a prefix, is applied to the copied ones alone. It stays a prefix where
all topics that have it are the flow's, now and when more are created; else each one that the flow owns gets an ACL of
its own. Of groups, those get ACLs whose positions the flow keeps.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType, write_denial

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
_PLAIN: Final = re.compile(r"(?:(?:[A-Za-z0-9_-]|\\[._-])(?![*?{]))*")
"""The beginning of a regular expression that stands for itself."""


@dataclass(frozen=True, slots=True)
class AclRules:
    """Which ACLs a flow brings to the target."""

    target_topic: Callable[[str], str | None]
    """The target topic of a source topic; None if the flow does not copy it."""
    source_topic: Callable[[str], str | None]
    """The reverse, also of topics that do not exist; None if no copy has this name."""
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
    others: tuple[str, ...] = ()
    """What the names of the topics begin with that other flows may make on the target."""
    fenced: bool = False
    """Whether a switch fences the source's topics: its denials of WRITE are not for the target, where it opens them."""
    adopt: bool = False
    """Whether a user wants those again that others have deleted on the target."""
    target_group: Callable[[str], str] = str
    """The name of a group of the source on the target."""
    source_group: Callable[[str], str | None] = str
    """The reverse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSides:
    """What both clusters have."""

    source: Sequence[AclBinding] = ()
    source_topics: Collection[str] = ()
    target_topics: Collection[str] = ()
    owned_topics: Collection[str] = ()
    """Those of the target that are the flow's."""
    source_groups: Collection[str] = ()
    kept_groups: Collection[str] = ()
    """The groups whose positions the flow keeps on the target, by their names on the source."""


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
    """The target topics that get ACLs."""
    left_out: dict[ResourceType, set[str]] = field(default_factory=dict)
    """What is the flow's by its name alone, as on the target: ACLs of the source about it are left out."""


def beginnings_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return what the names begin with that the regular expressions ``patterns`` match; empty: with anything."""
    found = (None if "|" in pattern else _PLAIN.match(pattern) for pattern in patterns)
    return tuple(dict.fromkeys("" if one is None else one.group().replace("\\", "") for one in found))


def prefixes_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes with which every name is matched by one of the regular expressions ``patterns``."""
    found = (_EVERY_NAME.fullmatch(pattern) for pattern in patterns)
    return tuple(dict.fromkeys(one.group(1).replace("\\", "") for one in found if one is not None))


# Invariant: No ACL widens anything: the target allows what the source allows on its topic, or less, nothing on topics
#   and groups of others, and a prefix stays one only where every topic under it is the flow's.
# Test: tests/alignment/permissions/test_decision.py::test_nothing_is_allowed_that_the_source_denies_or_does_not_allow
# Test: tests/alignment/permissions/
#   test_rights_on_brokers.py::test_users_may_read_the_copies_of_what_they_may_read_and_nothing_else
# Test: tests/alignment/permissions/test_beside_mirrormaker.py::test_each_kind_of_acl
# Test: tests/alignment/permissions/test_selection.py::test_the_wildcard_is_never_one_on_the_target
# Test: tests/alignment/permissions/test_authority_on_fakes.py::test_a_prefix_does_not_cover_the_target_s_own_topic
# Test: tests/alignment/permissions/
#   test_authority_on_fakes.py::test_a_group_of_the_target_s_own_is_neither_opened_nor_closed
# Test: tests/alignment/permissions/
#   test_commands_on_fakes.py::test_a_group_that_reads_topics_of_the_target_s_own_gets_no_acl_unless_it_has_some
def wanted(rules: AclRules, sides: AclSides) -> Wanted:
    """Return what the target is to have."""
    result = Wanted()
    topics = _Topics(rules, sides)
    result.topics = frozenset(topics.names.values())
    places: dict[ResourceType, _Place] = {ResourceType.TOPIC: topics}
    if rules.takes_group is not None:
        places[ResourceType.GROUP] = _Groups(rules, sides)
    for acl in sides.source:
        place = places.get(acl.resource_type)
        if place is None or (rules.fenced and acl == write_denial(acl.name)):
            continue
        at_target = list(place.of(acl))
        if acl.pattern is PatternType.UNKNOWN or (at_target and _is_unknown(acl)):
            result.unknown.append(acl)
            continue
        operations = _operations(acl, write=rules.write)
        if operations and (left_out := set(place.left_out(acl))):
            result.left_out.setdefault(acl.resource_type, set()).update(left_out)
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

    def __init__(self, names: Mapping[str, str], foreign: Mapping[str, str]) -> None:
        self.names: Final = names
        """The target's names of what gets ACLs there, by the source's."""
        self.foreign: Final = foreign
        """The same of what is the flow's by its name alone."""

    def literal(self, acl: AclBinding) -> str | None:
        """Return the target's name for that of ``acl``; None if it gets no ACL there."""
        return self.names.get(acl.name)

    def prefixed(self, prefix: str, permission: AclPermission) -> Iterator[tuple[str, str]]:
        """Yield the prefixes of names on the source that ``prefix`` covers, each with that of the target."""
        del prefix, permission
        yield from ()

    def of(self, acl: AclBinding) -> Iterator[AclBinding]:
        """Yield the ACLs of the target."""
        prefix = _prefix(acl)
        if prefix is None:
            name = self.literal(acl)
            if name is not None:
                yield acl._replace(name=name)
            return
        covered = tuple(self.prefixed(prefix, acl.permission))
        for _, name in covered:
            yield acl._replace(name=name, pattern=PatternType.PREFIXED)
        for source, name in self.names.items():
            if source.startswith(prefix) and not source.startswith(tuple(one for one, _ in covered)):
                yield acl._replace(name=name, pattern=PatternType.LITERAL)

    def left_out(self, acl: AclBinding) -> Iterator[str]:
        """Yield the target's names of what ``acl`` is about, and what gets no ACL there."""
        prefix = _prefix(acl)
        for source, name in self.foreign.items():
            if source == acl.name if prefix is None else source.startswith(prefix):
                yield name


class _Topics(_Place):
    def __init__(self, rules: AclRules, sides: AclSides) -> None:
        self._rules: Final = rules
        self._at_target: Final = frozenset(sides.target_topics)
        owned = {name for name in sides.owned_topics if rules.source_topic(name) is not None}
        self._foreign: Final = sorted(self._at_target - owned)
        copies = _copies(rules, sides, owned)
        names = {
            source: name
            for source, name in copies.items()
            if name in owned or (name not in self._at_target and self._is_free(name))
        }
        foreign = {source: name for source, name in copies.items() if name in self._at_target and name not in owned}
        super().__init__(names, foreign)
        patterns = ((acl, _prefix(acl)) for acl in sides.source if acl.resource_type is ResourceType.TOPIC)
        self._allowed: Final = {
            one
            for acl, prefix in patterns
            if prefix is not None and acl.permission is not AclPermission.DENY
            for one in self._longest(prefix)
            if self._is_alone(one)
        }
        """The prefixes that what is allowed keeps."""

    def literal(self, acl: AclBinding) -> str | None:
        """Return the target's name. What is denied is also about excluded topics: a prefix may cover their names."""
        name = self._rules.namespace + acl.name
        covered = acl.permission is AclPermission.DENY and acl.name.startswith(self._rules.prefixes)
        return name if covered and name not in self._at_target and self._is_free(name) else super().literal(acl)

    def prefixed(self, prefix: str, permission: AclPermission) -> Iterator[tuple[str, str]]:
        """Yield prefixes that the flow copies as a whole, and in which every topic of the target is its own.

        What is denied by another prefix is also denied by those that keep what is allowed: a topic that is created
        later must not be readable at once.
        """
        for one in sorted(self._longest(prefix)):
            if self._is_alone(one):
                yield one, self._rules.namespace + one
            elif permission is AclPermission.DENY:
                yield from (
                    (longer, self._rules.namespace + longer)
                    for longer in sorted(self._allowed)
                    if longer.startswith(one)
                )

    def _longest(self, prefix: str) -> set[str]:
        """Return the prefixes, as on the source, that ``prefix`` and the flow's have in common; none covers another."""
        found = {
            max(prefix, one, key=len)
            for one in self._rules.prefixes
            if one.startswith(prefix) or prefix.startswith(one)
        }
        return {one for one in found if not any(one.startswith(other) for other in found - {one})}

    def _is_alone(self, prefix: str) -> bool:
        """Return whether all topics that have, or get, a name with this prefix on the target are the flow's."""
        name = self._rules.namespace + prefix
        others = any(one.startswith(name) or name.startswith(one) for one in self._rules.others)
        at = bisect_left(self._foreign, name)  # the first in order that may begin with it
        return not others and not any(each.startswith(name) for each in self._foreign[at : at + 1])

    def _is_free(self, name: str) -> bool:
        """Return whether a topic of the target that does not exist can only become the flow's, by its name."""
        return bool(self._rules.namespace) and not name.startswith(self._rules.others)


def _prefix(acl: AclBinding) -> str | None:
    """Return the beginning of the names that ``acl`` is about; None if it is about one name."""
    if acl.pattern is PatternType.LITERAL:
        return "" if acl.name == WILDCARD else None
    return acl.name


def _copies(rules: AclRules, sides: AclSides, owned: Iterable[str]) -> dict[str, str]:
    """Return the target topics that have the name of a copy, by source topic, also those that do not exist yet.

    A copy whose source topic is gone, or is not visible for a moment, keeps its ACLs.
    """
    names = {*sides.source_topics, *_literal_names(sides.source, ResourceType.TOPIC)}
    names.update(source for name in owned if (source := rules.source_topic(name)) is not None)
    found = ((name, rules.target_topic(name)) for name in sorted(names))
    return {name: target for name, target in found if target is not None}


class _Groups(_Place):
    """A prefix would also be about groups that the target has by itself."""

    def __init__(self, rules: AclRules, sides: AclSides) -> None:
        assert rules.takes_group is not None  # noqa: S101 - else there is no such place
        named = rules.target_group
        kept = {name: named(name) for name in sorted(sides.kept_groups) if rules.takes_group(name)}
        names = {*sides.source_groups, *_literal_names(sides.source, ResourceType.GROUP)}
        super().__init__(kept, {name: named(name) for name in sorted(names - kept.keys()) if rules.takes_group(name)})


def _literal_names(acls: Iterable[AclBinding], kind: ResourceType) -> set[str]:
    literal = (acl for acl in acls if acl.resource_type is kind and acl.pattern is PatternType.LITERAL)
    return {acl.name for acl in literal if acl.name != WILDCARD}
