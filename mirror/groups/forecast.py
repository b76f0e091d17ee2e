"""What the next round of a flow's consumer groups would commit, as lines of a diff and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mirror.errors import printable
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import counted, detail_of

if TYPE_CHECKING:
    from mirror.groups.positions import GroupsReport, GroupState

_SHOWN: Final = 20
"""Groups with a line of their own, of those with a commit due and of the others; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForecast:
    """A group that is not in step."""

    group: str
    to_commit: int = 0
    """Offsets that the next round would commit."""
    to_delete: int = 0
    """Offsets that it would delete: those that the source's group does not have any more."""
    is_new: bool = False
    """Whether the group has no offsets on the target yet, for the topics of the flow."""
    reasons: tuple[str, ...] = ()
    """Why the target's positions are not the source's afterwards: values of :class:`.commit_decision.Reason`."""
    detail: str = ""
    """Where, and why: for one partition of several."""

    @property
    def pending(self) -> bool:
        """Whether a round would change the group on the target."""
        return bool(self.to_commit or self.to_delete)

    def line(self) -> str:
        """Return the group as a line of the diff."""
        detail = f" ({self.detail})" if self.detail else ""
        words = [
            *_changes(self.to_commit, self.to_delete),
            *([f"{', '.join(self.reasons)}{detail}"] * bool(self.reasons)),
        ]
        return printable(f"{self._sign} group {self.group}: {'; '.join(words)}")

    @property
    def _sign(self) -> str:
        if not self.pending:
            return "="
        if not self.to_commit:
            return "-"
        return "+" if self.is_new else "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsForecast:
    """The groups of a flow before a round."""

    total: int = 0
    in_step: int = 0
    by_reason: Mapping[str, int] = field(default_factory=dict)
    """How many groups would not be in step afterwards; a group may have several reasons."""
    groups: tuple[GroupForecast, ...] = ()
    """Those that are not in step, by name."""
    problems: tuple[str, ...] = ()
    """What kept groups from being compared, in lines."""

    @property
    def pending(self) -> bool:
        """Whether a round would change something on the target."""
        return any(one.pending for one in self.groups)

    def lines(self) -> Iterator[str]:
        """Yield the diff: the groups with a commit due, then those that are left as they are."""
        pending = [one for one in self.groups if one.pending]
        yield from (one.line() for one in pending[:_SHOWN])
        if more := pending[_SHOWN:]:
            changes = _changes(sum(one.to_commit for one in more), sum(one.to_delete for one in more))
            yield f"~ {counted(len(more), 'more group')}: {'; '.join(changes)}"
        held = [one for one in self.groups if not one.pending]
        yield from (one.line() for one in held[:_SHOWN])
        if more := held[_SHOWN:]:
            counts = Counter(reason for one in more for reason in one.reasons)
            words = ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items()))
            yield f"= {counted(len(more), 'more group')}: {words}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "total": self.total,
            "in_step": self.in_step,
            "to_commit": sum(one.to_commit for one in self.groups),
            "to_delete": sum(one.to_delete for one in self.groups),
            "not_in_step": dict(self.by_reason),
            "groups": [
                {
                    "group": one.group,
                    "to_commit": one.to_commit,
                    "to_delete": one.to_delete,
                    "reasons": list(one.reasons),
                    "detail": one.detail,
                }
                for one in self.groups
            ],
            "problems": list(self.problems),
        }


def forecast_of(report: GroupsReport) -> GroupsForecast:
    """Return what a round would do, from the report of one that was not to write."""
    return GroupsForecast(
        total=len(report.groups),
        in_step=report.in_step,
        by_reason={reason.value: count for reason, count in sorted(report.by_reason().items())},
        groups=tuple(_of_group(state) for _, state in sorted(report.groups.items()) if not state.is_in_step),
        problems=report.problems,
    )


def _of_group(state: GroupState) -> GroupForecast:
    due = [one for one in state.positions if one.pending] if state.reason is None else []
    deleted = [one for one in due if one.reason is Reason.DELETED]
    left = [one for one in state.positions if one.reason is not None and one not in deleted]
    reasons = {one.reason for one in left if one.reason is not None} if state.reason is None else {state.reason}
    return GroupForecast(
        group=state.group,
        to_commit=len(due) - len(deleted),
        to_delete=len(deleted),
        is_new=all(one.target_offset is None for one in state.positions),
        reasons=tuple(sorted(reason.value for reason in reasons)),
        detail=detail_of(left) if state.reason is None else state.detail,
    )


def _changes(to_commit: int, to_delete: int) -> list[str]:
    counts = {"committed": to_commit, "deleted": to_delete}
    return [f"{counted(count, 'offset')} would be {done}" for done, count in counts.items() if count]
