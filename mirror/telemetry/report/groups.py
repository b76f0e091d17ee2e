"""The texts about a flow's consumer groups, which need no script. Pure."""

from __future__ import annotations

from typing import Any, Final

from mirror.errors import brief
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import GroupsSummary
from mirror.telemetry.report.format import counted, moment, span

_MAX_CHARACTERS: Final = 200
"""Of a group's name, and of the detail beside it."""

MEANINGS: Final[dict[str, str]] = {
    Reason.NOT_COPIED: "The group is ahead of the copy. On the target it is where the copy ends, and follows that.",
    Reason.NOT_COPIED_BACK: (
        "The target has records that the flow in the other direction has not copied to the source. On the target the"
        " group is in front of them: run that flow."
    ),
    Reason.ACTIVE: "The group has members on the target: it has moved there, and is left alone.",
    Reason.TAKEN_OVER: (
        "A consumer has committed another offset on the target, and is left alone. mirror groups --resume GROUP has the"
        " flow write the group again."
    ),
    Reason.BEHIND: "The group is further on the target than on the source, and waits until the source has passed that.",
    Reason.UNKNOWN: (
        "The index does not know the offset: the source has deleted it. The group is followed once it commits an offset"
        " that is known."
    ),
    Reason.PASSED: "The target has deleted records that the group has not read: on the target it is behind them.",
    Reason.DELETED: (
        "The source's group has no offset any more. With on-group-deleted = \"delete\" the target's is deleted, too."
    ),
    Reason.TRUNCATED: (
        "The source has lost records that the group had read: on the target the group is where they were."
    ),
    Reason.NOT_SUPPORTED: "It has no offsets of this kind (share groups, Streams groups).",
    Reason.NO_CONSUMERS: "It is a group of other programs than consumers, and has no positions.",
    Reason.UNAUTHORIZED: "A permission is missing: mirror plan names it.",
    Reason.UNAVAILABLE: "The group's coordinator, or a partition's leader, did not answer. The next round tries again.",
    Reason.NO_PARTITION: "One of the clusters does not have the partition. The next round after it is there goes on.",
    Reason.REFUSED: "The target has refused the commit, for the reason beside the group.",
    Reason.OTHER_RUN: "Another run of the flow writes the groups.",
}


def group_texts(groups: GroupsSummary) -> dict[str, Any]:
    """Return the values of the template for the section about consumer groups."""
    return {
        "lead": _lead(groups),
        "problems": [brief(line) for line in groups.problems],
        "reasons": [
            {"name": reason, "count": f"{count:,}", "meaning": MEANINGS.get(reason, "")}
            for reason, count in groups.by_reason.items()
        ]
        if groups.sync
        else [],
        "held": [
            {
                "group": brief(held.group, _MAX_CHARACTERS),
                "why": held.words,
                "age": span(held.age_ms) if held.age_ms else "",
                "detail": brief(held.detail, _MAX_CHARACTERS),
            }
            for held in groups.held
        ]
        if groups.sync
        else [],
        "more": groups.more if groups.sync else 0,
    }


def _lead(groups: GroupsSummary) -> str:
    at = f" The last round ended {moment(groups.time_ms)}." if groups.time_ms else ""
    if not groups.sync:
        return f"Sync is off: {counted(groups.total, 'group')} read, and no position is committed on the target.{at}"
    if not groups.total:
        return f"{groups.counts().capitalize()}.{at}"
    longest = f", the longest for {span(groups.oldest_ms)}" if groups.oldest_ms else ""
    left = groups.total - groups.in_step
    others = f"; {left:,} {'is' if left == 1 else 'are'} not{longest}" if left else ""
    verb = "is" if groups.total == 1 else "are"
    again = (
        f" In topics that both clusters feed under one name, the positions are the lowest ones that skip nothing: at"
        f" most {counted(groups.read_again, 'record')} will be read again."
        if groups.read_again
        else ""
    )
    if groups.passed:
        passed = counted(groups.passed, "record")
        again += f" {passed} that groups have not read yet are deleted on the target: passed over there."
    return (
        f"{groups.in_step:,} of {counted(groups.total, 'group')} {verb} in step: the position on the target is that of"
        f" the record at the position on the source{others}.{again}{at}"
    )
