"""What a switch concerns and no flow covers is a blocker, unless it is waived by its name."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.rehearsal.coverage import Flows, ReadingGroup, Waivers, of_others, target_only, uncovered
from mirror.rehearsal.values import Blocker, Kind

_FLOWS = Flows(
    flow="f",
    new="berlin",
    copies=lambda topic: topic == "t",
    is_copied=lambda topic: topic in {"t", "u"},
    is_brought=lambda group, topic: not group.startswith(("connect-", "console-")) and topic == "t",
)


@pytest.mark.parametrize(
    ("group", "topics", "found"),
    [
        ("g", {"t"}, []),
        ("g", {"t", "u"}, []),
        ("g", {"t", "v", "w"}, [(Kind.TOPIC, "v"), (Kind.TOPIC, "w")]),
        ("g", {"u", "v"}, []),  # of no topic of this flow
        ("g", set(), []),
        ("connect-sink", {"t", "v"}, [(Kind.GROUP, "connect-sink")]),
        ("connect-sink", {"v"}, []),
        ("console-1", {"t"}, [(Kind.GROUP, "console-1")]),
    ],
)
def test_what_no_flow_covers_is_not_ready(group: str, topics: set[str], found: list[tuple[Kind, str]]) -> None:
    blockers = list(uncovered([ReadingGroup(group=group, topics=topics)], _FLOWS))
    assert [(one.kind, one.name) for one in blockers] == found
    assert all(one.action.endswith("; or --waive it") for one in blockers)


def test_group_that_cannot_be_read_is_not_ready() -> None:
    (blocker,) = uncovered([ReadingGroup(group="g", error="no answer")], _FLOWS)
    assert (blocker.kind, blocker.name, blocker.reason) == (Kind.GROUP, "g", "no answer")


def test_some_of_many_groups_are_named() -> None:
    groups = [ReadingGroup(group=f"g{number}", topics={"t", "v"}) for number in range(7)]
    (blocker,) = uncovered(groups, _FLOWS)
    assert blocker.reason == "groups g0, g1, g2, g3, g4 and 2 more read it, and no flow copies it"


def test_partition_that_does_not_answer_has_an_unknown_number_of_offsets() -> None:
    (blocker,) = target_only({TopicPartition("a.t", 2): None}, "paris", "berlin")
    assert (blocker.name, "with an unknown number of offsets" in blocker.reason) == ("a.t-2", True)
    (one,) = of_others({TopicPartition("a.t", 2): 1}, "f")
    assert one.reason == "1 record in front of the positions of groups, which continue behind them, is not of flow f"


def test_waiver_accepts_whole_names_and_is_noted() -> None:
    found = [Blocker(kind=Kind.TOPIC, name=name, reason="why", action="") for name in ("orders", "orders-2", "x")]
    left, notes = Waivers.parse(["orders", "y"]).apply(found)
    assert [one.name for one in left] == ["orders-2", "x"]
    assert notes == ["waived: topic orders: why", "--waive y matches nothing"]
    assert Waivers().apply(found) == (found, [])
