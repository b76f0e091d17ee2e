"""The ACLs of a flow's target topics, and of groups if the user wants it: created and deleted as on the source.

::

    1 ACLs and topics of both sides ───────┬─► wanted ─┐
    2 inventory, progress, kept groups ────┴───────────┴─► decide, limit ─► created and deleted, in an order in which
                                                                    nothing is allowed meanwhile that the source denies
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from mirror.alignment.acl_decision import (
    NO_DRIFT,
    AclChange,
    AclDecisions,
    AclMark,
    Reason,
    Verb,
    decide,
    hold_back,
    keep_for_others,
    keep_replaced,
    leave,
    limit,
)
from mirror.alignment.acl_selection import AclRules, AclSides, Wanted, wanted
from mirror.alignment.differences import Difference, KindReport, Words, outcome_of
from mirror.alignment.inventory import TIMEOUT_MS
from mirror.alignment.inventory_records import Acls, Inventory, Key
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.reconciler import Making, Outcome
from mirror.client import AclBinding, AclFilter, AclPermission, Admin, PatternType, ResourceType
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, UnsupportedVersion, named, printable
from mirror.observation import Side, Sides
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of, inventory_topic_of
from mirror.timing import Clock, Timer
from mirror.wire.error_codes import SECURITY_DISABLED

WORDS: Final = Words(subject="ACLs", one="ACL", many="ACLs")
_AT_ONCE: Final = 500
"""ACLs per request: a controller stores each as a record, at most 10,000 of a request (KAFKA-17870)."""
_KINDS: Final = [ResourceType.TOPIC, ResourceType.GROUP]
_SIGNS: Final = {Verb.CREATE: "+", Verb.DELETE: "-", None: "="}
_NOT_OWN: Final = {
    ResourceType.TOPIC: "the flow has not created it and copies nothing into it",
    ResourceType.GROUP: "the flow keeps no position of it",
}

FindGroups = Callable[[Callable[[str], bool], Collection[str]], Collection[str] | None]
"""Returns groups by whether a target topic is the flow's, and by those of which the flow has created ACLs; None if the
flow keeps no positions."""


@dataclass(slots=True)
class AclPlan:
    """What one round has found and decided."""

    inventory: Inventory
    target: Admin
    wanted: Wanted = field(default_factory=Wanted)
    decisions: AclDecisions | None = None
    """None: the ACLs of a cluster cannot be read."""
    problem: str = ""
    off: str = ""

    def hold(self, subjects: Collection[AclBinding], reason: enum.StrEnum) -> None:
        """Leave these ACLs as they are, and what must not be made without them."""
        if self.decisions is not None:
            leave(self.decisions, subjects, reason)

    def records(self) -> Mapping[Key, Acls | None]:
        """Return what the inventory is to have about all ACLs."""
        return {} if self.decisions is None else self.inventory.acl_records(self.decisions.known())


class AclAlignment:
    """The ACLs of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: str,
        target_options: Mapping[str, object],
        inventory: Inventory,
        rules: AclRules,
        clock: Clock,
        others: Collection[str] = (),
        kept_groups: FindGroups = lambda *_: (),
    ) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used.

        ``others`` are the other flows that bring ACLs to this target: what they want is not deleted. ``kept_groups``
        returns the groups whose positions the flow keeps on the target; it may raise KafkaError. Raises ConfigError.
        """
        self._flow: Final = flow
        self._inventory: Final = inventory
        self.rules = rules
        """May be replaced between rounds."""
        self.coming: Collection[str] = ()
        """Target topics that the flow is about to create: a round that only finds what differs counts them."""
        self._clock: Final = clock
        self._owned: Final = OwnedTopics(flow, target_options, self._source_topic)
        self._kept_groups: Final = kept_groups
        self._others: Final = {flow: FlowTopic(target_options, inventory_topic_of(flow)) for flow in others}

    def _source_topic(self, name: str) -> str | None:
        return self.rules.source_topic(name)  # the rules may be replaced

    def plan(self, sides: Sides) -> AclPlan:
        """Decide about each ACL of the target. Raises KafkaError."""
        plan = AclPlan(self._inventory, sides.target.admin)
        # Those of groups that were created with other rules are deleted, so they are always read on the target.
        of_source = [ResourceType.TOPIC] if self.rules.takes_group is None else _KINDS
        at_source = _read(sides.source, of_source, plan)
        at_target = None if at_source is None else _read(sides.target, _KINDS, plan)
        if at_source is None or at_target is None:
            return plan
        topics, known = sides.target.topics, self._inventory.acls
        copies = {name: one for name, one in topics.items() if self.rules.source_topic(name) is not None}
        owned = frozenset(self._owned.recorded(plan.target, copies, self._inventory))
        plan.wanted = wanted(
            self.rules,
            AclSides(
                source=at_source,
                source_topics=sides.source.topics,
                target_topics={*topics, *self.coming},
                owned_topics=owned.union(self.coming),
                # Those of the source that this client may not describe are absent.
                source_groups=() if self.rules.takes_group is None else sides.source.groups(),
                kept_groups=self._kept(owned, known, plan),
            ),
        )
        plan.decisions = decide(plan.wanted, at_target, known, adopt=self.rules.adopt)
        limit(plan.decisions, self.rules.most, known)
        if any(one.is_due and one.verb is Verb.DELETE for one in plan.decisions.changes.values()):
            keep_for_others(plan.decisions, {flow: self._wanted_by(flow, topics) for flow in self._others})
        return plan

    def make(self, plan: AclPlan, making: Making) -> None:
        """Create and delete. Denials are there before what they limit, and are deleted after it. Raises KafkaError."""
        found = plan.decisions
        if found is None:
            return

        def send(verb: Verb, permission: AclPermission) -> list[AclBinding]:
            """Return what was not done."""
            due = found.due(verb, permission)
            call = partial(_create if verb is Verb.CREATE else _delete, plan.target)
            return [
                acl for acls in _in_portions(list(due)) for acl in making.send({one: due[one] for one in acls}, call)
            ]

        denials = send(Verb.CREATE, AclPermission.DENY)
        hold_back(found, denials)
        keep_replaced(found, [*denials, *send(Verb.CREATE, AclPermission.ALLOW)])
        if send(Verb.DELETE, AclPermission.ALLOW):
            for acl in found.due(Verb.DELETE, AclPermission.DENY):
                found.hold(acl, Reason.STAYS)
        send(Verb.DELETE, AclPermission.DENY)

    def report(self, plan: AclPlan) -> KindReport:
        """Return what the round has found and done."""
        changes = {} if plan.decisions is None else plan.decisions.changes
        changing, left_out = plan.wanted.changing, plan.wanted.left_out
        notes = [
            f"ACLs of {named(kind.name.lower(), sorted(names))} are left out: {_NOT_OWN[kind]}"
            for kind, names in left_out.items()
        ]
        if changing:
            count = f"{changing} ACL{'s' if changing > 1 else ''} of the source"
            notes.insert(0, f"{count} that allow more than reading: that is left out (write = false)")
        return KindReport(
            words=WORDS,
            differences=tuple(_difference(acl, one) for acl, one in changes.items() if one.verb or one.reason),
            problems=(plan.problem,) if plan.problem else (),
            notes=tuple(notes),
            off=plan.off,
            compared=len(plan.wanted.acls),
            counts={
                "created": sum(one.verb is Verb.CREATE and one.outcome is Outcome.MADE for one in changes.values()),
                "deleted": sum(one.verb is Verb.DELETE and one.outcome is Outcome.MADE for one in changes.values()),
                "left_out": changing,
                "not_own": {kind.name.lower(): len(names) for kind, names in left_out.items()},
            },
            time_ms=self._clock.unix_ms(),
        )

    # --- what there is

    def _wanted_by(self, flow: str, topics: Mapping[str, object]) -> Collection[AclBinding] | None:
        """Return the ACLs that another flow wants, by its inventory; None if that cannot be read."""
        topic, found = self._others[flow], Inventory()
        if topic.tp.topic not in topics:
            return ()  # it has brought none, or this user may not see that
        try:
            for record in topic.records(Timer(self._clock, TIMEOUT_MS)):
                found.take(record.key, record.value)
        except KafkaError:
            return None
        return [acl for acl, mark in found.acls.items() if mark is not AclMark.UNWANTED]

    def _kept(self, owned: Collection[str], known: Acls, plan: AclPlan) -> Collection[str]:
        """Return the groups whose positions the flow keeps. Raises KafkaError."""
        if self.rules.takes_group is None:
            return ()
        made = (acl for acl, mark in known.items() if mark is AclMark.MADE)
        names = (self.rules.source_group(acl.name) for acl in made if acl.resource_type is ResourceType.GROUP)
        settled = {name for name in names if name is not None}
        found = self._kept_groups(owned.__contains__, settled)
        if found is not None:
            return found
        if settled:  # a broker may lag: without the groups, all of their ACLs would be deleted
            plan.problem = (
                f"there is no topic {group_topic_of(self._flow)} on the target, so it is not known which groups"
                " the flow keeps; ACLs of groups stay as they are"
            )
        return settled


def _read(side: Side, kinds: Collection[ResourceType], plan: AclPlan) -> list[AclBinding] | None:
    """Return the ACLs of a cluster; None if it does not show them, and why in ``plan``. Raises KafkaError."""
    try:
        return [acl for kind in kinds for acl in side.acls(kind)]
    except AuthorizationFailed:
        plan.problem = (
            f"the ACLs of cluster {side.name} cannot be read: the permission Describe on the cluster is missing"
        )
    except UnsupportedVersion:
        plan.problem = f"cluster {side.name} does not offer DescribeAcls, so no ACLs are brought in step"
    except BrokerError as error:
        if error.code != SECURITY_DISABLED:
            raise
        plan.off = f"cluster {side.name} has no authorizer, so no ACLs are brought in step"
    return None


def _create(target: Admin, acls: list[AclBinding], timeout_ms: int) -> Mapping[AclBinding, KafkaError | None]:
    return target.create_acls(acls, partial=True, timeout_ms=timeout_ms).failed


def _delete(target: Admin, acls: list[AclBinding], timeout_ms: int) -> Mapping[AclBinding, KafkaError | None]:
    filters = {acl: _exactly(acl) for acl in acls}
    deleted = target.delete_acls(filters.values(), partial=True, timeout_ms=timeout_ms)
    return {acl: deleted.failed.get(exact) for acl, exact in filters.items()}


def _exactly(acl: AclBinding) -> AclFilter:
    return AclFilter(acl.resource_type, acl.name, acl.principal, acl.operation, acl.permission, acl.pattern, acl.host)


def _in_portions(acls: list[AclBinding]) -> Iterator[list[AclBinding]]:
    for start in range(0, len(acls), _AT_ONCE):
        yield acls[start : start + _AT_ONCE]


def describe(acl: AclBinding) -> str:
    """Return an ACL as a part of a line."""
    kind = acl.resource_type.name.lower()
    names = f"{kind}s {acl.name}*" if acl.pattern is PatternType.PREFIXED else f"{kind} {acl.name}"
    host = "" if acl.host == "*" else f" from {acl.host}"
    return printable(f"ACL of {names}: {acl.permission.name} {acl.operation.name} for {acl.principal}{host}")


def _difference(acl: AclBinding, one: AclChange) -> Difference:
    return Difference(
        subject=acl,
        text=describe(acl),
        sign="=" if one.reason is not None else _SIGNS[one.verb],
        **outcome_of(one, str(one.verb)),
        is_drift=one.reason not in NO_DRIFT,
        fields=_fields(acl),
    )


def _fields(acl: AclBinding) -> dict[str, Any]:
    return {
        "resource": acl.resource_type.name.lower(),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
