"""Lines about the ways of partitions, and about those in transactions although their flow does not say so."""

from __future__ import annotations

import pytest

from mirror.relay.model.way_notes import PartitionWay, configured_reason, way_lines, way_notes

OLD, COMPACTED = "records are older than 12 h", "the target topic is compacted"


def sequences(partition: str) -> PartitionWay:
    return PartitionWay(partition, "sequences", "records are younger than 12 h")


def transactions(partition: str, reason: str) -> PartitionWay:
    return PartitionWay(partition, "transactions", reason)


def test_partitions_with_the_same_reason_share_a_line() -> None:
    old = [transactions(f"orders-{number}", OLD) for number in range(1_234)]
    assert way_notes([*old, sequences("t-0"), transactions("c-1", COMPACTED)]) == [
        f"1,234 partitions go in transactions, because {OLD}: orders-0, orders-1, orders-2 and 1,231 more",
        f"1 partition goes in transactions, because {COMPACTED}: c-1",
    ]


@pytest.mark.parametrize(
    "as_the_flow_says",
    [
        [],
        [PartitionWay("t-0", "", "")],
        [sequences("t-0"), sequences("t-1")],
        [transactions("t-0", configured_reason("transactions"))],
        [PartitionWay("t-0", "sequences", configured_reason("sequences"))],
    ],
)
def test_ways_that_the_flow_says_have_no_line(as_the_flow_says: list[PartitionWay]) -> None:
    assert way_notes(as_the_flow_says) == []


def test_an_unknown_reason_has_a_line_only_beside_partitions_that_go_by_sequences() -> None:
    assert way_notes([transactions("t-0", "")]) == []
    assert way_notes([transactions("t-0", ""), sequences("t-1")]) == ["1 partition goes in transactions: t-0"]


def test_each_known_way_and_reason_has_a_line() -> None:
    forced = transactions("t-1", configured_reason("transactions"))
    known = [sequences("t-0"), forced, sequences("t-2"), PartitionWay("t-3", "", "")]
    assert way_lines(known) == [
        "2 partitions go by sequences, because records are younger than 12 h: t-0, t-2",
        '1 partition goes in transactions, because exactly-once-by = "transactions": t-1',
    ]
