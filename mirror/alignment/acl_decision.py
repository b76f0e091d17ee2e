"""Decides what is done about each ACL of the target. Pure.

What this flow has created it deletes when the source does not want it any more, and nothing else. What was deleted on
the target by others is not created again by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.alignment.acl_selection import WILDCARD, Wanted
from mirror.alignment.reconciler import Change
from mirror.cluster.acls import AclBinding, AclPermission, PatternType, ResourceType

_EVERYONE: Final = "User:*"


class AclMark(enum.StrEnum):
    """How this flow knows an ACL of the target."""

    MAKING = "making"
    """It is about to create it. If it is there, others may have created the same one: it does not count as created."""
    MADE = "made"
    """It has created it."""
    UNWANTED = "unwanted"
    """It has created it and does not want it any more; the last round kept it because another flow may want it."""
    SEEN = "seen"
    """Others have: it was there when it was wanted."""


class Verb(enum.StrEnum):
    """What is done on the target."""

    CREATE = "create"
    DELETE = "delete"


class Reason(enum.StrEnum):
    """Why an ACL that differs is not changed; the values are for users."""

    REMOVED = "removed-on-target"
    """It was there, and others have deleted it on the target."""
    WAITS = "waits-for-denial"
    """It allows something that an ACL of the source denies, and that one is not on the target."""
    STAYS = "stays-for-now"
    """What is to replace it is not on the target; or a denial, while something that it limits stays allowed."""
    CREATION_UNKNOWN = "creation-interrupted"
    """The source does not want it any more, and it is not known whether this flow has created it."""
    OTHER_FLOW = "wanted-by-other-flow"
    """This flow has created it, and another one of the file still wants it. This is no drift."""
    UNCERTAIN = "uncertain"
    """This flow has created it, and it is not known whether another one of the file wants it."""
    UNKNOWN = "unknown"
    """The source's ACL has a type or an operation that this version does not know."""
    ONLY_ON_TARGET = "only-on-target"
    """Others have created it on a target topic. This is no drift."""
    OVER_LIMIT = "over-limit"
    """The flow would have created more ACLs than max-acls."""


NO_DRIFT: Final = frozenset({Reason.ONLY_ON_TARGET, Reason.OTHER_FLOW})

Known = Mapping[AclBinding, AclMark]
"""What the inventory has, by ACL of the target."""


@dataclass(slots=True, kw_only=True)
class AclChange(Change[AclMark]):
    """An ACL that is on one side alone, or in step; the latter is held without a reason."""

    verb: Verb | None = None
    """What is to be done, or was; None: nothing in any case."""


@dataclass(slots=True)
class AclDecisions:
    """What becomes of each ACL: as on the target; if it is unknown, as on the source."""

    changes: dict[AclBinding, AclChange] = field(default_factory=dict)

    def due(self, verb: Verb, permission: AclPermission) -> dict[AclBinding, AclChange]:
        """Return the ACLs that are to be created or deleted."""
        return {
            acl: one
            for acl, one in self.changes.items()
            if one.is_due and one.verb is verb and acl.permission is permission
        }

    def hold(self, acl: AclBinding, reason: enum.StrEnum, detail: str = "") -> None:
        """Leave an ACL as it is."""
        self.changes[acl].hold(reason, detail)

    def known(self) -> dict[AclBinding, AclMark]:
        """Return what the inventory is to have by the outcomes of the changes now."""
        return {acl: mark for acl, one in self.changes.items() if (mark := one.stored) is not None}


# Invariant: A flow deletes only ACLs that it has created and that no other flow wants; in both directions neither
#   brings back what the other deletes.
# Test: tests/alignment/permissions/test_decision.py::test_only_what_the_flow_has_created_is_deleted
# Test: tests/alignment/permissions/test_rounds_on_fakes.py::test_what_another_flow_of_the_file_wants_stays
# Test: tests/alignment/permissions/
#   test_rounds_on_fakes.py::test_of_flows_in_both_directions_neither_brings_back_what_the_other_deletes
# Test: tests/alignment/permissions/
#   test_both_directions_on_brokers.py::test_under_the_same_names_both_sides_get_the_same_and_deletions_reach_both
def decide(wanted: Wanted, at_target: Iterable[AclBinding], known: Known, *, adopt: bool = False) -> AclDecisions:
    """Decide about each ACL.

    ``adopt``: the user wants those again that others have deleted on the target, and takes those for the flow's own
    whose creation was interrupted.
    """
    found, there = AclDecisions(), dict.fromkeys(at_target)
    for acl in wanted.acls:
        mark = known.get(acl)
        if acl in there:
            found.changes[acl] = AclChange.left(
                AclMark.MADE if mark is AclMark.UNWANTED else mark or AclMark.SEEN, None
            )
        elif mark in {None, AclMark.MAKING, AclMark.UNWANTED} or adopt:
            found.changes[acl] = AclChange(kept=mark, intent=AclMark.MAKING, settled=AclMark.MADE, verb=Verb.CREATE)
        else:
            found.changes[acl] = AclChange.left(mark, Reason.REMOVED)
    for acl in there:
        if acl in wanted.acls:
            continue
        mark = known.get(acl)
        if mark in {AclMark.MADE, AclMark.UNWANTED} or (mark is AclMark.MAKING and adopt):
            found.changes[acl] = AclChange(kept=AclMark.MADE, intent=AclMark.MADE, settled=None, verb=Verb.DELETE)
        elif mark is AclMark.MAKING:
            found.changes[acl] = AclChange.left(mark, Reason.CREATION_UNKNOWN)
        elif acl.resource_type is ResourceType.TOPIC and _is_named(acl) and acl.name in wanted.topics:
            found.changes[acl] = AclChange.left(None, Reason.ONLY_ON_TARGET)
    for acl in wanted.unknown:
        found.changes[acl] = AclChange.left(known.get(acl), Reason.UNKNOWN)
    absent = [acl for acl, one in found.changes.items() if one.reason is Reason.REMOVED]
    hold_back(found, [acl for acl in (*absent, *wanted.unknown) if acl.permission is not AclPermission.ALLOW])
    return found


def limit(found: AclDecisions, most: int, known: Known) -> None:
    """Allow nothing more than ``most`` ACLs with those that the flow has created; name the others.

    Denials count, and are created beyond ``most``, too: without one, an ACL that is on the target already would allow
    what the source denies. ``known`` is what the inventory had.
    """
    created = sum(mark in {AclMark.MADE, AclMark.UNWANTED} for mark in known.values())
    created += len(found.due(Verb.CREATE, AclPermission.DENY))
    over = list(found.due(Verb.CREATE, AclPermission.ALLOW))[max(0, most - created) :]
    for acl in over:
        found.hold(acl, Reason.OVER_LIMIT, f"max-acls is {most}")
    keep_replaced(found, over)


def keep_replaced(found: AclDecisions, missing: Iterable[AclBinding]) -> None:
    """Delete nothing that one of ``missing`` is to replace under another name: they are not on the target.

    A topic of others under a prefix turns an ACL of that prefix into one for each topic. Without these its deletion
    would take what the source allows, or allow what the source denies.
    """
    replacements: dict[AclBinding, list[AclBinding]] = {}
    for acl in missing:
        replacements.setdefault(_without_name(acl), []).append(acl)
    kept = [
        acl
        for acl, one in found.changes.items()
        if one.is_due and one.verb is Verb.DELETE
        if any(_overlap(new, acl) for new in replacements.get(_without_name(acl), ()))
    ]
    allowed = [acl for acl in kept if acl.permission is AclPermission.ALLOW]
    kept += [
        denial for denial in found.due(Verb.DELETE, AclPermission.DENY) if any(_limits(denial, acl) for acl in allowed)
    ]
    for acl in kept:
        found.hold(acl, Reason.STAYS)


def leave(found: AclDecisions, acls: Collection[AclBinding], reason: enum.StrEnum) -> None:
    """Leave these ACLs as they are, and what would open something without them."""
    created = [acl for acl in acls if found.changes[acl].verb is Verb.CREATE]
    for acl in acls:
        found.hold(acl, reason)
    hold_back(found, [acl for acl in created if acl.permission is AclPermission.DENY])
    keep_replaced(found, created)
    if any(acl.permission is AclPermission.ALLOW and found.changes[acl].verb is Verb.DELETE for acl in acls):
        for denial in found.due(Verb.DELETE, AclPermission.DENY):
            found.hold(denial, Reason.STAYS)


# Invariant: Denials come first and go last: nothing is allowed before what limits it is denied.
# Test: tests/alignment/permissions/test_rounds_on_fakes.py::test_nothing_is_allowed_before_what_limits_it_is_denied
def hold_back(found: AclDecisions, denials: Collection[AclBinding]) -> None:
    """Create nothing that ``denials`` would limit: they are not on the target; what the source denies stays denied."""
    if not denials:
        return
    for acl in found.due(Verb.CREATE, AclPermission.ALLOW):
        if any(_limits(denial, acl) for denial in denials):
            found.hold(acl, Reason.WAITS)


def keep_for_others(found: AclDecisions, wanted: Mapping[str, Collection[AclBinding] | None]) -> None:
    """Delete nothing that another flow wants. ``wanted`` is what each wants by its inventory; None if it is unknown.

    What is kept stays the flow's own: it is deleted once no other flow wants it. The inventory says that this flow does
    not: otherwise two flows that have both created an ACL would keep it for each other.
    """
    for acl, one in found.changes.items():
        if not one.is_due or one.verb is not Verb.DELETE:
            continue
        users = [flow for flow, acls in wanted.items() if acls is not None and acl in acls]
        unknown = [flow for flow, acls in wanted.items() if acls is None]
        if users or unknown:
            one.kept = AclMark.UNWANTED
        if users:
            one.hold(Reason.OTHER_FLOW, ", ".join(users))
        elif unknown:
            one.hold(Reason.UNCERTAIN, f"the inventory of {', '.join(unknown)} cannot be read")


def _limits(denial: AclBinding, allowed: AclBinding) -> bool:
    """Return whether ``denial`` may be about something that ``allowed`` allows. What is unknown limits everything."""
    if not (denial.pattern and denial.permission and denial.operation):
        return True
    if denial.resource_type is not allowed.resource_type:
        return False
    everyone = _EVERYONE in {denial.principal, allowed.principal}
    return (everyone or denial.principal == allowed.principal) and _overlap(denial, allowed)


def _without_name(acl: AclBinding) -> AclBinding:
    return acl._replace(name="", pattern=PatternType.LITERAL)


def _overlap(one: AclBinding, other: AclBinding) -> bool:
    if _is_named(one) and _is_named(other):
        return one.name == other.name
    names = ["" if _is_every(acl) else acl.name for acl in (one, other)]
    if _is_named(one):
        return names[0].startswith(names[1])
    if _is_named(other):
        return names[1].startswith(names[0])
    return names[0].startswith(names[1]) or names[1].startswith(names[0])


def _is_every(acl: AclBinding) -> bool:
    return acl.pattern is PatternType.LITERAL and acl.name == WILDCARD


def _is_named(acl: AclBinding) -> bool:
    return acl.pattern is PatternType.LITERAL and acl.name != WILDCARD
