"""What the next round would commit, as lines of a diff."""

from __future__ import annotations

from typing import Any

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.forecast import forecast_of
from mirror.groups.positions import GroupPosition, GroupsReport, GroupState


def position(partition: int = 0, **changes: Any) -> GroupPosition:
    values = {
        "source": TopicPartition("orders", partition),
        "target": TopicPartition("a.orders", partition),
        "source_offset": 7,
        "target_offset": 3,
        "reason": None,
    }
    return GroupPosition(**{**values, **changes})


def lines(*states: GroupState) -> list[str]:
    return list(forecast_of(GroupsReport({state.group: state for state in states})).lines())


def test_each_group_has_a_line_with_what_would_be_done_and_what_is_left() -> None:
    pending = [position(number, pending=True) for number in range(3)]
    held = position(3, reason=Reason.TAKEN_OVER)
    deleted = position(4, reason=Reason.DELETED, source_offset=None, pending=True)
    assert lines(
        GroupState("in step", (position(),)),
        GroupState("moved", tuple(pending)),
        GroupState("mixed", (*pending, held, deleted)),
        GroupState("deleted", (deleted,)),
        GroupState("new", (position(pending=True, target_offset=None),)),
        GroupState("held", (held, position(5, reason=Reason.UNKNOWN, detail="it is gone"))),
        GroupState("silent", tuple(pending), Reason.UNAVAILABLE, "on the source: no answer"),
    ) == [
        "- group deleted: 1 offset would be deleted",
        "~ group mixed: 3 offsets would be committed; 1 offset would be deleted; taken-over (orders-3)",
        "~ group moved: 3 offsets would be committed",
        "+ group new: 1 offset would be committed",
        "= group held: taken-over, unknown-offset (orders-5: it is gone, and 1 more partition)",
        "= group silent: coordinator-unavailable (on the source: no answer)",
    ]


def test_lines_are_bounded_and_the_other_groups_are_counted() -> None:
    due = [GroupState(f"due {number:02}", (position(pending=True), position(1, pending=True))) for number in range(23)]
    taken = [GroupState(f"held {number:02}", (position(reason=Reason.TAKEN_OVER),)) for number in range(20)]
    gone = [GroupState(f"late {number}", (position(reason=Reason.ACTIVE),)) for number in range(2)]
    found = lines(*due, *taken, *gone)
    assert len(found) == 42
    assert found[19:21] == [
        "~ group due 19: 2 offsets would be committed",
        "~ 3 more groups: 6 offsets would be committed",
    ]
    assert found[-2:] == ["= group held 19: taken-over (orders-0)", "= 2 more groups: 2 active-on-target"]


def test_names_do_not_control_the_terminal() -> None:
    (line,) = lines(GroupState("\x1b[31mred", (), Reason.NOT_SUPPORTED, "a group\nof kind 'share'"))
    assert line == r"= group \x1b[31mred: not-supported (a group\nof kind 'share')"
