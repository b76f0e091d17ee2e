"""Find the permissions that a flow lacks before anything is copied (KIP-430: brokers return authorized operations).

::

    both clusters ──look_up_permissions──► FlowPermissions ──missing_permissions──► problems: the flow cannot run
                                                                                    warnings: a part cannot be copied

Pure. Permissions that the brokers did not return are not reported: if one is missing, the copy fails with it.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import AclOperation
from mirror.errors import MAX_NAMES_SHOWN, named
from mirror.spark.preflight.permission_table import PERMISSIONS
from mirror.spark.preflight.permissions import (
    FlowPermissions,
    Kind,
    Operations,
    Permission,
    Refuses,
    Side,
    name_of,
)

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_Place = tuple[Side, Kind]


@dataclass(slots=True)
class MissingPermissions:
    """Lines about missing permissions: ``problems`` prevent the flow from running, ``warnings`` do not."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


# Invariant: A missing permission is reported by what brokers say, never on a guess.
# Test: tests/spark/preflight/test_permission_check.py::test_permissions_that_brokers_do_not_return_give_no_lines
def missing_permissions(found: FlowPermissions) -> MissingPermissions:
    """Return what a flow lacks. An operation that is missing on a resource is named once, by the first that needs it.

    Each problem begins with the flow's name, because the problems of all flows are printed in one list.
    """
    missing, check = MissingPermissions(), _Check(found)
    for permission in PERMISSIONS:
        refused, lines = check.lines(permission)
        if refused:
            missing.problems += [f"flow {found.flow.name}: {line}" for line in lines]
        else:
            missing.warnings += lines
    if found.groups is not None and not found.groups:
        missing.warnings.append(_no_group(found.flow))
    return missing


class _Check:
    """Goes through the table once."""

    def __init__(self, found: FlowPermissions) -> None:
        self._found: Final = found
        self._advised: Final[dict[_Place, dict[str, set[AclOperation]]]] = defaultdict(lambda: defaultdict(set))
        """What the lines so far advise to grant, by name."""
        self._needed: Final[dict[_Place, dict[str, set[AclOperation]]]] = defaultdict(lambda: defaultdict(set))
        """All that is needed, by name: where Describe is missing, brokers do not show what else is."""
        for one in PERMISSIONS:
            for name in one.needing(found):
                self._needed[one.place][name].update(one.operations, one.resource.also)

    def lines(self, permission: Permission) -> tuple[bool, list[str]]:
        """Return whether the flow is refused, and one line for all resources that lack the same operations."""
        lacking = self._lacking(permission)
        every = bool(lacking) and len(lacking) == len(permission.names(self._found))
        refused = {Refuses.NEVER: False, Refuses.IF_ALL_LACK_IT: every, Refuses.IF_ONE_LACKS_IT: bool(lacking)}
        why = permission.why
        if permission.refuses is Refuses.IF_ALL_LACK_IT:
            why += ", and nothing can be copied" if every else "; the flow's other topics are copied"
        by_operations: dict[tuple[AclOperation, ...], list[str]] = defaultdict(list)
        for name, operations in lacking.items():
            if new := operations.difference(self._advised[permission.place][name]):
                by_operations[tuple(sorted(new))].append(name)
        prefixed = every or permission.refuses is not Refuses.IF_ALL_LACK_IT  # else those that lack it are named
        lines = [
            self._line(permission, operations, names, why, prefixed=prefixed)
            for operations, names in by_operations.items()
        ]
        return refused[permission.refuses], lines

    def _lacking(self, permission: Permission) -> dict[str, set[AclOperation]]:
        """Return what is missing by name. What does not exist, or is not known, lacks nothing."""
        allowed = self._found.allowed.get(permission.place, {})
        known = {
            name: one.operations
            for name in sorted(permission.needing(self._found))
            if (one := allowed.get(name)) is not None and one.operations is not None
        }
        lacking = {name: absent_of(operations, permission.operations) for name, operations in known.items()}
        return {name: operations for name, operations in lacking.items() if operations}

    def _line(
        self, permission: Permission, operations: Sequence[AclOperation], names: list[str], why: str, *, prefixed: bool
    ) -> str:
        needed, granted = self._needed[permission.place], set(operations)
        if AclOperation.DESCRIBE in operations:
            granted.update(*(needed[name] for name in names))
        prefixes = permission.resource.prefixes(self._found)
        used = tuple(one for one in prefixes if any(name.startswith(one) for name in names))
        for name in needed if used else names:
            if not used or name.startswith(used):
                self._advised[permission.place][name] |= granted
        kind = permission.resource.kind
        resource = f"{kind.word}s with the prefix {', '.join(used)}" if used and prefixed else _named(kind, names)
        grant = f"{_flags(kind, used)} --resource-pattern-type prefixed" if used else _flags(kind, names)
        return _line(operations, resource, permission.cluster(self._found.flow), why, granted, grant)


def absent_of(allowed: Operations, needed: Collection[AclOperation]) -> set[AclOperation]:
    """Return the ``needed`` operations that are not ``allowed``; only Describe if that is absent: it hides the rest."""
    return set(needed) - allowed if AclOperation.DESCRIBE in allowed else {AclOperation.DESCRIBE}


def line_about(permission: Permission, flow: FlowConfig, names: list[str]) -> str:
    """Return the line about resources that lack a permission, as a call has shown."""
    kind, operations = permission.resource.kind, permission.operations
    cluster = permission.cluster(flow)
    return _line(operations, _named(kind, names), cluster, permission.why, operations, _flags(kind, names))


def _line(
    missing: Collection[AclOperation],
    resource: str,
    cluster: str,
    why: str,
    granted: Collection[AclOperation],
    grant: str,
) -> str:
    verb, plural = ("are", "s") if len(missing) > 1 else ("is", "")
    # Describe first: it is what is missing.
    ordered = sorted(granted, key=lambda one: (one is not AclOperation.DESCRIBE, one))
    flags = " ".join(f"--operation {name_of(operation)}" for operation in ordered)
    return (
        f"the permission{plural} {' and '.join(map(name_of, missing))} on {resource} of cluster {cluster} {verb}"
        f" missing: {why}; grant to this client's user: kafka-acls --add --allow-principal User:... {flags} {grant}"
    )


def _no_group(flow: FlowConfig) -> str:
    return (
        f"no consumer group of cluster {flow.source} is one of [flows.{flow.name}.groups]: there is none yet, or the"
        " permission Describe on the groups is missing; grant to this client's user: kafka-acls --add"
        " --allow-principal User:... --operation Describe --group '*'"
    )


def _named(kind: Kind, names: Sequence[str]) -> str:
    return named(kind.word, names) if kind.has_names else kind.word


def _flags(kind: Kind, names: Sequence[str]) -> str:
    """Return the first of ``names``, quoted for a shell, as options of ``kafka-acls``: users paste the command."""
    if not kind.has_names:
        return kind.option
    shown = " ".join(f"{kind.option} {shlex.quote(name)}" for name in names[:MAX_NAMES_SHOWN])
    return f"{shown} ..." if len(names) > MAX_NAMES_SHOWN else shown
