"""What is said of a flow's groups after a round: counts, and the groups that are not in step."""

from __future__ import annotations

import json
from typing import Any

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition, GroupsReport, GroupState
from mirror.groups.summary import MAX_GROUPS, GroupsSummary, HeldGroup, summary_of

NOW_MS = 100_000


def position(partition: int = 0, **changes: Any) -> GroupPosition:
    source, target = TopicPartition("orders", partition), TopicPartition("a.orders", partition)
    values = {"source": source, "target": target, "source_offset": 7, "target_offset": 3, "reason": None}
    return GroupPosition(**{**values, **changes})


def behind(partition: int, since_ms: int, **changes: Any) -> GroupPosition:
    return position(partition, **{"reason": Reason.NOT_COPIED, "since_ms": since_ms, **changes})


def report(*states: GroupState, **changes: Any) -> GroupsReport:
    return GroupsReport({state.group: state for state in states}, time_ms=NOW_MS, **changes)


IN_STEP = GroupState("billing", (position(),))
LATE = GroupState("audit", (position(), behind(1, 90_000), behind(2, 95_000, detail="no index")))
SHARED = GroupState("shared", (), Reason.NOT_SUPPORTED, "a group of kind 'share'")


def test_groups_that_are_not_in_step_are_named_with_where_and_why() -> None:
    found = summary_of(report(IN_STEP, SHARED, LATE, written=4))
    assert (found.total, found.in_step, found.oldest_ms, found.more) == (3, 1, 10_000, 0)
    assert found.by_reason == {"not-copied-yet": 1, "not-supported": 1}
    assert found.held == (
        HeldGroup(
            group="audit",
            reasons=("not-copied-yet",),
            detail="orders-2: no index, and 1 more partition",
            age_ms=10_000,
        ),
        HeldGroup(group="shared", reasons=("not-supported",), detail="a group of kind 'share'", age_ms=0),
    )
    assert found.line() == "1 of 3 is in step; not in step: 1 not-copied-yet, 1 not-supported; 4 offsets committed"


def test_of_many_groups_the_longest_are_named() -> None:
    states = [GroupState(f"g{number:03}", (behind(0, 90_000 - number),)) for number in range(MAX_GROUPS + 30)]
    found = summary_of(report(*states))
    assert [held.group for held in found.held] == [f"g{number:03}" for number in range(49, 29, -1)]
    assert (found.total, found.more) == (50, 30)


def test_groups_that_are_only_read_are_not_called_in_step() -> None:
    pending = GroupState("billing", (position(pending=True, since_ms=1),))
    found = summary_of(report(pending, sync=False))
    assert found.line() == "sync is off, nothing is committed on the target; 1 group read"
    assert found.held[0].words == "to be committed"


def test_a_summary_is_read_as_it_was_written() -> None:
    found = summary_of(report(IN_STEP, SHARED, LATE, written=4, problems=("broker 2 is silent",)))
    assert GroupsSummary.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_nothing_is_in_step_where_there_is_nothing() -> None:
    assert summary_of(GroupsReport()).line() == "there are no groups"
    assert summary_of(GroupsReport(problems=("no topic",))).counts() == "no group could be read"
