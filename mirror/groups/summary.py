"""What a run, its report and ``mirror status`` say of a flow's consumer groups: counts, and the worst groups. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mirror.groups.positions import GroupPosition, GroupsReport, GroupState

MAX_GROUPS: Final = 20
"""Groups that are not in step and are named; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGroup:
    """A group that is not in step."""

    group: str
    reasons: tuple[str, ...]
    """Values of :class:`mirror.groups.commit_decision.Reason`; none if its positions are only due to be committed."""
    detail: str
    """Where, and why: for one partition of several."""
    age_ms: int
    """For how long; 0 if the group has moved to the target itself."""

    @property
    def words(self) -> str:
        """The reasons, for people."""
        return ", ".join(self.reasons) or "to be committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSummary:
    """The groups of a flow after a round."""

    sync: bool = True
    """Whether positions are committed on the target; if not, they were only read."""
    total: int = 0
    in_step: int = 0
    by_reason: Mapping[str, int] = field(default_factory=dict)
    """How many groups are not in step; a group may have several reasons."""
    oldest_ms: int = 0
    """For how long some group that has not moved to the target itself has not been in step."""
    written: int = 0
    """Offsets that the round has committed."""
    read_again: int = 0
    """How many records groups read again at most on the target: where both sides feed a topic."""
    passed: int = 0
    """How many records that groups have not read the target has deleted in front of their positions there."""
    problems: tuple[str, ...] = ()
    """What kept the round from being complete, in lines."""
    held: tuple[HeldGroup, ...] = ()
    """Groups that are not in step, the longest first, at most :data:`MAX_GROUPS`."""
    time_ms: int = 0
    """When the round ended (ms since 1970); 0 if that is not known."""

    @property
    def more(self) -> int:
        """How many groups that are not in step ``held`` lacks."""
        return max(0, self.total - self.in_step - len(self.held))

    def line(self) -> str:
        """Return the counts, and what the round has committed, as one line."""
        written = f"; {counted(self.written, 'offset')} committed" if self.sync and self.total else ""
        return f"{self.counts()}{written}"

    def counts(self) -> str:
        """Return the counts as one line."""
        if not self.sync:
            return f"sync is off, nothing is committed on the target; {counted(self.total, 'group')} read"
        if not self.total:
            return "no group could be read" if self.problems else "there are no groups"
        verb = "is" if self.in_step == 1 else "are"
        held = ", ".join(f"{count:,} {reason}" for reason, count in self.by_reason.items())
        others = f"; not in step: {held}" if held else ""
        again = f"; at most {counted(self.read_again, 'record')} read again" if self.read_again else ""
        passed = f"; {counted(self.passed, 'record')} passed over" if self.passed else ""
        return f"{self.in_step:,} of {self.total:,} {verb} in step{others}{again}{passed}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which a flow's summary has."""
        return {
            "sync": self.sync,
            "total": self.total,
            "in_step": self.in_step,
            "not_in_step": dict(self.by_reason),
            "longest_seconds": round(self.oldest_ms / 1000, 3),
            "committed": self.written,
            "read_again": self.read_again,
            "passed": self.passed,
            "problems": list(self.problems),
            "time_ms": self.time_ms,
            "worst": [
                {
                    "group": held.group,
                    "reasons": list(held.reasons),
                    "detail": held.detail,
                    "seconds": round(held.age_ms / 1000, 3),
                }
                for held in self.held
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> GroupsSummary:
        """Return what :meth:`to_json` has returned. Raises KeyError, TypeError, ValueError for anything else."""
        return cls(
            sync=bool(values["sync"]),
            total=int(values["total"]),
            in_step=int(values["in_step"]),
            by_reason={str(reason): int(count) for reason, count in values["not_in_step"].items()},
            oldest_ms=round(values["longest_seconds"] * 1000),
            written=int(values["committed"]),
            read_again=int(values["read_again"]),
            passed=int(values["passed"]),
            problems=tuple(str(line) for line in values["problems"]),
            held=tuple(
                HeldGroup(
                    group=str(one["group"]),
                    reasons=tuple(str(reason) for reason in one["reasons"]),
                    detail=str(one["detail"]),
                    age_ms=round(one["seconds"] * 1000),
                )
                for one in values["worst"]
            ),
            time_ms=int(values["time_ms"]),
        )


def summary_of(report: GroupsReport) -> GroupsSummary:
    """Return the summary of a round."""
    held = [state for state in report.groups.values() if not state.is_in_step]
    worst = heapq.nsmallest(MAX_GROUPS, held, key=lambda state: (-state.age_ms(report.time_ms), state.group))
    return GroupsSummary(
        sync=report.sync,
        total=len(report.groups),
        in_step=report.in_step,
        by_reason={reason.value: count for reason, count in sorted(report.by_reason().items())},
        oldest_ms=report.oldest_ms,
        written=report.written,
        read_again=report.read_again,
        passed=report.passed,
        problems=report.problems,
        held=tuple(_held(state, report.time_ms) for state in worst),
        time_ms=report.time_ms,
    )


def _held(state: GroupState, now_ms: int) -> HeldGroup:
    reasons = tuple(sorted(reason.value for reason in state.reasons))
    behind = [one for one in state.positions if one.reason is not None or one.pending]
    detail = state.detail if state.reason is not None else detail_of(behind)
    return HeldGroup(group=state.group, reasons=reasons, detail=detail, age_ms=state.age_ms(now_ms))


def detail_of(behind: Sequence[GroupPosition]) -> str:
    """Return which partitions of a group are not in step, and why: the first one with words about that, and a count."""
    if not behind:
        return ""
    first = next((one for one in behind if one.detail), behind[0])
    more = f", and {counted(len(behind) - 1, 'more partition')}" if len(behind) > 1 else ""
    return f"{first.source.topic}-{first.source.partition}{f': {first.detail}' if first.detail else ''}{more}"


def counted(count: int, noun: str) -> str:
    """Return a number of things, for people."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
