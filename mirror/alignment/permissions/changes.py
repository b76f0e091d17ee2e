"""Creates and deletes ACLs on the target, in the order in which nothing is allowed meanwhile that the source denies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mirror.alignment.changes import TIMEOUT_MS
from mirror.alignment.permissions.decision import Change, Known, Plan, Reason, forget, hold_back, keep_replaced
from mirror.client import AclBinding, AclFilter, AclPermission, Admin
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout

_AT_ONCE: Final = 500
"""ACLs per request: a controller stores each as a record, at most 10,000 of a request (KAFKA-17870)."""


@dataclass(slots=True)
class Changed:
    """What was done on the target."""

    created: set[AclBinding] = field(default_factory=set)
    deleted: set[AclBinding] = field(default_factory=set)


def change(target: Admin, plan: Plan, known: Known, check: Callable[[], None]) -> Changed:
    """Make the changes of ``plan``, and hold in it what the target refuses.

    Denials are there before what they limit, and are deleted after it. ``known`` is what the inventory had.
    ``check`` is called before each request. Raises KafkaError, also of ``check``: then not all is known that was
    changed.
    """
    changed = Changed()

    def make(what: Change, permission: AclPermission) -> list[AclBinding]:
        """Return what could not be done."""
        failed: list[AclBinding] = []
        for acls in _in_portions(plan.changes(what, permission)):
            check()
            for acl, error in _send(target, what, acls).items():
                if error is None:
                    (changed.created if what is Change.CREATE else changed.deleted).add(acl)
                    continue
                if isinstance(error, KafkaTimeout):
                    raise error  # whether it was made is not known: the inventory has it
                failed.append(acl)
                plan.hold(
                    acl, Reason.UNAUTHORIZED if isinstance(error, AuthorizationFailed) else Reason.REFUSED, str(error)
                )
                if what is Change.CREATE:
                    forget(plan, acl, known)
        return failed

    denials = make(Change.CREATE, AclPermission.DENY)
    hold_back(plan, denials, known)
    keep_replaced(plan, [*denials, *make(Change.CREATE, AclPermission.ALLOW)])
    if make(Change.DELETE, AclPermission.ALLOW):
        for acl in plan.changes(Change.DELETE, AclPermission.DENY):
            plan.hold(acl, Reason.STAYS)
    make(Change.DELETE, AclPermission.DENY)
    return changed


def _send(target: Admin, what: Change, acls: list[AclBinding]) -> dict[AclBinding, KafkaError | None]:
    if what is Change.CREATE:
        created = target.create_acls(acls, partial=True, timeout_ms=TIMEOUT_MS)
        return {acl: created.failed.get(acl) for acl in acls}
    filters = {acl: _exactly(acl) for acl in acls}
    deleted = target.delete_acls(filters.values(), partial=True, timeout_ms=TIMEOUT_MS)
    return {acl: deleted.failed.get(exact) for acl, exact in filters.items()}


def _exactly(acl: AclBinding) -> AclFilter:
    return AclFilter(acl.resource_type, acl.name, acl.principal, acl.operation, acl.permission, acl.pattern, acl.host)


def _in_portions(acls: list[AclBinding]) -> Iterator[list[AclBinding]]:
    for start in range(0, len(acls), _AT_ONCE):
        yield acls[start : start + _AT_ONCE]
