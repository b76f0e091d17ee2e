"""A flow's limits: the order of partitions, and how much of each is copied."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config.value_checks import SMALLEST_SHARE_BYTES
from mirror.relay.model.ranges import Outcome
from mirror.spark.planning.limits import Backlog, apply_limits, fair_order, why_not_followed
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow

RECORD = 100
"""Bytes of a record here."""


def waiting(*records: int, last: dict[int, int] | None = None) -> list[Backlog]:
    return [
        Backlog(backlog(number, count), count * RECORD, (last or {}).get(number, 0))
        for number, count in enumerate(records)
    ]


def order(backlogs: list[Backlog]) -> list[int]:
    return [each.range.partition for each in fair_order(backlogs)]


def test_without_limits_everything_is_copied() -> None:
    backlogs = waiting(5, 1000, 3)
    found = apply_limits(flow(), backlogs)
    assert found.ranges == [each.range for each in backlogs]
    assert (found.waiting, found.truncated) == ([], [])


def test_the_order_alternates_between_the_oldest_and_the_largest() -> None:
    assert order(waiting(1, 9, 5, 3, last={0: 10, 1: 40, 2: 30, 3: 20})) == [0, 1, 3, 2]
    assert order(waiting(1, 9, 5)) == [1, 2, 0], "who never had a turn: the largest"


def test_a_waiting_partition_names_its_limit() -> None:
    found = apply_limits(flow(max_partitions_in_parallel=1), waiting(7, 9))
    assert [each.partition for each in found.ranges] == [1]
    (one,) = found.waiting
    assert (one.partition, one.outcome, one.start, one.end) == (0, Outcome.UNFINISHED, 10, 10)
    assert one.error == "its turn comes in the next run: 7 records wait (max-partitions-in-parallel = 1)"


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(1, 8), st.sets(st.integers(0, 29)))
def test_no_partition_starves(records: list[int], most: int, sick: set[int]) -> None:
    """Sick ones never get on, and still take no more than their turns."""
    last: dict[int, int] = {}
    periods = ceil(len(records) / ceil(most / 2))
    for period in range(1, periods + 1):
        backlogs = waiting(*records, last=last)
        found = apply_limits(flow(max_partitions_in_parallel=most), backlogs)
        assert len(found.ranges) == min(most, len(records))
        last |= dict.fromkeys((each.partition for each in found.ranges), period)
        # The healthy ones have as much again by the next period.
        records = [count if number in sick else count + 1 for number, count in enumerate(records)]
    assert last.keys() == set(range(len(records)))


def test_small_backlogs_are_copied_whole_and_the_rest_share_evenly() -> None:
    size = 3000 * RECORD
    found = apply_limits(flow(max_bytes_per_run=size), waiting(100, 2000, 5000, 1000))
    assert {each.partition: each.end - each.start for each in found.ranges} == {0: 100, 1: 966, 2: 966, 3: 966}
    assert {one.partition: end - one.start for one, end in found.truncated} == {3: 1000, 1: 2000, 2: 5000}
    assert found.waiting == []


def test_no_share_is_below_the_smallest() -> None:
    """A limit that is too small for all is not divided into crumbs: some wait."""
    found = apply_limits(flow(max_bytes_per_run=2 * SMALLEST_SHARE_BYTES), waiting(9000, 8000, 7000))
    assert [each.partition for each in found.ranges] == [0, 1]
    assert [each.partition for each in found.waiting] == [2]
    assert "max-bytes-per-run = 131072" in str(found.waiting[0].error)


@given(
    st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**4)), min_size=1, max_size=30),
    st.integers(SMALLEST_SHARE_BYTES, 10**8),
    st.integers(0, 5),
)
def test_bytes_stay_within_the_limit_and_each_chosen_partition_advances(
    partitions: list[tuple[int, int]], size: int, most: int
) -> None:
    backlogs = [Backlog(backlog(n, records), records * each, 0) for n, (records, each) in enumerate(partitions)]
    found = apply_limits(flow(max_bytes_per_run=size, max_partitions_in_parallel=most), backlogs)
    assert all(each.end > each.start for each in found.ranges)
    taken = [(each.end - each.start) * partitions[each.partition][1] for each in found.ranges]
    assert sum(taken) <= size
    assert len(found.ranges) + len(found.waiting) == len(partitions)
    ends = {each.partition: each.end for each in found.ranges}
    cut = {one.partition for one, _ in found.truncated}
    assert cut == {each.range.partition for each in backlogs if ends.get(each.range.partition, 0) < each.range.end}
    for n in cut & ends.keys():
        assert replace(backlogs[n].range, end=ends[n]) in found.ranges


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({}, None),
        ({"max_bytes_per_second": 10_000_000}, None),
        ({"max_bytes_per_run": 10_000_000}, "max-bytes-per-run: "),
        ({"until": 0}, "until: "),
        ({"until": "2026-01-31T00:00:00Z", "max_partitions_in_parallel": 3}, "max-partitions-in-parallel, until: "),
    ],
)
def test_a_stream_follows_no_flow_that_ends(keys: dict[str, Any], named: str | None) -> None:
    reason = why_not_followed(flow(**keys))
    assert (reason is None) is (named is None)
    assert named is None or (reason or "").startswith(named)
    assert "\n" not in (reason or "")
    assert named is None or f"remove {'them' if ',' in named else 'it'} (" in (reason or "")
