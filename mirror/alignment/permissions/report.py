"""What a round found and did about ACLs, for users: as lines of a diff, and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.alignment.permissions.decision import AclDifference, Change, Reason
from mirror.cluster.acls import AclBinding, PatternType, ResourceType
from mirror.errors import named, printable

_SIGNS: Final = {Change.CREATE: "+", Change.DELETE: "-", None: "="}
_NOT_OWN: Final = {
    ResourceType.TOPIC: "the flow has not created it and copies nothing into it",
    ResourceType.GROUP: "the flow keeps no position of it",
}
_SHOWN: Final = 3
"""Refused ACLs that a warning names one by one."""


@dataclass(frozen=True, slots=True)
class AclReport:
    """What one round found, and which of it was changed."""

    differences: tuple[AclDifference, ...] = ()
    problems: tuple[str, ...] = ()
    """Lines about what keeps ACLs from being compared or changed."""
    off: str = ""
    """Why the ACLs of this flow are not kept in step at all, which is no drift; empty if they are."""
    acls: int = 0
    """How many ACLs the target is to have."""
    created: int = 0
    deleted: int = 0
    changing: int = 0
    """How many of the source's ACLs are left out, in whole or in part, because they allow to change something."""
    left_out: Mapping[ResourceType, tuple[str, ...]] = field(default_factory=dict)
    """The topics and groups of the target that the source's ACLs are about, and that are not the flow's."""
    time_ms: int = 0
    """When the round ended, in ms since 1970."""

    @property
    def pending(self) -> tuple[AclDifference, ...]:
        """What a round that writes would change, or has changed."""
        return tuple(one for one in self.differences if one.change is not None)

    @property
    def held(self) -> tuple[AclDifference, ...]:
        """The drift that no round changes by itself."""
        return tuple(one for one in self.differences if one.change is None and one.is_drift)

    @property
    def is_in_step(self) -> bool:
        """Whether nothing differs, after the changes of this round."""
        return not self.problems and not self.held and len(self.pending) <= self.created + self.deleted

    def lines(self) -> Iterator[str]:
        """Yield the diff, and what is left out."""
        for one in self.differences:
            yield _line(one)
        if self.changing:
            count = f"{self.changing} ACL{'s' if self.changing > 1 else ''} of the source"
            yield f"= {count} that allow more than reading: that is left out (write = false)"
        for kind, names in self.left_out.items():
            yield printable(f"= ACLs of {named(kind.name.lower(), names)} are left out: {_NOT_OWN[kind]}")
        if self.off:
            yield f"= {self.off}"

    def warnings(self) -> tuple[str, ...]:
        """Return the lines about what is not in step by itself. They are the same until something changes."""
        refused = [one for one in self.held if one.reason is Reason.REFUSED]
        counts = Counter(one.reason for one in self.held if one not in refused[:_SHOWN])
        off = (self.off,) if self.off else ()
        return (
            *off,
            *self.problems,
            *(f"{describe(one.acl)} is refused: {printable(one.detail)}" for one in refused[:_SHOWN]),
            *(
                f"{count} ACL{'s' if count > 1 else ''} {reason}; mirror drift lists them"
                for reason, count in sorted(counts.items(), key=lambda item: str(item[0]))
            ),
        )

    def by_reason(self) -> dict[str, int]:
        """Return how many ACLs are not in step, by reason."""
        return dict(Counter(str(one.reason) for one in self.held))

    def line(self) -> str:
        """Return a line for the console."""
        if self.off:
            return f"ACLs: {self.off}"
        held = ", ".join(f"{count} {reason}" for reason, count in sorted(self.by_reason().items()))
        left = f"; not in step: {held}" if held else ""
        return f"{self.acls} ACLs compared, {self.created} created, {self.deleted} deleted{left}"

    def summary(self) -> dict[str, Any]:
        """Return the counts as plain values, for ``summary.json``."""
        return {
            "acls": self.acls,
            "created": self.created,
            "deleted": self.deleted,
            "left_out": self.changing,
            "not_own": {kind.name.lower(): len(names) for kind, names in self.left_out.items()},
            "in_step": self.is_in_step,
            "not_in_step": self.by_reason(),
            "off": self.off or None,
            "problems": list(self.problems),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            **self.summary(),
            "differences": [_to_json(one) for one in self.differences],
            "time_ms": self.time_ms,
        }


def describe(acl: AclBinding) -> str:
    """Return an ACL as a part of a line."""
    kind = acl.resource_type.name.lower()
    names = f"{kind}s {acl.name}*" if acl.pattern is PatternType.PREFIXED else f"{kind} {acl.name}"
    host = "" if acl.host == "*" else f" from {acl.host}"
    return printable(f"ACL of {names}: {acl.permission.name} {acl.operation.name} for {acl.principal}{host}")


def _line(one: AclDifference) -> str:
    detail = f": {printable(one.detail)}" if one.detail else ""
    reason = f" ({one.reason}{detail})" if one.reason is not None else ""
    return f"{_SIGNS[one.change]} {describe(one.acl)}{reason}"


def _to_json(one: AclDifference) -> dict[str, Any]:
    acl = one.acl
    return {
        "resource": acl.resource_type.name.lower(),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
        "change": None if one.change is None else one.change.value,
        "reason": None if one.reason is None else one.reason.value,
        "detail": one.detail or None,
        "drift": one.is_drift,
    }
